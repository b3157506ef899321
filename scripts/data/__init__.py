"""The programs of the compatibility data and of the index snapshot."""
