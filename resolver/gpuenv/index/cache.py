"""What is read once: by all processes (a cache on disk, without locks), or by all threads.

Every entry is one file: a value as MessagePack, after its CRC-32 and length. It is written beside
its place and renamed onto it, so a reader sees the old entry or the new one. A torn or damaged
entry counts as a miss and is removed. The folder's name has the number of the format: raise FORMAT
when the content of entries changes its meaning. If the folder cannot be written, nothing is
cached.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec
from platformdirs import user_cache_dir

from ..serialize import decode, text_digest

FORMAT = 14
_WAIT = 0.2  # seconds


_Content = TypeVar("_Content")
_Key = TypeVar("_Key", bound=Hashable)
_Answer = TypeVar("_Answer")


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

    def get(self, kind: str, key: str, content: type[_Content]) -> _Content | None:
        """Return what an entry has, of this type; None for a miss. A damaged entry is removed."""
        path = self.path(kind, key)
        try:
            with open(path, "rb") as file:
                start, data = file.readline(), file.read()
        except OSError:
            return None
        if start == _checksum(path, data):
            with suppress(msgspec.DecodeError):  # another release of gpuenv wrote it
                return decode(data, content, msgspec.msgpack)
        self.remove(kind, key)
        return None

    def put(self, kind: str, key: str, content: object) -> bool:
        """Write an entry, in place of an older one. Return False if the folder is not writable."""
        path = self.path(kind, key)
        folder = os.path.dirname(path)
        # A random name: processes of several containers can share a folder and a process number.
        temporary = os.path.join(folder, f".{os.urandom(8).hex()}.tmp")
        data = msgspec.msgpack.encode(content)
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            os.makedirs(folder, exist_ok=True)
            # No fsync: the checksum reveals what a crash tears, and a cache can lose entries.
            with open(temporary, "xb") as file:
                file.write(_checksum(path, data))
                file.write(data)
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


def _checksum(path: str, content: bytes) -> bytes:
    """Return the first line of an entry. It depends on the name of the file, too."""
    name = zlib.crc32(os.path.basename(path).encode())
    return b"%08x %d\n" % (zlib.crc32(content, name), len(content))


class KeyedMemo(Generic[_Key, _Answer]):
    """Remembers one answer per key. Errors are remembered and raised again.

    Threads that ask for the same key wait for the first one's answer.
    """

    def __init__(self) -> None:
        self._answers: dict[_Key, Future[_Answer]] = {}
        self._lock = threading.Lock()

    def get(self, key: _Key, compute: Callable[[], _Answer]) -> _Answer:
        """Return the answer for a key; the first call computes it."""
        mine: Future[_Answer] = Future()
        with self._lock:
            answer = self._answers.setdefault(key, mine)
        if answer is mine:
            try:
                mine.set_result(compute())
            except BaseException as error:
                mine.set_exception(error)
                raise
        # If Ctrl-C comes just before a wait without a limit, the wait does not notice it.
        while not answer.done():
            wait([answer], _WAIT)
        return answer.result()
