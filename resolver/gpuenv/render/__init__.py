"""TODO render."""
