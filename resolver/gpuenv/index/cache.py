"""A cache on disk that several processes share without locks.

Every entry is one file. It is written beside its place and renamed onto it, so a reader sees the
old entry or the new one. An entry starts with the CRC-32 and the length of what follows: a torn or
damaged entry counts as a miss and is removed. The folder's name has the number of the format: raise
FORMAT when the content of entries changes its meaning. If the folder cannot be written, nothing is
cached.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress

from platformdirs import user_cache_dir

from ..model import Value
from ..serialize import canonical_json, text_digest

FORMAT = 11


class CacheEntry(Value):
    """The content of an entry: JSON fields and bytes."""

    header: dict[str, object]
    body: bytes

    def text(self, field: str) -> str | None:
        """Return a text field of the header, None if there is none."""
        value = self.header.get(field)
        return value if isinstance(value, str) else None

    def integer(self, field: str) -> int | None:
        """Return a whole number of the header, None if there is none."""
        value = self.header.get(field)
        return value if isinstance(value, int) else None


def cache_folder() -> str:
    """Return the cache folder: GPUENV_CACHE_DIR, or XDG_CACHE_HOME/gpuenv, or ~/.cache/gpuenv."""
    own = os.environ.get("GPUENV_CACHE_DIR")
    return os.path.abspath(own) if own else user_cache_dir("gpuenv", appauthor=False)


class Cache:
    """Entries by kind (a short word that names a folder) and key (any text)."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder or cache_folder()

    def path(self, kind: str, key: str) -> str:
        """Return the file of an entry."""
        return os.path.join(self.folder, f"v{FORMAT}", kind, text_digest(key))

    def get(self, kind: str, key: str) -> CacheEntry | None:
        """Return an entry, None for a miss. A damaged entry is removed. Raises nothing."""
        try:
            with open(self.path(kind, key), "rb") as file:
                start = file.readline()
                rest = file.read()
        except OSError:
            return None
        if start == _checksum(rest):
            head, _, body = rest.partition(b"\n")
            stored_key, header = json.loads(head)
            if stored_key == key:
                return CacheEntry(header=header, body=body)
        self.remove(kind, key)
        return None

    def put(self, kind: str, key: str, header: Mapping[str, object], body: bytes) -> bool:
        """Write an entry, in place of an older one. Return False if the folder is not writable."""
        path = self.path(kind, key)
        folder = os.path.dirname(path)
        # A random name: processes of several containers can share a folder and a process number.
        temporary = os.path.join(folder, f".{os.urandom(8).hex()}.tmp")
        rest = canonical_json([key, dict(header)]).encode() + b"\n" + body
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            os.makedirs(folder, exist_ok=True)
            # No fsync: the checksum reveals what a crash tears, and a cache can lose entries.
            with open(temporary, "xb") as file:
                file.write(_checksum(rest) + rest)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            return False
        return True

    def remove(self, kind: str, key: str) -> None:
        """Remove an entry if it exists."""
        with suppress(OSError):
            os.unlink(self.path(kind, key))


def _checksum(content: bytes) -> bytes:
    """Return the first line of an entry."""
    return b"%08x %d\n" % (zlib.crc32(content), len(content))
