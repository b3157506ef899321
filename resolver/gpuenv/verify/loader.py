"""Checks of where libraries come from: cuDNN opened as a framework opens it, loader variables, the loader's cache."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..loader_env import path_entries, preload_entries
from ..model import Check, Mark
from .cudnn_log import told
from .runner import Outcome

# Libraries of the driver: they come with it, never with an environment.
_DRIVERS = re.compile(r"lib(cuda|nvidia-[a-z0-9-]+|nvcuvid|cudadebugger|nvoptix)\.so")
_SHADOWS = re.compile(r"lib(cudnn|cublas|cublasLt|cudart|nvrtc|cufft|cusparse|cusolver|nccl|curand)[_a-z0-9-]*\.so")


class Origins:
    """Tells who supplied a library: an entry of a loader variable, the loader's cache, or a runpath.

    `env` is what the child ran with. `cache` are the paths of `ldconfig -p`, read when first needed.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self.path, self.preload = [entry or os.curdir for entry in path_entries(env)], preload_entries(env)
        self._cache: list[str] | None = None
        self._runpaths: dict[str, list[tuple[str, str]]] = {}

    def cache(self) -> list[str]:
        """The libraries that the loader's cache names; [] where there is no ldconfig."""
        import subprocess

        if self._cache is None:
            found: list[str] = []
            for tool in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
                if os.path.exists(tool):
                    try:
                        done = subprocess.run([tool, "-p"], capture_output=True, text=True, check=False, timeout=1)
                    except (OSError, subprocess.TimeoutExpired):
                        break
                    found = [line.partition(" => ")[2] for line in done.stdout.splitlines() if " => " in line]
                    break
            self._cache = found  # at once: threads share this
        return self._cache

    def of(self, path: str, mapped: Iterable[str] = ()) -> str:
        """In words, who put this file before the environment's own; `mapped` are the libraries beside it."""
        real = os.path.realpath(path)
        for entry in self.preload:
            if os.path.realpath(entry) == real or os.path.basename(path) == entry:
                return f"LD_PRELOAD={entry}"
        for entry in self.path:
            # By the file, not the folder: an entry may hold links to files that lie elsewhere.
            if os.path.realpath(os.path.join(entry, os.path.basename(path))) == real or inside(real, entry):
                return f"the entry {entry} of LD_LIBRARY_PATH"
        for other in mapped:
            # A library of the same folder was led there by whoever led this one.
            if _same(os.path.dirname(other), os.path.dirname(path)):
                continue
            for entry, folder in self._runpath(other):
                if _same(os.path.join(folder, os.path.basename(path)), path):
                    return f"the runpath entry {entry} of {other}"
        if any(os.path.realpath(known) == real for known in self.cache()):
            return "the loader's cache (ldconfig)"
        return "an explicit path"

    def _runpath(self, path: str) -> list[tuple[str, str]]:
        """(entry as it stands, its folder) of DT_RPATH and DT_RUNPATH of a library; [] of what cannot be read."""
        from . import elf

        if path not in self._runpaths:
            try:
                library = elf.read(path, names=False)
                entries = [entry for entry in (*library.rpath, *library.runpath) if entry]
            except (OSError, elf.NotElfError):
                entries = []
            origin = os.path.dirname(os.path.realpath(path))
            found = [(one, one.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)) for one in entries]
            self._runpaths[path] = found
        return self._runpaths[path]

    def shadows(self) -> list[tuple[str, str]]:
        """(entry, file) of LD_LIBRARY_PATH and LD_PRELOAD that hold CUDA libraries by name."""
        found = [(entry, os.path.basename(entry)) for entry in self.preload if _SHADOWS.match(os.path.basename(entry))]
        for entry in self.path:
            try:
                names = sorted(os.listdir(entry))
            except OSError:
                continue
            found += [(entry, name) for name in names if _SHADOWS.match(name)]
        return found


def inside(path: str, prefix: str) -> bool:
    """Whether a file lies in a folder, links on either side aside."""
    places = (os.path.abspath(path), os.path.realpath(path))
    prefixes = (os.path.abspath(prefix), os.path.realpath(prefix))
    return any(place.startswith(start.rstrip("/") + "/") for place in places for start in prefixes)


def strangers(mapped: Iterable[str], prefixes: Sequence[str], owned: Collection[str], origins: Origins) -> list[str]:
    """Mapped libraries from outside the environment, the driver's own aside, each with who supplied it.

    `owned` are the real paths of the distributions' libraries: an environment of links into a package cache, or one
    that sees the system's packages, has them outside its prefix.
    """
    paths = list(mapped)
    return [
        f"{path}, from {origins.of(path, paths)}"
        for path in paths
        if not _DRIVERS.match(os.path.basename(path))
        and os.path.realpath(path) not in owned
        and not any(inside(path, prefix) for prefix in prefixes)
    ]


def whereabouts(mapped: Iterable[str], prefixes: Sequence[str]) -> str:
    """How many libraries came from which folder: "8 from nvidia/cudnn/lib, 3 of the driver"."""
    counts: dict[str, int] = {}
    for path in mapped:
        base = next((prefix for prefix in reversed(prefixes) if inside(path, prefix)), None)
        if _DRIVERS.match(os.path.basename(path)):
            place = f"of the driver in {os.path.dirname(path)}"
        else:
            place = f"from {os.path.relpath(os.path.dirname(path), base) if base else os.path.dirname(path)}"
        counts[place] = counts.get(place, 0) + 1
    return ", ".join(f"{count} {place}" for place, count in counts.items())


def variable_check(folder: str | None, origins: Origins) -> Check:
    """Loader variables and cache entries that stand, or would stand, before the environment's cuDNN."""
    found = [(entry, name) for entry, name in origins.shadows() if folder is None or not _same(entry, folder)]
    # Another major version has other names, and disturbs nobody.
    majors = {name.partition(".so.")[2].partition(".")[0] for name in os.listdir(folder)} if folder else set()
    ours = [(entry, name) for entry, name in found if name.startswith("libcudnn")]
    cudnn = sorted({entry for entry, name in ours if name.partition(".so.")[2].partition(".")[0] in majors})
    others = sorted({entry for entry, _ in found} - set(cudnn))
    cached = sorted({os.path.dirname(path) for path in origins.cache() if "/libcudnn" in path})
    notes = [f"{entry} in LD_LIBRARY_PATH holds other CUDA libraries" for entry in others]
    notes += [f"another cuDNN is in the loader's cache: {place}" for place in cached if not _same(place, folder or "")]
    if cudnn:
        what = f"another cuDNN stands before the environment's: {', '.join(cudnn)} (LD_LIBRARY_PATH or LD_PRELOAD)"
        return Check(name="loader", subject="variables", status="fail", evidence="; ".join([what, *notes]))
    evidence = "; ".join(notes) or "no loader variable or cache entry names another CUDA library"
    return Check(name="loader", subject="variables", status="pass", evidence=evidence)


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def foreign_cudnn(mapped: Sequence[str], folder: str, origins: Origins) -> list[str]:
    """cuDNN's libraries among the mapped ones that are not from `folder`, together with who supplied them.

    The version functions are no proof: a main library of one release answers with the number of the members that the
    loader gave it, and its checks compare those members with one another.
    """
    own = {os.path.realpath(os.path.join(folder, name)) for name in os.listdir(folder)}  # links into a cache, maybe
    suppliers: dict[tuple[str, str], list[str]] = {}
    for path in mapped:
        place, name = os.path.split(path)
        if name.startswith("libcudnn") and not _same(place, folder) and os.path.realpath(path) not in own:
            suppliers.setdefault((place, origins.of(path, mapped)), []).append(name)
    told = []
    for (place, origin), names in suppliers.items():
        first, *others = sorted(names)
        more = f" and {len(others)} more" if others else ""
        told.append(f"{os.path.join(place, first)}{more}, from {origin}")
    return told


def cudnn_checks(
    outcome: Outcome, folder: str, locked: str | None, origins: Origins, *, crash: str, lines: tuple[str, ...] = ()
) -> list[Check]:
    """cuDNN's members: named and there, loaded, from one folder, of the locked version.

    `crash` tells how a first child ended that called the version checks; "" if it did not crash. `lines` are the
    reasons of cuDNN's log, from a second run where one of the checks failed.
    """
    answer = outcome.answer
    if answer is None:
        marks = (*loader_marks(outcome.failure), ("crashed", outcome.step, ""))
        return [_check("libraries", "fail", outcome.failure, outcome.seconds, marks)]
    checks = [_members(answer, folder, origins, outcome.seconds)]
    elsewhere = foreign_cudnn(answer["mapped"], folder, origins)
    if elsewhere:
        marks = tuple(("foreign", one.partition(", from ")[0], "") for one in elsewhere)
        checks.append(_check("origin", "fail", f"not the environment's: {'; '.join(elsewhere[:4])}", 0.0, marks))
    else:
        evidence = f"{len(answer['mapped'])} mapped libraries, all from {folder}"
        checks.append(_check("origin", "pass", evidence))
    checks.append(_version(answer, locked, crash, lines))
    return checks


def _members(answer: dict[str, Any], folder: str, origins: Origins, seconds: float) -> Check:
    failed = [row for row in answer["loads"] if row["failure"] and row["name"] not in answer["absent"]]
    # The driver's own library is the host's affair: where it has no driver, nothing is said against the environment.
    driverless = [row for row in failed if _DRIVERS.match(row["failure"])]
    wrong = [f"{row['name']}: {row['failure']}" for row in failed if row not in driverless]
    for name in answer["absent"]:
        by = ", ".join(answer["named"].get(name, ()))
        taken = [row["path"] for row in answer["loads"] if row["name"] == name and row["path"]]
        path = next((one for one in answer["mapped"] if os.path.basename(one).startswith(f"{name}.")), None)
        path = path or (taken[0] if taken else None)
        instead = f"; the loader takes {path}, from {origins.of(path, answer['mapped'])}" if path else ""
        wrong.append(f"{name} is named by {by} and is not in {folder}{instead}")
    if wrong:
        marks = [mark for row in failed if row not in driverless for mark in loader_marks(row["failure"])]
        marks += [("missing", name, " ".join(answer["named"].get(name, ()))) for name in answer["absent"]]
        return _check("libraries", "fail", "; ".join(wrong), seconds, tuple(marks))
    loaded = f"{len(answer['loads']) - len(driverless)} members loaded"
    if driverless:
        which = "; ".join(f"{row['name']} needs the driver: {row['failure']}" for row in driverless)
        return _check("libraries", "unknown", f"{loaded}; {which}", seconds)
    return _check("libraries", "pass", loaded, seconds)


def release_text(number: int) -> str:
    """92000 is 9.20.0, and 8907 is 8.9.7: cudnn_version.h; the encoding changed with 9.0."""
    if number < 90000:
        return f"{number // 1000}.{number // 100 % 10}.{number % 100}"
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def is_release(number: int, version: str) -> bool:
    """Whether cudnnGetVersion's number is that of a distribution's version (9.20.0.48)."""
    return release_text(number) == ".".join(version.split(".")[:3])


def engines(mapped: Iterable[str]) -> str:
    """The members among mapped libraries that compute convolutions: mapped when one was run, not before."""
    names = {os.path.basename(path).partition(".so")[0] for path in mapped}
    return ", ".join(sorted(name[9:] for name in names if name.startswith(("libcudnn_engines", "libcudnn_cnn_infer"))))


def again_wanted(outcome: Outcome) -> bool:
    """Whether cuDNN's log may tell more: a version check gave an error, or the child crashed in cuDNN."""
    if outcome.answer is None:
        return outcome.ended == "crash"
    return any(status != 0 for status in outcome.answer["checks"].values())


def _version(answer: dict[str, Any], locked: str | None, crash: str, lines: tuple[str, ...]) -> Check:
    number = answer["version"]
    if number is None:
        return _check("version", "unknown", "cudnnGetVersion could not be asked")
    text = release_text(number)
    bad = [f"{name} gives {status}" for name, status in sorted(answer["checks"].items()) if status != 0]
    bad += [crash] if crash else []
    # What its own checks speak against is not the version that computes.
    marks: tuple[Mark, ...] = (("crashed", crash, ""),) if crash else () if bad else (("version", "cudnn", text),)
    if locked is not None and not is_release(number, locked):
        bad.insert(0, f"cudnnGetVersion gives {text}; expected {locked}")
    if bad:
        return _check("version", "fail", "; ".join(bad) + told(lines), 0.0, marks)
    agreed = f", {len(answer['checks'])} version checks agree" if answer["checks"] else ""
    return _check("version", "pass", f"{text}{agreed}", 0.0, marks)


def loader_marks(failure: str) -> tuple[Mark, ...]:
    """What a message of the loader (dlerror) says: a symbol that a library lacks, a library that is not found."""
    symbol = re.search(r"([^\s:]+): undefined symbol: ([^\s,]+)", failure)
    lost = re.search(r"([^\s:]+): cannot open shared object file", failure)
    marks: list[Mark] = [("symbol", symbol[1], symbol[2])] if symbol else []
    return (*marks, *([("missing", os.path.basename(lost[1]), "")] if lost else []))


def _check(subject: str, status: str, evidence: str, seconds: float = 0.0, marks: tuple[Mark, ...] = ()) -> Check:
    return Check(
        name="cudnn", subject=subject, status=status, evidence=evidence, seconds=round(seconds, 3), marks=marks
    )
