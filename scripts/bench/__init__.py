"""The programs that measure time and memory."""
