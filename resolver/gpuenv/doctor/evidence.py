"""Facts of the host, in the kinds that a log's facts have: from the detection, from checks, rules, variables and tests.

Nothing is looked at here: what was seen is handed in as values. Every fact says where it is from ("host: NVML", "host:
check cudnn version"), and its text is what was seen there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..errors import Reason
from ..model import Build, Check, Host, Problem, show_pair
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
    "no-gpu": (("pci-gpu", "", "0"), ("test", "nvml", "fail"), ("test", "libcuda", "fail")),
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
    "mig-no-instance": (("says", "gpu_busy_or_exclusive", "mig-no-instance"),),
    "devices-hidden": (("test", "visible-devices", "fail"),),
    "visible-device-missing": (("test", "visible-devices", "fail"),),
    "visible-devices-repeated": (("test", "visible-devices", "fail"),),
}  # fmt: skip
# CUresult of a device's check -> the test that failed with it; "says" names the one cause that gives it.
_RESULTS = {
    802: ("test", "fabric", "fail"),
    803: ("test", "driver-versions", "fail"),
    804: ("says", "compat_libcuda_misuse", "804"),
    34: ("test", "loader-path", "fail"),
    214: ("test", "health", "fail"),
    220: ("test", "health", "fail"),
}
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
_GAVE = re.compile(r"\b(cu\w+) gave (\d+) ?([A-Z][A-Z0-9_]+)?")


def host_facts(host: Host, *, described: bool = False) -> tuple[Fact, ...]:
    """The facts of the host itself. One that was only described has no more than its GPUs and its driver."""
    return tuple(_host(host, described))


def _host(host: Host, described: bool) -> Iterator[Fact]:
    seen = "host: as described" if described else "host: NVML"
    sources = dict(host.sources)
    if host.driver is not None:
        where = seen if described or "driver" not in sources else f"host: {sources['driver']}"
        yield _fact("driver", "", host.driver, where, f"the driver is {host.driver}")
    if host.driver_cuda is not None:
        cuda = show_pair(host.driver_cuda)
        yield _fact("driver-cuda", "", cuda, seen, f"the driver is for CUDA up to {cuda}")
    for index, gpu in enumerate(host.gpus):
        number = str(index)
        yield _fact("gpu", number, gpu.name, seen, f"GPU {index} is {gpu.name}")
        if gpu.compute_capability is not None:
            value = show_pair(gpu.compute_capability)
            yield _fact("capability", number, value, seen, f"GPU {index} {gpu.name} has compute capability {value}")
        if gpu.compute_mode is not None:
            text = f"GPU {index} is in compute mode {gpu.compute_mode}"
            yield _fact("compute-mode", number, gpu.compute_mode, seen, text)
    yield from _memory(host, seen)
    if described:
        return
    if host.gpus:
        yield _fact("test", "nvml", "pass", seen, f"NVML lists {len(host.gpus)} GPUs")
    kind, platform = host.virtualization, "host: /proc"
    yield _fact("container", "", "yes" if kind == "container" else "no", platform, f"it runs {_place(kind)}")
    yield _fact("wsl", "", "yes" if kind == "wsl2" else "no", platform, f"it runs {_place(kind)}")
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
        yield _fact("free-bytes", str(index), str(free), seen, text)
        yield _fact("total-bytes", str(index), str(total), seen, text)
    if known:
        index, free, total = min(known, key=lambda row: row[1] / row[2])
        status = memory_status(free, total)
        yield _fact("test", "free-memory", status, seen, f"GPU {index} has {memory_text(free, total)}")


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
        yield _fact(kind, subject, value, "host: detection", f"{problem.code}: {problem.detail}")


def node_facts(nodes: Mapping[str, str]) -> tuple[Fact, ...]:
    """Of device nodes: path -> yes, missing or denied."""
    facts = [_fact("device-node", path, value, "host: /dev", f"{path}: {value}") for path, value in nodes.items()]
    state = nodes.get("/dev/nvidiactl")
    if state is not None:
        status = "pass" if state == "yes" else "fail"
        facts.append(_fact("test", "device-open", status, "host: /dev", f"/dev/nvidiactl: {state}"))
    return tuple(facts)


def variable_facts(env: Mapping[str, str]) -> tuple[Fact, ...]:
    """Of the variables that matter to what is loaded, which devices are seen, and how memory is taken."""
    return tuple(
        _fact("variable", name, value, f"host: variable {name}", f"{name}={value}")
        for name, value in sorted(env.items())
        if _VARIABLES.fullmatch(name)
    )


# ---- what is installed --------------------------------------------------------------------------------------------


def package_facts(
    distributions: Iterable[tuple[str, str]], libraries: Iterable[str], builds: Iterable[Build]
) -> tuple[Fact, ...]:
    """Of what is installed: versions, the libraries of cuDNN and CUDA, and what the frameworks were built with."""
    facts = [
        _fact("package", name, version, "host: installed packages", f"{name} {version} is installed")
        for name, version in distributions
    ]
    for path in libraries:
        name = os.path.basename(path)
        if re.match(r"lib(cudnn|cublas|cudart|nvrtc|nccl|cusparse|cusolver|cufft|curand|nvJitLink)\b[^/]*\.so", name):
            facts.append(_fact("library-present", name, path, "host: installed packages", f"{path} is there"))
    for build in builds:
        who, where = f"{build.name} {build.local}", "host: what is known of the build"
        cuda = "none" if build.cuda is None else show_pair(build.cuda)
        facts.append(_fact("framework", build.name, build.version, where, f"{who} is installed"))
        facts.append(_fact("cuda-built", build.name, cuda, where, f"{who} is built for CUDA {cuda}"))
        if build.cuda is not None:
            facts.append(_fact("test", "cuda-build", "pass", where, f"{who} is built for CUDA {cuda}"))
        if build.cudnn is not None:
            version = ".".join(build.cudnn.split(".")[:3])
            facts.append(_fact("cudnn-built", build.name, version, where, f"{who} is built with cuDNN {version}"))
    return tuple(facts)


def reason_facts(
    reasons: Iterable[Reason], host: Host, builds: Sequence[Build], distributions: Iterable[tuple[str, str]]
) -> tuple[Fact, ...]:
    """Of the rules of compatibility: what they find, and what passes since they find nothing."""
    found: list[Fact] = []
    failed: set[str] = set()
    for reason in reasons:
        test = _REASONS.get(reason.code)
        if test is None:
            continue
        failed.add(test)
        text = f"{reason.subject} needs {reason.need}; there is {reason.have}"
        found.append(_fact("test", test, "fail", "host: rules of compatibility", text))
        found += _about(reason, text)
    if host.driver is None:
        failed.add("driver-runtime")
    if not host.gpus:
        failed.add("architecture")
    names = {name for name, _ in distributions}
    if not any(name.startswith("nvidia-cudnn-cu") for name in names):
        failed.add("cudnn-version")
    if any(build.cuda is not None for build in builds):
        for test in ("driver-runtime", "architecture", "cudnn-version", "companions"):
            if test not in failed:
                text = "no rule speaks against what is installed"
                found.append(_fact("test", test, "pass", "host: rules of compatibility", text))
    return tuple(found)


def _about(reason: Reason, text: str) -> Iterator[Fact]:
    """What a reason says beside the test that it fails."""
    if reason.code == "no-code-for-device":
        who = reason.subject.partition(" ")[0]
        yield _fact("architecture-missing", who, reason.need, "host: rules of compatibility", text)
        targets = re.findall(r"\b(?:sm|compute)_(\d+)(\d)[af]?\b", reason.have)
        if targets:
            has = " ".join(dict.fromkeys(f"{major}.{minor}" for major, minor in targets))
            yield _fact("architectures", who, has, "host: rules of compatibility", text)
    if reason.code == "cpu-build":
        yield _fact("cuda-built", reason.subject.partition(" ")[0], "none", "host: rules of compatibility", text)


# ---- checks -------------------------------------------------------------------------------------------------------


def check_facts(checks: Sequence[Check]) -> tuple[Fact, ...]:
    """Of the checks of a verification."""
    shadowed = any((one.name, one.subject, one.status) == ("loader", "variables", "fail") for one in checks)
    found = [fact for one in checks for fact in _check(one, shadowed)]
    runs = [one for one in checks if one.name == "cudnn convolution"]
    devices = [one for one in checks if one.name == "device" and one.subject.startswith("GPU")]
    if runs and len(runs) == len(devices):
        good = all(one.status == "pass" for one in runs)
        text = f"the convolution was right on {sum(one.status == 'pass' for one in runs)} of {len(runs)} GPUs"
        found.append(_fact("test", "each-device", "pass" if good else "fail", "host: check cudnn convolution", text))
    return tuple(found)


def _check(check: Check, shadowed: bool) -> Iterator[Fact]:
    """Of one check. With `shadowed` a loader variable leads to another cuDNN, which explains where it came from."""
    tests: list[tuple[str, str]] = []
    who, text = (check.name, check.subject), check.evidence
    if check.status == "unknown" and check.name not in ("device", "cudnn"):
        return
    if who == ("loader", "variables"):
        tests = [("loader-path", check.status)]
    elif who == ("cudnn", "libraries"):
        tests = [(_library_test(text), check.status)] if check.status != "unknown" else []
    elif who in (("cudnn", "origin"), ("cudnn", "version")):
        tests = _place_tests(check, shadowed)
        loaded = re.search(r"^(\d+\.\d+\.\d+)|cudnnGetVersion gives (\d+\.\d+\.\d+)", text)
        if check.subject == "version" and loaded:
            yield _fact("cudnn-loaded", "", loaded[1] or loaded[2], _where(check), text)
    elif who == ("cudnn", "device version") and check.status == "fail":
        tests = [("architecture", "fail")]
        yield _fact("architecture-missing", "cudnn", text, _where(check), text)
    elif check.name == "build":
        tests = [("cuda-build", check.status)]
    elif check.name == "closure":
        tests, more = _closure(check)
        yield from more
    elif check.name in ("owners", "files"):
        tests = _files(check)
    elif check.name in ("device", "cudnn handle", "cudnn convolution"):
        yield from _device(check, shadowed)
    for test, status in tests:
        yield _fact("test", test, status, _where(check), text)


def _library_test(evidence: str) -> str:
    return "cudnn-present" if "no libcudnn is installed" in evidence else "cudnn-complete"


def _place_tests(check: Check, shadowed: bool) -> list[tuple[str, str]]:
    """cuDNN's members from one folder and of one version; what a variable brought in is the variable's fault."""
    if check.status == "unknown":
        return []
    if check.status == "fail" and "killed by" in check.evidence:
        return [("cudnn-complete", "fail")]
    if check.status == "fail" and shadowed:
        return [("loader-path", "fail")]
    return [("one-folder", check.status)]


def _closure(check: Check) -> tuple[list[tuple[str, str]], list[Fact]]:
    """The check's texts begin with what they mean: missing, outside, mixed or broken."""
    if check.status == "pass":
        return [("libraries-resolve", "pass")], []
    tests: dict[tuple[str, str], None] = {}
    facts = []
    for text in check.evidence.split("; "):
        kind, _, rest = text.partition(": ")
        name = rest.partition(",")[0]
        if kind == "missing":
            tests[("cudnn-complete" if name.startswith("libcudnn_") else "libraries-resolve", "fail")] = None
            by = re.search(r" by ([^,]+)", rest)
            facts.append(_fact("library-missing", name, by[1] if by else "", _where(check), text))
        elif kind == "mixed":
            tests["one-cuda-major", "fail"] = None
        elif kind == "broken":
            tests["environment", "fail"] = None
        elif kind == "outside" and name.startswith("libcudnn"):
            tests["one-folder", "fail"] = None
    return list(tests), facts


def _files(check: Check) -> list[tuple[str, str]]:
    """Two owners of a library of NVIDIA's, or files that are not as recorded."""
    if check.status != "fail":
        return []
    if check.name == "owners":
        mixed = "nvidia-" in check.evidence and " both own " in check.evidence
        return [("one-cuda-major" if mixed else "environment", "fail")]
    return [("environment", "fail")]


def _device(check: Check, shadowed: bool) -> Iterator[Fact]:
    """A device's context, its handle of cuDNN and its convolutions."""
    where, text = _where(check), check.evidence
    tests: list[tuple[str, str]] = []
    if check.name == "device":
        yield from _context(check)
    elif check.name == "cudnn handle":
        tests = [("fresh-process", check.status)]
    elif check.status == "pass":
        tests = [("float32-convolution", "pass"), ("other-stream", "pass"), ("one-folder", "pass")]
    elif "computed with" in text:
        tests = [("loader-path" if shadowed else "one-folder", "fail")]
    else:
        tests = [("float32-convolution", "fail")]
    found = re.search(r"\bCUDNN_STATUS_\w+", text)
    if found is not None and check.status == "fail":
        yield _fact("status", "cudnn", found[0], where, text)
    for test, status in tests:
        yield _fact("test", test, status, where, text)


def _context(check: Check) -> Iterator[Fact]:
    """The driver as far as a context on the device."""
    where, text = _where(check), check.evidence
    if check.status == "pass":
        for test in ("libcuda", "cuinit", "context", "fabric", "driver-versions"):
            yield _fact("test", test, "pass", where, text)
        return
    gave = _GAVE.search(text)
    if gave is not None:
        yield _fact("test", "cuinit" if gave[1] == "cuInit" else "context", "fail", where, text)
        if gave[3]:
            yield _fact("status", "cuda", gave[3], where, text)
        if int(gave[2]) in _RESULTS:
            yield _fact(*_RESULTS[int(gave[2])], where, text)
    elif "the driver cannot be used" in text:
        yield _fact("test", "libcuda", "fail", where, text)
    if "MiB free" in text and "the check needs" in text:
        yield _fact("test", "free-memory", "fail", where, text)


# ---- tests --------------------------------------------------------------------------------------------------------


def test_facts(shown: Iterable[tuple[str, int, str, str]]) -> tuple[Fact, ...]:
    """Of (test, device, status, evidence): one fact a test, the worst of its devices, and "each-device"."""
    rows: dict[str, list[tuple[int, str, str]]] = {}
    for test, device, status, evidence in shown:
        rows.setdefault(test, []).append((device, status, evidence))
    facts = []
    for test, of in rows.items():
        status = next((one for one in ("fail", "unknown") if any(row[1] == one for row in of)), "pass")
        device, _, evidence = next(row for row in of if row[1] == status)
        facts.append(_fact("test", test, status, f"host: test {test}", f"GPU {device}: {evidence}"))
    first = rows.get("fresh-process", [])
    if first:
        good = [device for device, status, _ in first if status == "pass"]
        text = f"{len(good)} of {len(first)} GPUs computed right in a fresh process"
        status = "pass" if len(good) == len(first) else "fail"
        facts.append(_fact("test", "each-device", status, "host: test each-device", text))
    return tuple(facts)


def _where(check: Check) -> str:
    return f"host: check {check.name} {check.subject}".rstrip()


def _fact(kind: str, subject: str, value: str, where: str, text: str) -> Fact:
    return Fact(kind=kind, subject=subject, value=value, where=where, text=" ".join(text.split())[:LONGEST])
