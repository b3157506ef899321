"""TODO compat."""
