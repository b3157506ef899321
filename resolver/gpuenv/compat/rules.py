"""The compatibility rules: pure functions of facts, each with its source.

Only compat.evaluate calls them. R8 (interpreter, glibc, platform) is requirements.target.

A rule returns the reasons against, () if there are none. A code that ends in "-unknown" means that
the facts do not decide. It never means "compatible": the caller turns it into a warning or a
refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..errors import Reason
from ..model import (
    Code,
    ComputeCapability,
    CudaVersion,
    Gpu,
    Host,
    major_minor,
    show_pair,
)
from ..requirements.versions import contains
from .architectures import (
    TEGRA,
    any_ptx_runs,
    any_sass_runs,
    driver_branch,
    parse_target,
    reaches_floor,
    show_code,
)
from .extensions import Links, shown_release
from .rows import Family

BINARY_SOURCE = "CUDA C++ Programming Guide, Binary Compatibility"
PTX_SOURCE = (
    "CUDA C++ Programming Guide, PTX Compatibility; CUDA Compatibility, Minor Version Compatibility"
)
CUDNN_SOURCE = (
    "cuDNN Developer Guide, API Compatibility; aten/src/ATen/cudnn of PyTorch checks the same"
)
JETSON_SOURCE = (
    "NVIDIA blog, What's New in CUDA Toolkit 13.0 for Jetson Thor: one toolkit for Arm servers and"
    " Jetson, except for Orin (sm_87); bitsandbytes-foundation/bitsandbytes#1930, #1941"
)
VARIANT_SOURCE = "PEP 825, variant properties of the wheel"
NUMPY_SOURCE = "NumPy 2.0 release notes: a module compiled against NumPy 1 needs NumPy 1"
FIRST_NUMPY_2 = "2024-03-11"  # NumPy 2.0.0b1: older wheels are compiled against NumPy 1
OWNER_SOURCE = "RECORD of the wheels: both install the same files"

# Compute capability -> (driver branch, source).
Branches = Mapping[ComputeCapability, tuple[int, str]]

# The answers of `serves`, worst first.
_ANSWERS = (None, "unknown", "ptx", "sass")


def serves(
    code: Code, capability: ComputeCapability | None, driver_cuda: CudaVersion | None
) -> str | None:
    """R2: how device code runs on a device.

    PTX counts only if the driver's CUDA is not older than the toolkit that made it. PTX of an
    unknown toolkit or on an unknown driver is "unknown". A build adds PTX for one of the
    architectures that it is compiled for, so unknown PTX can serve only devices as new as the
    oldest SASS.

    Args:
        code: the targets of a library or a build.
        capability: the device's; None is unknown.
        driver_cuda: the newest CUDA that the driver supports; None is unknown.

    Returns:
        "sass", "ptx" (the driver compiles it), "unknown", or None (it does not run).
    """
    if capability is None:
        return "unknown"
    if code.sass is not None and any_sass_runs(code.sass, capability):
        return "sass"
    undecided = code.sass is None
    if code.unknown_below is not None:
        undecided = undecided or capability < code.unknown_below
    if code.ptx is None:
        oldest = min((parse_target(target)[0] for target in code.sass or ()), default=None)
        undecided = undecided or (oldest is not None and oldest <= capability)
    elif any_ptx_runs(code.ptx, capability):
        if driver_cuda is None or code.made_by is None:
            return "unknown"
        if driver_cuda >= code.made_by:
            return "ptx"
    return "unknown" if undecided else None


def serves_all(
    codes: Iterable[Code], capability: ComputeCapability | None, driver_cuda: CudaVersion | None
) -> str | None:
    """R3: the worst answer of `serves` over the libraries on the path; "sass" for no library."""
    answers = [serves(code, capability, driver_cuda) for code in codes]
    return min(answers, key=_ANSWERS.index, default="sass")


def device_reasons(subject: str, code: Code, host: Host) -> tuple[Reason, ...]:
    """R2 and R6: every device of a host must be served.

    Returns:
        One reason for each compute capability that `code` does not serve, in the order of the GPUs.
        Codes: no-code-for-device, ptx-needs-newer-driver, code-unknown, device-unknown,
        jetson-wheel.
    """
    reasons: dict[ComputeCapability | None, Reason] = {}
    for gpu in host.gpus:
        capability = gpu.compute_capability
        if capability not in reasons:
            answer = serves(code, capability, host.driver_cuda)
            if answer in (None, "unknown"):
                reasons[capability] = _device_reason(subject, code, gpu, host.driver_cuda, answer)
    return tuple(reasons.values())


def _device_reason(
    subject: str, code: Code, gpu: Gpu, driver_cuda: CudaVersion | None, answer: str | None
) -> Reason:
    capability, made_by = gpu.compute_capability, code.made_by
    source = f"{BINARY_SOURCE}; {code.source}" if code.source else BINARY_SOURCE
    if capability is None:
        name, need = "device-unknown", show_code(code)
        have = f"{gpu.name}, of unknown compute capability"
    elif capability in TEGRA:
        # The same for every library: it is a fact about the board.
        name, source, subject = "jetson-wheel", JETSON_SOURCE, gpu.name
        need, have = "wheels for JetPack", "wheels for Arm servers, whose code does not run on it"
    elif answer is None and made_by is not None and any_ptx_runs(code.ptx or (), capability):
        name, source = "ptx-needs-newer-driver", PTX_SOURCE
        need = f"a driver for CUDA {show_pair(made_by)} to compile its PTX for {gpu.name}"
        have = f"a driver for CUDA {show_pair(driver_cuda)}"
    else:
        name = "no-code-for-device" if answer is None else "code-unknown"
        need = f"code for compute capability {show_pair(capability)} ({gpu.name})"
        older = code.unknown_below is not None and capability < code.unknown_below
        have = show_code(Code(sass=None) if older else code)
    return Reason(name, subject, need, have, source=source)


def needs_jetson_wheels(gpus: Iterable[Gpu]) -> bool:
    """R2: whether a GPU is a Jetson before Thor, on which code for Arm servers does not run."""
    return any(gpu.compute_capability in TEGRA for gpu in gpus)


def cpu_build_reasons(subject: str, code: Code, host: Host) -> tuple[Reason, ...]:
    """Return why a CPU build is none for a host with a GPU. Codes: cpu-build, jetson-wheel."""
    if needs_jetson_wheels(host.gpus):
        return device_reasons(subject, code, host)
    need, have = "a CUDA build", "a CPU build"
    return (Reason("cpu-build", subject, need, have, source=code.source),)


def driver_reasons(
    subject: str, cuda: CudaVersion, host: Host, floor: tuple[str, str] | None
) -> tuple[Reason, ...]:
    """Apply R1: the driver is not older than the floor of the toolkit's family.

    If only the driver's CUDA version is known (CONDA_OVERRIDE_CUDA), its major decides. If nothing
    is known about the driver, there is no reason: the floor becomes a need of the lock. If the
    floor is unknown, a driver for an older CUDA major is refused, and a driver for the toolkit's
    CUDA or a newer one is accepted.
    Source: CUDA Compatibility, Minor Version Compatibility.

    Args:
        subject: what the reasons are about.
        cuda: the toolkit.
        host: its driver release and driver CUDA version count.
        floor: (release, source) of the toolkit's family; None is unknown.

    Returns:
        Codes: driver-floor, driver-floor-unknown, driver-cuda.
    """
    release, source = floor or ("", "")
    driver_cuda, have = host.driver_cuda, f"driver {host.driver}"
    if host.driver is not None and floor is not None:
        if reaches_floor(host, release, cuda):
            return ()
        code, need = "driver-floor", f"driver {release} or newer for CUDA {show_pair(cuda)}"
    elif driver_cuda is not None and driver_cuda[0] < cuda[0]:
        code, need = "driver-cuda", f"a driver for CUDA {cuda[0]}"
        have = f"a driver for CUDA {show_pair(driver_cuda)}"
    elif host.driver is None or (driver_cuda is not None and driver_cuda >= cuda):
        return ()
    else:
        code = "driver-floor-unknown"
        need = f"a driver for CUDA {show_pair(cuda)}, whose oldest driver is not known"
    return (Reason(code, subject, need, have, source=source),)


def cuda_bound_reasons(
    subject: str,
    lower: CudaVersion | None,
    upper: CudaVersion | None,
    driver_cuda: CudaVersion | None,
) -> tuple[Reason, ...]:
    """R1 for a variant wheel: the driver's CUDA is within the bounds that its publisher names.

    Args:
        subject: what the reasons are about.
        lower: the driver's CUDA is not older; None is no bound.
        upper: the driver's CUDA is older; None is no bound.
        driver_cuda: the newest CUDA that the driver supports; None is unknown.

    Returns:
        Codes: driver-cuda, driver-cuda-unknown.
    """
    needs = []
    if lower is not None and (driver_cuda is None or driver_cuda < lower):
        needs.append(f"a driver for CUDA {show_pair(lower)} or newer")
    if upper is not None and (driver_cuda is None or driver_cuda >= upper):
        needs.append(f"a driver older than that for CUDA {show_pair(upper)}")
    code, have = "driver-cuda", f"a driver for CUDA {show_pair(driver_cuda)}"
    if driver_cuda is None:
        code, have = "driver-cuda-unknown", "a driver whose CUDA is not known"
    return tuple(Reason(code, subject, need, have, source=VARIANT_SOURCE) for need in needs)


def branch_reasons(
    host: Host, first_branches: Branches, last_branches: Branches, newest_branch: int
) -> tuple[Reason, ...]:
    """R9 and R7: the driver's branch is known and supports every GPU of the host.

    Args:
        host: its GPUs and driver count.
        first_branches: the first branch that supports a capability. A missing capability is
            supported by every branch, or its driver is a part of JetPack.
        last_branches: the last branch that supports a capability, for the capabilities that a
            later branch dropped.
        newest_branch: the newest branch that the data knows.

    Returns:
        Codes: gpu-needs-newer-driver, gpu-dropped-by-driver, driver-branch-unknown.
    """
    if host.driver is None or not host.gpus:
        return ()
    branch, have = driver_branch(host.driver), f"driver {host.driver}"
    needs: list[tuple[str, str, str, str]] = []  # code, subject, need, source
    for gpu in host.gpus:
        first, source = first_branches.get(gpu.compute_capability or (0, 0), (0, ""))
        if branch < first:
            need = f"a driver of branch R{first} or newer"
            needs.append(("gpu-needs-newer-driver", gpu.name, need, source))
    for gpu in host.gpus:
        last, source = last_branches.get(gpu.compute_capability or (0, 0), (branch, ""))
        if branch > last:
            capability = show_pair(gpu.compute_capability)
            need = f"a driver of branch R{last} or older for compute capability {capability}"
            needs.append(("gpu-dropped-by-driver", gpu.name, need, source))
    if branch > newest_branch:
        need = f"a driver branch that the data knows (R{newest_branch} or older)"
        needs.append(("driver-branch-unknown", "driver", need, ""))
    return tuple(
        Reason(code, subject, need, have, source=source)
        for code, subject, need, source in dict.fromkeys(needs)
    )


def cudnn_reasons(subject: str, build_cudnn: str, runtime_cudnn: str) -> tuple[Reason, ...]:
    """R4: the cuDNN at run time has the build's major and not an older minor.

    Returns:
        Codes: cudnn-version, cudnn-version-unknown (a text without a major and a minor).
    """
    build, runtime = major_minor(build_cudnn), major_minor(runtime_cudnn)
    if build is None or runtime is None:
        code, need = "cudnn-version-unknown", f"a cuDNN that fits {build_cudnn}"
    elif build[0] == runtime[0] and runtime[1] >= build[1]:
        return ()
    else:
        code, need = "cudnn-version", f"cuDNN {show_pair(build)} or a newer {build[0]}.x"
    have = f"cuDNN {runtime_cudnn}"
    return (Reason(code, subject, need, have, source=CUDNN_SOURCE),)


def bad_release_reasons(subject: str, verdict: tuple[str, str, str] | None) -> tuple[Reason, ...]:
    """R4: the release is not known to be bad.

    Args:
        subject: the release.
        verdict: (severity, text, source) of the data; None for a release without a verdict.

    Returns:
        Codes: known-unsupported, known-broken, known-avoid.
    """
    if verdict is None:
        return ()
    severity, text, source = verdict
    need = "a release that is not known to be bad"
    reason = Reason(f"known-{severity}", subject, need, text, source=source)
    return (reason,)


def framework_reasons(
    subject: str, links: Links, versions: Mapping[str, str]
) -> tuple[Reason, ...]:
    """R10: an extension runs with the releases of a framework that its files were built for.

    Args:
        subject: the extension.
        links: what its files need.
        versions: the packages beside it: name -> version.

    Returns:
        One reason for each framework with another release. Code: extension-release.
    """
    return tuple(
        Reason(
            "extension-release",
            subject,
            f"{name} {shown_release(specifier)}",
            f"{name} {versions[name]}",
            source=links.source,
        )
        for name, specifier in links.frameworks
        if name in versions and not contains(specifier, versions[name])
    )


def shared_path_reasons(
    family: Family, members: Sequence[str], versions: Mapping[str, str]
) -> tuple[Reason, ...]:
    """R5: only one member of a tolerated family installs its paths.

    Args:
        family: distributions that install the same paths.
        members: those that are there, in the order of their installation.
        versions: their versions.

    Returns:
        One reason, or none. Code: shared-paths.
    """
    if len(members) < 2:
        return ()
    have = " and ".join(f"{name} {versions[name]}" for name in members)
    have += f" install the same files; {members[-1]} is installed last and wins"
    code, path, need = "shared-paths", family.path, "one owner"
    return (Reason(code, path, need, have, source=family.source),)
