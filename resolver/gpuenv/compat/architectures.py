"""Targets of device code (sm_90a, compute_80) and driver branches: helpers, no rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache

from ..model import Code, ComputeCapability, CudaVersion, Host, parse_release, reaches_release

# "Binary compatibility is supported only for the desktop. It is not supported for Tegra. Also, the
# binary compatibility between desktop and Tegra is not supported." (CUDA C++ Programming Guide.)
# PyTorch's torch/cuda/__init__.py (DEVICE_REQUIREMENT) leaves out the same devices. sm_110 needs no
# entry: no other target has its major.
TEGRA = frozenset({(5, 3), (6, 2), (7, 2), (8, 7)})

# JetPack numbers the drivers of Jetsons: 540.4.0 supports CUDA 12.6, and 580.00 supports CUDA 13.0
# (nvidia-smi of JetPack 6.2 and 7.0).
JETSON = TEGRA | {(11, 0)}

# CUDA 13.0 renamed 10.1 to 11.0 (torch/cuda/__init__.py of PyTorch: code for either runs on both).
_RENAMED = {(10, 1): (11, 0)}

_FIRST_BRANCH_BY_FIVES = 450  # older branches are 418, 396 and 387

# The suffixes of targets, by the devices that they serve: all newer ones, the family, only one.
_WIDEST_FIRST = ("", "f", "a")

Target = tuple[ComputeCapability, str]


@cache
def parse_target(target: str) -> Target:
    """Split a target into its compute capability and its suffix.

    Args:
        target: a target without prefix. "90a" gives ((9, 0), "a"), "100f" gives ((10, 0), "f"),
            "86" gives ((8, 6), "").

    Raises:
        ValueError: the text is not a target.
    """
    suffix = target[-1:] if target.endswith(("a", "f")) else ""
    digits = target.removesuffix(suffix)
    if not (digits.isascii() and digits.isdigit() and len(digits) in (2, 3)):
        raise ValueError(f"{target!r} is not a target such as 86, 90a or 100f")
    pair = int(digits[:-1]), int(digits[-1])
    return _RENAMED.get(pair, pair), suffix


@cache  # the builds of all releases name the same few targets
def sass_runs(target: str, capability: ComputeCapability) -> bool:
    """Return whether a SASS target runs on a device.

    It runs on the same major with the same or a newer minor. A target with suffix "a" and a target
    of Tegra run on their own capability only; a target with suffix "f" runs on its family.
    Source: CUDA C++ Programming Guide, Binary Compatibility and Family-Specific Architecture
    Features.
    """
    made_for, suffix = parse_target(target)
    device = _RENAMED.get(capability, capability)
    if made_for == device:
        return True
    if suffix == "a" or made_for in TEGRA or device in TEGRA:
        return False
    return made_for[0] == device[0] and made_for[1] <= device[1]


def ptx_runs(target: str, capability: ComputeCapability) -> bool:
    """Return whether a driver that is new enough can compile a PTX target for a device.

    The device must be as new as the target. Targets with a suffix follow the rule of their SASS.
    Source: CUDA C++ Programming Guide, PTX Compatibility.
    """
    made_for, suffix = parse_target(target)
    device = _RENAMED.get(capability, capability)
    if not suffix:
        return made_for <= device
    if made_for == device:
        return True
    return suffix == "f" and made_for[0] == device[0] and made_for[1] <= device[1]


def any_sass_runs(targets: Iterable[str], capability: ComputeCapability) -> bool:
    """Return whether one of the SASS targets runs on a device."""
    return any(sass_runs(target, capability) for target in targets)


def any_ptx_runs(targets: Iterable[str], capability: ComputeCapability) -> bool:
    """Return whether a driver could compile one of the PTX targets for a device."""
    return any(ptx_runs(target, capability) for target in targets)


def show_code(code: Code) -> str:
    """Describe device code: "sm_80 sm_90 compute_90", "none", "sm_80, PTX unknown"."""
    if code.sass is None:
        return "unknown architectures"
    names = [f"sm_{target}" for target in code.sass]
    names += [f"compute_{target}" for target in code.ptx or ()]
    text = " ".join(names) or "none"
    return f"{text}, PTX unknown" if code.ptx is None else text


@cache
def driver_branch(release: str) -> int:
    """Return the branch of a driver release: 580 for 580.65.06, 570 for 572.61 (Windows).

    Branches since 450 are multiples of five.

    Raises:
        ValueError: the text is not a driver release.
    """
    major = parse_release(release)[0]
    return major - major % 5 if major >= _FIRST_BRANCH_BY_FIVES else major


def reaches_floor(host: Host, floor: str, cuda: CudaVersion | None) -> bool:
    """Return whether the driver of a host is not older than the floor of a toolkit (R1).

    Of a Jetson's driver only the CUDA version can be compared.

    Args:
        host: its GPUs and its driver count.
        floor: the driver release.
        cuda: the toolkit.
    """
    if any(gpu.compute_capability in JETSON for gpu in host.gpus):
        return cuda is None or host.driver_cuda is None or host.driver_cuda[0] >= cuda[0]
    return host.driver is not None and reaches_release(host.driver, floor)


# ---- the code that several libraries have in common --------------------------------------------


def common_code(codes: Sequence[Code], devices: Sequence[ComputeCapability]) -> Code:
    """Reduce the code of several libraries to what all of them carry (R3).

    A rule never says more about the result than about the worst of `codes`. For SASS it says
    the same on each of `devices`.

    Args:
        codes: the code of each library. One code is returned as it is. No code gives a code that
            carries nothing.
        devices: the compute capabilities for which the result must be exact.
    """
    if len(codes) == 1:
        return codes[0]
    sources = dict.fromkeys(code.source for code in codes if code.source)
    scanned = bool(codes) and all(code.evidence == "scanned" for code in codes)
    return Code(
        sass=_common_sass(codes, devices),
        ptx=_common_ptx(codes),
        made_by=_newest_ptx_toolkit(codes),
        evidence="scanned" if scanned else "documented",
        source="; ".join(sources),
    )


def _common_sass(
    codes: Sequence[Code], devices: Sequence[ComputeCapability]
) -> tuple[str, ...] | None:
    """Return the targets that stand for the devices that every code serves by SASS.

    Targets that all codes name come first. Another target is added if it serves devices that no
    target serves yet, and only devices that all codes serve: sm_90 of one library and sm_90a of
    another give sm_90a.
    """
    target_lists: list[tuple[str, ...]] = []
    for code in codes:
        if code.sass is None:
            return None
        target_lists.append(code.sass)
    common = _in_all(target_lists)
    served = set(devices)
    for targets in target_lists:
        served &= _devices_served(targets, devices)
    for target in _sorted_union(target_lists):
        serves = _devices_served((target,), devices)
        if serves <= served and not serves <= _devices_served(common, devices):
            common.append(target)
    return tuple(sorted(common, key=parse_target))


def _in_all(target_lists: Sequence[Sequence[str]]) -> list[str]:
    """Return the targets of the first list that every list has."""
    if not target_lists:
        return []
    first, *others = target_lists
    return [target for target in first if all(target in targets for targets in others)]


def _sorted_union(target_lists: Iterable[Iterable[str]]) -> list[str]:
    union: set[str] = set()
    for targets in target_lists:
        union.update(targets)
    return sorted(sorted(union), key=parse_target)


def _devices_served(
    targets: Collection[str], devices: Iterable[ComputeCapability]
) -> set[ComputeCapability]:
    return {device for device in devices if any_sass_runs(targets, device)}


def _common_ptx(codes: Sequence[Code]) -> tuple[str, ...] | None:
    """Return the PTX targets all of whose devices every code serves; None if one is unknown."""
    target_lists: list[tuple[str, ...]] = []
    for code in codes:
        if code.ptx is None:
            return None
        target_lists.append(code.ptx)
    return tuple(
        target
        for target in _sorted_union(target_lists)
        if all(_includes_ptx(targets, target) for targets in target_lists)
    )


def _includes_ptx(targets: Iterable[str], other: str) -> bool:
    """Return whether one of the PTX targets serves every device that another target serves.

    compute_90 of one library and compute_90a of another have compute_90a in common.
    """
    capability, suffix = parse_target(other)
    return any(
        ptx_runs(target, capability)
        and _WIDEST_FIRST.index(parse_target(target)[1]) <= _WIDEST_FIRST.index(suffix)
        for target in targets
    )


def _newest_ptx_toolkit(codes: Iterable[Code]) -> CudaVersion | None:
    """Return the newest toolkit that made PTX of the codes; None if one of them is unknown."""
    newest: CudaVersion | None = None
    for code in codes:
        if not code.ptx:
            continue
        if code.made_by is None:
            return None
        if newest is None or code.made_by > newest:
            newest = code.made_by
    return newest
