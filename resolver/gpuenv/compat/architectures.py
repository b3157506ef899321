"""Targets of device code (sm_90a, compute_80) and driver branches: helpers, no rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

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
    sass_lists = [code.sass for code in codes if code.sass is not None]
    ptx_lists = [code.ptx for code in codes if code.ptx is not None]
    makers = [code.made_by for code in codes if code.ptx]
    known = [maker for maker in makers if maker is not None]
    scanned = bool(codes) and all(code.evidence == "scanned" for code in codes)
    return Code(
        sass=_common_sass(sass_lists, devices) if len(sass_lists) == len(codes) else None,
        ptx=_common_ptx(ptx_lists) if len(ptx_lists) == len(codes) else None,
        made_by=max(known, default=None) if len(known) == len(makers) else None,
        evidence="scanned" if scanned else "documented",
        source="; ".join(dict.fromkeys(code.source for code in codes if code.source)),
    )


def _sorted_union(target_lists: Iterable[Iterable[str]]) -> list[str]:
    union = {target for targets in target_lists for target in targets}
    return sorted(sorted(union), key=parse_target)


def _common_sass(
    target_lists: Sequence[Collection[str]], devices: Iterable[ComputeCapability]
) -> tuple[str, ...]:
    """Return the targets that stand for the devices that every list serves by SASS.

    Targets that all lists name come first. Another target is added if it serves devices that no
    target serves yet, and only devices that all lists serve: sm_90 of one library and sm_90a of
    another give sm_90a.
    """

    def served(targets: Iterable[str]) -> set[ComputeCapability]:
        return {device for device in devices if any_sass_runs(targets, device)}

    union = _sorted_union(target_lists)
    common = [target for target in union if all(target in targets for targets in target_lists)]
    served_by_all = set(devices).intersection(*map(served, target_lists))
    for target in union:
        if served([target]) <= served_by_all and not served([target]) <= served(common):
            common.append(target)
    return tuple(sorted(common, key=parse_target))


def _common_ptx(target_lists: Sequence[Iterable[str]]) -> tuple[str, ...]:
    """Return the PTX targets all of whose devices every list serves.

    compute_90 of one library and compute_90a of another have compute_90a in common.
    """

    def includes(targets: Iterable[str], other: str) -> bool:
        capability, suffix = parse_target(other)
        return any(
            ptx_runs(target, capability)
            and _WIDEST_FIRST.index(parse_target(target)[1]) <= _WIDEST_FIRST.index(suffix)
            for target in targets
        )

    union = _sorted_union(target_lists)
    return tuple(
        target for target in union if all(includes(targets, target) for targets in target_lists)
    )
