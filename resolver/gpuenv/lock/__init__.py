"""TODO lock."""
