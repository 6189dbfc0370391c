"""What a model may read beside token ids."""
