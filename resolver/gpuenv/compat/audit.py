"""Whether the compatibility data agrees with itself and with what was scanned, and how much of it is known."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from ..model import Build, Code, CudaVersion, Library, Value, parse_pair, show_pair
from ..requirements.target import PLATFORMS, version_key
from .architectures import parse_target
from .catalog import Wheels
from .data import CompatibilityData
from .evaluate import serves
from .rows import read, read_toml
from .scans import Scans

HAND_WRITTEN = ("drivers.toml", "toolkits.toml", "gpus.toml", "libraries.toml")


class Audit(Value):
    """What `check` found.

    `counts` is (kind, rows of device code) for scanned, documented and unknown; `contradictions` are facts that cannot
    all be true; `narrowed` are builds whose cuDNN lacks code for a target that they carry; `unsourced` are rows of any
    file without a source. In a checkout, which has the scans, `records` is (distribution, wheels scanned), `unscanned`
    are releases that the scope names and nobody scanned, `unlisted` distributions of the scope that the index snapshot
    does not have, so that nobody can tell.
    """

    counts: tuple[tuple[str, int], ...]
    contradictions: tuple[str, ...]
    narrowed: tuple[str, ...]
    unsourced: tuple[str, ...] = ()
    records: tuple[tuple[str, int], ...] = ()
    unscanned: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()


def check(matrix: CompatibilityData, wheels: Wheels | None = None) -> Audit:
    """Reads every row of the matrix and compares it with the others. DataError if a row is damaged.

    `wheels` gives the wheels of a distribution that the index snapshot has; without it `unscanned` stays empty.
    Rows without a source cannot be read as values: while there are some, the rest is not compared.
    """
    rows = [*_rows(matrix.folder)]
    counts = {"scanned": 0, "documented": 0, "unknown": 0}
    for _, row in rows:
        if "platform" in row:
            kind = "unknown" if row.get("sass") is None else row.get("evidence")
            counts[kind if kind in counts else "unknown"] += 1
    unsourced = tuple(f"{where}: {_named(row)}" for where, row in rows if not row.get("source"))
    if unsourced:
        return Audit(counts=tuple(counts.items()), contradictions=(), narrowed=(), unsourced=unsourced)
    wrong = [*_check_tables(matrix), *_check_libraries(matrix)]
    narrowed: list[str] = []
    builds, by_rows = [*_builds(matrix)], _by_rows(matrix)
    for build in builds:
        wrong += _check_build(matrix, build)
        against, less = _check_cudnn(matrix, build, pinned=build.name in by_rows)
        wrong += against
        narrowed += less
    wrong += _check_documents(builds)
    scans = Scans.beside(matrix)
    if scans is not None:
        wrong += scans.contradictions(wheels)
    return Audit(
        counts=tuple(counts.items()),
        contradictions=tuple(wrong),
        narrowed=tuple(narrowed),
        records=scans.counts() if scans else (),
        unscanned=tuple(scans.missing(wheels)) if scans and wheels else (),
        unlisted=tuple(scans.unlisted(wheels)) if scans and wheels else (),
    )


def _rows(folder: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every row of every file that says a fact, with the file and the table where it stands."""
    for kind in ("frameworks", "libraries"):
        path = os.path.join(folder, kind)
        for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
            whole = os.path.join(path, name)
            data = read(whole) if name.endswith(".json") else read_toml(whole) if name.endswith(".toml") else {}
            if name.endswith(".toml"):
                yield f"{kind}/{name}", data
                data = {key: data.get(key) for key in ("build", "companion")}
            yield from _tables(f"{kind}/{name}", data)
    for name in HAND_WRITTEN:
        yield from _tables(name, read_toml(os.path.join(folder, name)))


def _tables(name: str, data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for table, rows in data.items():
        if isinstance(rows, list):
            yield from ((f"{name} {table}", row) for row in rows if isinstance(row, dict))


def _named(row: Mapping[str, Any]) -> str:
    """What tells a row from the others of its table."""
    keys = ("name", "local", "version", "platform", "cuda", "branch", "folder", "versions", "capability")
    return " ".join(str(row[key]) for key in keys if key in row) or "a row"


# ---- tables


def _check_tables(matrix: CompatibilityData) -> Iterator[str]:
    drivers = [matrix.branches[branch] for branch in sorted(matrix.branches)]
    if drivers != sorted(drivers):
        yield "a newer driver branch supports an older CUDA"
    lines = sorted(matrix.compilers)
    for old, new in pairwise(lines):
        lost = {*map(parse_target, matrix.compilers[old])} - {*map(parse_target, matrix.compilers[new])}
        if lost and old[0] == new[0]:
            (pair, suffix), *_ = sorted(lost)
            yield f"CUDA {show_pair(new)} cannot compile sm_{pair[0]}{pair[1]}{suffix}, which {show_pair(old)} can"
    for version, row in matrix.toolkits.items():
        line = parse_pair(".".join(version.split(".")[:2]))
        if line not in matrix.compilers:
            yield f"CUDA {version} has a driver and no compiler row"
        driver = row.get("driver_linux")
        supported = matrix.driver_cuda(driver) if driver else None
        if supported is not None and supported < line:
            yield f"CUDA {version} came with driver {driver}, which supports CUDA {show_pair(supported)} only"
    known = {parse_target(target)[0] for targets in matrix.compilers.values() for target in targets}
    for capability in matrix.capabilities():
        if capability not in known:
            yield f"there are GPUs of compute capability {show_pair(capability)}, which no toolkit compiles for"


# ---- libraries


def _check_libraries(matrix: CompatibilityData) -> Iterator[str]:
    for name in matrix.libraries():
        for library in matrix.releases(name):
            subject = f"{name} {library.version} on {library.platform}"
            if library.cuda is not None and library.cuda[0] != library.cuda_major:
                yield f"{subject} is of CUDA {library.cuda_major} and was built with {show_pair(library.cuda)}"
            yield from _check_code(matrix, subject, library.code, _toolkits(matrix, library))


def _toolkits(matrix: CompatibilityData, library: Library) -> list[CudaVersion]:
    """Those that may have built it: of a library of which the toolkit is not known, all of its major."""
    if library.cuda is not None:
        return [library.cuda]
    return [line for line in sorted(matrix.compilers) if line[0] == library.cuda_major]


def _check_code(matrix: CompatibilityData, subject: str, code: Code, toolkits: list[CudaVersion]) -> Iterator[str]:
    """Whether one of the toolkits could have made the code. Toolkits without a row say nothing."""
    known = [matrix.compilers[line] for line in toolkits if line in matrix.compilers]
    # Not what few fat binaries have: nvidia-cudnn-cu13 brings two engines for sm_70 of an older compiler.
    targets = (*(code.sass or ()), *(code.ptx or ()))
    strange = [target for target in targets if not any(target in one for one in known)]
    if strange and known:
        which = f"CUDA {show_pair(toolkits[0])}" if len(toolkits) == 1 else f"no CUDA {toolkits[0][0]}"
        yield f"{subject} has {strange[0]}, which {which} can{'not' if len(toolkits) == 1 else ''} compile"
    if code.made_by is not None and toolkits and code.made_by > max(toolkits):
        yield f"{subject} has PTX of CUDA {show_pair(code.made_by)} and was built with {show_pair(max(toolkits))}"


# ---- builds


def _builds(matrix: CompatibilityData) -> Iterator[Build]:
    """Every build of every framework: its rows, and each way to install each release of its carriers."""
    for framework in filter(None, map(matrix.framework, matrix.frameworks())):
        for platform in PLATFORMS:
            for way in framework.ways:
                if way.variant == "*":
                    yield from matrix.builds(framework.distribution, platform)
                    continue
                rows = [row for name in way.carriers for row in matrix.releases(name) if row.platform == platform]
                found = (matrix.variant(framework, way, one, platform) for one in {row.version: 0 for row in rows})
                yield from filter(None, found)


def _by_rows(matrix: CompatibilityData) -> set[str]:
    """The distributions whose builds are rows of their own; the code of other variants is that of their carriers."""
    known = filter(None, map(matrix.framework, matrix.frameworks()))
    return {one.distribution for one in known if any(way.variant == "*" for way in one.ways)}


def _check_build(matrix: CompatibilityData, build: Build) -> Iterator[str]:
    subject = _subject(build)
    if build.cuda is None and (build.code.sass or build.code.ptx):
        yield f"{subject} is a CPU build with device code"
    elif build.cuda is not None:
        yield from _check_code(matrix, subject, build.code, [build.cuda])


def _check_cudnn(matrix: CompatibilityData, build: Build, *, pinned: bool) -> tuple[list[str], list[str]]:
    """(contradictions, narrowed): a cuDNN of which nothing is known, and a target that none admitted has code for.

    A build admits the release that it pins, or those since the one that it asks for.
    """
    if build.cuda is None or build.cudnn is None:
        return [], []
    name, since = f"nvidia-cudnn-cu{build.cuda[0]}", version_key(build.cudnn)
    releases = [one for one in matrix.releases(name) if one.platform == build.platform]
    newer = [] if pinned else [one for one in releases if version_key(one.version) > since]
    admitted = [one for one in releases if one.version == build.cudnn] + newer
    if not admitted:
        verb = "pins" if pinned else "asks for"
        return [f"{_subject(build)} {verb} {name} {build.cudnn}, of which nothing is known"], []
    for target in build.code.sass or ():
        if all(not serves(one.code, parse_target(target)[0]) for one in admitted):
            which = f"{build.cudnn} has" if pinned else f"since {build.cudnn} has"
            return [], [f"{_subject(build)} has sm_{target}, {name} {which} no code for it"]
    return [], []


def _check_documents(builds: list[Build]) -> Iterator[str]:
    """What documents say of a variant and what was read from it on another index."""
    same = ("name", "version", "variant", "platform")
    scanned = {tuple(getattr(one, key) for key in same): one for one in builds if one.code.evidence == "scanned"}
    for build in builds:
        other = scanned.get(tuple(getattr(build, key) for key in same))
        if other is None or build.code.evidence == "scanned" or build.code.sass is None:
            continue
        if {*build.code.sass} != {*(other.code.sass or ())}:
            said, seen = " ".join(build.code.sass), " ".join(other.code.sass or ())
            yield f"{_subject(build)} is documented with {said}; {seen} were read from {other.local}"


def _subject(build: Build) -> str:
    variant = "" if "+" in build.local else f" ({build.variant})"
    return f"{build.name} {build.local}{variant} on {build.platform}"
