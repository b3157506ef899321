"""Checks of where libraries come from: cuDNN opened as a framework opens it, loader variables, the loader's cache."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..model import Check
from .children import Outcome

# Libraries of the driver: they come with it, never with an environment.
_DRIVERS = re.compile(r"lib(cuda|nvidia-[a-z0-9-]+|nvcuvid|cudadebugger|nvoptix)\.so")
_SHADOWS = re.compile(r"lib(cudnn|cublas|cublasLt|cudart|nvrtc|cufft|cusparse|cusolver|nccl|curand)[_a-z0-9-]*\.so")


class Origins:
    """Tells who supplied a library: an entry of a loader variable, the loader's cache, or a runpath.

    `env` is what the child ran with. `cache` are the paths of `ldconfig -p`, read when first needed.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self.path = [entry for entry in env.get("LD_LIBRARY_PATH", "").split(":") if entry]
        self.preload = [entry for entry in re.split(r"[ :]", env.get("LD_PRELOAD", "")) if entry]
        self._cache: list[str] | None = None

    def cache(self) -> list[str]:
        """The libraries that the loader's cache names; [] where there is no ldconfig."""
        import subprocess

        if self._cache is None:
            self._cache = []
            for tool in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
                if os.path.exists(tool):
                    done = subprocess.run([tool, "-p"], capture_output=True, text=True, check=False)
                    self._cache = [line.partition(" => ")[2] for line in done.stdout.splitlines() if " => " in line]
                    break
        return self._cache

    def of(self, path: str) -> str:
        """In words, who put this file before the environment's own."""
        real = os.path.realpath(path)
        for entry in self.preload:
            if os.path.realpath(entry) == real or os.path.basename(path) == entry:
                return f"LD_PRELOAD={entry}"
        for entry in self.path:
            # By the file, not the folder: an entry may hold links to files that lie elsewhere.
            if os.path.realpath(os.path.join(entry, os.path.basename(path))) == real or inside(real, entry):
                return f"the entry {entry} of LD_LIBRARY_PATH"
        if any(os.path.realpath(known) == real for known in self.cache()):
            return "the loader's cache (ldconfig)"
        return "a runpath or an explicit path"

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
    return [
        f"{path}, from {origins.of(path)}"
        for path in mapped
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


def cudnn_checks(outcome: Outcome, folder: str, locked: str | None, origins: Origins, *, crash: str) -> list[Check]:
    """cuDNN's members: named and there, loaded, from one folder, of the locked version.

    `crash` tells how a first child ended that called the version checks; "" if it did not crash.
    """
    answer = outcome.answer
    if answer is None:
        return [_check("libraries", "fail", outcome.failure, outcome.seconds)]
    checks = [_members(answer, folder, origins, outcome.seconds)]
    own = {os.path.realpath(os.path.join(folder, name)) for name in os.listdir(folder)}  # links into a cache, maybe
    elsewhere = [path for path in answer["mapped"] if not _same(os.path.dirname(path), folder)]
    elsewhere = [path for path in elsewhere if os.path.realpath(path) not in own]
    if elsewhere:
        told = "; ".join(f"{path}, from {origins.of(path)}" for path in elsewhere[:4])
        checks.append(_check("origin", "fail", f"not the environment's: {told}"))
    else:
        evidence = f"{len(answer['mapped'])} mapped libraries, all from {folder}"
        checks.append(_check("origin", "pass", evidence))
    checks.append(_version(answer, locked, crash))
    return checks


def _members(answer: dict[str, Any], folder: str, origins: Origins, seconds: float) -> Check:
    failed = [row for row in answer["loads"] if row["failure"] and row["name"] not in answer["absent"]]
    wrong = [f"{row['name']}: {row['failure']}" for row in failed]
    for name in answer["absent"]:
        by = ", ".join(answer["named"].get(name, ()))
        taken = [row["path"] for row in answer["loads"] if row["name"] == name and row["path"]]
        path = next((one for one in answer["mapped"] if os.path.basename(one).startswith(f"{name}.")), None)
        path = path or (taken[0] if taken else None)
        instead = f"; the loader takes {path}, from {origins.of(path)}" if path else ""
        wrong.append(f"{name} is named by {by} and is not in {folder}{instead}")
    if wrong:
        return _check("libraries", "fail", "; ".join(wrong), seconds)
    return _check("libraries", "pass", f"{len(answer['loads'])} members loaded", seconds)


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


def _version(answer: dict[str, Any], locked: str | None, crash: str) -> Check:
    number = answer["version"]
    if number is None:
        return _check("version", "unknown", "cudnnGetVersion could not be asked")
    text = release_text(number)
    bad = [f"{name} gives {status}" for name, status in sorted(answer["checks"].items()) if status != 0]
    bad += [crash] if crash else []
    if locked is not None and not is_release(number, locked):
        bad.insert(0, f"cudnnGetVersion gives {text}; expected {locked}")
    if bad:
        return _check("version", "fail", "; ".join(bad))
    agreed = f", {len(answer['checks'])} version checks agree" if answer["checks"] else ""
    return _check("version", "pass", f"{text}{agreed}")


def handle_check(outcome: Outcome, subject: str) -> Check:
    """A cuDNN handle on one device."""
    answer = outcome.answer["device"] if outcome.answer is not None else None
    seconds = round(outcome.seconds, 3)
    if answer is None:
        evidence = outcome.failure or "libcudnn could not be opened"
        return Check(name="cudnn handle", subject=subject, status="fail", evidence=evidence, seconds=seconds)
    if answer["status"] == 0:
        evidence = "cudnnCreate succeeded"
        return Check(name="cudnn handle", subject=subject, status="pass", evidence=evidence, seconds=seconds)
    if answer["status"] is None:
        evidence = answer["text"]
    else:
        said = f": {answer['text']}" if answer["text"] else ""
        evidence = f"cudnnCreate gave {answer['status']} {answer['status_name']}{said}"
    return Check(name="cudnn handle", subject=subject, status="fail", evidence=evidence, seconds=seconds)


def _check(subject: str, status: str, evidence: str, seconds: float = 0.0) -> Check:
    return Check(name="cudnn", subject=subject, status=status, evidence=evidence, seconds=round(seconds, 3))
