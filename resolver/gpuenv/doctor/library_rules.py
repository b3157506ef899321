"""Rules about the libraries of CUDA and cuDNN: their versions, their files and their symbols."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import product

from ..compat.data import load
from ..compat.evaluate import built_with
from .catalog import library_owner, linux_name
from .facts import MINOR_VERSION_COMPATIBILITY, Case, first_of
from .model import Fact, Finding, likely, possible, proved

# Names of libraries, as on Linux.
_CUDA_FILE = re.compile(
    r"lib(cudart|cublas|cublasLt|cusparseLt|cusparse|cusolver|cufft|cufftw|curand|nvrtc|nvJitLink|"
    r"cupti|nccl|cufile|nvToolsExt|npp[a-z]*|cudafor|cudanvhpc|acc(?:cuda|host|device)|cudadevrt|"
    r"nvjpeg|nvshmem|nvvm|"
    r"cudss|cutensor|cu(?:df|ml|graph|vs)\+*)"
    r"[\w-]*\.so(?:\.(\d{1,2}))?"
)
# Files whose version is CUDA's.
_NAME_WITH_CUDA_VERSION = re.compile(
    r"lib(?:cudart|cublas|cublasLt|nvrtc|"
    r"(?:cusparse|cufft|curand|cusolver|npp\w{0,8})(?=\.so\.(?:[7-9]|10)\.\d))"
    r"\.so\.(\d{1,2})(?:\.(\d))?\b"
)
_FIRST_WITHOUT_MINOR = 11  # since this CUDA release, programs need a major version alone
_CUDNN_FILE = re.compile(r"(?:lib)?cudnn\w*?\.so(?:\.(\d{1,2}))?[\d.]*$")
_CUDNN_MAIN_FILE = re.compile(r"(?:lib)?cudnn\.")
_DRIVER_FILE = re.compile(
    r"lib(?:cuda|nvcuvid|nvoptix|nvidia-(?:ml|ptxjitcompiler|encode|opticalflow|nvvm))\.so"
    r"|nvcuda\.dll"
)
_SYMBOL_OF_CUDA = re.compile(
    r"_*(?:cublas|cusparse|cusolver|cufft|curand|nccl|nvrtc|nvJitLink|cupti|cuda[A-Z]|cu[A-Z])"
)
_SYMBOL_OF_DRIVER = re.compile(r"cu[A-Z]")  # those of libraries have no capital there: cublasCreate
# Programs whose wheels bring no CUDA, or only with an extra.
_WITHOUT_OWN_CUDA = ("tensorflow", "onnxruntime", "ctranslate2")
# What the main library of cuDNN, which is there, prints of another library of cuDNN.
_OF_MAIN_LIBRARY = re.compile(r"ould not load library (?:lib)?cudnn_")
# A message of cuDNN: it does not find the driver's library by the name libcuda.so.
_WITHOUT_LIBCUDA_NAME = "cudnn-without-libcuda"


def cudnn_versions(case: Case) -> Iterator[Finding]:
    """Compare the loaded cuDNN with the cuDNN of the build."""
    builds, loads = case.preferred("cudnn-built"), case.preferred("cudnn-loaded")
    for built, loaded in product(builds, loads):
        release, wanted = loaded.version, built.version
        if loaded.subject != built.subject or not release or not wanted or release == wanted:
            continue
        same_major = release[:1] == wanted[:1]
        sure = likely
        if (loaded.subject, loaded.value) in [(fact.subject, fact.value) for fact in builds]:
            # The build states the loaded version, too: two releases of the framework's packages.
            same_major = True
        elif (package := _newer_package(case, loaded, built)) is not None:
            yield likely("lib_shadowing", loaded, package)
        elif loaded.subject == "torch" and loaded.from_log:
            # torch ships its own cuDNN, so another library mostly shadows it.
            yield likely("lib_shadowing", loaded, built)
        else:
            sure = proved
        if same_major and release > wanted:
            # A later release of the same major version is compatible, if it is the environment's.
            if loaded.from_log:
                yield possible("lib_shadowing", loaded, built)
        elif same_major:
            yield sure("cudnn_runtime_older_than_build", loaded, built)
        else:
            yield sure("cudnn_major_mismatch", loaded, built)


def _newer_package(case: Case, loaded: Fact, built: Fact) -> Fact | None:
    """Return the log's package of cuDNN that suits the build and was not loaded, or None."""
    needed, used = built.version[:2], loaded.version
    for package in case.of_kind("package"):
        version = package.version
        is_cudnn = package.from_log and package.subject.startswith("nvidia-cudnn")
        is_suiting = version[:1] == needed[:1] and version >= needed
        if is_cudnn and is_suiting and version[: len(used)] != used:
            return package
    return None


def cudnn_packages(case: Case) -> Iterator[Finding]:
    """Find cuDNN packages for two CUDA versions: they install the same files."""
    packages = _two_cuda_majors(case, "nvidia-cudnn")
    if not any(package.from_log for package in packages):
        return
    missing = [fact for fact in case.of_kind("library-missing") if "cudnn" in fact.subject]
    failures = missing + case.about("status", "cudnn") + case.symptoms("cudnn-start", "cudnn-call")
    sure = likely if failures else possible
    yield sure("mixed_cuda_wheels", *packages, first_of(failures))


def missing_symbols(case: Case) -> Iterator[Finding]:
    """Find a library that lacks a symbol of another: the two were not built for each other."""
    missing = case.of_kind("symbol-missing")
    files = {fact.subject.partition(".so")[0][3:] for fact in case.of_kind("library-missing")}
    cudnn_symbols = {fact.value for fact in missing if _lacks_cudnn_symbol(fact)}
    for fact in missing:
        if _lacks_cudnn_symbol(fact):
            yield likely("cudnn_sublibs_mixed", fact)
        elif "libcuda.so" in fact.text:
            continue  # a symbol of the driver: the driver is too old for the library
        elif _SYMBOL_OF_DRIVER.match(fact.value):
            yield likely("driver_too_old", fact)
        elif any(name and fact.value.lower().startswith(name) for name in files):
            continue  # a symbol of a library that is missing
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
        return package.subject, package.major
    return package.subject, "13"


def loaded_files(case: Case) -> Iterator[Finding]:
    """Find libraries that the loader took from another place, by its trace in a log."""
    loaded = [fact for fact in case.of_kind("library-from") if fact.from_log]
    cudnn = [fact for fact in loaded if _CUDNN_FILE.match(fact.subject)]
    for fact in cudnn:
        if _folder(fact) != _folder(cudnn[0]):
            yield likely("cudnn_sublibs_mixed", cudnn[0], fact)
    for fact, own in product(loaded, case.of_kind("own-libraries")):
        if _DRIVER_FILE.match(fact.subject) or fact.value.startswith(own.value):
            continue
        # The file was loaded instead of the one that the environment has.
        paths = case.about("variable", "LD_LIBRARY_PATH")
        variables = [path for path in paths if _folder(fact) in re.split("[:;]", path.value)]
        prefix = own.value.partition("/lib/python")[0]
        if own.subject == "nvidia":
            sure = proved if variables else likely
            yield sure("lib_shadowing", fact, own, *variables)
        elif variables and not fact.value.startswith(f"{prefix}/lib"):
            yield likely("lib_shadowing", fact, own, *variables)


def _folder(loaded: Fact) -> str:
    return os.path.dirname(os.path.normpath(loaded.value))


def missing_libraries(case: Case) -> Iterator[Finding]:
    """Explain missing libraries of cuDNN, of CUDA and of the driver."""
    present = _cudnn_majors(case)
    container = case.first("container", value="yes")
    if case.stated("driver_not_found", _WITHOUT_LIBCUDA_NAME):
        container = None
    stubs = first_of(case.symptoms("stub-path"))
    packages = _two_cuda_majors(case)
    for missing in case.of_kind("library-missing"):
        name = linux_name(missing.subject)
        cudnn, cuda = _CUDNN_FILE.match(name), _CUDA_FILE.match(name)
        if cudnn is not None:
            yield from _explain_missing_cudnn(case, missing, cudnn[1], present)
        elif _DRIVER_FILE.match(name):
            if stubs:
                yield likely("lib_shadowing", missing, stubs)
            elif container:
                yield likely("container_gpu_not_injected", missing, container)
            else:
                yield likely("driver_not_found", missing)
        elif cuda is not None:
            if packages:
                yield likely("mixed_cuda_wheels", missing, *packages)
            other_major = _other_major(case, cuda) or _other_cuda_named(case, name)
            if other_major:
                yield likely("cuda_major_mismatch", missing, other_major)
            else:
                yield likely("cuda_lib_missing", missing)


def _cudnn_majors(case: Case) -> dict[str, Fact]:
    """Return the major versions of cuDNN that are present, each with a fact that shows it."""
    present: dict[str, Fact] = {}
    for fact in case.of_kind("library-present", "library-from"):
        name = linux_name(fact.subject)
        library = _CUDNN_FILE.match(name)
        major = library[1] if library else None
        if major and (_CUDNN_MAIN_FILE.match(name) or major not in present):
            present[major] = fact
    for fact in case.of_kind("cudnn-loaded"):
        if fact.subject == "cudnn":
            present[fact.major] = fact
    return present


def _explain_missing_cudnn(
    case: Case, missing: Fact, major: str | None, present: dict[str, Fact]
) -> Iterator[Finding]:
    is_main = _CUDNN_MAIN_FILE.match(linux_name(missing.subject)) is not None
    wsl = case.first("wsl", value="yes")
    present_files = case.about("library-present", missing.subject)
    elsewhere = [fact for fact in present_files if "site-packages/nvidia/" in fact.value]
    other = _other_cudnn(case, major, present) if major and major not in present else None
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
        causes = ["cudnn_missing", "cudnn_sublib_missing"]
        if _OF_MAIN_LIBRARY.search(missing.text):
            causes.reverse()
        yield likely(causes[0], missing)
        if not is_main:
            yield possible(causes[1], missing)
            if case.first("version", subject="torch") is None:
                yield possible("cudnn_major_mismatch", missing)


def _other_cudnn(case: Case, major: str, present: dict[str, Fact]) -> Fact | None:
    """Return the fact that shows another major version of cuDNN than the one needed, or None."""
    for fact in case.of_kind("package"):
        if fact.from_log and fact.subject.startswith("nvidia-cudnn"):
            return None if fact.major == major else fact
    if present:
        return next(iter(present.values()))
    torch = case.first("version", subject="torch")
    cudnn = _built_with(torch)[1] if torch else ()
    return torch if cudnn and cudnn[0] != int(major) else None


def _built_with(release: Fact) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the CUDA and the cuDNN of a release's builds for Linux, () for what is unknown."""
    version = ".".join(map(str, release.version))
    return built_with(release.subject, version, "linux-x86_64", load())


def libraries_of_release(case: Case) -> Iterator[Finding]:
    """Compare the CUDA of a release's builds with the toolkit that a log names.

    This counts for releases without a CUDA of their own, if the log does not say what did not load.
    """
    failures = case.symptoms("cuda-unavailable", "load")
    failures += case.stated("cuda_lib_missing", "dll-load-failed", "cannot-dlopen-some")
    toolkit = case.newest("toolkit")
    if not failures or toolkit is None or not toolkit.from_log:
        return
    for framework, release in case.newest_releases().items():
        if framework in _WITHOUT_OWN_CUDA:
            cuda, named = _built_with(release)[0], toolkit.version
            if cuda >= MINOR_VERSION_COMPATIBILITY:
                cuda = cuda[:1]  # builds of its other minor versions fit, too
            if cuda and named[: len(cuda)] != cuda[: len(named)]:
                yield likely("cuda_major_mismatch", release, toolkit, failures[0])


def _other_major(case: Case, wanted: re.Match[str]) -> Fact | None:
    """Return the fact that a CUDA library is present in another major version, or None."""
    for fact in case.of_kind("library-present", "library-from") if wanted[2] else ():
        present = _CUDA_FILE.match(linux_name(fact.subject))
        if present and present[1] == wanted[1] and present[2] not in (None, wanted[2]):
            return fact
    return None


def _other_cuda_named(case: Case, file_name: str) -> Fact | None:
    """Return the first CUDA version of the log if a missing file belongs to none of them.

    The CUDA version of torch counts before all others.
    """
    fitting = _cudas_of_file(file_name)
    builds = [fact for fact in case.of_kind("cuda-built") if fact.value != "none"]
    of_torch = [fact for fact in builds if fact.subject == "torch"]
    named = [fact for fact in of_torch or case.of_kind("toolkit") + builds if fact.from_log]
    for fact in named:
        # A major version alone fits all of its minor ones.
        if any(fact.version[: len(cuda)] == cuda[: len(fact.version)] for cuda in fitting):
            return None
    return first_of(named) if fitting else None


def _cudas_of_file(file_name: str) -> list[tuple[int, ...]]:
    """Return the CUDA versions that a file belongs to, or an empty list if they are unknown.

    "libcudart.so.11.0" belongs to (11,), and "libcudart.so.10.0" to (10, 0).
    """
    match = _NAME_WITH_CUDA_VERSION.match(file_name)
    if match is not None:
        major, minor = int(match[1]), match[2]
        return [(major, int(minor)) if minor and major < _FIRST_WITHOUT_MINOR else (major,)]
    owner = library_owner(file_name)
    if owner is None:
        return []
    # The owners of files are known from CUDA 11 on.
    majors = [*owner.packages, *(["10"] if ".so.10" in file_name else [])]
    return [(int(major),) for major in majors]


RULES = (
    cudnn_versions,
    cudnn_packages,
    missing_symbols,
    loaded_files,
    missing_libraries,
    libraries_of_release,
)
