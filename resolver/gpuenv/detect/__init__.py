"""TODO detect."""
