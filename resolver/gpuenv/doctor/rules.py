"""The rules, which draw conclusions (findings) from facts. Each function separates related causes.

Two other sources of findings are in verdicts.py and causes.toml: a message that names its cause,
and a test of the host that proves or rules out a cause.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from ..model import Value
from . import build_rules
from .catalog import library_owner
from .facts import LEAST_BYTES_OF_HANDLE, Case, Memory
from .model import Fact, Finding, likely, possible, proved
from .status_codes import CUDA_CAUSES, XID_CERTAIN, XID_HARDWARE, version_tuple

_CUDA_FILE = re.compile(
    r"lib(cudart|cublas|cublasLt|cusparseLt|cusparse|cusolver|cufft|cufftw|curand|nvrtc|nvJitLink|"
    r"cupti|nccl|cufile|nvToolsExt|npp[a-z]*|nvjpeg|nvshmem|nvvm|cudss|cutensor|cudf)"
    r"[\w-]*\.so(?:\.(\d{1,2}))?|"
    r"(cudart|cublas|cublasLt|cusparse|cusolver|cufft|curand|nvrtc)[a-z-]*64_(\d{2})[\d_]*\.dll"
)
# Files whose major version is CUDA's.
_FILE_OF_CUDA = re.compile(
    r"lib(?:cudart|cublas|cublasLt|nvrtc)\.so\.(\d{1,2})(?:\.(\d))?\b|"
    r"(?:cudart|cublas|cublasLt)64_([89]|1\d)(\d)?\.dll|"
    r"lib(?:cusparse|cufft|curand|cusolver|npp\w{0,8})\.so\.([7-9]|10)\.(\d)\b"
)
_FIRST_WITHOUT_MINOR = 11  # since this CUDA release, programs need a major version alone
_CUDNN_FILE = re.compile(r"(?:lib)?cudnn\w*?(?:\.so(?:\.(\d{1,2}))?[\d.]*|64_(\d{1,2})\.dll)$")
_CUDNN_MAIN_FILE = re.compile(r"(?:lib)?cudnn(?:\.|64_)")
_DRIVER_FILE = re.compile(
    r"lib(?:cuda|nvcuvid|nvoptix|nvidia-(?:ml|ptxjitcompiler|encode|opticalflow|nvvm))\.so"
    r"|nvcuda\.dll"
)
_SYMBOL_OF_CUDA = re.compile(
    r"_*(?:cublas|cusparse|cusolver|cufft|curand|nccl|nvrtc|nvJitLink|cupti|cuda[A-Z]|cu[A-Z])"
)
_DRIVER_MISMATCH = ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "803")
_NO_DEVICE = ("100", "38")  # CUDA_ERROR_NO_DEVICE, and cudaErrorNoDevice before CUDA 10.1
_FIRST_TORCH_WITH_CUDNN_9 = (2, 4)
# What messages say in a container that was started without the GPU.
_WITHOUT_GPU = ("driver_not_found", "driver_not_loaded", "driver_too_old", "visible_devices_wrong")
# What messages say in a container that has the GPU.
_WITH_DEVICE = ("container_gpu_access_lost", "gpu_busy_or_exclusive", "gpu_hardware_fault")
# Messages that a container's driver is older than its image: the container has the driver.
COMPARES_DRIVER = frozenset(("built-for-driver", "container-wants-driver", "driver-below-image"))
# What the runtime returns if the driver is too old, and also if there is none.
INSUFFICIENT_DRIVER = frozenset(("insufficient-driver", "driver-not-sufficient", "35"))
_JAVA = "java-library"  # a message
NO_DRIVER_FILES = "no-driver-files"  # a message: the files of the driver's devices are absent
_OPEN_COMPUTE_MODE = re.compile(r"(?i)default|0")


class _LibraryName(Value):
    """The parts of a file name: "cublas" and "12" of "libcublas.so.12"; `major` may be None."""

    name: str
    major: str | None


def findings(case: Case) -> Iterator[Finding]:
    """Yield the findings of all rules."""
    for rule in _RULES:
        yield from rule(case)


# ---- libraries of cuDNN and CUDA ----------------------------------------------------------------


def cudnn_versions(case: Case) -> Iterator[Finding]:
    """Compare the loaded cuDNN with the cuDNN of the build."""
    builds = case.preferred("cudnn-built")
    for built in builds:
        for loaded in case.preferred("cudnn-loaded"):
            if loaded.subject == built.subject:
                same = [fact for fact in builds if fact.subject == built.subject]
                yield from _compare_cudnn(loaded, built, same)


def _compare_cudnn(loaded: Fact, built: Fact, builds: Sequence[Fact]) -> Iterator[Finding]:
    """Compare a loaded cuDNN with one of the versions that are stated of the build."""
    loaded_version, built_version = version_tuple(loaded.value), version_tuple(built.value)
    if not loaded_version or not built_version or loaded_version == built_version:
        return
    same_major = loaded_version[:1] == built_version[:1]
    finding = proved
    if loaded.value in [fact.value for fact in builds]:
        # The build states the loaded version, too: two releases of the framework's packages.
        same_major, finding = True, likely
    elif loaded.subject == "words":
        finding = likely
    elif loaded.subject == "torch" and loaded.from_log:
        # torch ships its own cuDNN, so another library mostly shadows it.
        yield likely("lib_shadowing", loaded, built)
        finding = likely
    if same_major and loaded_version > built_version:
        # A later release of the same major version is compatible, if it is the environment's.
        if loaded.from_log:
            yield possible("lib_shadowing", loaded, built)
    elif same_major:
        yield finding("cudnn_runtime_older_than_build", loaded, built)
    else:
        yield finding("cudnn_major_mismatch", loaded, built)


def cudnn_packages(case: Case) -> Iterator[Finding]:
    """Find cuDNN packages for two CUDA versions: they install the same files."""
    packages = _two_cuda_majors(case, "nvidia-cudnn")
    if any(package.from_log for package in packages):
        yield possible("mixed_cuda_wheels", *packages)


def missing_symbols(case: Case) -> Iterator[Finding]:
    """Find a library that lacks a symbol of another: the two were not built for each other."""
    missing = case.of_kind("symbol-missing")
    cudnn_symbols = {fact.value for fact in missing if _lacks_cudnn_symbol(fact)}
    for fact in missing:
        if _lacks_cudnn_symbol(fact):
            yield likely("cudnn_sublibs_mixed", fact)
        elif "libcuda.so" in fact.text:
            continue  # a symbol of the driver: the driver is too old for the library
        elif fact.subject == "cuda" and fact.value not in cudnn_symbols:
            yield likely("lib_shadowing", fact)
            packages = _two_cuda_majors(case)
            if packages:
                yield likely("mixed_cuda_wheels", fact, *packages)


def _lacks_cudnn_symbol(missing: Fact) -> bool:
    is_cudnn = missing.subject.startswith("libcudnn")
    return is_cudnn and _SYMBOL_OF_CUDA.match(missing.value) is None


def _two_cuda_majors(case: Case, prefix: str = "nvidia-") -> list[Fact]:
    """Return two packages of one library for different CUDA major versions, or an empty list."""
    first: dict[str, tuple[str, Fact]] = {}
    for package in case.preferred("package"):
        name, major = _cuda_major_of(package)
        if name.startswith(prefix):
            first_major, first_package = first.setdefault(name, (major, package))
            if first_major != major:
                return [first_package, package]
    return []


def _cuda_major_of(package: Fact) -> tuple[str, str]:
    """Return (name, CUDA major): "nvidia-cublas-cu12" -> ("nvidia-cublas", "12").

    Names without a suffix are those of CUDA 13 and later. nvidia-nvjitlink has CUDA's version.
    """
    name, _, suffix = package.subject.rpartition("-cu")
    if name and suffix.isdigit():
        return name, suffix
    if package.subject == "nvidia-nvjitlink":
        return package.subject, package.value.split(".")[0]
    return package.subject, "13"


def loaded_files(case: Case) -> Iterator[Finding]:
    """Find libraries that the loader took from another place, by its trace in a log."""
    loaded = [fact for fact in case.of_kind("library-from") if fact.from_log]
    cudnn = [fact for fact in loaded if _CUDNN_FILE.match(fact.subject)]
    for fact in cudnn[1:]:
        if _folder(fact) != _folder(cudnn[0]):
            yield likely("cudnn_sublibs_mixed", cudnn[0], fact)
    for fact in loaded:
        if not _DRIVER_FILE.match(fact.subject):
            yield from _shadowing_file(case, fact)


def _folder(loaded: Fact) -> str:
    return os.path.dirname(os.path.normpath(loaded.value))


def _shadowing_file(case: Case, loaded: Fact) -> Iterator[Finding]:
    """Yield a finding if a file was loaded instead of the one that the environment has."""
    variables = [
        fact
        for fact in case.about("variable", "LD_LIBRARY_PATH")
        if _folder(loaded) in re.split("[:;]", fact.value)
    ]
    for own in case.of_kind("own-libraries"):
        prefix = own.value.partition("/lib/python")[0]
        if loaded.value.startswith(own.value):
            continue
        if own.subject == "nvidia":
            finding = proved if variables else likely
            yield finding("lib_shadowing", loaded, own, *variables)
        elif variables and not loaded.value.startswith(f"{prefix}/lib"):
            yield likely("lib_shadowing", loaded, own, *variables)


def missing_cudnn(case: Case) -> Iterator[Finding]:
    """Explain a missing library of cuDNN: one of a set, another major version, or no cuDNN."""
    present = _cudnn_majors(case)
    for missing in _missing_libraries(case):
        library = _parse_name(_CUDNN_FILE, missing.subject)
        if library is not None:
            yield from _explain_missing_cudnn(case, missing, library.major, present)


def _missing_libraries(case: Case) -> list[Fact]:
    """Return the missing libraries, and those that a failing program needs."""
    missing = case.of_kind("library-missing")
    if missing:
        return missing
    installed = case.about("cuda-named", "installed") + case.about("cudnn-named", "installed")
    if case.faults() or case.unexplained() or installed:
        return case.of_kind("library-wanted")
    return []


def _cudnn_majors(case: Case) -> dict[str, Fact]:
    """Return the major versions of cuDNN that are present, each with a fact that shows it."""
    present: dict[str, Fact] = {}
    for fact in case.of_kind("library-present", "library-from"):
        library = _parse_name(_CUDNN_FILE, fact.subject)
        if library is not None and library.major:
            is_main = _CUDNN_MAIN_FILE.match(fact.subject) is not None
            if is_main or library.major not in present:
                present[library.major] = fact
    for fact in case.of_kind("cudnn-loaded"):
        if fact.subject == "cudnn":
            present[fact.value.split(".")[0]] = fact
    return present


def _other_cudnn_package(case: Case, major: str | None) -> Fact | None:
    """Return the log's package of cuDNN in another major version, or None."""
    packages = [
        fact
        for fact in case.of_kind("package")
        if fact.from_log and fact.subject.startswith("nvidia-cudnn")
    ]
    if any(fact.value.split(".")[0] == major for fact in packages):
        return None
    return _first(packages)


def _explain_missing_cudnn(
    case: Case, missing: Fact, major: str | None, present: dict[str, Fact]
) -> Iterator[Finding]:
    is_main = _CUDNN_MAIN_FILE.match(missing.subject) is not None
    wsl = case.first("wsl", value="yes")
    elsewhere = [fact for fact in case.of_kind("library-present") if _same_file(fact, missing)]
    other = _other_cudnn(case, major, present)
    if wsl and "_cnn_infer.so.8" in missing.subject:
        # This part of cuDNN loads libcuda.so, which the loader mostly does not find in WSL.
        yield likely("wsl_driver_or_toolkit", missing, wsl)
    elif elsewhere and not is_main:
        yield likely("cudnn_missing", missing, elsewhere[0])  # not on the loader's path
    elif major in present and is_main:
        yield possible("cudnn_missing", missing)  # present, but not on the loader's path
    elif other:
        yield likely("cudnn_major_mismatch", missing, other)
    elif major in present:
        yield likely("cudnn_sublib_missing", missing, present[major])
    else:
        yield likely("cudnn_missing", missing)
        if not is_main:
            yield possible("cudnn_sublib_missing", missing)
        if not is_main and case.first("version", subject="torch") is None:
            yield possible("cudnn_major_mismatch", missing)


def _other_cudnn(case: Case, major: str | None, present: dict[str, Fact]) -> Fact | None:
    """Return the fact that shows another major version of cuDNN than the one needed, or None."""
    package = _other_cudnn_package(case, major) if major else None
    if package or major in present:
        return package
    if present:
        return next(iter(present.values()))
    torch = case.first("version", subject="torch")
    if torch and version_tuple(torch.value) >= _FIRST_TORCH_WITH_CUDNN_9 and major == "8":
        return torch
    named = case.of_kind("cudnn-named")
    return named[0] if major and _only_others_named(named, major) else None


def _only_others_named(named: list[Fact], major: str) -> bool:
    """Whether a log names versions, and none of the major version."""
    return bool(named) and all(fact.value.split(".")[0] != major for fact in named)


def stated_requirements(case: Case) -> Iterator[Finding]:
    """Compare the versions that a message states as needed with those that a log names."""
    if not (case.faults() or case.unexplained()):
        return
    for required in case.of_kind("required"):
        if required.subject == "cuda":
            cause, named = "cuda_major_mismatch", case.of_kind("cuda-named", "toolkit")
        else:
            cause = "cudnn_major_mismatch"
            named = case.about("cudnn-named", "installed") or case.of_kind("cudnn-named")
        named = [fact for fact in named if fact.from_log]
        if _only_others_named(named, required.value):
            yield likely(cause, required, named[0])


def _same_file(present: Fact, missing: Fact) -> bool:
    return present.subject == missing.subject and "site-packages/nvidia/" in present.value


def missing_libraries(case: Case) -> Iterator[Finding]:
    """Explain a missing library of CUDA or of the driver."""
    for missing in _missing_libraries(case):
        if _DRIVER_FILE.match(missing.subject):
            yield _explain_missing_driver(case, missing)
            continue
        library = _parse_name(_CUDA_FILE, missing.subject)
        if library is not None:
            yield from _explain_missing_cuda(case, missing, library)


def java_libraries(case: Case) -> Iterator[Finding]:
    """Find a library of Java that is built for another CUDA version than the installed one."""
    installed = case.about("cuda-named", "installed")
    failed = [fact for fact in case.about("hints", "cuda_lib_missing") if fact.value == _JAVA]
    present = {version_tuple(fact.value)[:1] for fact in installed}
    for named in case.about("cuda-named", ""):
        if failed and installed and version_tuple(named.value)[:1] not in present:
            yield likely("cuda_major_mismatch", failed[0], named, installed[0])
            return


def _explain_missing_driver(case: Case, missing: Fact) -> Finding:
    container, wsl = case.first("container", value="yes"), case.first("wsl", value="yes")
    stubs = _first(case.symptoms("stub-path"))
    if stubs:
        return likely("lib_shadowing", missing, stubs)
    if wsl:
        return likely("wsl_driver_or_toolkit", missing, wsl)
    if container:
        return likely("container_gpu_not_injected", missing, container)
    return likely("driver_not_found", missing)


def _explain_missing_cuda(case: Case, missing: Fact, library: _LibraryName) -> Iterator[Finding]:
    packages = _two_cuda_majors(case)
    if packages:
        yield likely("mixed_cuda_wheels", missing, *packages)
    other_major = _other_major(case, library) or _other_cuda_named(case, missing)
    if other_major:
        yield likely("cuda_major_mismatch", missing, other_major)
    else:
        yield likely("cuda_lib_missing", missing)


def _other_major(case: Case, wanted: _LibraryName) -> Fact | None:
    """Return the fact that the library is present in another major version, or None."""
    if not wanted.major:
        return None
    for fact in case.of_kind("library-present", "library-from"):
        present = _parse_name(_CUDA_FILE, fact.subject)
        if present is None or present.name != wanted.name:
            continue
        if present.major and present.major != wanted.major:
            return fact
    return None


def _other_cuda_named(case: Case, missing: Fact) -> Fact | None:
    """Return the first CUDA version that a log names, if none is that of a missing file.

    What a log names beside the installed toolkit and the build may be what the program needs.
    """
    fitting = _cudas_of_file(missing.subject)
    toolkits = case.of_kind("toolkit") + case.about("cuda-named", "installed")
    builds = case.of_kind("cuda-built")
    named = toolkits if toolkits and not builds else case.of_kind("cuda-named") + toolkits + builds
    named = [fact for fact in named if fact.from_log]
    versions = [version_tuple(fact.value) for fact in named]
    if not fitting or any(_is_version_of(version, fitting) for version in versions):
        return None
    return _first(named)


def _is_version_of(version: tuple[int, ...], fitting: list[tuple[int, ...]]) -> bool:
    """Whether a version may be one of others, of which some are a major version alone."""
    return any(version[: len(other)] == other[: len(version)] for other in fitting)


def _cudas_of_file(file_name: str) -> list[tuple[int, ...]]:
    """Return the CUDA versions that a file belongs to, or an empty list if they are unknown.

    "libcudart.so.11.0" belongs to (11,), and "libcudart.so.10.0" to (10, 0).
    """
    match = _FILE_OF_CUDA.match(file_name)
    if match is not None:
        return [_cuda_of_file(match)]
    owner = library_owner(file_name)
    if owner is None:
        return []
    majors = [*owner.cuda, "10"] if ".so.10" in file_name else owner.cuda  # owners: from CUDA 11
    return [(int(major),) for major in majors]


def _cuda_of_file(match: re.Match[str]) -> tuple[int, ...]:
    """Return the CUDA version in a file's name; since CUDA 11, only its major version counts."""
    major, minor = int(match[1] or match[3] or match[5]), match[2] or match[4] or match[6]
    if major < _FIRST_WITHOUT_MINOR and minor:
        return major, int(minor)
    return (major,)


def _parse_name(pattern: re.Pattern[str], file_name: str) -> _LibraryName | None:
    """Return the name and the major version that one of the file patterns finds, or None.

    The patterns have the same groups for Linux and for Windows, one after the other.
    """
    match = pattern.match(file_name)
    if match is None:
        return None
    groups = match.groups()
    if pattern is _CUDNN_FILE:
        return _LibraryName(name="cudnn", major=groups[0] or groups[1])
    return _LibraryName(name=groups[0] or groups[2], major=groups[1] or groups[3])


# ---- the driver ---------------------------------------------------------------------------------


def driver_versions(case: Case) -> Iterator[Finding]:
    """Compare the release of the kernel module with the release of the driver's libraries."""
    statuses = _with_values(case.about("status", "cuda"), *_DRIVER_MISMATCH)
    failed = case.failed("driver-versions")
    differing = _differing_releases(case)
    if not (failed or statuses or differing):
        return
    finding = proved if failed or differing else likely
    facts = [failed, *statuses, *differing]
    compat = _compat_library(case)
    container = case.first("container", value="yes")
    if compat or (container and (statuses or _is_compat_release(differing))):
        yield finding("compat_libcuda_misuse", *facts, compat, container)
    else:
        yield finding("driver_userspace_kernel_mismatch", *facts)


def _differing_releases(case: Case) -> list[Fact]:
    """Return the releases of the kernel module and of libcuda if they differ."""
    kernel = case.first("driver", subject="kernel")
    userspace = case.first("driver", subject="userspace")
    if kernel and userspace and _release(kernel) != _release(userspace):
        return [kernel, userspace]
    return []


def _release(driver: Fact) -> tuple[int, ...]:
    """Return a driver's release as numbers; TensorFlow prints 470.82 as "470.82.0"."""
    major, minor, patch = (*version_tuple(driver.value), 0, 0)[:3]
    return major, minor, patch


def _is_compat_release(differing: list[Fact]) -> bool:
    """Whether libcuda is newer than the kernel module, as an image's own libcuda is."""
    if not differing:
        return False
    kernel, userspace = differing
    return version_tuple(userspace.value) > version_tuple(kernel.value)


def _compat_library(case: Case) -> Fact | None:
    """Return the fact that libcuda is a forward-compatibility library, or None."""
    for fact in case.of_kind("library-from"):
        if fact.subject.startswith("libcuda.so") and "/compat" in fact.value:
            return fact
    return _first(case.symptoms("compat-path"))


def driver_presence(case: Case) -> Iterator[Finding]:
    """Explain from the host's facts why the driver does not answer."""
    lost = case.failed("libcuda") or case.failed("nvml")
    missing_nodes = _with_values(case.about("device-node", "/dev/nvidiactl"), "missing")
    container = case.first("container", value="yes")
    # The container of a log may be on another machine.
    if container and not container.from_log and (lost or missing_nodes):
        yield proved("container_gpu_not_injected", container, lost, *missing_nodes)
    else:
        yield from _driver_of_host(case, lost)


def _driver_of_host(case: Case, lost: Fact | None) -> Iterator[Finding]:
    """Find a kernel module that is not loaded, or a host without a GPU.

    Args:
        lost: the failed test of the driver's libraries, or None.
    """
    unloaded = _with_values(case.about("module", "nvidia"), "absent", "missing")
    gpus = [fact for fact in case.preferred("pci-gpu") if not fact.from_log]
    has_gpu = any(fact.value != "0" for fact in gpus)
    if unloaded and (lost or has_gpu):
        yield proved("driver_not_loaded", *unloaded, lost)
    elif gpus and not has_gpu and (case.log or lost):
        yield proved("driver_not_found", *gpus)


def driver_state(case: Case) -> Iterator[Finding]:
    """Find kernel modules that a suspend left in a broken state."""
    suspended = _first(case.symptoms("uvm-reloaded", "suspended"))
    failure = _first(case.symptoms("launch", "cuda-unavailable", "unexplained"))
    if suspended and failure:
        yield likely("uvm_or_driver_state_broken", failure, suspended)
    failed = case.failed("cuinit")
    if failed and _host_has_unknown_error(case) and case.passed("nvml"):
        yield proved("uvm_or_driver_state_broken", failed)


def _host_has_unknown_error(case: Case) -> bool:
    return any(
        fact.kind == "status" and fact.value == "CUDA_ERROR_UNKNOWN" for fact in case.host
    )


# ---- surroundings and devices -------------------------------------------------------------------


def container_devices(case: Case) -> Iterator[Finding]:
    """Find a container that was started without the GPU."""
    container = case.first("container", value="yes")
    words = tuple(case.about("suggests", "container_gpu_not_injected"))
    for kind in ("hints", "maybe"):
        for fact in case.about(kind, "driver_not_found"):
            if container:
                yield likely("container_gpu_not_injected", fact, container)
            elif len(words) > 1:
                yield likely("container_gpu_not_injected", fact, *words)
    if container and container.from_log and not _has_device_of_container(case):
        for fact in case.about("hints", "visible_devices_wrong"):
            if _is_unseen(fact):
                yield likely("container_gpu_not_injected", fact, container)
    if container and container.from_log:
        unavailable = case.symptoms("cuda-unavailable")
        if case.unexplained() or case.of_kind("gpu", "driver"):
            unavailable += case.symptoms("reported-unavailable")
        for fact in unavailable:
            yield possible("container_gpu_not_injected", fact, container)


def _has_device_of_container(case: Case) -> bool:
    """Whether a log shows that its container has or had the GPU, or that a variable chooses one."""
    if any(case.about("hints", cause) for cause in _WITH_DEVICE):
        return True
    shown = case.of_kind("driver", "driver-cuda", "smi-memory") or case.symptoms("started-with-gpu")
    return bool(shown or case.about("variable", "CUDA_VISIBLE_DEVICES"))


def _is_unseen(fact: Fact) -> bool:
    """Whether a message says that no device is seen, and not that a number is wrong."""
    return fact.value == "no-device" and "ordinal" not in fact.text


def container_command(case: Case) -> Iterator[Finding]:
    """Find a command that starts a container without the GPU."""
    started = _first(case.symptoms("started-without-gpu"))
    if started is None:
        return
    for fact in case.of_kind("says", "hints", "maybe"):
        if fact.subject in _WITHOUT_GPU and fact.value not in COMPARES_DRIVER:
            yield likely("container_gpu_not_injected", fact, started)
    for fact in (
        *case.about("suggests", "container_gpu_not_injected"),
        *case.symptoms("cuda-unavailable", "took-cpu"),
    ):
        yield possible("container_gpu_not_injected", fact, started)


def container_driver(case: Case) -> Iterator[Finding]:
    """Find a program in a container that needs a driver, if the log shows none."""
    for fact in case.of_kind("says", "hints", "status"):
        if lacks_driver_of_container(fact, case):
            yield likely("container_gpu_not_injected", fact, *case.symptoms("in-container"))


def lacks_driver_of_container(fact: Fact, case: Case) -> bool:
    """Whether a program in a container misses a driver, and nothing shows that it has one."""
    if not fact.from_log or not case.symptoms("in-container"):
        return False
    shown = case.of_kind("driver", "driver-cuda", "smi-memory") or case.symptoms("started-with-gpu")
    return fact.value in INSUFFICIENT_DRIVER and not shown


def container_files(case: Case) -> Iterator[Finding]:
    """Find a container that lacks the files of the driver's devices."""
    container = case.first("container", value="yes")
    for fact in case.about("hints", "driver_not_loaded"):
        if container and fact.value == NO_DRIVER_FILES:
            yield likely("container_gpu_not_injected", fact, container)


def wsl_driver(case: Case) -> Iterator[Finding]:
    """Find a Linux driver in WSL, where the driver is the one of Windows."""
    wsl = case.first("wsl", value="yes")
    if wsl is None:
        return
    for fact in case.about("says", "driver_not_loaded"):
        if fact.value == "nvidia-smi-failed":
            yield proved("wsl_driver_or_toolkit", fact, wsl)
    for fact in case.about("hints", "driver_not_loaded"):
        if fact.value == "nvidia-smi-cannot":
            yield likely("wsl_driver_or_toolkit", fact, wsl)
    for fact in case.about("says", "driver_userspace_kernel_mismatch"):
        yield likely("wsl_driver_or_toolkit", fact, wsl)


def wsl_devices(case: Case) -> Iterator[Finding]:
    """Find WSL without its GPU: it has one at most, and a Linux driver's library may hide it."""
    wsl = case.first("wsl", value="yes")
    if wsl is None:
        return
    unseen = [fact for fact in case.about("hints", "visible_devices_wrong") if _is_unseen(fact)]
    unseen += [fact for fact in case.about("status", "cuda") if fact.value in _NO_DEVICE]
    if case.first("container", value="yes") is None:
        unseen += case.about("hints", "driver_not_found")
    else:
        unseen += filter(_is_start_of_toolkit, case.about("hints", "container_gpu_not_injected"))
    for fact in unseen:
        yield likely("wsl_driver_or_toolkit", fact, wsl)


def _is_start_of_toolkit(fact: Fact) -> bool:
    """Whether a message says that the toolkit started, and found no driver or no GPU."""
    if fact.value == "no-gpu-offered":
        return "only 0 Devices" in fact.text
    return fact.value == "container-cli" and "initialization error" in fact.text


def hidden_devices(case: Case) -> Iterator[Finding]:
    """Find a variable that hides every GPU, in a log that says that none is used."""
    hidden = [fact for fact in case.about("variable", "CUDA_VISIBLE_DEVICES") if fact.from_log]
    unavailable = case.symptoms("cuda-unavailable", "took-cpu")
    if hidden and unavailable:
        yield likely("visible_devices_wrong", hidden[0], unavailable[0])
    elif hidden and case.symptoms("unexplained"):
        yield possible("visible_devices_wrong", hidden[0], case.symptoms("unexplained")[0])


def device_statuses(case: Case) -> Iterator[Finding]:
    """Find devices that refuse new processes, and causes that a CUDA status number names."""
    modes = case.preferred("compute-mode")
    closed = [fact for fact in modes if not _OPEN_COMPUTE_MODE.fullmatch(fact.value)]
    for status in case.of_kind("status"):
        if status.value == "CUDA_ERROR_DEVICE_UNAVAILABLE":
            if closed:
                yield proved("gpu_busy_or_exclusive", status, closed[0])
            elif not case.of_kind("vgpu"):
                # A virtual GPU has no compute mode: its hypervisor or its license refuses.
                yield likely("gpu_busy_or_exclusive", status)
        elif status.subject == "cuda" and status.value.isdigit():
            cause = CUDA_CAUSES.get(int(status.value))
            if cause:
                yield likely(cause, status)


def hardware_errors(case: Case) -> Iterator[Finding]:
    """Find failing hardware by its Xid and its ECC errors."""
    for xid in case.of_kind("xid"):
        number = int(xid.value) if xid.value.isdigit() else 0
        if number in XID_HARDWARE:
            finding = proved if number in XID_CERTAIN else likely
            yield finding("gpu_hardware_fault", xid)
    for ecc in case.of_kind("ecc"):
        if ecc.value.isdigit() and int(ecc.value) > 0:
            yield likely("gpu_hardware_fault", ecc)


# ---- memory -------------------------------------------------------------------------------------


def memory(case: Case) -> Iterator[Finding]:
    """Find exhausted memory, from a clear message or from a status that hides it.

    `verdicts.refutation` rules it out where the memory is free.
    """
    messages = case.of_kind("out-of-memory")
    if messages:
        yield from _stated_out_of_memory(case, messages[0])
    else:
        yield from _hidden_out_of_memory(case)


def _stated_out_of_memory(case: Case, message: Fact) -> Iterator[Finding]:
    rows = case.memory()
    full = [row.fact for row in rows if not row.mostly_free]
    yield proved("out_of_memory_masked", message, _first(full))
    too_large = case.failed_allocation(above_total=True)
    if too_large and case.free_memory_fact():
        # The program asks for more memory than the GPU has.
        yield likely("unsupported_op_config", too_large, rows[0].fact)


def _hidden_out_of_memory(case: Case) -> Iterator[Finding]:
    statuses = [fact for fact in case.of_kind("status") if fact.subject in ("cudnn", "cublas")]
    failure = _first([*statuses, *case.symptoms("cudnn-start", "cudnn-call")])
    words = _first(case.symptoms("memory-short"))
    if words and failure:
        yield likely("out_of_memory_masked", failure, words)
    elif words and case.unexplained():
        yield possible("out_of_memory_masked", words)
    if failure is None:
        return
    rows = case.memory()
    shown = [row for row in rows if row.fact.kind == "smi-memory"]
    if shown and all(row.nearly_full for row in shown):
        yield likely("out_of_memory_masked", failure, shown[0].fact)
    preallocated = _first(case.symptoms("preallocated"))
    for row in rows:
        if row.fact.kind != "free-bytes":
            continue
        if not row.mostly_free:
            yield _full_memory(failure, row, preallocated)
    growth = _first(case.symptoms("growth"))
    if growth and not rows:
        yield possible("out_of_memory_masked", failure, growth)


def _full_memory(failure: Fact, row: Memory, preallocated: Fact | None) -> Finding:
    """Return how sure it is that cuDNN failed for lack of memory.

    A program that has allocated most of the memory for itself leaves little, which may suffice.
    """
    facts = (failure, row.fact, preallocated)
    is_full = row.fact.from_log and row.free < LEAST_BYTES_OF_HANDLE
    if is_full and not preallocated:
        return proved("out_of_memory_masked", *facts)
    if is_full or not preallocated:
        return likely("out_of_memory_masked", *facts)
    return possible("out_of_memory_masked", *facts)


# ---- the program and the rest -------------------------------------------------------------------


def conflicting_requirements(case: Case) -> Iterator[Finding]:
    """Find the two requirements for which a resolver found no solution."""
    cause = "install_resolution_failure"
    if not any(case.about(kind, cause) for kind in ("says", "hints", "maybe")):
        return
    first: dict[str, Fact] = {}
    for fact in case.of_kind("requirement"):
        other = first.setdefault(_required_package(fact.value), fact)
        if other.subject != fact.subject and other.value != fact.value:
            yield proved(cause, _as_sentence(other), _as_sentence(fact))
            return


def _required_package(requirement: str) -> str:
    """Return the name of a package: "torch==2.0.0" -> "torch"."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def _as_sentence(requirement: Fact) -> Fact:
    verb = "require" if requirement.subject == "you" else "requires"
    return requirement.replace(text=f"{requirement.subject} {verb} {requirement.value}")


def handles(case: Case) -> Iterator[Finding]:
    """Find misuse of cuDNN handles, from cuDNN's log of calls (cudnn_calls.py)."""
    for handle in case.of_kind("handle"):
        if handle.subject == "forked":
            yield proved("fork_after_cuda_init", handle)
        else:
            yield proved("cudnn_handle_misused", handle)


def libc_versions(case: Case) -> Iterator[Finding]:
    """Find a C or C++ library of the system that is too old, or a system without glibc."""
    for fact in case.of_kind("libc-wanted"):
        yield proved("host_libc_too_old", fact)
    musl = case.symptoms("musl")
    if musl:
        for fact in case.about("hints", "install_resolution_failure"):
            yield likely("host_libc_too_old", fact, musl[0])


def loader_comparison(case: Case) -> Iterator[Finding]:
    """Find shadowed libraries: the test fails, and passes without the loader's variables."""
    clean, fresh = case.passed("clean-loader"), case.failed("fresh-process")
    if clean and fresh:
        yield proved("lib_shadowing", fresh, clean)


def unsupported_operations(case: Case) -> Iterator[Finding]:
    """Find an operation that only the program can change: a plain convolution works."""
    passed = case.passed("float32-convolution")
    if passed:
        for fact in case.about("hints", "unsupported_op_config"):
            yield proved("unsupported_op_config", fact, passed)


def stated_absent_cudnn(case: Case) -> Iterator[Finding]:
    """Find a cuDNN that is not installed in the words of a reporter, if cuDNN fails.

    torch brings its own cuDNN, so that of the system matters less.
    """
    stated = _first(case.symptoms("cudnn-not-installed"))
    failed = [
        *case.about("status", "cudnn"),
        *case.symptoms("cudnn-start", "cudnn-call"),
        *case.about("hints", "cuda_lib_missing"),
    ]
    if stated and failed:
        finding = possible if case.about("framework", "torch") else likely
        yield finding("cudnn_missing", stated, failed[0])


def absent_cudnn(case: Case) -> Iterator[Finding]:
    """Explain why no cuDNN was found on the host: another major version, or none."""
    absent = case.failed("cudnn-present")
    if absent is None:
        return
    present = [fact for fact in case.of_kind("library-present") if "cudnn" in fact.subject]
    if present:
        yield proved("cudnn_major_mismatch", absent)
    else:
        yield proved("cudnn_missing", absent)


def _with_values(facts: list[Fact], *values: str) -> list[Fact]:
    return [fact for fact in facts if fact.value in values]


def _first(facts: list[Fact]) -> Fact | None:
    return facts[0] if facts else None


# The order matters: the first finding of a cause gives the first line of evidence.
_RULES = (
    cudnn_versions,
    cudnn_packages,
    missing_symbols,
    loaded_files,
    missing_cudnn,
    missing_libraries,
    java_libraries,
    stated_requirements,
    driver_versions,
    driver_presence,
    driver_state,
    container_devices,
    container_command,
    container_driver,
    container_files,
    wsl_driver,
    wsl_devices,
    hidden_devices,
    device_statuses,
    hardware_errors,
    build_rules.cpu_builds,
    build_rules.cpu_packages,
    build_rules.cuda_of_build,
    build_rules.default_build,
    build_rules.compiler_of_build,
    build_rules.driver_of_named,
    build_rules.least_driver,
    build_rules.architectures,
    build_rules.toolkit_targets,
    build_rules.invalid_images,
    build_rules.jit_compiled,
    build_rules.failed_executions,
    build_rules.releases_without_gpu,
    build_rules.tensorflow_release,
    build_rules.gpu_after_release,
    build_rules.gpu_after_cudnn,
    memory,
    conflicting_requirements,
    handles,
    libc_versions,
    loader_comparison,
    unsupported_operations,
    stated_absent_cudnn,
    absent_cudnn,
)
