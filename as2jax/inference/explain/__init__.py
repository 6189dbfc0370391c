"""What a trained run does with a text, as tables and pictures."""
