"""The rules: from facts to verdicts, a function for each group of causes that are told from one another.

Each gives findings (cause, confidence, facts). What is general, a message that names a cause and a test of the host
that proves or refutes one, is in diagnosing.py and in causes.toml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .build_rules import against_host, architectures, for_cpu, releases
from .facts import MEASURED_FREE, SHORT, Case, Finding
from .model import Fact
from .status_codes import CUDA_CAUSES, XID_HARDWARE, pair

_CUDA = re.compile(
    r"lib(cudart|cublas|cublasLt|cusparse|cusparseLt|cusolver|cufft|cufftw|curand|nvrtc|nvJitLink|cupti|nccl|cufile|"
    r"nvToolsExt|npp[a-z]*|nvjpeg|nvshmem|nvvm|cudss|cutensor|cudf)[\w-]*\.so(?:\.(\d{1,2}))?|"
    r"(cudart|cublas|cublasLt|cusparse|cusolver|cufft|curand|nvrtc)[a-z-]*64_(\d{2})[\d_]*\.dll"
)
_CUDNN = re.compile(r"(?:lib)?cudnn\w*?(?:\.so(?:\.(\d{1,2}))?[\d.]*|64_(\d{1,2})\.dll)$")
_DRIVER = re.compile(r"lib(?:cuda|nvcuvid|nvidia-(?:ml|ptxjitcompiler|encode))\.so|nvcuda\.dll")
_OTHERS_SYMBOL = re.compile(r"_*(?:cublas|cusparse|cusolver|cufft|curand|nccl|nvrtc|nvJitLink|cupti|cuda[A-Z]|cu[A-Z])")


def findings(case: Case) -> Iterator[Finding]:
    """What the rules below find."""
    for rule in _RULES:
        yield from rule(case)


def versions(case: Case) -> Iterator[Finding]:
    """cuDNN as loaded against cuDNN as built. A torch brings its own: another one is there in its place."""
    for built in case.best("cudnn-built"):
        wanted = pair(built.value)
        for loaded in case.best("cudnn-loaded"):
            have = pair(loaded.value)
            if loaded.subject != built.subject or not have or not wanted or have == wanted:
                continue
            both, sure = [loaded, built], "proved"
            if not loaded.from_log and have[:1] == wanted[:1] and have > wanted:
                continue  # a later one of the same major version is what a host may have
            if loaded.subject == "torch" and loaded.from_log:
                yield "lib_shadowing", sure, both
                sure = "likely"
            older = have[:1] == wanted[:1] and have < wanted
            yield ("cudnn_runtime_older_than_build" if older else "cudnn_major_mismatch"), sure, both


def wheels(case: Case) -> Iterator[Finding]:
    """cuDNN's packages of two CUDA versions: their files have one folder and one name."""
    both = _two_majors(case, "nvidia-cudnn")
    if both and any(each.from_log for each in both):
        yield "mixed_cuda_wheels", "possible", both


def symbols(case: Case) -> Iterator[Finding]:
    """A library that lacks a symbol that another wants: two that were not made for each other."""
    within = {each.value for each in case.every("symbol-missing") if each.subject.startswith("libcudnn")}
    within = {symbol for symbol in within if not _OTHERS_SYMBOL.match(symbol)}
    for each in case.every("symbol-missing"):
        if each.subject.startswith("libcudnn") and not _OTHERS_SYMBOL.match(each.value):
            yield "cudnn_sublibs_mixed", "likely", [each]
        elif "libcuda.so" in each.text:
            continue  # the driver's own: it is too old for who asks
        elif each.subject == "cuda" and each.value not in within:
            both = _two_majors(case)
            yield "lib_shadowing", "likely", [each]
            if both:
                yield "mixed_cuda_wheels", "likely", [each, *both]


def _two_majors(case: Case, one: str = "nvidia-") -> list[Fact]:
    """Packages of one library for two CUDA versions, [] where there are none."""
    seen: dict[str, tuple[str, Fact]] = {}
    for each in case.best("package"):
        name, _, tag = each.subject.rpartition("-cu")
        if not (name and tag.isdigit()):
            name, tag = each.subject, each.value.split(".")[0] if each.subject == "nvidia-nvjitlink" else "13"
        if name.startswith(one):
            other = seen.setdefault(name, (tag, each))
            if other[0] != tag:
                return [other[1], each]
    return []


def cudnn_libraries(case: Case) -> Iterator[Finding]:
    """A library of cuDNN that is not found: one of the set, another major version, or no cuDNN at all."""
    names = [(one, _CUDNN.match(one.subject)) for one in case.every("library-present", "library-from")]
    present = {found[1] or found[2]: one for one, found in names if found and (found[1] or found[2])}
    present |= {one.value.split(".")[0]: one for one in case.every("cudnn-loaded") if one.subject == "cudnn"}
    for each in case.every("library-missing"):
        found = _CUDNN.match(each.subject)
        if found is None:
            continue
        wanted = found[1] or found[2]
        others = [one for major, one in present.items() if major != wanted]
        whole = re.match(r"(?:lib)?cudnn(?:\.|64_)", each.subject)
        if wanted in present and not whole:
            yield "cudnn_sublib_missing", "likely", [each, present[wanted]]
        elif wanted in present:
            yield "cudnn_missing", "possible", [each]  # it is there, and not on the loader's path
        elif others:
            yield "cudnn_major_mismatch", "likely", [each, others[0]]
        elif wanted == "8" and not whole and ".so" in each.subject:
            # Most often beside a framework that brings cuDNN 9: those of today do.
            yield "cudnn_major_mismatch", "likely", [each]
            yield "cudnn_missing", "possible", [each]
        else:
            yield "cudnn_missing", "likely", [each]
            if not whole:
                yield "cudnn_sublib_missing", "possible", [each]


def libraries(case: Case) -> Iterator[Finding]:
    """A library of CUDA or of the driver that is not found."""
    container, wsl = case.first("container", "yes"), case.first("wsl", "yes")
    for each in case.every("library-missing"):
        if _DRIVER.match(each.subject):
            if wsl:
                yield "wsl_driver_or_toolkit", "likely", [each, wsl]
            elif container:
                yield "container_gpu_not_injected", "likely", [each, container]
            else:
                yield "driver_not_found", "likely", [each]
            continue
        found = _CUDA.match(each.subject)
        if found is None:
            continue
        both = _two_majors(case)
        other = _other_cuda(case, found[1] or found[3], found[2] or found[4])
        if both:
            yield "mixed_cuda_wheels", "likely", [each, *both]
        yield ("cuda_major_mismatch" if other else "cuda_lib_missing"), "likely", [each, *other]


def _other_cuda(case: Case, name: str, major: str | None) -> list[Fact]:
    """What shows that the library, or all of CUDA, is there for another major version."""
    for one in case.every("library-present", "library-from"):
        found = _CUDA.match(one.subject)
        if major and found and (found[1] or found[3]) == name and major != (found[2] or found[4] or major):
            return [one]
    return []


def driver(case: Case) -> Iterator[Finding]:
    """The driver's two halves, and where it is at all."""
    kernel, userspace = case.first("driver", subject="kernel"), case.first("driver", subject="userspace")
    loaded = [one for one in case.every("library-from") if one.subject.startswith("libcuda.so")]
    compat = [one for one in loaded if "/compat" in one.value] + case.symptom("compat-path")
    container = case.first("container", "yes")
    mismatch = ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "803")
    found = [one for one in case.every("status") if one.subject == "cuda" and one.value in mismatch]
    failed = case.test("driver-versions", "fail")
    apart = [kernel, userspace] if kernel and userspace and kernel.value != userspace.value else []
    if failed or found or apart:
        facts = [one for one in (failed, *found, *apart) if one]
        sure = "proved" if failed or apart else "likely"
        if compat or (container and found):
            yield "compat_libcuda_misuse", sure, facts + compat[:1] + ([container] if container else [])
        else:
            yield "driver_userspace_kernel_mismatch", sure, facts
    lost = case.test("libcuda", "fail") or case.test("nvml", "fail")
    module = [one for one in case.every("module") if one.subject == "nvidia" and one.value in ("absent", "missing")]
    node = [one for one in case.every("device-node") if one.subject == "/dev/nvidiactl" and one.value == "missing"]
    hardware = [one for one in case.best("pci-gpu") if not one.from_log]
    if container and (lost or node) and not container.from_log:
        yield "container_gpu_not_injected", "proved", [container, *([lost] if lost else []), *node]
    elif module and (lost or any(one.value != "0" for one in hardware)):
        yield "driver_not_loaded", "proved", [*module, *([lost] if lost else [])]
    elif hardware and all(one.value == "0" for one in hardware) and (case.log or lost):
        yield "driver_not_found", "proved", hardware


def states(case: Case) -> Iterator[Finding]:
    """Kernel modules that a suspend has left broken, and containers that lost their devices."""
    told = case.symptom("uvm-reloaded", "suspended")
    if told and case.symptom("launch"):
        yield "uvm_or_driver_state_broken", "likely", [*case.symptom("launch")[:1], *told[:1]]
    failed = case.test("cuinit", "fail")
    unknown = any((one.kind, one.value) == ("status", "CUDA_ERROR_UNKNOWN") for one in case.host)
    if failed and unknown and case.test("nvml", "pass"):
        yield "uvm_or_driver_state_broken", "proved", [failed]
    container = case.first("container", "yes")
    for each in [*case.says("hints", "driver_not_found"), *case.says("maybe", "driver_not_found")]:
        if container:
            yield "container_gpu_not_injected", "likely", [each, container]
    if container and container.from_log:
        for each in case.symptom("cuda-unavailable"):
            yield "container_gpu_not_injected", "possible", [each, container]
    wsl = case.first("wsl", "yes")
    if wsl:  # there the driver is that of Windows, and no module is loaded
        for each in case.says("says", "driver_not_loaded"):
            if each.value == "nvidia-smi-failed":
                yield "wsl_driver_or_toolkit", "proved", [each, wsl]
        # There is one GPU or none, and a driver's library of Linux in front of that of Windows sees none.
        unseen = [one for one in case.says("hints", "visible_devices_wrong") if "ordinal" not in one.text]
        numbers = [one for one in case.every("status") if (one.subject, one.value) in (("cuda", "100"), ("cuda", "38"))]
        for each in [*(one for one in unseen if one.value == "no-device"), *numbers]:
            yield "wsl_driver_or_toolkit", "likely", [each, wsl]


def devices(case: Case) -> Iterator[Finding]:
    """Devices that are closed, failing or hidden."""
    closed = [one for one in case.best("compute-mode") if not re.fullmatch(r"(?i)default|0", one.value)]
    for each in case.every("status"):
        if each.value == "CUDA_ERROR_DEVICE_UNAVAILABLE":
            # A share of a GPU has no compute mode: its host or its licence says no.
            if closed or not case.every("vgpu"):
                yield "gpu_busy_or_exclusive", "proved" if closed else "likely", [each, *closed[:1]]
        elif each.subject == "cuda" and each.value.isdigit() and int(each.value) in CUDA_CAUSES:
            yield CUDA_CAUSES[int(each.value)], "likely", [each]
    for each in case.every("xid"):
        if each.value.isdigit() and int(each.value) in XID_HARDWARE:
            yield "gpu_hardware_fault", "proved", [each]
    for each in case.every("ecc"):
        if each.value.isdigit() and int(each.value) > 0:
            yield "gpu_hardware_fault", "likely", [each]


def memory(case: Case) -> Iterator[Finding]:
    """Memory that was used up, said in as many words or behind a status of cuDNN. diagnosing.py refutes it."""
    rows = case.memory()
    words = case.every("out-of-memory")
    told = [one for one in case.every("status") if one.subject in ("cudnn", "cublas")] + case.symptom("cudnn-start")
    if words:
        small = [fact for free, total, fact in rows if free * MEASURED_FREE <= total]
        yield "out_of_memory_masked", "proved", [*words[:1], *small[:1]]
        wanted = [one for one in case.every("wanted-bytes") if one.value.isdigit()]
        large = [one for one in wanted if rows and int(one.value) > max(free for free, _total, _fact in rows)]
        if large and case.memory_is_free():
            yield "unsupported_op_config", "likely", [large[0], rows[0][2]]  # more than the GPU has: the program's
    elif told:
        for free, total, each in rows:
            if each.kind == "free-bytes" and each.from_log and (free < SHORT or free * 10 < total):
                yield "out_of_memory_masked", "proved", [told[0], each]
            elif each.kind == "free-bytes" and free * MEASURED_FREE <= total:
                yield "out_of_memory_masked", "likely", [told[0], each]
        if case.symptom("growth") and not rows:
            yield "out_of_memory_masked", "possible", [told[0], *case.symptom("growth")[:1]]


def handles(case: Case) -> Iterator[Finding]:
    """cuDNN's handles, followed through its log of calls (handles.py)."""
    for each in case.every("handle"):
        yield ("fork_after_cuda_init" if each.subject == "forked" else "cudnn_handle_misused"), "proved", [each]


def others(case: Case) -> Iterator[Finding]:
    """The libc, the loader's path by comparison, and operations that only the program can change."""
    for each in case.every("libc-wanted"):
        yield "host_libc_too_old", "proved", [each]
    clean, fresh = case.test("clean-loader", "pass"), case.test("fresh-process", "fail")
    if clean and fresh:
        yield "lib_shadowing", "proved", [fresh, clean]
    passed = case.test("float32-convolution", "pass")
    for each in case.says("hints", "unsupported_op_config"):
        if passed:
            yield "unsupported_op_config", "proved", [each, passed]
    absent = case.test("cudnn-present", "fail")
    if absent:
        majors = {one.subject.rpartition(".")[2] for one in case.every("library-present") if "cudnn" in one.subject}
        yield ("cudnn_major_mismatch" if majors else "cudnn_missing"), "proved", [absent]


_RULES = (
    versions, wheels, symbols, cudnn_libraries, libraries, driver, states, devices, for_cpu, against_host,
    architectures, releases, memory, handles, others,
)  # fmt: skip
