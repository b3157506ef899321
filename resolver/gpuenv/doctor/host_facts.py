"""Turns what is known of the host into facts: detection, packages, compatibility and variables.

Every fact names its source ("host: NVML", "host: check cudnn version").
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..errors import Reason
from ..model import Build, Host, show_pair
from .catalog import fact_rows
from .facts import Memory
from .model import MAX_TEXT, Fact

_MIB = 1 << 20
_RULES = "host: rules of compatibility"
SYSTEM_LOADER = "host: the loader's cache and path"
# Variables that change which libraries load, which devices are visible, or how memory is used.
_VARIABLES = re.compile(
    r"LD_(LIBRARY_PATH|PRELOAD)|CUDA_\w+|CUDNN_\w+|NVIDIA_(VISIBLE_DEVICES|TF32_OVERRIDE)|"
    r"NCCL_\w+|TF_\w+|XLA_\w+|JAX_\w+|PYTORCH_\w+|TORCH_CUDNN\w*"
)
_LIBRARIES = re.compile(
    r"lib(cudnn|cublas|cudart|nvrtc|nccl|cusparse|cusolver|cufft|curand|nvJitLink)[\w-]*\.so"
)
# Tests that pass if no reason and no doubt is against them.
_TESTS_OF_RULES = ("driver-runtime", "architecture", "cudnn-version")
_DEVICE_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm")
_PLACES = {"container": "in a container", "wsl2": "in WSL 2", "tegra": "on a Jetson"}


def fact(kind: str, subject: str, value: str, where: str, text: str) -> Fact:
    """Return a fact of the host, with its text on one line of limited length."""
    line = " ".join(text.split())[:MAX_TEXT]
    return Fact(kind=kind, subject=subject, value=value, where=where, text=line)


# ---- detection ----------------------------------------------------------------------------------


def host_facts(host: Host, *, described: bool = False) -> Iterator[Fact]:
    """Yield the facts of the host; of a host that flags described, its GPUs and its driver."""
    where = "host: as described" if described else "host: NVML"
    if host.driver is not None:
        source = dict(host.sources).get("driver")
        driver_where = f"host: {source}" if source and not described else where
        yield fact("driver", "", host.driver, driver_where, f"the driver is {host.driver}")
    if host.driver_cuda is not None:
        cuda = show_pair(host.driver_cuda)
        yield fact("driver-cuda", "", cuda, where, f"the driver supports CUDA up to {cuda}")
    for index, gpu in enumerate(host.gpus):
        number = str(index)
        yield fact("gpu", number, gpu.name, where, f"GPU {index} is {gpu.name}")
        if gpu.compute_capability is not None:
            capability = show_pair(gpu.compute_capability)
            text = f"GPU {index} {gpu.name} has compute capability {capability}"
            yield fact("capability", number, capability, where, text)
        if gpu.compute_mode is not None:
            text = f"GPU {index} is in compute mode {gpu.compute_mode}"
            yield fact("compute-mode", number, gpu.compute_mode, where, text)
    known = []
    for index, gpu in enumerate(host.gpus):
        free, total = gpu.memory_free, gpu.memory_total
        if free is not None and total:
            sizes = f"{free // _MIB} MiB free of {total // _MIB} MiB ({free * 100 // total} %)"
            text = f"GPU {index} has {sizes}"
            of_gpu = fact("free-bytes", str(index), str(free), where, text)
            yield of_gpu
            yield fact("total-bytes", str(index), str(total), where, text)
            known.append(Memory(free=free, total=total, fact=of_gpu))
    if known:
        fullest = min(known, key=lambda memory: memory.free / memory.total)
        status = "pass" if fullest.is_mostly_free else "unknown"
        if fullest.is_nearly_full:
            status = "fail"
        yield fact("test", "free-memory", status, where, fullest.fact.text)
    if not described:
        yield from _detected_facts(host)


def _detected_facts(host: Host) -> Iterator[Fact]:
    if host.gpus:
        where = "host: NVML"
        yield fact("test", "nvml", "pass", where, f"NVML lists {len(host.gpus)} GPUs")
    place = _PLACES.get(host.virtualization or "", "in no container")
    for kind, virtualization in (("container", "container"), ("wsl", "wsl2")):
        value = "yes" if host.virtualization == virtualization else "no"
        yield fact(kind, "", value, "host: /proc", f"the process runs {place}")
    for problem in host.problems:
        text = f"{problem.code}: {problem.detail}"
        for kind, subject, value in fact_rows()["problem"].get(problem.code, ()):
            yield fact(kind, subject, value, "host: detection", text)
        if problem.code == "driver-not-loaded":
            # NVML says so, too, if it cannot open the device files of a loaded module.
            source = dict(host.sources).get("driver", "")
            state = "loaded" if source.startswith(("/proc/", "/sys/")) else "absent"
            yield fact("module", "nvidia", state, "host: /proc", f"the module is {state}")


def node_facts(root: str) -> Iterator[Fact]:
    """Yield the state of the driver's device nodes: yes, missing, or denied to this user.

    Args:
        root: the folder that holds /dev.
    """
    states = {}
    for path in _DEVICE_NODES:
        node = os.path.join(root, path.lstrip("/"))
        states[path] = "missing"
        if os.path.exists(node):
            states[path] = "yes" if os.access(node, os.R_OK | os.W_OK) else "denied"
        yield fact("device-node", path, states[path], "host: /dev", f"{path}: {states[path]}")
    state = states["/dev/nvidiactl"]
    if state != "missing":
        status = "pass" if state == "yes" else "fail"
        yield fact("test", "device-open", status, "host: /dev", f"/dev/nvidiactl: {state}")


def variable_facts(env: Mapping[str, str]) -> Iterator[Fact]:
    """Yield the variables that change libraries, visible devices or the use of memory."""
    for name, value in sorted(env.items()):
        if _VARIABLES.fullmatch(name):
            yield fact("variable", name, value, f"host: variable {name}", f"{name}={value}")


def limit_facts() -> Iterator[Fact]:
    """Yield the limit of the address space, if this process has one (ulimit -v)."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        text = f"the address space is limited to {limit // _MIB} MiB (ulimit -v)"
        yield fact("limit", "address-space", str(limit), "host: limits of this process", text)


# ---- installed packages -------------------------------------------------------------------------


def package_facts(
    distributions: Iterable[tuple[str, str]], libraries: Iterable[str], builds: Iterable[Build]
) -> Iterator[Fact]:
    """Yield the facts of what is installed.

    Args:
        distributions: (name, version) pairs.
        libraries: paths of shared libraries.
        builds: the builds of the installed frameworks, as far as the data knows them.
    """
    where = "host: installed packages"
    for name, version in distributions:
        yield fact("package", name, version, where, f"{name} {version} is installed")
    for path in libraries:
        file_name = os.path.basename(path)
        if _LIBRARIES.match(file_name):
            yield fact("library-present", file_name, path, where, f"{path} exists")
    where = "host: what is known of the build"
    for build in builds:
        build_name = f"{build.name} {build.local}"
        yield fact("framework", build.name, build.version, where, f"{build_name} is installed")
        cuda = "none" if build.cuda is None else show_pair(build.cuda)
        text = f"{build_name} is built for CUDA {cuda}"
        yield fact("cuda-built", build.name, cuda, where, text)
        if build.cuda is not None:
            yield fact("test", "cuda-build", "pass", where, text)
        if build.cudnn is not None:
            version = ".".join(build.cudnn.split(".")[:3])
            text = f"{build_name} is built with cuDNN {version}"
            yield fact("cudnn-built", build.name, version, where, text)


def presence_facts(
    libraries: Iterable[str], system: Sequence[str], distributions: Iterable[tuple[str, str]]
) -> Iterator[Fact]:
    """Yield whether any cuDNN exists.

    Args:
        libraries: paths of the environment's shared libraries.
        system: paths of cuDNN's libraries that the system's loader finds.
        distributions: (name, version) of what is installed.
    """
    where = SYSTEM_LOADER
    for path in system:
        yield fact("library-present", os.path.basename(path), path, where, f"{path} exists")
    own = [path for path in libraries if os.path.basename(path).startswith("libcudnn")]
    if own or system:
        text = (
            f"{len(own)} libraries of cuDNN are in the environment, "
            f"{len(system)} on the system's paths"
        )
        yield fact("test", "cudnn-present", "pass", where, text)
    elif not any(name.startswith("nvidia-cudnn") for name, _ in distributions):
        # If a cuDNN package is installed and has no library, the checks explain why.
        text = "no libcudnn is in the environment, in the loader's cache or on LD_LIBRARY_PATH"
        yield fact("test", "cudnn-present", "fail", where, text)


# ---- compatibility rules ------------------------------------------------------------------------


def reason_facts(
    reasons: Iterable[Reason],
    host: Host,
    builds: Sequence[Build],
    distributions: Iterable[tuple[str, str]],
) -> tuple[Fact, ...]:
    """Return what the compatibility rules find, and which tests pass because they find nothing.

    A test does not pass if the host or cuDNN is unknown.
    """
    has_cuda_build = any(build.cuda is not None for build in builds)
    facts: list[Fact] = []
    not_passed = set()
    if host.driver is None:
        not_passed.add("driver-runtime")
    if not host.gpus:
        not_passed.add("architecture")
    if not any(name.startswith("nvidia-cudnn-cu") for name, _ in distributions):
        not_passed.add("cudnn-version")
    for reason in reasons:
        not_passed.add(fact_rows()["doubt"].get(reason.code, ""))
        test = fact_rows()["reason"].get(reason.code)
        if test is None:
            continue
        if reason.code == "two-owners" and not reason.subject.startswith("nvidia/"):
            test = "environment"
        text = f"{reason.subject} needs {reason.need}; found {reason.have}"
        # A CPU build next to a CUDA build may well be intended.
        if reason.code != "cpu-build" or not has_cuda_build:
            not_passed.add(test)
            facts.append(fact("test", test, "fail", _RULES, text))
        name = reason.subject.partition(" ")[0]
        if reason.code == "no-code-for-device":
            facts.append(fact("architecture-missing", name, reason.need, _RULES, text))
            targets = re.findall(r"\b(?:sm|compute)_(\d+)(\d)[af]?\b", reason.have)
            if targets:
                capabilities = " ".join(dict.fromkeys(map(".".join, targets)))
                facts.append(fact("architectures", name, capabilities, _RULES, text))
        elif reason.code == "cpu-build":
            facts.append(fact("cuda-built", name, "none", _RULES, text))
    if has_cuda_build:
        text = "no compatibility rule is violated by what is installed"
        passed = [test for test in _TESTS_OF_RULES if test not in not_passed]
        facts += [fact("test", test, "pass", _RULES, text) for test in passed]
    return tuple(facts)
