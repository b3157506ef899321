"""The rules: from facts to verdicts, a function for each group of causes that are told from one another.

Each gives findings (cause, confidence, facts). What is general, a message that names a cause and a test of the host
that proves or refutes one, is in diagnosing.py and in causes.toml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .case import MEASURED_FREE, SHORT, Case
from .catalogue import capability_of, compilers, releases_before
from .model import Fact
from .statuses import CUDA_CAUSES, XID_HARDWARE, pair

Finding = tuple[str, str, list[Fact]]

_CUDA = re.compile(
    r"lib(cudart|cublas|cublasLt|cusparse|cusparseLt|cusolver|cufft|cufftw|curand|nvrtc|nvJitLink|cupti|nccl|cufile|"
    r"nvToolsExt|npp[a-z]*|nvjpeg|nvshmem|nvvm|cudss|cutensor|cudf)[\w-]*\.so(?:\.(\d{1,2}))?|"
    r"(cudart|cublas|cublasLt|cusparse|cusolver|cufft|curand|nvrtc)[a-z-]*64_(\d{2})[\d_]*\.dll"
)
_CUDNN = re.compile(r"(?:lib)?cudnn\w*?(?:\.so(?:\.(\d{1,2}))?[\d.]*|64_(\d{1,2})\.dll)$")
_DRIVER = re.compile(r"lib(?:cuda|nvcuvid|nvidia-(?:ml|ptxjitcompiler|encode))\.so|nvcuda\.dll")
# GPUs before the tables' first: Fermi and the first Kepler.
_EARLY = re.compile(r"(?i)(?:GTX? ?[456]\d\d|GT ?7[0-4]\d|Quadro (?:\d00|\d000|K\d{3,4})|Tesla [CM]20\d\d)M?\b")
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


def _two_majors(case: Case) -> list[Fact]:
    """Packages of one library for two CUDA versions, [] where there are none."""
    seen: dict[str, tuple[str, Fact]] = {}
    for each in case.best("package"):
        name, _, tag = each.subject.rpartition("-cu")
        if not (name and tag.isdigit()):
            name, tag = each.subject, each.value.split(".")[0] if each.subject == "nvidia-nvjitlink" else "13"
        if name.startswith("nvidia-"):
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
    found = [one for one in case.every("status") if one.value == "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"]
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
    seen = case.symptom("cuda-unavailable")
    for each in case.every("cuda-built"):
        if each.value == "none" and each.from_log:  # that a build is for the CPU is a fault where it was not meant
            unmeant = seen or case.symptom("cuda-asked")
            if each.subject == "jax":
                unmeant = unmeant or case.every("gpu", "driver", "toolkit")
            if unmeant:
                yield "cpu_only_build", "likely", [each, unmeant[0]]


def architectures(case: Case) -> Iterator[Finding]:
    """A build without code for the GPU: is the GPU newer or older than what it serves?"""
    yield from _out_of_range(case)
    failed = case.test("architecture", "fail")
    missing = case.every("architecture-missing") + ([failed] if failed else [])
    if not missing:
        return
    known = {one.value: one for one in case.every("architectures")}
    served = [pair(each) for one in known.values() for each in one.value.split()]
    device = None
    for one in case.every("capability"):
        device = device or (pair(one.value), one)
    for one in case.every("gpu"):
        capability = _capability(one.value)
        device = device or ((capability, one) if capability else None)
    sure = "proved" if failed or len(missing) > 1 or served else "likely"
    facts = missing[:2] + ([device[1]] if device else []) + list(known.values())[:1]
    if device is None:
        yield "gpu_too_new_for_build", "possible", facts  # builds drop an architecture more rarely than GPUs appear
        yield "gpu_too_old_for_build", "possible", facts
    elif not served and (found := _beyond_compiler(case, device[0])):
        yield found[0], sure, [*facts, found[1]]
    elif device[0] > max(served, default=(7, 5)):
        yield "gpu_too_new_for_build", sure, facts
    else:
        yield "gpu_too_old_for_build", sure, facts


def _capability(name: str) -> tuple[int, int] | None:
    """The compute capability of a GPU by its name: of the tables, or of the time before them."""
    found = capability_of(name)
    if found is None and "GTX" in name.upper():
        found = capability_of(re.sub("(?i)GTX", "RTX", name))  # people mix them up
    return found or ((3, 0) if _EARLY.search(name) else None)


def _beyond_compiler(case: Case, device: tuple[int, ...]) -> tuple[str, Fact] | None:
    """Whether the CUDA release that is named does not serve a GPU, and in which direction."""
    told = case.first("toolkit")
    if told is None:
        return None
    ranges = [(least, most) for since, least, most in compilers() if pair(told.value) >= since]
    if ranges and device > ranges[-1][1]:
        return "gpu_too_new_for_build", told
    return ("gpu_too_old_for_build", told) if ranges and device < ranges[-1][0] else None


def releases(case: Case) -> Iterator[Finding]:
    """What the release of a framework says by itself: of its CUDA, of Windows, and of a GPU that came after it."""
    unseen = case.symptom("cuda-unavailable")
    of = _versions(case)
    if unseen and "tensorflow" in of:
        version, told = of["tensorflow"]
        windows, toolkit = case.first("os", "windows"), case.first("toolkit")
        built = next((cuda for before, cuda in releases_before("tensorflow") if version < before), None)
        if version >= (2, 11) and windows and not case.first("wsl", "yes"):
            yield "cpu_only_build", "likely", [told, windows, unseen[0]]
        elif built and toolkit and pair(toolkit.value)[: len(built)] != built:
            yield "cuda_major_mismatch", "likely", [told, toolkit, unseen[0]]
    failed = [one for one in case.every("status") if one.subject in ("cudnn", "cublas", "cusolver", "cufft")]
    failed += case.symptom("launch", "cudnn-start", "cudnn-call")
    if failed and not case.every("out-of-memory", "architecture-missing"):
        devices = [(_capability(one.value), one) for one in case.every("gpu")]
        for name, (version, told) in of.items():
            most = next((most for before, most in releases_before("newest", name) if version < before), None)
            late = [one for capability, one in devices if most and capability and capability > most]
            if late:
                yield "gpu_too_new_for_build", "likely", [failed[0], told, late[0]]


def _versions(case: Case) -> dict[str, tuple[tuple[int, ...], Fact]]:
    """The latest release of each framework that is named."""
    found: dict[str, tuple[tuple[int, ...], Fact]] = {}
    for each in case.every("version"):
        version = pair(each.value)
        if each.subject not in found or found[each.subject][0] < version:
            found[each.subject] = (version, each)
    return found


def _out_of_range(case: Case) -> Iterator[Finding]:
    """A GPU outside of the range that a build states; a later minor version is served by code for an earlier one."""
    for each in case.every("architecture-range"):
        device, least, most = (pair(one) for one in each.value.split(" "))
        if device < least:
            yield "gpu_too_old_for_build", "proved", [each]
        elif device[:1] > most[:1]:
            yield "gpu_too_new_for_build", "proved", [each]


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
    versions, symbols, cudnn_libraries, libraries, driver, states, devices, architectures, releases, memory, handles,
    others,
)  # fmt: skip
