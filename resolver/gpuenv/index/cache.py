"""An on-disk cache that several processes share without locks.

Every entry is one file, written beside its place and renamed onto it, so a reader sees the old entry or the new one.
An entry starts with the length and the CRC-32 of all that follows: one that was cut off or damaged is a miss and is
removed. The folder carries the number of the format: raise FORMAT when the content of entries changes its meaning.
A folder that cannot be written only means that nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from typing import Any

from ..serialize import canonical_json

FORMAT = 3

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LONGEST_PLAIN = 80


def cache_folder(environ: Mapping[str, str] | None = None) -> str:
    """Where entries are kept: GPUENV_CACHE_DIR, else XDG_CACHE_HOME/gpuenv, else ~/.cache/gpuenv."""
    environ = os.environ if environ is None else environ
    if own := environ.get("GPUENV_CACHE_DIR"):
        return os.path.abspath(own)
    # The XDG base directory specification says that a relative path in XDG_CACHE_HOME is to be ignored.
    base = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "gpuenv")


class Cache:
    """Entries by (kind, key). `kind` is a short word that names a folder; `key` is any text.

    An entry is a header (JSON-able fields) and a body (bytes).
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = cache_folder() if folder is None else folder
        self._root = os.path.join(self.folder, f"v{FORMAT}")

    def get(self, kind: str, key: str) -> tuple[dict[str, Any], bytes] | None:
        """(header, body), or None for a miss. A damaged entry is removed. Raises nothing."""
        path = self.path(kind, key)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            return None
        found = _unpack(data, key)
        if found is None:
            self.remove(kind, key)
        return found

    def put(self, kind: str, key: str, header: Mapping[str, Any], body: bytes) -> bool:
        """Keep an entry in place of the one that was there. False if the folder cannot be written."""
        path = self.path(kind, key)
        folder = os.path.dirname(path)
        # A random name, for processes of several containers may have one process number and one folder.
        temporary = os.path.join(folder, f".{os.urandom(8).hex()}.tmp")
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            os.makedirs(folder, exist_ok=True)
            # No fsync: what a crash tears is found by its checksum, and a cache may forget.
            with open(temporary, "xb") as file:
                file.write(_pack(header, body, key))
            os.replace(temporary, path)
        except OSError:
            _unlink(temporary)
            return False
        return True

    def remove(self, kind: str, key: str) -> None:
        """Forget an entry, there or not."""
        _unlink(self.path(kind, key))

    def path(self, kind: str, key: str) -> str:
        """The file of an entry: a short plain key names it, any other is hashed."""
        if key and len(key) <= _LONGEST_PLAIN and _PLAIN.issuperset(key):
            name = key
        else:
            name = "h-" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return os.path.join(self._root, kind, name)


def _pack(header: Mapping[str, Any], body: bytes, key: str) -> bytes:
    head = canonical_json([key, dict(header)]).encode()
    rest = b"%s\n%s" % (head, body)
    return b"%08x %d\n%s" % (zlib.crc32(rest), len(rest), rest)


def _unpack(data: bytes, key: str) -> tuple[dict[str, Any], bytes] | None:
    first, _, rest = data.partition(b"\n")
    if first != b"%08x %d" % (zlib.crc32(rest), len(rest)):
        return None
    head, _, body = rest.partition(b"\n")
    try:
        stored, header = json.loads(head)
    except ValueError:
        return None
    return (header, body) if stored == key and isinstance(header, dict) else None


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
