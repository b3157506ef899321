"""How files that matter are written: whole or not at all."""

from __future__ import annotations

import os


def write_whole(path: str, data: bytes) -> None:
    """Puts `data` in place of what is at `path`: to a temporary file beside it, fsync, rename.

    Whatever interrupts it, the old file stays and nothing is left beside it. OSError as the system gives it.
    """
    beside = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.tmp")
    with open(beside, "xb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise
