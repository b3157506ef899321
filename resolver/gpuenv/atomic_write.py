"""Atomic file writes: a file that matters is written completely or not at all.

A temporary file has the name of its process in its name. So names do not repeat, also where process
numbers do, and the next write removes what a killed process has left.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from .errors import InputError
from .process_identity import has_ended, read_tag, tag_of, this_process

_SUFFIX = ".tmp"
_DEFERRED = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows does not have all of them


def require_place(path: str) -> None:
    """Raise InputError if no file can be written to this path: commands ask before they work."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise InputError(f"{path}: is a folder", hint="give the path of a file")
    if not os.path.isdir(folder):
        hint = "make it, or give another path"
        raise InputError(f"{path}: the folder {folder} does not exist", hint=hint)
    if not os.access(folder, os.W_OK | os.X_OK):
        message = f"{path}: the folder {folder} cannot be written"
        raise InputError(message, hint="give another path")


def write_whole(path: str, data: bytes) -> None:
    """Replace the file at `path` by `data`: write a temporary file beside it, fsync, rename.

    If anything interrupts it, the old file stays. A temporary file is left only by a killed
    process, until the next write.

    Raises:
        OSError: as the system reports it.
    """
    write_all({path: data})


def write_all(files: Mapping[str, bytes]) -> None:
    """Replace several files, or none of them: no file is replaced before all are written.

    A kill or a power failure between two of the renames is the only exception.

    Args:
        files: The new content of each path.

    Raises:
        OSError: as the system reports it.
    """
    with replace_files(*files) as opened:
        for file, data in zip(opened, files.values(), strict=True):
            file.write(data)


@contextlib.contextmanager
def replace_files(*paths: str) -> Iterator[Sequence[IO[bytes]]]:
    """Yield a new file for each path, which replaces the file there when the block ends.

    No file is replaced if an exception leaves the block, or before all are written.

    Raises:
        OSError: as the system reports it.
    """
    temporaries = {path: _temporary_path(path) for path in paths}
    try:
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(open(name, "x+b")) for name in temporaries.values()]
            yield opened
            for file in opened:
                file.flush()
                os.fsync(file.fileno())
        # A single rename is atomic by itself.
        with _deferred_signals() if len(temporaries) > 1 else contextlib.nullcontext():
            _rename_all(temporaries)
    except BaseException:
        for temporary in temporaries.values():
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise


def _temporary_path(path: str) -> str:
    """Return a new name beside `path`, after those of ended processes were removed."""
    _remove_leftovers(path)
    name = f".{os.path.basename(path)}.{tag_of(this_process())}-{os.urandom(4).hex()}{_SUFFIX}"
    return os.path.join(os.path.dirname(path), name)


def _rename_all(temporaries: Mapping[str, str]) -> None:
    """Rename all temporary files, or none.

    New names come first: they can need space, and they can be removed after a failure.
    """
    new = [path for path in temporaries if not os.path.lexists(path)]
    renamed = []
    try:
        for path in (*new, *(path for path in temporaries if path not in new)):
            os.replace(temporaries[path], path)
            renamed.append(path)
    except OSError:
        for path in renamed:
            if path in new:
                os.unlink(path)
        raise


def _remove_leftovers(path: str) -> None:
    """Remove the temporary files of `path` whose process has ended on this machine."""
    start = f".{os.path.basename(path)}."
    for name in os.listdir(os.path.dirname(path) or "."):
        if not (name.startswith(start) and name.endswith(_SUFFIX)):
            continue
        tag, _, _ = name.removeprefix(start).removesuffix(_SUFFIX).rpartition("-")
        process = read_tag(tag)
        if process is not None and has_ended(process):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(os.path.dirname(path), name))


@contextlib.contextmanager
def _deferred_signals() -> Iterator[None]:
    """Let signals that end the process wait."""
    import signal  # slow, and a lock for wheels is a single file

    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    numbers = {getattr(signal, name) for name in _DEFERRED if hasattr(signal, name)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
