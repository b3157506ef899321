"""Load a cuDNN as a framework does, and report what was loaded, from where, and what it answers.

Options: {"folder": the folder of the environment's libcudnn.so.N, "checks": false to skip the
...VersionCheck functions, some of which abort if a library is missing}.

How it opens them: the main library by its path, as torch's DT_RPATH and jax's preloading do. Then
cuDNN opens its sub-libraries by name, and for these glibc searches LD_LIBRARY_PATH before the
libraries' own DT_RUNPATH ($ORIGIN). Each sub-library that the files name (DT_NEEDED, and names in
their text) is then opened in the order of cuDNN's own loader: the full name
(libcudnn_ops.so.9.20.0) in all folders first, then the short one.

Answers with answers.CudnnAnswer. Runs on Python 3.9 and later; standard library only; touches no
GPU (convolution.py does).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple, TypedDict

from ._common import MAIN_CUDNN, cudnn_release, main_cudnn, mapped_libraries, run, step
from .answers import CudnnAnswer, MemberLoad

NAME = re.compile(rb"libcudnn(?:_[a-z0-9_]+)?\.so(?:\.[0-9]+)?(?![A-Za-z0-9_])")
TEXT_SECTION = re.compile(rb"\.(dynstr|rodata)\b")
CHECK = re.compile(rb"(cudnn[A-Z][A-Za-z]*VersionCheck)\x00")
LIBRARY = re.compile(r"libcudnn")


class Options(TypedDict, total=False):
    """The options of this probe."""

    folder: str
    checks: bool


class Names(NamedTuple):
    """What the files of a cuDNN contain. `shipped` is the file name of each library."""

    named: dict[str, list[str]]
    shipped: dict[str, str]
    checks: list[str]


def stem(name: str) -> str:
    """Return libcudnn_ops for libcudnn_ops.so.9.20.0."""
    return name.split(".so", 1)[0]


def member_files(folder: str, major: int) -> list[str]:
    """Return the file names of the cuDNN libraries of a major version that are not empty."""
    pattern = re.compile(rf"libcudnn(_[a-z0-9_]+)?\.so\.{major}(\.[0-9]+)*")
    names = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if pattern.fullmatch(name) and os.path.exists(path) and os.path.getsize(path) > 0:
            names.append(name)
    return names


def text_sections(data: mmap.mmap) -> list[tuple[int, int]]:
    """Return (begin, end) of the sections with texts: .dynstr and .rodata.

    Most of a library is GPU code, which names no library. A file without a section table, such as
    one that is cut short, counts as one section. Format: System V ABI, chapter 4.
    """
    sections = []
    try:
        (table,) = struct.unpack_from("<Q", data, 40)
        size, rows, titles_row = struct.unpack_from("<3H", data, 58)
        headers = [struct.unpack_from("<I20x2Q", data, table + size * row) for row in range(rows)]
        _, titles, _ = headers[titles_row]
        for title, begin, length in headers:
            if TEXT_SECTION.match(data, titles + title):
                sections.append((begin, begin + length))
    except (struct.error, IndexError, OverflowError):  # no table, or a damaged one
        sections.clear()
    return sections or [(0, len(data))]


def matches(pattern: re.Pattern[bytes], data: mmap.mmap) -> Iterator[re.Match[bytes]]:
    """Return the matches of a pattern in the texts of a library."""
    for begin, end in text_sections(data):
        yield from pattern.finditer(data, begin, end)


def names_in(data: mmap.mmap, major: int) -> set[str]:
    """Return the stems of the cuDNN libraries of a major version that a file names."""
    stems = set()
    for match in matches(NAME, data):
        text = match.group().decode()
        if re.search(r"\.so\.[0-9]+$", text) and not text.endswith(f".so.{major}"):
            continue
        stems.add(stem(text))
    return stems


def read_names(folder: str, major: int) -> Names:
    """Read which libraries the files of a cuDNN name, and the names of its VersionChecks."""
    named: dict[str, set[str]] = {}
    shipped: dict[str, str] = {}
    checks: set[str] = set()
    for name in member_files(folder, major):
        # The short name is the one that is requested in the end; a folder may contain the full one,
        # too.
        shipped[stem(name)] = min(name, shipped.get(stem(name), name), key=len)
        path = os.path.join(folder, name)
        with (
            open(path, "rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            for text in names_in(data, major):
                named.setdefault(text, set()).add(name)
            if stem(name) == "libcudnn":
                checks.update(match[1].decode() for match in matches(CHECK, data))
    files_of = {name: sorted(files) for name, files in sorted(named.items())}
    return Names(files_of, shipped, sorted(checks))


def mapped() -> list[str]:
    """Return the cuDNN libraries of /proc/self/maps, in the order of the table."""
    return mapped_libraries(LIBRARY)


def search_path(folder: str) -> list[str]:
    """Return the folders that cuDNN's loader searches.

    They are those of LD_LIBRARY_PATH, then the folder of the main library.
    """
    variable = os.environ.get("LD_LIBRARY_PATH")
    entries = [entry or "." for entry in variable.split(":")] if variable else []
    return [*entries, folder]


def open_member(name: str, folder: str, release: tuple[int, int, int]) -> MemberLoad:
    """Open a library by the search of cuDNN's own loader."""
    major, minor, patch = release
    failure = "no file of that name"
    for file_name in (f"{name}.so.{major}.{minor}.{patch}", f"{name}.so.{major}"):
        places = [os.path.join(entry, file_name) for entry in search_path(folder)]
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


def open_members(names: Names, folder: str, release: tuple[int, int, int]) -> list[MemberLoad]:
    """Open each library that is named or shipped and not loaded yet."""
    loads: list[MemberLoad] = []
    for name in sorted(set(names.named) | set(names.shipped)):
        loaded = [path for path in mapped() if stem(os.path.basename(path)) == name]
        if loaded:
            loads.append({"name": name, "path": loaded[0], "failure": None})
        elif name != "libcudnn":
            loads.append(open_member(name, folder, release))
    return loads


def call_checks(library: ctypes.CDLL, names: list[str]) -> dict[str, int]:
    """Return the status of each VersionCheck function.

    Each function compares the versions of the libraries that it needs.
    """
    statuses = {}
    for name in names:
        if hasattr(library, name):
            step("call " + name)
            statuses[name] = int(getattr(library, name)())
    return statuses


def call_number(library: ctypes.CDLL, name: str) -> int:
    """Return the size_t that a function without arguments gives."""
    step("call " + name)
    function = getattr(library, name)
    function.restype = ctypes.c_size_t
    return int(function())


def open_main(path: str, answer: CudnnAnswer) -> ctypes.CDLL:
    """Open the main library.

    Adds the numbers that it answers with.

    Raises:
        OSError, AttributeError: the library cannot be used.
    """
    step("open " + path)
    library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    answer["version"] = call_number(library, "cudnnGetVersion")
    if hasattr(library, "cudnnGetCudartVersion"):
        answer["cudart"] = call_number(library, "cudnnGetCudartVersion")
    if hasattr(library, "cudnnGetMaxDeviceVersion"):
        answer["max_device"] = call_number(library, "cudnnGetMaxDeviceVersion")
    return library


def probe(options: Options) -> CudnnAnswer:
    """Return the answer that this file's docstring describes."""
    folder = options["folder"]
    main = main_cudnn(folder)
    match = MAIN_CUDNN.fullmatch(main or "")
    if main is None or match is None:
        return {"failure": "no libcudnn.so.N in " + folder}
    path, major = os.path.join(folder, main), int(match[1])
    step("read the names in " + folder)
    names = read_names(folder, major)
    answer: CudnnAnswer = {
        "main": path,
        "major": major,
        "version": None,
        "cudart": None,
        "max_device": None,
        "checks": {},
        "named": names.named,
        "shipped": sorted(names.shipped),
        "absent": sorted(set(names.named) - set(names.shipped)),
        "loads": [],
    }
    try:
        library = open_main(path, answer)
    except (OSError, AttributeError) as error:
        answer["loads"].append({"name": "libcudnn", "path": path, "failure": str(error)})
        answer["mapped"] = mapped()
        return answer
    checks = names.checks if options.get("checks", True) else []
    answer["checks"] = call_checks(library, checks)
    answer["loads"] = open_members(names, folder, cudnn_release(answer["version"] or 0))
    # A check that ran before a sub-library was loaded may find more now.
    answer["checks"].update(call_checks(library, checks))
    answer["mapped"] = mapped()
    return answer


if __name__ == "__main__":
    run(probe)
