"""Facts of the host, in the kinds that a log's facts have: from the detection, what is installed, rules and variables.

Nothing is looked at here: what was seen is handed in as values. Every fact says where it is from ("host: NVML", "host:
check cudnn version"), and its text is what was seen there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..errors import Reason
from ..model import Build, Host, Problem, show_pair
from .model import Fact

MIB = 1 << 20
SCARCE = 600 * MIB  # free bytes below which cuDNN and the frameworks' first allocations fail
LONGEST = 300
# Variables that change what is loaded, which devices are seen or how memory is taken.
_VARIABLES = re.compile(
    r"LD_(LIBRARY_PATH|PRELOAD)|CUDA_\w+|CUDNN_\w+|NVIDIA_(VISIBLE_DEVICES|TF32_OVERRIDE)|NCCL_\w+|TF_\w+|XLA_\w+|"
    r"JAX_\w+|PYTORCH_\w+|TORCH_CUDNN\w*"
)
# Problem of the detection -> what it shows: (kind, subject, value); a "test" fact fails.
_PROBLEMS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "no-gpu": (("pci-gpu", "", "0"),),  # no fault of a machine that is meant to have none
    "driver-not-installed": (
        ("pci-gpu", "", "1"), ("module", "nvidia", "missing"), ("test", "nvml", "fail"), ("test", "libcuda", "fail"),
    ),
    "driver-not-loaded": (
        ("module", "nvidia", "absent"), ("status", "nvml", "NVML_ERROR_DRIVER_NOT_LOADED"), ("test", "nvml", "fail"),
    ),
    "driver-libraries-missing": (
        ("module", "nvidia", "loaded"), ("test", "nvml", "fail"), ("test", "libcuda", "fail"),
    ),
    "driver-libraries-broken": (("test", "nvml", "fail"),),
    "driver-libraries-off-path": (("test", "libcuda", "fail"),),
    "driver-library-mismatch": (
        ("status", "nvml", "NVML_ERROR_LIB_RM_VERSION_MISMATCH"), ("test", "driver-versions", "fail"),
        ("test", "nvml", "fail"),
    ),
    "libcuda-missing": (("test", "libcuda", "fail"),),
    "nvml-library-not-found": (("status", "nvml", "NVML_ERROR_LIBRARY_NOT_FOUND"), ("test", "nvml", "fail")),
    "nvml-unknown-error": (("status", "nvml", "NVML_ERROR_UNKNOWN"), ("test", "nvml", "fail")),
    "nvml-error": (("test", "nvml", "fail"),),
    "nvml-timeout": (("test", "nvml", "fail"),),
    "no-permission": (
        ("status", "nvml", "NVML_ERROR_NO_PERMISSION"), ("device-node", "/dev/nvidiactl", "denied"),
        ("test", "device-open", "fail"),
    ),
    "gpu-lost": (("status", "nvml", "NVML_ERROR_GPU_IS_LOST"), ("test", "health", "fail")),
    "gpu-reset-required": (("status", "nvml", "NVML_ERROR_RESET_REQUIRED"), ("test", "health", "fail")),
    "compute-prohibited": (("says", "gpu_busy_or_exclusive", "compute-prohibited"),),
    "mig-no-instance": (("says", "gpu_busy_or_exclusive", "mig-no-instance"),),
    "devices-hidden": (("test", "visible-devices", "fail"),),
    "visible-device-missing": (("test", "visible-devices", "fail"),),
    "visible-devices-repeated": (("test", "visible-devices", "fail"),),
}  # fmt: skip
# Reason of a rule -> the test that it fails.
_REASONS = {
    "driver-floor": "driver-runtime",
    "ptx-needs-newer-driver": "driver-runtime",
    "no-code-for-device": "architecture",
    "cudnn-version": "cudnn-version",
    "cuda-variant": "companions",
    "bad-pair": "companions",
    "cuda-major": "one-cuda-major",
    "two-owners": "one-cuda-major",
    "cpu-build": "cuda-build",
}
# Reason that something is not known -> the test that then cannot pass.
_DOUBTS = {
    "code-unknown": "architecture",
    "device-unknown": "architecture",
    "build-unknown": "architecture",
    "library-unknown": "architecture",
    "driver-floor-unknown": "driver-runtime",
    "driver-unknown": "driver-runtime",
    "cudnn-version-unknown": "cudnn-version",
    "cudnn-unknown": "cudnn-version",
}


def host_facts(host: Host, *, described: bool = False) -> tuple[Fact, ...]:
    """The facts of the host itself. One that was only described has no more than its GPUs and its driver."""
    return tuple(_host(host, described))


def _host(host: Host, described: bool) -> Iterator[Fact]:
    seen = "host: as described" if described else "host: NVML"
    sources = dict(host.sources)
    if host.driver is not None:
        where = seen if described or "driver" not in sources else f"host: {sources['driver']}"
        yield fact("driver", "", host.driver, where, f"the driver is {host.driver}")
    if host.driver_cuda is not None:
        cuda = show_pair(host.driver_cuda)
        yield fact("driver-cuda", "", cuda, seen, f"the driver is for CUDA up to {cuda}")
    for index, gpu in enumerate(host.gpus):
        number = str(index)
        yield fact("gpu", number, gpu.name, seen, f"GPU {index} is {gpu.name}")
        if gpu.compute_capability is not None:
            value = show_pair(gpu.compute_capability)
            yield fact("capability", number, value, seen, f"GPU {index} {gpu.name} has compute capability {value}")
        if gpu.compute_mode is not None:
            text = f"GPU {index} is in compute mode {gpu.compute_mode}"
            yield fact("compute-mode", number, gpu.compute_mode, seen, text)
    yield from _memory(host, seen)
    if described:
        return
    if host.gpus:
        yield fact("test", "nvml", "pass", seen, f"NVML lists {len(host.gpus)} GPUs")
    kind, platform = host.virtualization, "host: /proc"
    yield fact("container", "", "yes" if kind == "container" else "no", platform, f"it runs {_place(kind)}")
    yield fact("wsl", "", "yes" if kind == "wsl2" else "no", platform, f"it runs {_place(kind)}")
    for problem in host.problems:
        yield from _problem(problem)


def _place(virtualization: str | None) -> str:
    return {"container": "in a container", "wsl2": "in WSL 2", "tegra": "on a Jetson"}.get(
        virtualization or "", "in no container"
    )


def _memory(host: Host, seen: str) -> Iterator[Fact]:
    """The memory of every GPU, and the test of the one with the least."""
    known = [
        (index, gpu.memory_free, gpu.memory_total)
        for index, gpu in enumerate(host.gpus)
        if gpu.memory_free is not None and gpu.memory_total
    ]
    for index, free, total in known:
        text = f"GPU {index} has {memory_text(free, total)}"
        yield fact("free-bytes", str(index), str(free), seen, text)
        yield fact("total-bytes", str(index), str(total), seen, text)
    if known:
        index, free, total = min(known, key=lambda row: row[1] / row[2])
        status = memory_status(free, total)
        yield fact("test", "free-memory", status, seen, f"GPU {index} has {memory_text(free, total)}")


def memory_text(free: int, total: int) -> str:
    """40 MiB free of 81920 MiB (0 %)."""
    return f"{free // MIB} MiB free of {total // MIB} MiB ({free * 100 // total} %)"


def memory_status(free: int, total: int) -> str:
    """Whether memory may be what is short: pass is more than a quarter free, fail is next to nothing."""
    if free * 4 > total and free >= SCARCE:
        return "pass"
    return "fail" if free < SCARCE or free * 10 < total else "unknown"


def _problem(problem: Problem) -> Iterator[Fact]:
    for kind, subject, value in _PROBLEMS.get(problem.code, ()):
        yield fact(kind, subject, value, "host: detection", f"{problem.code}: {problem.detail}")


def node_facts(nodes: Mapping[str, str]) -> tuple[Fact, ...]:
    """Of device nodes: path -> yes, missing or denied. What is denied was there before."""
    facts = [_node(path, value) for path, value in nodes.items()]
    state = nodes.get("/dev/nvidiactl")
    if state in ("yes", "denied"):
        status = "pass" if state == "yes" else "fail"
        facts.append(fact("test", "device-open", status, "host: /dev", f"/dev/nvidiactl: {state}"))
    return tuple(facts)


def _node(path: str, value: str) -> Fact:
    return fact("device-node", path, value, "host: /dev", f"{path}: {value}")


def variable_facts(env: Mapping[str, str]) -> tuple[Fact, ...]:
    """Of the variables that matter to what is loaded, which devices are seen, and how memory is taken."""
    return tuple(
        fact("variable", name, value, f"host: variable {name}", f"{name}={value}")
        for name, value in sorted(env.items())
        if _VARIABLES.fullmatch(name)
    )


# ---- what is installed --------------------------------------------------------------------------------------------


def package_facts(
    distributions: Iterable[tuple[str, str]], libraries: Iterable[str], builds: Iterable[Build]
) -> tuple[Fact, ...]:
    """Of what is installed: versions, the libraries of cuDNN and CUDA, and what the frameworks were built with."""
    facts = [
        fact("package", name, version, "host: installed packages", f"{name} {version} is installed")
        for name, version in distributions
    ]
    for path in libraries:
        name = os.path.basename(path)
        if re.match(r"lib(cudnn|cublas|cudart|nvrtc|nccl|cusparse|cusolver|cufft|curand|nvJitLink)\b[^/]*\.so", name):
            facts.append(fact("library-present", name, path, "host: installed packages", f"{path} is there"))
    for build in builds:
        who, where = f"{build.name} {build.local}", "host: what is known of the build"
        cuda = "none" if build.cuda is None else show_pair(build.cuda)
        facts.append(fact("framework", build.name, build.version, where, f"{who} is installed"))
        facts.append(fact("cuda-built", build.name, cuda, where, f"{who} is built for CUDA {cuda}"))
        if build.cuda is not None:
            facts.append(fact("test", "cuda-build", "pass", where, f"{who} is built for CUDA {cuda}"))
        if build.cudnn is not None:
            version = ".".join(build.cudnn.split(".")[:3])
            facts.append(fact("cudnn-built", build.name, version, where, f"{who} is built with cuDNN {version}"))
    return tuple(facts)


def reason_facts(
    reasons: Iterable[Reason], host: Host, builds: Sequence[Build], distributions: Iterable[tuple[str, str]]
) -> tuple[Fact, ...]:
    """Of the rules of compatibility: what they find, and what passes since they find nothing."""
    found: list[Fact] = []
    failed: set[str] = set()
    for reason in reasons:
        failed |= {_DOUBTS[reason.code]} if reason.code in _DOUBTS else set()
        test = _REASONS.get(reason.code)
        if test is None:
            continue
        text = f"{reason.subject} needs {reason.need}; there is {reason.have}"
        if reason.code == "cpu-build" and any(build.cuda is not None for build in builds):
            found += _about(reason, text)  # beside a build for CUDA it may well be what is wanted
            continue
        failed.add(test)
        found.append(fact("test", test, "fail", "host: rules of compatibility", text))
        found += _about(reason, text)
    if host.driver is None:
        failed.add("driver-runtime")
    if not host.gpus:
        failed.add("architecture")
    names = {name for name, _ in distributions}
    if not any(name.startswith("nvidia-cudnn-cu") for name in names):
        failed.add("cudnn-version")
    if any(build.cuda is not None for build in builds):
        for test in ("driver-runtime", "architecture", "cudnn-version"):
            if test not in failed:
                text = "no rule speaks against what is installed"
                found.append(fact("test", test, "pass", "host: rules of compatibility", text))
    return tuple(found)


def _about(reason: Reason, text: str) -> Iterator[Fact]:
    """What a reason says beside the test that it fails."""
    if reason.code == "no-code-for-device":
        who = reason.subject.partition(" ")[0]
        yield fact("architecture-missing", who, reason.need, "host: rules of compatibility", text)
        targets = re.findall(r"\b(?:sm|compute)_(\d+)(\d)[af]?\b", reason.have)
        if targets:
            has = " ".join(dict.fromkeys(f"{major}.{minor}" for major, minor in targets))
            yield fact("architectures", who, has, "host: rules of compatibility", text)
    if reason.code == "cpu-build":
        yield fact("cuda-built", reason.subject.partition(" ")[0], "none", "host: rules of compatibility", text)


def presence_facts(
    libraries: Sequence[str], system: Sequence[str], distributions: Iterable[tuple[str, str]]
) -> tuple[Fact, ...]:
    """Whether there is any cuDNN: among the packages' libraries, or where the system's loader looks."""
    own = [path for path in libraries if os.path.basename(path).startswith("libcudnn")]
    where = "host: the loader's cache and path"
    facts = tuple(fact("library-present", os.path.basename(path), path, where, f"{path} is there") for path in system)
    if own or system:
        text = f"{len(own)} libraries of cuDNN are in the environment, {len(system)} on the system's paths"
        return (*facts, fact("test", "cudnn-present", "pass", where, text))
    if any(name.startswith("nvidia-cudnn") for name, _ in distributions):
        return facts  # one is installed and has no library: the checks say why
    text = "no libcudnn is in the environment, in the loader's cache or on LD_LIBRARY_PATH"
    return (*facts, fact("test", "cudnn-present", "fail", where, text))


def fact(kind: str, subject: str, value: str, where: str, text: str) -> Fact:
    """A fact of the host, its text on one line and not too long."""
    return Fact(kind=kind, subject=subject, value=value, where=where, text=" ".join(text.split())[:LONGEST])
