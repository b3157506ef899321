"""Whether the compatibility data agrees with itself, and how much of it was read from binaries."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Build, Code, Value, show_pair
from ..rules import parse_target, serves
from . import DataMatrix

PLATFORMS = ("linux-x86_64", "linux-aarch64", "win-amd64")


class Audit(Value):
    """What `check` found. `counts` is (kind, rows) for scanned, documented and unknown; `contradictions` are facts
    that cannot all be true; `narrowed` are builds whose pinned cuDNN lacks code for a target that they carry."""

    counts: tuple[tuple[str, int], ...]
    contradictions: tuple[str, ...]
    narrowed: tuple[str, ...]


def check(matrix: DataMatrix) -> Audit:
    """Reads every row of the matrix and compares it with the others. DataError if a row is damaged."""
    counts = {"scanned": 0, "documented": 0, "unknown": 0}
    wrong: list[str] = []
    narrowed: list[str] = []
    for code in _codes(matrix):
        counts["unknown" if code.sass is None else code.evidence] += 1
    drivers = [matrix.branches[branch] for branch in sorted(matrix.branches)]
    if drivers != sorted(drivers):
        wrong.append("a newer driver branch supports an older CUDA")
    for build in _builds(matrix):
        _check_build(matrix, build, wrong, narrowed)
    return Audit(counts=tuple(counts.items()), contradictions=tuple(wrong), narrowed=tuple(narrowed))


def _builds(matrix: DataMatrix) -> Iterator[Build]:
    for framework in filter(None, map(matrix.framework, matrix.frameworks())):
        for platform in PLATFORMS:
            yield from matrix.builds(framework.distribution, platform)


def _codes(matrix: DataMatrix) -> Iterator[Code]:
    yield from (build.code for build in _builds(matrix))
    for name in matrix.libraries():
        yield from (library.code for library in matrix.releases(name))


def _check_build(matrix: DataMatrix, build: Build, wrong: list[str], narrowed: list[str]) -> None:
    subject = f"{build.name} {build.local} on {build.platform}"
    if build.cuda is None:
        if build.code.sass or build.code.ptx:
            wrong.append(f"{subject} is a CPU build with device code")
        return
    targets = (*(build.code.sass or ()), *(build.code.ptx or ()))
    compiler = matrix.compilers.get(build.cuda)
    strange = [target for target in targets if compiler is not None and target not in compiler]
    if strange:
        wrong.append(f"{subject} has {strange[0]}, which CUDA {show_pair(build.cuda)} cannot compile")
    if build.cudnn is None:
        return
    distribution = f"nvidia-cudnn-cu{build.cuda[0]}"
    library = matrix.library(distribution, build.cudnn, build.platform)
    if library is None:
        wrong.append(f"{subject} pins {distribution} {build.cudnn}, of which nothing is known")
        return
    bare = [target for target in build.code.sass or () if serves(library.code, parse_target(target)[0], None) is None]
    if bare:
        narrowed.append(f"{subject} has sm_{bare[0]}, {distribution} {build.cudnn} has no code for it")
