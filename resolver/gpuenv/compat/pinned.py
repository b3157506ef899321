"""Whether pinned packages work on a host: the rules over (name, version) pairs, with no index and no solve.

It serves locks of any tool, and "what if" questions: the same pins, another driver or GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..errors import Reason
from ..model import Build, Framework, Host, Library, Way, parse_release
from ..protocols import Matrix
from ..requirements.target import normalize_name
from . import evaluate, rules

Pins = Mapping[str, str]


def reasons(pins: Iterable[tuple[str, str]], host: Host, matrix: Matrix) -> tuple[Reason, ...]:
    """Everything that speaks against these pins on the host, () if nothing does; no code is said twice of a subject.

    Codes are those of `rules`, and: cpu-build, build-unknown, library-unknown, known-broken, known-avoid, bad-pair,
    cuda-major, cuda-variant, driver-unknown, cudnn-unknown, gpu-unused (a CUDA build, and no GPU: it runs on the CPU).
    `facts.is_doubt` tells doubts and notes from what fails.
    Names may be spelled in any way; packages that no rule is about are passed over.
    """
    pinned = {normalize_name(name): version for name, version in pins}
    builds = list(_builds(pinned, host, matrix))
    libraries = {name: matrix.library(name, version, host.platform) for name, version in _libraries(pinned, matrix)}
    found: list[Reason] = []
    if host.gpus:
        found += rules.host_reasons(host, matrix) if builds or libraries else ()
        for subject, build, on_path in builds:
            found += _flat(evaluate.of_build(subject, build, host, matrix, on_path=on_path))
        if all(build is None or build.cuda is None for _, build, _ in builds):
            found += _floors(pinned, libraries, host, matrix)
        for name, library in libraries.items():
            found += _flat(evaluate.of_library(f"{name} {pinned[name]}", library, host, matrix))
        found += _unknown_driver(builds, libraries, host, matrix)
    else:
        found += _unused(builds)
    found += _known_bad(pinned, host, matrix)
    found += _together(pinned, builds, host, matrix)
    found += rules.slot_reasons(pinned, matrix)
    unique = {(reason.code, reason.subject, reason.need, reason.have): reason for reason in found}
    return tuple(unique.values())


def builds(pins: Iterable[tuple[str, str]], host: Host, matrix: Matrix) -> tuple[Build, ...]:
    """The builds of the frameworks among pinned (name, version) pairs, as far as the data knows them."""
    pinned = {normalize_name(name): version for name, version in pins}
    return tuple(build for _, build, on_path in _builds(pinned, host, matrix) if build is not None and on_path)


# ---- what the pins are ----------------------------------------------------------------------------------------------

Named = tuple[str, Build | None, bool]  # who it is, what is known of it, whether a convolution runs its code


def _builds(pinned: Pins, host: Host, matrix: Matrix) -> Iterator[Named]:
    """The frameworks and companions among the pins."""
    for framework in filter(None, map(matrix.framework, matrix.frameworks())):
        if [way.variant for way in framework.ways] == ["*"]:
            for name in (framework.distribution, *framework.companions):
                if name in pinned:
                    build = matrix.build(name, pinned[name], host.platform)
                    yield f"{name} {pinned[name]}", build, name == framework.distribution
            continue
        way = _way(framework, pinned, host)
        if way is not None:
            version = pinned[_distribution(way)]
            subject = f"{framework.name} {version} ({way.variant})"
            yield subject, matrix.variant(framework, way, version, host.platform), True


def _way(framework: Framework, pinned: Pins, host: Host) -> Way | None:
    """How a framework is installed: the way all of whose carriers are pinned; a CPU way has none and comes last."""
    for way in sorted(framework.ways, key=lambda way: -len(way.carriers)):
        elsewhere = way.platforms and host.platform not in way.platforms
        if not elsewhere and _distribution(way) in pinned and all(name in pinned for name in way.carriers):
            return way
    return None


def _distribution(way: Way) -> str:
    return normalize_name(way.requires[0].partition("[")[0])


def _libraries(pinned: Pins, matrix: Matrix) -> Iterator[tuple[str, str]]:
    """Those whose own code a convolution runs; a framework's library counts with the framework."""
    carriers = {
        name
        for framework in filter(None, map(matrix.framework, matrix.frameworks()))
        for name in (framework.distribution, *(carrier for way in framework.ways for carrier in way.carriers))
    }
    for name, version in pinned.items():
        if matrix.is_library(name) and name not in carriers:
            yield name, version


# ---- one by one ------------------------------------------------------------------------------------------------------


def _flat(found: evaluate.Facts) -> list[Reason]:
    return [reason for reasons in found.values() for reason in reasons]


def _unused(builds: Sequence[Named]) -> Iterator[Reason]:
    for subject, build, on_path in builds:
        if build is not None and build.cuda is not None and on_path:
            have = "a host without one: it runs on the CPU"
            source = build.code.source
            yield Reason(code="gpu-unused", subject=subject, need="a GPU to be of use", have=have, source=source)


def _floors(pinned: Pins, libraries: Mapping[str, Library | None], host: Host, matrix: Matrix) -> Iterator[Reason]:
    """Without a framework's build the libraries' CUDA major is what says which driver is needed."""
    for name, library in libraries.items():
        if library is not None and library.cuda_major:
            cuda = (library.cuda_major, 0)
            floor = matrix.driver_floor(cuda, host.os)
            yield from rules.driver_reasons(f"{name} {pinned[name]}", cuda, host.driver, floor)


def _unknown_driver(
    builds: Sequence[Named], libraries: Mapping[str, Library | None], host: Host, matrix: Matrix
) -> Iterator[Reason]:
    toolkits = [build.cuda for _, build, _ in builds if build is not None and build.cuda is not None]
    toolkits = toolkits or [(one.cuda_major, 0) for one in libraries.values() if one is not None and one.cuda_major]
    floors = [floor for cuda in toolkits if (floor := matrix.driver_floor(cuda, host.os)) is not None]
    if host.driver is None and floors:
        release, source = max(floors, key=lambda floor: parse_release(floor[0]))
        need, have = f"driver {release} or newer", "no driver release that is known"
        yield Reason(code="driver-unknown", subject="driver", need=need, have=have, source=source)


def _known_bad(pinned: Pins, host: Host, matrix: Matrix) -> Iterator[Reason]:
    sides: dict[str, dict[str, tuple[str, str, str, str, str]]] = {}
    for name, version in pinned.items():
        subject = f"{name} {version}"
        yield from evaluate.known_bad(name, version, host, matrix)
        for pair, side, several_gpus, text, source, severity in matrix.bad_pairs(name, version):
            if len(host.gpus) > (1 if several_gpus else 0):
                sides.setdefault(pair, {})[side] = (subject, pair, text, source, severity)
    for both in sides.values():
        if len(both) > 1:
            (one, pair, text, source, severity), (other, *_) = both["a"], both["b"]
            code = "bad-pair" if severity == "broken" else "known-avoid"
            yield Reason(code=code, subject=one, need=f"only one {pair}: {text}", have=other, source=source)


# ---- together --------------------------------------------------------------------------------------------------------


def _together(pinned: Pins, builds: Sequence[Named], host: Host, matrix: Matrix) -> Iterator[Reason]:
    """R4, one CUDA build for a framework and its companions, and the cuDNN that a build needs."""
    for subject, build, on_path in builds:
        if build is not None and build.cuda is not None and on_path:
            yield from _cudnn(subject, build, pinned, host)
    for framework in filter(None, map(matrix.framework, matrix.frameworks())):
        own = matrix.build(framework.distribution, pinned.get(framework.distribution, ""), host.platform)
        if own is None:
            continue
        for name in framework.companions:
            other = matrix.build(name, pinned.get(name, ""), host.platform)
            # One that goes with several releases of its framework links the CUDA runtime only.
            if other is None or len(other.companions) != 1 or other.variant == own.variant:
                continue
            subject, need = f"{name} {pinned[name]}", f"the CUDA build of {own.name} {own.local}, {own.variant}"
            yield Reason(code="cuda-variant", subject=subject, need=need, have=other.variant, source=other.code.source)


def _cudnn(subject: str, build: Build, pinned: Pins, host: Host) -> Iterator[Reason]:
    """R4 against the pinned cuDNN of the build's CUDA major; without any the system's would be taken."""
    if build.cudnn is None or build.cuda is None:
        return
    names = [name for name in pinned if name.startswith("nvidia-cudnn-cu")]
    mine = f"nvidia-cudnn-cu{build.cuda[0]}"
    if mine in pinned:
        yield from rules.cudnn_reasons(subject, build.cudnn, pinned[mine])
    elif names:
        have = " and ".join(f"{name} {pinned[name]}" for name in names)
        yield Reason(code="cuda-major", subject=subject, need=mine, have=have, source=rules.OWNER_SOURCE)
    elif host.os == "linux" and host.gpus:  # on Windows it is inside the framework's own wheel
        need = f"cuDNN {build.cudnn} or a newer one of its major"
        have = "none in the lock, so the system's is taken if there is one"
        yield Reason(code="cudnn-unknown", subject=subject, need=need, have=have, source=rules.CUDNN_SOURCE)
