"""The same solve again: what an earlier run of the same command said and wrote, if nothing that it looked at changed.

A solve for a described host from the embedded snapshot is a function of its flags, of the data, of the settings of pip
and uv, and of the interpreter. Such a run leaves its answer in the cache folder, with the state of all of these; the
next run of the same command compares them and repeats the answer, without loading what solves. Nothing is kept of a run
that asked an index, read files of the user's, or detected a GPU. GPUENV_NO_MEMO turns it off.
"""

from __future__ import annotations

import os
import sys

from . import __version__
from .digests import sha256
from .index.cache import cache_folder
from .writing import write_whole

TYPE_CHECKING = False
if TYPE_CHECKING:  # collections.abc is most of what a start imports for nothing
    from collections.abc import Sequence

FORMAT = "gpuenv solve 1"
# Flags whose values say all that there is to know about what they name.
VALUED = ("--framework", "--gpu", "--driver", "--python", "--platform", "--glibc", "-o", "--output", "--format")
BARE = ("--default-index-only", "--offline", "--json", "--pre")
SETTINGS = ("PIP_", "UV_", "GPUENV_", "XDG_", "CUDA_", "NVIDIA_", "CONDA_", "PYTHON")
ALONE = ("HOME", "VIRTUAL_ENV", "LANG", "LC_ALL")
# Loaded only to ask an index, or to read what the user wrote.
NETWORK = ("gpuenv.index.live", "gpuenv.index.links", "gpuenv.requirements")
MOST = 200  # answers that are kept


def recall(argv: Sequence[str]) -> bool:
    """Whether the answer was there, and was given: the lock is in its place, the text on stdout."""
    key = _key(argv)
    if key is None:
        return False
    try:
        with open(_path(key), "rb") as file:
            head, _, rest = file.read().partition(b"\n")
        sizes = [int(size) for size in head.split()]
        if len(rest) != sum(sizes):
            return False
        parts = []
        for size in sizes:
            parts.append(rest[:size])
            rest = rest[size:]
        kept, marks, said, path, lock = (part.decode() for part in parts)
        if kept != key or any(_mark(line.partition(" ")[2]) != line.partition(" ")[0] for line in marks.splitlines()):
            return False
        if path and _read(path) != lock.encode():
            write_whole(path, lock.encode())
    except (OSError, ValueError):
        return False
    sys.stdout.write(said)
    sys.stdout.flush()
    return True


def remember(argv: Sequence[str], said: str, path: str | None, text: str) -> None:
    """Keeps the answer of a solve, if it is one that can be repeated. A cache that cannot be written is none."""
    key = _key(argv)
    if key is None or any(name in sys.modules for name in NETWORK):
        return
    from .index.cache import Cache
    from .index.defaults import settings_files

    files = [*settings_files(Cache(cache_folder())), *_data()]
    marks = "".join(f"{_mark(file)} {file}\n" for file in files)
    parts = [part.encode() for part in (key, marks, said, path or "", text if path else "")]
    head = " ".join(str(len(part)) for part in parts).encode()
    place = _path(key)
    try:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        _make_room(os.path.dirname(place))
        write_whole(place, head + b"\n" + b"".join(parts))
    except (OSError, ValueError):
        return


def _key(argv: Sequence[str]) -> str | None:
    """The sha256 of all that is no file (settings may hold passwords); None if the answer may not be repeated."""
    if "GPUENV_NO_MEMO" in os.environ or sys.stdout.isatty() or "--gpu" not in argv:
        return None
    words = iter(argv[1:])
    for word in words:
        flag, given, value = word.partition("=")
        if flag in VALUED:
            value = value if given else next(words, "")
            if flag == "--python" and os.sep in value:
                return None
        elif word not in BARE and (word.startswith("-") or "@" in word or os.sep in word):
            return None
    settings = [
        f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS) or name in ALONE
    ]
    libc = os.confstr("CS_GNU_LIBC_VERSION") if hasattr(os, "confstr") else ""
    machine = [FORMAT, __version__, sys.version, sys.executable, sys.prefix, os.getcwd(), libc or "", *os.uname()[:1]]
    return sha256("\0".join([*machine, "", *argv, "", *settings]).encode("utf-8", "surrogateescape"))


def _data() -> list[str]:
    """The files that stand for the data and for the target interpreter."""
    package = os.path.dirname(os.path.abspath(__file__))
    folder = os.path.join(package, "matrix_data")
    if not os.path.isdir(folder):  # a checkout
        folder = os.path.join(os.path.dirname(os.path.dirname(package)), "matrix_data")
    files = [os.path.join(folder, "tables.json"), os.path.join(folder, "snapshot", "index.json")]
    files += [os.path.join(package, "solver", "__init__.py")]
    environment = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    return [*files, *(os.path.join(environment, name) for name in ("pyvenv.cfg", "conda-meta") if environment)]


def _mark(path: str) -> str:
    """What changes when a file does."""
    try:
        stat = os.stat(path)
    except OSError:
        return "-"
    return f"{stat.st_mtime_ns}:{stat.st_size}"


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _path(key: str) -> str:
    return os.path.join(cache_folder(), "solves", key[:32])


def _make_room(folder: str) -> None:
    names = os.listdir(folder)
    if len(names) >= MOST:
        paths = sorted((os.path.join(folder, name) for name in names), key=os.path.getmtime)
        for path in paths[: len(names) - MOST + 1]:
            os.unlink(path)
