"""Load a cuDNN as a framework does, and report what was loaded, from where, and what it answers.

Options: {"main": path of the environment's libcudnn.so.N, "members": the libraries that its files
name or that are shipped (libcudnn_ops), "checks": false to skip the ...VersionCheck functions, some
of which abort if a library is missing}.

How it opens them: the main library by its path, as torch's DT_RPATH and jax's preloading do. Then
cuDNN opens its sub-libraries by name, and for these glibc searches LD_LIBRARY_PATH before the
libraries' own DT_RUNPATH ($ORIGIN). Each member is then opened in the order of cuDNN's own loader:
the full name (libcudnn_ops.so.9.20.0) in all folders first, then the short one.

Answers with answers.CudnnAnswer. Runs on Python 3.8 and later; standard library only; touches no
GPU (convolution.py does).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from typing import TypedDict

from ._bindings import call_number
from ._common import cudnn_release, mapped_libraries, run, step
from .answers import CudnnAnswer, MemberLoad

LIBRARY = re.compile(r"libcudnn")
CHECK = re.compile(rb"(cudnn[A-Z][A-Za-z]*VersionCheck)\x00")


class Options(TypedDict):
    """The options of this probe."""

    main: str
    members: list[str]
    checks: bool


def open_member(name: str, folder: str, release: tuple[int, int, int]) -> MemberLoad:
    """Open a library that is not loaded yet, by the search of cuDNN's own loader."""
    for path in mapped_libraries(LIBRARY):
        if os.path.basename(path).split(".so", 1)[0] == name:
            return {"name": name, "path": path, "failure": None}
    major, minor, patch = release
    variable = os.environ.get("LD_LIBRARY_PATH")
    folders = [entry or "." for entry in variable.split(":")] if variable else []
    failure = "no file of that name"
    for file_name in (f"{name}.so.{major}.{minor}.{patch}", f"{name}.so.{major}"):
        places = [os.path.join(entry, file_name) for entry in (*folders, folder)]
        for place in (*places, file_name):
            if os.sep in place and not os.path.exists(place):
                continue
            step("open " + place)
            try:
                ctypes.CDLL(place, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
            except OSError as error:
                if os.sep in place or "cannot open shared object file" not in str(error):
                    failure = str(error)
                continue
            return {"name": name, "path": place, "failure": None}
    return {"name": name, "path": None, "failure": failure}


def check_names(path: str) -> list[str]:
    """Return the names of the VersionCheck functions in a library."""
    with open(path, "rb") as stream:
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    with data:
        return sorted({name.decode() for name in CHECK.findall(data)})


def call_checks(library: ctypes.CDLL, names: list[str]) -> dict[str, int]:
    """Return the status of each VersionCheck function.

    Each compares the versions of the libraries that it needs.
    """
    statuses = {}
    for name in names:
        if hasattr(library, name):
            step("call " + name)
            statuses[name] = int(getattr(library, name)())
    return statuses


def probe(options: Options) -> CudnnAnswer:
    """Return the answer that this file's docstring describes."""
    path, members = options["main"], options["members"]
    answer: CudnnAnswer = {"version": None, "max_device": None, "checks": {}, "loads": []}
    try:
        step("open " + path)
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        version = call_number(library, "cudnnGetVersion")
        answer["version"] = version
        if hasattr(library, "cudnnGetMaxDeviceVersion"):
            answer["max_device"] = call_number(library, "cudnnGetMaxDeviceVersion")
    except (OSError, AttributeError) as error:
        answer["loads"].append({"name": "libcudnn", "path": path, "failure": str(error)})
    else:
        checks = check_names(path) if options["checks"] else []
        answer["checks"] = call_checks(library, checks)
        folder, release = os.path.dirname(path), cudnn_release(version)
        answer["loads"] = [{"name": "libcudnn", "path": path, "failure": None}]
        answer["loads"] += [open_member(name, folder, release) for name in members]
        # A check that ran before a sub-library was loaded may find more now.
        answer["checks"].update(call_checks(library, checks))
    answer["mapped"] = mapped_libraries(LIBRARY)
    return answer


if __name__ == "__main__":
    run(probe)
