"""Package sources: the snapshot, live indexes, find-links folders, and all of them as one."""
