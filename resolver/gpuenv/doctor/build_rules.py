"""Rules about builds: a CPU build, the CUDA of a build, and what a release number implies."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .case_versions import (
    CUDNN_BEFORE_AMPERE,
    LAST_COMMON_CAPABILITY,
    MINOR_VERSION_COMPATIBILITY,
    capability_of_name,
    compiled_capabilities,
    driver_cuda,
    driver_older_than_named,
    gpu_above,
    gpu_capabilities,
    is_driver_older,
    libraries_of_build,
    newest_capability,
    newest_releases,
)
from .catalog import BrokenRelease, broken_releases, cuda_of_driver
from .facts import Case, first_of, unsure_of, with_names
from .library_rules import LIBRARY_NOT_LOADED, PROVIDER_NOT_CREATED
from .model import Fact, Finding, likely, possible, proved
from .status_codes import version_tuple

# The first capability with fast half precision, which CTranslate2 and others require.
_FAST_HALF_PRECISION = (7, 0)
# Messages that no cuDNN algorithm worked.
_NO_ALGORITHM = ("no-algorithm", "convolution-algorithm")
_NO_GEMM = ("memory-for-start",)  # of cuBLAS, "Blas GEMM launch failed"
# What libraries of CUDA return if they cannot start, and the ends of the names of these statuses.
_LIBRARIES_THAT_START = ("cudnn", "cublas", "cusolver", "cusparse", "cufft", "curand")
_STATUSES_OF_START = ("_NOT_INITIALIZED", "_INITIALIZATION_FAILED", "_SETUP_FAILED")
# Programs whose wheels bring no CUDA, or only with an extra.
_WITHOUT_OWN_CUDA = ("tensorflow", "onnxruntime", "ctranslate2")
_CAUSES_OF_RELEASE = {"cuda": "cuda_major_mismatch", "cudnn": "cudnn_major_mismatch"}
_FIRST_CUDA_ONLY_RELEASE = (2, 11)  # TensorFlow from this release has no CUDA build for Windows
# The package of a CPU build -> the package of the CUDA build, which installs the same files.
_CPU_PACKAGES = {"onnxruntime": "onnxruntime-gpu"}
# Words of a build that failed.
_WORDS_OF_BUILD = re.compile(
    r"(?i)nvcc|ninja|setup\.py|\bmake\b|cpp_ext|compil|\bbuil[dt]|\u7f16\u8bd1"
)
# Files of ONNX Runtime that need no library of CUDA, or are in its CUDA package only.
_PROVIDER_FILE = re.compile(
    r"libonnxruntime_providers_(?:shared|cuda)\.so|onnxruntime_providers_shared\.dll"
)
_NAMES_GPU = re.compile(r"(?i)\b(?:gpus?|cuda)\b")  # what a failure in words is about
# Messages that ONNX Runtime has no provider for CUDA.
_PROVIDER_MESSAGES = ("cpu-onnxruntime", "providers-of-cpu-package", "two-onnxruntimes")


# ---- CPU builds ---------------------------------------------------------------------------------


def cpu_builds(case: Case) -> Iterator[Finding]:
    """Find a CPU build where a GPU was meant to be used."""
    builds = _builds_of_log(case)
    took_cpu = case.symptoms("took-cpu") if case.of_kind("gpu") else []
    yield from _unmeant_builds(case, builds, took_cpu)
    for fact in case.of_kind("library-missing"):
        if _PROVIDER_FILE.match(fact.subject):
            yield likely("cpu_only_build", fact)
    has_cuda_build = any(build.value != "none" for build in builds)
    if took_cpu and not has_cuda_build and not case.of_kind("driver"):
        yield from _cpu_instead_of_gpu(case, took_cpu)


def _builds_of_log(case: Case) -> list[Fact]:
    """Return the builds that a log names, without JAX if its backend for CUDA is installed."""
    builds = [fact for fact in case.of_kind("cuda-built") if fact.from_log]
    if case.symptoms("gpu-backend"):
        return [build for build in builds if build.subject != "jax"]
    return builds


def _unmeant_builds(case: Case, builds: list[Fact], took_cpu: list[Fact]) -> Iterator[Finding]:
    """Find the CPU builds among those of a log, if a sign shows that a GPU was meant."""
    unmeant = case.symptoms("cuda-unavailable", "cuda-asked") + took_cpu
    if case.of_kind("gpu", "driver", "driver-cuda"):
        unmeant += case.symptoms("reported-unavailable")
    for build in builds:
        if build.value != "none":
            continue
        signs = unmeant
        if not signs and build.subject == "jax":
            signs = case.of_kind("gpu", "driver", "toolkit")
        if signs:
            yield likely("cpu_only_build", build, signs[0])
        else:
            for sign in _signs_of_gpu(case):
                yield possible("cpu_only_build", build, sign)


def _signs_of_gpu(case: Case) -> list[Fact]:
    """Return what names a GPU if a log has a failure: a GPU's name, or else the failure itself."""
    failure = first_of(case.symptoms("unexplained"))
    if failure is None:
        return []
    in_words = [failure] if _NAMES_GPU.search(failure.text) else []
    return case.of_kind("gpu")[:1] or in_words


def cpu_packages(case: Case) -> Iterator[Finding]:
    """Find the package of a CPU build in the environment of a log that misses CUDA."""
    stated = [*case.about("says", "cpu_only_build"), *case.about("hints", "cpu_only_build")]
    missing = [fact for fact in stated if fact.from_log]
    for cpu, cuda in _CPU_PACKAGES.items():
        packages = _host_packages(case, cpu)
        if missing and packages and missing[0].value in _PROVIDER_MESSAGES:
            yield proved("cpu_only_build", missing[0], *packages, *_host_packages(case, cuda))


def overwrites_cuda_build(case: Case) -> bool:
    """Whether the environment has a CPU build and a CUDA build that install the same files."""
    return any(
        _host_packages(case, cpu) and _host_packages(case, cuda)
        for cpu, cuda in _CPU_PACKAGES.items()
    )


def _host_packages(case: Case, name: str) -> list[Fact]:
    return [fact for fact in case.about("package", name) if not fact.from_log]


def _cpu_instead_of_gpu(case: Case, took_cpu: list[Fact]) -> Iterator[Finding]:
    """Find a program that ran on the CPU although the log names a GPU with half precision."""
    for gpu in case.of_kind("gpu"):
        capability = capability_of_name(gpu.value)
        if capability and capability >= _FAST_HALF_PRECISION:
            # Every GPU since Volta has half precision, and CPUs do not.
            refused_half = any("float16" in fact.text for fact in took_cpu)
            finding = likely if refused_half else possible
            yield finding("cpu_only_build", took_cpu[0], gpu)
            return


def suggested_by_unavailable(case: Case) -> Iterator[Finding]:
    """Suggest why a framework uses no GPU although the log names one.

    The CUDA build of TensorFlow finds no libraries; that of others is mostly not installed.
    """
    unavailable = case.symptoms("cuda-unavailable")
    gpus = case.of_kind("gpu", "driver", "driver-cuda")
    is_cuda_build = any(fact.value != "none" for fact in case.of_kind("cuda-built"))
    if unavailable and gpus and not is_cuda_build:
        is_tensorflow = "tensorflow" in newest_releases(case)
        cause = "cuda_lib_missing" if is_tensorflow else "cpu_only_build"
        yield possible(cause, unavailable[0], gpus[0])
    elif not unavailable:
        for fact in case.symptoms("no-gpu-seen"):
            yield possible("driver_not_found", fact)


# ---- the CUDA version of a build ----------------------------------------------------------------


def cuda_of_build(case: Case) -> Iterator[Finding]:
    """Compare the CUDA version of a build with the driver's, and with the GPUs it compiles for."""
    builds = _cuda_builds(case)
    unavailable = case.symptoms("cuda-unavailable", "reported-unavailable")
    unavailable += case.about("maybe", "driver_not_found")
    failed = case.faults() or case.symptoms("took-cpu") or unavailable
    if not builds or not failed:
        return
    oldest, newest = min(builds), max(builds)
    for driver in case.of_kind("driver-cuda"):
        if driver.from_log and is_driver_older(version_tuple(driver.value), oldest):
            finding = likely if unavailable else possible
            yield finding("driver_too_old", builds[oldest], driver)
            break
    compiled = compiled_capabilities(newest)
    for capability, gpu in gpu_capabilities(case):
        # A GPU of a later minor version runs the same code.
        if compiled and capability[0] > compiled[1][0]:
            # A missing library is a failure that comes before any code for the GPU.
            finding = possible if case.of_kind("library-missing") else likely
            yield finding("gpu_too_new_for_build", gpu, builds[newest])
            break


def default_build(case: Case) -> Iterator[Finding]:
    """Compare the CUDA version of the default build of a release with the driver's."""
    newest = newest_releases(case).get("torch")
    if newest is None or case.of_kind("cuda-built") or not case.symptoms("cuda-unavailable"):
        return
    version, release = newest
    cuda = libraries_of_build("torch", version).get("cuda")
    for driver in case.of_kind("driver-cuda"):
        if cuda and driver.from_log and is_driver_older(version_tuple(driver.value), cuda):
            yield possible("driver_too_old", release, driver)
            return


def driver_of_named(case: Case) -> Iterator[Finding]:
    """Compare the newest CUDA version that a log names with the driver's.

    This counts if a library does not start or no device is seen. A framework's build has its own
    CUDA version, which `cuda_of_build` compares.
    """
    older = driver_older_than_named(case, is_driver_older)
    if not older:
        return
    for fact in case.of_kind("status"):
        if fact.subject in _LIBRARIES_THAT_START and fact.value.endswith(_STATUSES_OF_START):
            yield likely("driver_too_old", fact, *older)
            return
    for fact in unsure_of(case, "visible_devices_wrong"):
        if "ordinal" not in fact.text:
            yield likely("driver_too_old", fact, *older)
    for fact in case.symptoms("cuda-unavailable"):
        yield possible("driver_too_old", fact, *older)


def least_driver(case: Case) -> Iterator[Finding]:
    """Compare the driver with the oldest release that a program asks for.

    If the log names the driver in words only, the CUDA versions of both are compared. The release
    that the program asks for may be read as the driver's, too.
    """
    for fact in case.of_kind("driver-least"):
        least = version_tuple(fact.value)
        drivers = {version_tuple(driver.value): driver for driver in case.of_kind("driver")}
        if not drivers:
            least = version_tuple(cuda_of_driver(fact.value))
            drivers = {
                driver_cuda(driver): driver
                for driver in case.of_kind("driver-cuda")
                if driver.where != fact.where or driver_cuda(driver) != least
            }
        if not drivers:
            yield likely("driver_too_old", fact)
        elif max(drivers) < least:
            yield likely("driver_too_old", fact, drivers[max(drivers)])
    for fact in case.of_kind("driver-cuda-least", "cuda-least"):
        drivers = {driver_cuda(driver): driver for driver in case.of_kind("driver-cuda", "driver")}
        least = version_tuple(fact.value)
        if drivers and max(drivers) < least:
            # A driver runs the later minor versions of its own major version, too.
            is_later_major = max(drivers)[:1] < least[:1] and not case.of_kind("toolkit")
            is_sure = fact.kind == "driver-cuda-least" or is_later_major
            finding = likely if is_sure else possible
            yield finding("driver_too_old", fact, drivers[max(drivers)])


def suggested_by_driver(case: Case) -> Iterator[Finding]:
    """Suggest a driver that is older than the newest CUDA version that a log names."""
    older = driver_older_than_named(case, is_driver_older)
    if older:
        yield possible("driver_too_old", *older)


def _cuda_builds(case: Case) -> dict[tuple[int, ...], Fact]:
    """Return the CUDA versions of the builds that a log names."""
    builds = {}
    for fact in case.of_kind("cuda-built"):
        version = version_tuple(fact.value)
        if fact.from_log and version:
            builds[version] = fact
    return builds


def compiler_of_build(case: Case) -> Iterator[Finding]:
    """Compare nvcc's version with the other CUDA versions of a log, if a build failed.

    An extension that lacks a symbol of torch was built.
    """
    if with_names(case, "companion_binary_mismatch", ("torch-symbol",)):
        return
    nvcc = case.about("toolkit", "nvcc") or case.about("cuda-named", "installed")
    others = [fact for fact in case.of_kind("toolkit", "cuda-built") if fact.subject != "nvcc"]
    if not nvcc and case.of_kind("cuda-built"):
        nvcc, others = case.of_kind("toolkit"), case.of_kind("cuda-built")
    compilers_named = [fact for fact in nvcc if fact.from_log]
    failed = [fact for fact in case.unexplained() if _WORDS_OF_BUILD.search(fact.text)]
    if not compilers_named or not failed or case.of_kind("architecture-missing"):
        return
    compiler = compilers_named[0]
    for other in others:
        if other.from_log and _differs(version_tuple(compiler.value), version_tuple(other.value)):
            majors = [version_tuple(fact.value)[:1] for fact in (compiler, other)]
            is_certain = other.kind == "cuda-built" and majors[0] != majors[1]
            finding = likely if is_certain else possible
            yield finding("cuda_major_mismatch", failed[0], compiler, other)
            return


def extension_for_torch(case: Case) -> Iterator[Finding]:
    """Suggest another CUDA than torch's where an extension of torch is not built.

    Its setup.py compares them first. The error of the compiler is often not in the log.
    """
    asked = first_of(case.symptoms("extension-for-torch"))
    failed = [fact for fact in case.unexplained() if _WORDS_OF_BUILD.search(fact.text)]
    if asked and failed and not case.of_kind("architecture-missing", "library-missing"):
        yield possible("cuda_major_mismatch", failed[0], asked)


def _differs(cuda: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether code of two CUDA versions does not fit together."""
    if not cuda or not other:
        return False
    if cuda[0] != other[0]:
        return True
    return cuda != other and cuda < MINOR_VERSION_COMPATIBILITY


# ---- releases that use no GPU --------------------------------------------------------------------


def releases_without_gpu(case: Case) -> Iterator[Finding]:
    """Find a release that is known to use no GPU, if the log says that none was used."""
    failures = [
        *case.about("maybe", "cuda_lib_missing"),
        *case.symptoms("cuda-unavailable", "took-cpu"),
    ]
    named = named_broken_release(case)
    if failures and named is not None:
        yield likely("cuda_lib_missing", failures[0], named[0])


def named_broken_release(case: Case) -> tuple[Fact, BrokenRelease] | None:
    """Return the first package whose release for Linux is known to use no GPU, or None."""
    if case.first("os", value="windows") and not case.first("wsl", value="yes"):
        return None
    for package in case.preferred("package"):
        release = broken_releases().get((package.subject, package.value))
        if release is not None:
            return package, release
    return None


# ---- what a release number implies --------------------------------------------------------------


def tensorflow_on_windows(case: Case) -> Iterator[Finding]:
    """Find a release of TensorFlow that has no CUDA build for Windows."""
    unavailable = case.symptoms("cuda-unavailable")
    newest = newest_releases(case).get("tensorflow")
    windows = case.first("os", value="windows")
    if not unavailable or newest is None or windows is None or case.first("wsl", value="yes"):
        return
    version, release = newest
    if version >= _FIRST_CUDA_ONLY_RELEASE:
        yield likely("cpu_only_build", release, windows, unavailable[0])


def libraries_of_release(case: Case) -> Iterator[Finding]:
    """Compare the CUDA and the cuDNN of a release's builds with those that a log names.

    This counts if CUDA is unavailable or a library did not load, and the log does not say which.
    """
    failures = case.symptoms("cuda-unavailable", "load")
    failures += with_names(case, "cuda_lib_missing", LIBRARY_NOT_LOADED)
    if not failures:
        return
    for framework, (version, release) in newest_releases(case).items():
        if framework not in _WITHOUT_OWN_CUDA:
            continue
        for library, built in libraries_of_build(framework, version).items():
            other = _other_than(case, library, built)
            if other is not None:
                yield likely(_CAUSES_OF_RELEASE[library], release, other, failures[0])


def cudnn_of_provider(case: Case) -> Iterator[Finding]:
    """Find what ONNX Runtime lacks if a log names the CUDA of its release: cuDNN."""
    failed = with_names(case, "cuda_lib_missing", PROVIDER_NOT_CREATED)
    release = newest_releases(case).get("onnxruntime")
    if not failed or release is None or case.of_kind("library-missing", "cudnn-named"):
        return
    built = libraries_of_build("onnxruntime", release[0]).get("cuda")
    for fact in case.of_kind("toolkit", "cuda-named"):
        if built and fact.from_log and version_tuple(fact.value)[: len(built)] == built:
            yield likely("cudnn_missing", failed[0], release[1], fact)
            yield possible("cudnn_major_mismatch", failed[0])
            return


def _other_than(case: Case, library: str, built: tuple[int, ...]) -> Fact | None:
    """Return the first fact that names a CUDA or cuDNN if none names the one of the build."""
    installed = case.about(f"{library}-named", "installed")
    toolkits = case.of_kind("toolkit") if library == "cuda" else []
    of_driver = {fact.where for fact in case.of_kind("driver-cuda")}
    named = toolkits + installed or case.of_kind(f"{library}-named")
    named = [fact for fact in named if fact.from_log and fact.where not in of_driver]
    versions = [version_tuple(fact.value) for fact in named]
    if any(version[: len(built)] == built[: len(version)] for version in versions):
        return None
    return first_of(named)


def gpu_after_release(case: Case) -> Iterator[Finding]:
    """Find a GPU that is newer than the release of the framework."""
    failures = [
        fact
        for fact in case.of_kind("status")
        if fact.subject in ("cudnn", "cublas", "cusolver", "cufft")
    ]
    failures += case.symptoms("launch", "cudnn-start", "cudnn-call")
    failures += with_names(case, "out_of_memory_masked", _NO_ALGORITHM)
    failures += [
        fact for fact in with_names(case, "out_of_memory_masked", _NO_GEMM) if "GEMM" in fact.text
    ]
    if not failures or case.of_kind("out-of-memory", "architecture-missing"):
        return
    for framework, (version, release) in newest_releases(case).items():
        highest = newest_capability(framework, version)
        gpu = gpu_above(case, highest) if highest else None
        if gpu:
            yield likely("gpu_too_new_for_build", failures[0], release, gpu)


def gpu_after_cudnn(case: Case) -> Iterator[Finding]:
    """Find a GPU that is newer than every cuDNN that the log names, if cuDNN fails."""
    named = case.of_kind("cudnn-named")
    if not named or any(int(fact.value) > CUDNN_BEFORE_AMPERE for fact in named):
        return
    failures = [
        *case.about("status", "cudnn"),
        *case.symptoms("cudnn-start", "cudnn-call"),
        *with_names(case, "out_of_memory_masked", _NO_ALGORITHM),
    ]
    gpu = gpu_above(case, LAST_COMMON_CAPABILITY)
    if failures and gpu:
        yield likely("gpu_too_new_for_build", failures[0], named[0], gpu)
