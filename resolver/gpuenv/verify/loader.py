"""Checks of where libraries come from.

Loader variables, the loader's cache, and cuDNN as a framework opens it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ..binaries import elf
from ..loader_env import (
    is_driver_library,
    library_major,
    path_entries,
    preload_entries,
    same_file,
)
from ..model import Check, Gpu, Host, Lock, Mark, Value
from ..probes._common import cudnn_text, main_cudnn
from ..probes.answers import CudnnAnswer
from .cudnn_log import log_text, run_logged
from .runner import Outcome, RunProbe
from .survey import Survey, is_cuda_library

_DRIVER_LIBRARY = "libcuda.so.1"
_LDCONFIG = ("/sbin/ldconfig", "/usr/sbin/ldconfig")
SHOWN = 4  # foreign libraries in the evidence of a check


class Foreign(NamedTuple):
    """A file from outside the environment, and who supplied it.

    `what` is its path, or for several files of one folder "PATH and 3 more".
    """

    what: str
    origin: str

    def __str__(self) -> str:
        return f"{self.what}, from {self.origin}"


# ---- who supplied a library ---------------------------------------------------------------------


class Origins:
    """Tells who supplied a library: a loader variable, a runpath or the loader's cache.

    `env` is the environment of the child, `cache` the libraries in the loader's cache.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env
        self.path = [entry or os.curdir for entry in path_entries(env)]
        self.preload = preload_entries(env)
        self._runpaths: dict[str, list[tuple[str, str]]] = {}
        self.cache = _cached_libraries()

    def of(self, path: str, mapped: Iterable[str] = ()) -> str:
        """Return who supplied a file from outside the environment.

        `mapped` are the libraries of the process.
        """
        real, name = os.path.realpath(path), os.path.basename(path)
        for entry in self.preload:
            if os.path.realpath(entry) == real or name == entry:
                return f"LD_PRELOAD={entry}"
        for entry in self.path:
            # Compare files, not folders: an entry may contain links to files of other folders.
            if os.path.realpath(os.path.join(entry, name)) == real or is_inside(real, entry):
                return f"the entry {entry} of LD_LIBRARY_PATH"
        for library in mapped:
            # What led to a library led to the others of its folder, too.
            if same_file(os.path.dirname(library), os.path.dirname(path)):
                continue
            for entry, folder in self._runpath(library):
                if same_file(os.path.join(folder, name), path):
                    return f"the runpath entry {entry} of {library}"
        if any(os.path.realpath(cached) == real for cached in self.cache):
            return "the loader's cache (ldconfig)"
        return "an explicit path"

    def _runpath(self, path: str) -> list[tuple[str, str]]:
        """Return (entry, its folder) of DT_RPATH and DT_RUNPATH; [] if they cannot be read."""
        if path not in self._runpaths:
            self._runpaths[path] = []
            with contextlib.suppress(OSError, elf.NotElfError):
                library = elf.read(path, names=False)
                entries = [*library.rpath, *library.runpath]
                folders = elf.expand_origin(path, entries)
                self._runpaths[path] = list(zip(entries, folders, strict=True))
        return self._runpaths[path]

    def files_in_variables(self) -> list[tuple[str, str]]:
        """Return (entry, path) of all files that loader variables lead to."""
        files = [(entry, entry) for entry in self.preload]
        for entry in self.path:
            with contextlib.suppress(OSError):
                names = sorted(os.listdir(entry))
                files += [(entry, os.path.join(entry, name)) for name in names]
        return files


def _cached_libraries() -> list[str]:
    """Return the libraries in the loader's cache; [] without an ldconfig."""
    tool = next(filter(os.path.exists, _LDCONFIG), "")
    try:
        output = subprocess.check_output(
            [tool, "-p"], stderr=subprocess.DEVNULL, text=True, timeout=1
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.partition(" => ")[2] for line in output.splitlines() if " => " in line]


def is_inside(path: str, prefix: str) -> bool:
    """Return whether a file is in a folder, with and without following links on either side."""
    places = (Path(os.path.abspath(path)), Path(os.path.realpath(path)))
    folders = (os.path.abspath(prefix), os.path.realpath(prefix))
    return any(place.is_relative_to(folder) for place in places for folder in folders)


def is_driver_stub(path: str) -> bool:
    """Return whether a mapped library is a stub of the driver's, which a CUDA toolkit brings."""
    if not is_driver_library(os.path.basename(path)):
        return False
    return os.path.basename(os.path.dirname(os.path.realpath(path))) == "stubs"


class Place(Value):
    """An environment, and the host on which it is verified.

    Attributes:
        lock: what should be installed; None is what is installed.
        survey: what is installed.
        host: the detected host.
        gpus: the devices to try.
        origins: who supplied a library that the children load.
        system: {distribution: the libraries that it takes from the system}.
    """

    lock: Lock | None
    survey: Survey
    host: Host
    gpus: tuple[Gpu, ...]
    origins: Origins
    system: Mapping[str, Sequence[str]]

    @property
    def expected_cudnn(self) -> str | None:
        """The version of cuDNN that the lock pins, else that of the installed distribution."""
        versions = self.survey.versions if self.lock is None else self.lock.versions
        names = [name for name in versions if name.startswith("nvidia-cudnn-cu")]
        return versions[names[0]] if names else None


# ---- loader variables ---------------------------------------------------------------------------


def variable_check(folder: str, origins: Origins) -> Check:
    """Check that no loader variable leads to a library that shadows the right one.

    That is another cuDNN than the environment's, or a stub of the driver's library. Other CUDA
    libraries in variables, and another cuDNN in the loader's cache, are only mentioned.

    Args:
        folder: the folder of the environment's cuDNN; "" if it has none.
        origins: what the variables lead to.
    """
    # A cuDNN of another major version has other file names and shadows nothing.
    majors = {library_major(name) for name in os.listdir(folder)} if folder else set()
    shadows, others, stubs = set(), set(), []
    for entry, path in origins.files_in_variables():
        name = os.path.basename(path)
        if name == _DRIVER_LIBRARY and is_driver_stub(path):
            stubs.append(entry)
        elif not is_cuda_library(path) or (folder and same_file(entry, folder)):
            continue
        elif name.startswith("libcudnn") and library_major(name) in majors:
            shadows.add(entry)
        else:
            others.add(entry)
    notes = [
        f"{entry} in LD_LIBRARY_PATH holds other CUDA libraries"
        for entry in sorted(others - shadows)
    ]
    cached = {os.path.dirname(path) for path in origins.cache if "/libcudnn" in path}
    notes += [
        f"another cuDNN is in the loader's cache: {place}"
        for place in sorted(cached)
        if not folder or not same_file(place, folder)
    ]
    wrong = []
    if stubs:
        wrong.append(f"a stub shadows the driver's {_DRIVER_LIBRARY}: {', '.join(stubs)}")
    if shadows:
        wrong.append(f"another cuDNN shadows the environment's: {', '.join(sorted(shadows))}")
    if wrong:
        wrong[-1] += " (LD_LIBRARY_PATH or LD_PRELOAD)"
        return Check("loader", "variables", "fail", "; ".join([*wrong, *notes]))
    evidence = "; ".join(notes) or "no loader variable or cache entry names another CUDA library"
    return Check("loader", "variables", "pass", evidence)


# ---- cuDNN --------------------------------------------------------------------------------------


def foreign_cudnn(mapped: Sequence[str], folder: str, origins: Origins) -> list[Foreign]:
    """Return the mapped libraries of cuDNN that are not from `folder`, by folder and origin.

    The version functions prove nothing: a main library of one release answers with the number of
    the members that the loader gave it, and its checks compare those members with one another.
    """
    # The environment's own files may be links into a package cache.
    own = {os.path.realpath(os.path.join(folder, name)) for name in os.listdir(folder)}
    by_supplier: dict[tuple[str, str], list[str]] = {}
    for path in mapped:
        place, name = os.path.split(path)
        is_own = same_file(place, folder) or os.path.realpath(path) in own
        if name.startswith("libcudnn") and not is_own:
            by_supplier.setdefault((place, origins.of(path, mapped)), []).append(path)
    foreign = []
    for (_, origin), paths in by_supplier.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        foreign.append(Foreign(min(paths) + more, origin))
    return foreign


def foreign_marks(foreign: Iterable[Foreign]) -> tuple[Mark, ...]:
    """Return the marks of libraries from outside the environment."""
    return tuple(("foreign", file.what, "") for file in foreign)


class CudnnRun(Value):
    """What the probe "cudnn" found, and what the files say.

    Attributes:
        outcome: after a crash that of a run without cuDNN's own version checks.
        crash: how the first run ended if it crashed.
        lines: the reasons of cuDNN's log.
        absent: {library that is named and not in the folder: the files that name it}.
    """

    outcome: Outcome
    crash: str = ""
    lines: tuple[str, ...] = ()
    absent: Mapping[str, Sequence[str]] = MappingProxyType({})


def run_cudnn(run_probe: RunProbe, folder: str, *, verbose: bool) -> CudnnRun:
    """Run the probe "cudnn" for the cuDNN in a folder."""
    main = main_cudnn(folder)
    if main is None:
        return CudnnRun(outcome=Outcome(failure=f"no libcudnn.so.N in {folder}", ended="failed"))
    major = main.rpartition(".")[2]
    member = re.compile(rf"(libcudnn(?:_[a-z0-9_]+)?)\.so(?:\.{major}(?:\.[0-9]+)*)?")
    shipped = set()
    named: dict[str, list[str]] = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        match = member.fullmatch(name)
        if match is None or name.endswith(".so") or not os.path.exists(path):
            continue
        with contextlib.suppress(OSError, elf.NotElfError):  # the probe opens it and reports why
            library = elf.read(path, names=True)
            for text in {*library.names, *library.needed}:
                inner = member.fullmatch(text)
                if inner is not None:
                    named.setdefault(inner[1], []).append(name)
        if os.path.getsize(path):
            shipped.add(match[1])
    members = sorted((shipped | named.keys()) - {"libcudnn"})
    options = {"main": os.path.join(folder, main), "members": members, "checks": True}
    probe = partial(run_probe, "cudnn", options)
    outcome, lines = run_logged(probe, folder, _log_may_tell_more, verbose=verbose)
    absent = {name: named[name] for name in sorted(named.keys() - shipped)}
    run = CudnnRun(outcome=outcome, lines=lines, absent=absent)
    if outcome.ended != "crash":
        return run
    second = run_probe("cudnn", {**options, "checks": False})
    return run.replace(outcome=second, crash=outcome.failure)


def _log_may_tell_more(outcome: Outcome) -> bool:
    """Return whether a version check gave an error, or the child crashed in cuDNN."""
    if outcome.answer is None:
        return outcome.ended == "crash"
    answer: CudnnAnswer = outcome.answer
    return any(status != 0 for status in answer["checks"].values())


def cudnn_checks(run: CudnnRun, place: Place) -> list[Check]:
    """Return the checks that cuDNN is complete, loadable, of one folder, and as expected."""
    outcome, folder = run.outcome, place.survey.cudnn_folder
    if outcome.answer is None:
        status, failure, seconds = "fail", outcome.failure, outcome.seconds
        marks = (*loader_marks(failure), ("crashed", outcome.step, ""))
        # cuDNN 8 ends the process if one of its members does not find the driver.
        if not place.gpus and any(map(is_driver_library, failure.split())):
            status, marks = "unknown", ()
        return [Check("cudnn", "libraries", status, failure, seconds=seconds, marks=marks)]
    answer: CudnnAnswer = outcome.answer
    foreign = foreign_cudnn(answer["mapped"], folder, place.origins)
    status, evidence = "pass", f"{len(answer['mapped'])} mapped libraries, all from {folder}"
    if foreign:
        texts = [str(file) for file in foreign[:SHOWN]]
        status, evidence = "fail", f"not the environment's: {'; '.join(texts)}"
    return [
        _member_check(answer, run, folder, place.origins),
        Check("cudnn", "origin", status, evidence, marks=foreign_marks(foreign)),
        _version_check(answer, place.expected_cudnn, run.crash, run.lines),
    ]


def _member_check(answer: CudnnAnswer, run: CudnnRun, folder: str, origins: Origins) -> Check:
    failed: list[str] = []
    without_driver: list[str] = []
    marks: list[Mark] = []
    for load in answer["loads"]:
        failure = load["failure"]
        if not failure or load["name"] in run.absent:
            continue
        # A host without a driver says nothing about the environment.
        if is_driver_library(failure):
            without_driver.append(f"{load['name']} needs the driver: {failure}")
        else:
            failed.append(f"{load['name']}: {failure}")
            marks += loader_marks(failure)
    paths = {load["name"]: load["path"] for load in answer["loads"]}
    for name, files in run.absent.items():
        path = paths.get(name)
        taken = ""
        if path is not None:
            taken = f"; the loader takes {path}, from {origins.of(path, answer['mapped'])}"
        failed.append(f"{name} is named by {', '.join(files)} and is not in {folder}{taken}")
        marks.append(("missing", name, " ".join(files)))
    status, evidence = "pass", f"{len(answer['loads']) - len(without_driver)} members loaded"
    if failed:
        status, evidence = "fail", "; ".join(failed)
    elif without_driver:
        status, evidence = "unknown", f"{evidence}; {'; '.join(without_driver)}"
    seconds = run.outcome.seconds
    return Check("cudnn", "libraries", status, evidence, seconds=seconds, marks=tuple(marks))


def _version_check(
    answer: CudnnAnswer, expected: str | None, crash: str, lines: tuple[str, ...]
) -> Check:
    number = answer["version"]
    if number is None:
        return Check("cudnn", "version", "unknown", "cudnnGetVersion could not be called")
    version = cudnn_text(number)
    failures = []
    for name, status in sorted(answer["checks"].items()):
        if status != 0:
            failures.append(f"{name} gives {status}")
    marks: tuple[Mark, ...] = ()
    if crash:
        failures.append(crash)
        marks = (("crashed", crash, ""),)
    elif not failures:
        # With a failed check, another version than this one computes.
        marks = (("version", "cudnn", version),)
    if expected is not None and not is_release(number, expected):
        failures.insert(0, f"cudnnGetVersion gives {version}; expected {expected}")
    if failures:
        evidence = "; ".join(failures) + log_text(lines)
        return Check("cudnn", "version", "fail", evidence, marks=marks)
    agree = f", {len(answer['checks'])} version checks agree" if answer["checks"] else ""
    return Check("cudnn", "version", "pass", f"{version}{agree}", marks=marks)


def is_release(number: int, version: str) -> bool:
    """Return whether cudnnGetVersion's number is that of a distribution's version (9.20.0.48)."""
    return cudnn_text(number) == ".".join(version.split(".")[:3])


def engines(mapped: Iterable[str]) -> str:
    """Return the mapped cuDNN libraries that compute convolutions.

    They are mapped only once one has run.
    """
    names = set()
    for path in mapped:
        name = os.path.basename(path).partition(".so")[0]
        if name.startswith(("libcudnn_engines", "libcudnn_cnn_infer")):
            names.add(name.removeprefix("libcudnn_"))
    return ", ".join(sorted(names))


def loader_marks(failure: str) -> tuple[Mark, ...]:
    """Return the marks of a loader's message (dlerror).

    They are for a missing symbol and for a library that is not found.
    """
    marks: list[Mark] = []
    symbol = re.search(r"([^\s:]+): undefined symbol: ([^\s,]+)", failure)
    if symbol:
        marks.append(("symbol", symbol[1], symbol[2]))
    missing = re.search(r"([^\s:]+): cannot open shared object file", failure)
    if missing:
        marks.append(("missing", os.path.basename(missing[1]), ""))
    return tuple(marks)
