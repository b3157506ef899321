"""The device code of files: what they carry, and whether it runs on the devices of a host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import InputError
from ..model import Host
from .data import compatibility_data

if TYPE_CHECKING:  # the stages are imported when they are first used
    from ..binaries.environment import Contents, Progress
    from ..binaries.served import Scan


def scan_files(path: str, host: Host, *, progress: Progress | None = None) -> Scan:
    """Read the device code of a file, a wheel, an environment or another folder.

    Args:
        path: the file or the folder. An interpreter stands for its environment.
        host: its devices are compared with the code.
        progress: is called with a line for each step that takes long.

    Raises:
        InputError: there is nothing to read at the path, or it is damaged.
    """
    from ..binaries.fat_binaries import DamagedFileError
    from ..binaries.served import Scan, judge

    if not os.path.exists(path):
        raise InputError(f"{path}: does not exist", hint="give the path of a file or a folder")
    if not (os.path.isdir(path) or os.path.isfile(path)):
        hint = "give a library, a cubin, a fat binary, a wheel or a folder"
        raise InputError(f"{path}: is neither a folder nor a file", hint=hint)
    try:
        kind, contents = _contents(path, progress)
    except DamagedFileError as error:
        raise InputError(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    files = judge(contents.files, host, compatibility_data())
    return Scan(path=path, kind=kind, files=files, read=contents.read)


def _contents(path: str, progress: Progress | None) -> tuple[str, Contents]:
    """Return what a path is, and what it contains."""
    import zipfile

    from ..binaries.environment import CodeFile, Contents, scan_environment
    from ..binaries.wheel import scan_wheel
    from ..prefix import find_interpreter

    if os.path.isdir(path):
        kind = "folder" if find_interpreter(path) is None else "environment"
        return kind, scan_environment(path, progress=progress)
    if path.endswith(".whl") or zipfile.is_zipfile(path):
        return "wheel", scan_wheel(path, progress)
    from ..binaries.device_code import read_file

    images = read_file(path)
    if images is None:
        hint = "name a library, a cubin, a fat binary, PTX, a wheel or a folder"
        raise InputError(f"{path}: is no file that can have device code", hint=hint)
    files = (CodeFile(path=path, images=images),) if images.sass or images.ptx else ()
    return "file", Contents(files=files, read=1)
