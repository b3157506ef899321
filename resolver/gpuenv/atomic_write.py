"""Atomic file writes: a file that matters is written completely or not at all."""

from __future__ import annotations

import os


def write_whole(path: str, data: bytes) -> None:
    """Replace the file at `path` by `data`: write a temporary file beside it, fsync, rename.

    If anything interrupts it, the old file stays and no temporary file is left.

    Raises:
        OSError: as the system reports it.
    """
    name = f".{os.path.basename(path)}.{os.getpid()}.tmp"
    temporary = os.path.join(os.path.dirname(path), name)
    with open(temporary, "xb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
