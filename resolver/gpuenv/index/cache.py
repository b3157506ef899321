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

from platformdirs import user_cache_dir

from ..digest import text_digest
from ..model import Value
from ..serialize import canonical_json

FORMAT = 10

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LONGEST_PLAIN = 80


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
        self.folder = cache_folder() if folder is None else folder
        self._root = os.path.join(self.folder, f"v{FORMAT}")

    def get(self, kind: str, key: str) -> CacheEntry | None:
        """Return an entry, None for a miss. A damaged entry is removed. Raises nothing."""
        try:
            with open(self.path(kind, key), "rb") as file:
                data = file.read()
        except OSError:
            return None
        entry = _unpack(data, key)
        if entry is None:
            self.remove(kind, key)
        return entry

    def read_part(self, kind: str, key: str, start: int, end: int) -> bytes | None:
        """Return the body of an entry from one place to another; None for a miss.

        The checksum of the entry is not checked: the caller needs one of the part.
        """
        try:
            with open(self.path(kind, key), "rb") as file:
                file.readline()
                file.readline()
                file.seek(start, os.SEEK_CUR)
                return file.read(end - start)
        except OSError:
            return None

    def put(self, kind: str, key: str, header: Mapping[str, object], body: bytes) -> bool:
        """Write an entry, in place of an older one. Return False if the folder is not writable."""
        path = self.path(kind, key)
        folder = os.path.dirname(path)
        # A random name: processes of several containers can share a folder and a process number.
        temporary = os.path.join(folder, f".{os.urandom(8).hex()}.tmp")
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            os.makedirs(folder, exist_ok=True)
            # No fsync: the checksum reveals what a crash tears, and a cache can lose entries.
            with open(temporary, "xb") as file:
                file.write(_pack(header, body, key))
            os.replace(temporary, path)
        except OSError:
            _unlink(temporary)
            return False
        return True

    def remove(self, kind: str, key: str) -> None:
        """Remove an entry if it exists."""
        _unlink(self.path(kind, key))

    def path(self, kind: str, key: str) -> str:
        """Return the file of an entry: named by a short plain key, otherwise by the key's hash."""
        if key and len(key) <= _LONGEST_PLAIN and _PLAIN.issuperset(key):
            name = key
        else:
            name = "h-" + text_digest(key)
        return os.path.join(self._root, kind, name)


def _pack(header: Mapping[str, object], body: bytes, key: str) -> bytes:
    head = canonical_json([key, dict(header)]).encode()
    rest = b"%s\n%s" % (head, body)
    return b"%08x %d\n%s" % (zlib.crc32(rest), len(rest), rest)


def _unpack(data: bytes, key: str) -> CacheEntry | None:
    view = memoryview(data)  # a page has megabytes: only its body is copied
    start = data.find(b"\n") + 1
    rest = view[start:]
    if data[:start] != b"%08x %d\n" % (zlib.crc32(rest), len(rest)):
        return None
    end = data.find(b"\n", start)
    try:
        stored_key, header = json.loads(data[start:end])
    except ValueError:
        return None
    if stored_key != key or not isinstance(header, dict):
        return None
    return CacheEntry(header=header, body=bytes(view[end + 1 :]))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
