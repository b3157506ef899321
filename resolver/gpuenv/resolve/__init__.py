"""TODO resolve."""
