"""The compatibility rules R1 to R7: pure functions of facts, each with its source. R8 is environment.py's.

A rule answers with reasons against, () if there are none. A code that ends in "-unknown" says that the facts do not
decide: such an answer is never "fine", and a caller treats it as a warning or as a refusal as its policy says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from ..errors import Reason
from ..model import (
    Code,
    ComputeCapability,
    CudaVersion,
    Gpu,
    Host,
    parse_pair,
    parse_release,
    show_pair,
)
from ..protocols import Matrix

BINARY_SOURCE = "CUDA C++ Programming Guide, Binary Compatibility"
PTX_SOURCE = "CUDA C++ Programming Guide, PTX Compatibility; CUDA Compatibility, Minor Version Compatibility"
CUDNN_SOURCE = "cuDNN Developer Guide, API Compatibility; aten/src/ATen/cudnn of PyTorch checks the same"
OWNER_SOURCE = "RECORD of the wheels: both install the same files"

# "Binary compatibility is supported only for the desktop. It is not supported for Tegra. Also, the binary
# compatibility between desktop and Tegra is not supported." PyTorch's torch/cuda/__init__.py (DEVICE_REQUIREMENT)
# leaves out the same devices. sm_110 needs no entry: it is alone in its major.
TEGRA = frozenset({(5, 3), (6, 2), (7, 2), (8, 7)})

# CUDA 13.0 renamed 10.1 to 11.0 (torch/cuda/__init__.py of PyTorch: code for either runs on the other).
_RENAMED = {(10, 1): (11, 0)}

_FIRST_BRANCH_BY_FIVES = 450  # before it there were 418, 396, 387

_RANK = {None: 0, "unknown": 1, "ptx": 2, "sass": 3}


@cache
def parse_target(target: str) -> tuple[ComputeCapability, str]:
    """ "90a" -> ((9, 0), "a"), "100f" -> ((10, 0), "f"), "86" -> ((8, 6), ""). ValueError for anything else."""
    suffix = target[-1:] if target[-1:] in ("a", "f") else ""
    digits = target[: len(target) - len(suffix)]
    if not (digits.isascii() and digits.isdigit() and len(digits) in (2, 3)):
        raise ValueError(f"{target!r} is not a target such as 86, 90a or 100f")
    pair = int(digits[:-1]), int(digits[-1])
    return _RENAMED.get(pair, pair), suffix


def sass_runs(target: str, capability: ComputeCapability) -> bool:
    """R2 for one SASS target: same major and no newer minor; "a" exactly; "f" its family; Tegra exactly.

    Source: CUDA C++ Programming Guide, Binary Compatibility and Family-Specific Architecture Features.
    """
    return _sass_runs((target, capability))


@cache  # the builds of all releases name the same few targets
def _sass_runs(pair: tuple[str, ComputeCapability]) -> bool:
    target, capability = pair
    made_for, suffix = parse_target(target)
    device = _RENAMED.get(capability, capability)
    if made_for == device:
        return True
    if suffix == "a" or made_for in TEGRA or device in TEGRA:
        return False
    return made_for[0] == device[0] and made_for[1] <= device[1]


def ptx_reaches(target: str, capability: ComputeCapability) -> bool:
    """R2 for one PTX target, the driver aside: any device as new; with "a" or "f" as the SASS of that name.

    Source: CUDA C++ Programming Guide, PTX Compatibility.
    """
    made_for, suffix = parse_target(target)
    device = _RENAMED.get(capability, capability)
    if suffix:
        return made_for == device or (suffix == "f" and made_for[0] == device[0] and made_for[1] <= device[1])
    return made_for <= device


def serves(code: Code, capability: ComputeCapability | None, driver_cuda: CudaVersion | None) -> str | None:
    """R2: how `code` runs on a device: "sass", "ptx" (compiled by the driver), None (not at all) or "unknown".

    PTX counts only if the driver's CUDA is no older than the toolkit that made it; if either is unknown, PTX that
    reaches the device is "unknown". Unknown PTX leaves open only devices above the oldest SASS, because a build adds
    PTX for one of the architectures that it is compiled for.
    """
    if capability is None:
        return "unknown"
    if code.sass is not None and any(sass_runs(target, capability) for target in code.sass):
        return "sass"
    open_ends = code.sass is None
    if code.ptx is None:
        open_ends = open_ends or any(parse_target(target)[0] <= capability for target in code.sass or ())
    elif any(ptx_reaches(target, capability) for target in code.ptx):
        if driver_cuda is None or code.made_by is None:
            return "unknown"
        if driver_cuda >= code.made_by:
            return "ptx"
    return "unknown" if open_ends else None


def serves_all(
    codes: Iterable[Code], capability: ComputeCapability | None, driver_cuda: CudaVersion | None
) -> str | None:
    """R3: the worst answer of `serves` over the libraries on the path; "sass" for no library at all."""
    return min((serves(code, capability, driver_cuda) for code in codes), key=_RANK.__getitem__, default="sass")


def least(codes: Sequence[Code], devices: Sequence[ComputeCapability]) -> Code:
    """R3 as one Code: what all of `codes` carry, so that `serves` never says more of it than `serves_all` of them.

    By SASS it says the same for each of `devices`. Targets that all name come first; a target that only some
    name is added where it stands for devices that all serve and no other target does (sm_90 of one, sm_90a of another).
    One code is returned as it is; for none at all the answer is a code that carries nothing.
    """
    if len(codes) == 1:
        return codes[0]
    source = "; ".join(dict.fromkeys(code.source for code in codes if code.source))
    evidence = "scanned" if codes and all(code.evidence == "scanned" for code in codes) else "documented"
    whole = all(code.ptx is not None for code in codes)
    known = all(code.sass is not None for code in codes)
    # A code of PTX alone serves no device by SASS, and so does the whole.
    lists = [code.sass or () for code in codes]
    sass = [target for target in lists[0] if all(target in one for one in lists)] if lists else []
    served = {device for device in devices if all(any(sass_runs(target, device) for target in one) for one in lists)}
    for target in sorted({target for one in lists for target in one}, key=parse_target):
        stands_for = {device for device in devices if sass_runs(target, device)}
        new = {device for device in stands_for if not any(sass_runs(other, device) for other in sass)}
        if new and stands_for <= served:
            sass.append(target)
    ptx = [
        target
        for target in sorted({target for code in codes for target in code.ptx or ()}, key=parse_target)
        if all(any(ptx_reaches(other, parse_target(target)[0]) for other in code.ptx or ()) for code in codes)
    ]
    makers = [code.made_by for code in codes if code.ptx]
    return Code(
        sass=tuple(sorted(sass, key=parse_target)) if known else None,
        ptx=tuple(ptx) if whole else None,
        made_by=max((one for one in makers if one is not None), default=None) if None not in makers else None,
        evidence=evidence,
        source=source,
    )


def serving(code: Code, gpus: Sequence[Gpu], driver_cuda: CudaVersion | None) -> tuple[str, ...]:
    """The targets of `code` that serve a device of `gpus`, SASS first: ("sm_86", "compute_90")."""
    capabilities = [gpu.compute_capability for gpu in gpus if gpu.compute_capability is not None]
    made = driver_cuda is not None and code.made_by is not None and driver_cuda >= code.made_by
    sass = [f"sm_{target}" for target in code.sass or () if any(sass_runs(target, one) for one in capabilities)]
    ptx = [f"compute_{t}" for t in code.ptx or () if made and any(ptx_reaches(t, one) for one in capabilities)]
    return (*sass, *ptx)


def device_reasons(
    subject: str, code: Code, gpus: Sequence[Gpu], driver_cuda: CudaVersion | None
) -> tuple[Reason, ...]:
    """R2 and R6: a reason for each device that `code` does not serve, in the order of `gpus`, one a capability.

    Codes: no-code-for-device, ptx-needs-newer-driver, code-unknown, device-unknown.
    """
    reasons: dict[ComputeCapability | None, Reason] = {}
    for gpu in gpus:
        capability = gpu.compute_capability
        if capability not in reasons:
            how = serves(code, capability, driver_cuda)
            if how in (None, "unknown"):
                reasons[capability] = _device_reason(subject, code, gpu, driver_cuda, unknown=how is not None)
    return tuple(reasons.values())


def _device_reason(subject: str, code: Code, gpu: Gpu, driver_cuda: CudaVersion | None, *, unknown: bool) -> Reason:
    capability = gpu.compute_capability
    have, source = show_code(code), "; ".join(part for part in (BINARY_SOURCE, code.source) if part)
    if capability is None:
        have = f"{gpu.name}, of unknown compute capability"
        return Reason(code="device-unknown", subject=subject, need=show_code(code), have=have, source=source)
    need = f"code for compute capability {show_pair(capability)} ({gpu.name})"
    if unknown:
        return Reason(code="code-unknown", subject=subject, need=need, have=have, source=source)
    late = any(ptx_reaches(target, capability) for target in code.ptx or ())
    if late and code.made_by is not None:
        need = f"a driver for CUDA {show_pair(code.made_by)} to compile its PTX for {gpu.name}"
        have = f"a driver for CUDA {show_pair(driver_cuda)}"
        return Reason(code="ptx-needs-newer-driver", subject=subject, need=need, have=have, source=PTX_SOURCE)
    return Reason(code="no-code-for-device", subject=subject, need=need, have=have, source=source)


def show_code(code: Code) -> str:
    """ "sm_80 sm_90 compute_90"; "none"; "unknown architectures"; PTX that is unknown is said to be."""
    if code.sass is None:
        return "unknown architectures"
    names = [f"sm_{target}" for target in code.sass] + [f"compute_{target}" for target in code.ptx or ()]
    return (" ".join(names) or "none") + (", PTX unknown" if code.ptx is None else "")


def driver_reasons(
    subject: str, cuda: CudaVersion, driver: str | None, floor: tuple[str, str] | None
) -> tuple[Reason, ...]:
    """R1: the driver is no older than the floor of the toolkit's family. `floor` is (release, source).

    An unknown driver gives no reason: the floor becomes a need of the lock instead. Codes: driver-floor,
    driver-floor-unknown. Source: CUDA Compatibility, Minor Version Compatibility.
    """
    if driver is None:
        return ()
    have = f"driver {driver}"
    if floor is None:
        need = f"a driver for CUDA {show_pair(cuda)}, of which no oldest one is known"
        return (Reason(code="driver-floor-unknown", subject=subject, need=need, have=have),)
    release, source = floor
    if parse_release(driver) >= parse_release(release):
        return ()
    need = f"driver {release} or newer for CUDA {show_pair(cuda)}"
    return (Reason(code="driver-floor", subject=subject, need=need, have=have, source=source),)


def driver_branch(release: str) -> int:
    """The branch of a driver release: 580.65.06 -> 580, 572.61 (a Windows release) -> 570. ValueError as
    `parse_release`. Branches since 450 are multiples of five."""
    major = parse_release(release)[0]
    return major - major % 5 if major >= _FIRST_BRANCH_BY_FIVES else major


def host_reasons(host: Host, matrix: Matrix) -> tuple[Reason, ...]:
    """R7: no GPU of the host is one that the driver's branch has dropped, and the branch is known.

    Codes: gpu-dropped-by-driver, driver-branch-unknown.
    """
    if host.driver is None or not host.gpus:
        return ()
    branch, newest, have = driver_branch(host.driver), matrix.newest_branch(), f"driver {host.driver}"
    reasons: list[Reason] = []
    for gpu in host.gpus:
        last = matrix.last_branch(gpu.compute_capability) if gpu.compute_capability else None
        if last is not None and branch > last[0]:
            need = f"a driver of branch R{last[0]} or older for compute capability {show_pair(gpu.compute_capability)}"
            reason = Reason(code="gpu-dropped-by-driver", subject=gpu.name, need=need, have=have, source=last[1])
            if reason not in reasons:
                reasons.append(reason)
    if branch > newest:
        need = f"a driver branch that the data knows (R{newest} or older)"
        reasons.append(Reason(code="driver-branch-unknown", subject="driver", need=need, have=have))
    return tuple(reasons)


def cudnn_reasons(subject: str, build_cudnn: str, runtime_cudnn: str) -> tuple[Reason, ...]:
    """R4: the cuDNN at run time has the build's major and no older minor.

    Codes: cudnn-version, cudnn-version-unknown (a text without a major and minor).
    """
    build, runtime = _major_minor(build_cudnn), _major_minor(runtime_cudnn)
    have = f"cuDNN {runtime_cudnn}"
    if build is None or runtime is None:
        need = f"a cuDNN that fits {build_cudnn}"
        return (Reason(code="cudnn-version-unknown", subject=subject, need=need, have=have, source=CUDNN_SOURCE),)
    if build[0] == runtime[0] and runtime[1] >= build[1]:
        return ()
    need = f"cuDNN {show_pair(build)} or a newer {build[0]}.x"
    return (Reason(code="cudnn-version", subject=subject, need=need, have=have, source=CUDNN_SOURCE),)


def _major_minor(version: str) -> tuple[int, int] | None:
    try:
        return parse_pair(".".join(version.split(".")[:2]))
    except ValueError:
        return None


def slot_reasons(distributions: Iterable[str], matrix: Matrix) -> tuple[Reason, ...]:
    """R5: no folder has two owners among `distributions`. Code: two-owners; one reason a folder, in order."""
    owners: dict[str, list[str]] = {}
    for name in sorted(set(distributions)):
        for folder in matrix.slots(name):
            owners.setdefault(folder, []).append(name)
    return tuple(
        Reason(code="two-owners", subject=folder, need="one owner", have=" and ".join(names), source=OWNER_SOURCE)
        for folder, names in sorted(owners.items())
        if len(names) > 1
    )
