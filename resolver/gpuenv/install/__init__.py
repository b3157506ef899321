"""Installation of locks into environments."""
