"""Published formats of weights, read and written."""
