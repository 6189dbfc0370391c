"""Every key of a config with its default, presets and checks."""
