"""Loads a cuDNN as a framework would and says what was loaded, from where, and what it answers.

Options: {"folder": the folder of the libcudnn.so.N that the environment has, "checks": false to leave the
...VersionCheck functions alone, some of which abort where a library is missing}.

How it opens them: the main library by its path, which is what torch's DT_RPATH and jax's preloading amount to; then
cuDNN itself opens its sub-libraries by name, and there glibc asks LD_LIBRARY_PATH before the libraries' own DT_RUNPATH
($ORIGIN). Each sub-library that the files themselves name (DT_NEEDED, and names in their text) is then opened as
cuDNN's own loader does it: the full name (libcudnn_ops.so.9.20.0) over all folders first, the short one after that.

Answers {"main", "major", "named": {name: [files that name it]}, "shipped": [name], "absent": [name],
"loads": [{"name", "path" | null, "failure" | null}], "version", "cudart", "max_device": cudnnGetMaxDeviceVersion's
number (1210: devices up to 12.1), "checks": {function: status}, "mapped": [path]}.

Runs on Python 3.9 and later; standard library only; touches no GPU (convolution.py does).
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import sys
from typing import Any

NAME = re.compile(rb"libcudnn(?:_[a-z0-9_]+)?\.so(?:\.[0-9]+)?(?![A-Za-z0-9_])")
NINE = 90000
CHECKS = re.compile(rb"(cudnn[A-Z][A-Za-z]*VersionCheck)\x00")


def step(text: str) -> None:
    """Says on stderr what comes next, so that a crash can be told together with where it happened."""
    sys.stderr.write("gpuenv-step: " + text + "\n")
    sys.stderr.flush()


def stem(name: str) -> str:
    """libcudnn_ops of libcudnn_ops.so.9.20.0."""
    return name.split(".so", 1)[0]


def read_names(folder: str, major: int) -> tuple[dict[str, list[str]], dict[str, str], list[str]]:
    """({stem: [files that name it]}, {stem: file name that is there}, names of VersionCheck functions)."""
    named: dict[str, set[str]] = {}
    shipped: dict[str, str] = {}
    checks: set[str] = set()
    for name in sorted(os.listdir(folder)):
        if re.fullmatch(rf"libcudnn(_[a-z0-9_]+)?\.so\.{major}(\.[0-9]+)*", name) is None:
            continue
        path = os.path.join(folder, name)
        if not os.path.exists(path) or os.path.getsize(path) == 0:
            continue
        # The short name is the one that is asked for in the end; a folder may have the full one beside it.
        shipped[stem(name)] = min(name, shipped.get(stem(name), name), key=len)
        with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for found in NAME.finditer(data):
                text = found.group().decode()
                if re.search(r"\.so\.[0-9]+$", text) and not text.endswith(f".so.{major}"):
                    continue
                named.setdefault(stem(text), set()).add(name)
            if stem(name) == "libcudnn":
                checks.update(text.decode() for text in CHECKS.findall(data))
    return {key: sorted(value) for key, value in sorted(named.items())}, shipped, sorted(checks)


def mapped() -> list[str]:
    """The files of /proc/self/maps whose name starts with libcudnn, in the order of the table."""
    paths: dict[str, None] = {}
    with open("/proc/self/maps") as table:
        for line in table:
            path = line[line.find("/") :].rstrip("\n") if "/" in line else ""
            if os.path.basename(path).startswith("libcudnn"):
                paths[path] = None
    return list(paths)


def full_version(number: int) -> tuple[int, int, int]:
    """(9, 20, 0) of 92000, (8, 9, 7) of 8907: cudnn_version.h."""
    if number >= NINE:
        return (number // 10000, number // 100 % 100, number % 100)
    return (number // 1000, number // 100 % 10, number % 100)


def open_member(name: str, folder: str, full: tuple[int, int, int]) -> tuple[str | None, str | None]:
    """(library's path or name, failure) by the search that cuDNN's own loader makes for `name`."""
    wanted = [f"{name}.so.{full[0]}.{full[1]}.{full[2]}", f"{name}.so.{full[0]}"]
    folders = [entry or "." for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    folders = folders if os.environ.get("LD_LIBRARY_PATH") else []
    failure = "no file of that name"
    for file in wanted:
        for place in [*(os.path.join(entry, file) for entry in [*folders, folder]), file]:
            if os.sep in place and not os.path.exists(place):
                continue
            step("open " + place)
            try:
                ctypes.CDLL(place, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
            except OSError as error:
                if os.sep in place or "cannot open shared object file" not in str(error):
                    failure = str(error)
                continue
            return place, None
    return None, failure


def call_checks(library: ctypes.CDLL, names: list[str]) -> dict[str, int]:
    """The status of each ...VersionCheck function: each compares the versions of the libraries it depends on."""
    answers = {}
    for name in names:
        if hasattr(library, name):
            step("call " + name)
            answers[name] = int(getattr(library, name)())
    return answers


def probe(options: dict[str, Any]) -> dict[str, Any]:
    """The answer that this file's first lines describe."""
    folder = options["folder"]
    mains = [name for name in os.listdir(folder) if re.fullmatch(r"libcudnn\.so\.[0-9]+", name)]
    if not mains:
        return {"failure": "no libcudnn.so.N in " + folder}
    main = max(mains, key=lambda name: int(name.rsplit(".", 1)[1]))
    major = int(main.rsplit(".", 1)[1])
    answer: dict[str, Any] = {"main": os.path.join(folder, main), "major": major, "version": None, "cudart": None}
    answer.update(checks={}, max_device=None)
    step("read the names in " + folder)
    named, shipped, checks = read_names(folder, major)
    answer.update(named=named, shipped=sorted(shipped), absent=sorted(set(named) - set(shipped)))
    answer["loads"] = []
    try:
        step("open " + answer["main"])
        library = ctypes.CDLL(answer["main"], mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        step("call cudnnGetVersion")
        library.cudnnGetVersion.restype = ctypes.c_size_t
        answer["version"] = int(library.cudnnGetVersion())
        for key, name in (("cudart", "cudnnGetCudartVersion"), ("max_device", "cudnnGetMaxDeviceVersion")):
            if hasattr(library, name):
                step("call " + name)
                getattr(library, name).restype = ctypes.c_size_t
                answer[key] = int(getattr(library, name)())
    except (OSError, AttributeError) as error:
        answer["loads"].append({"name": "libcudnn", "path": answer["main"], "failure": str(error)})
        answer["mapped"] = mapped()
        return answer
    checks = checks if options.get("checks", True) else []
    answer["checks"] = call_checks(library, checks)
    for name in sorted(set(named) | set(shipped)):
        there = [path for path in mapped() if stem(os.path.basename(path)) == name]
        if there:
            answer["loads"].append({"name": name, "path": there[0], "failure": None})
        elif name != "libcudnn":
            place, failure = open_member(name, folder, full_version(answer["version"]))
            answer["loads"].append({"name": name, "path": place, "failure": failure})
    # A check that ran before a sub-library was there may see more now.
    answer["checks"].update(call_checks(library, checks))
    answer["mapped"] = mapped()
    return answer


def main() -> None:
    """Runs the probe and prints its one document."""
    try:
        answer = probe(json.loads(sys.argv[1]))
    except Exception as error:
        answer = {"failure": f"{type(error).__name__}: {error}"}
    step("done")
    sys.stdout.write("\ngpuenv-probe: " + json.dumps(answer) + "\n")
    sys.stdout.flush()
    # Not an ordinary exit: the libraries' destructors are not what is examined here.
    os._exit(0)


if __name__ == "__main__":
    main()
