"""Rules about builds: a CPU build, a build for another GPU, and what a release number implies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ..compat.architectures import any_sass_runs
from .catalog import (
    BrokenRelease,
    broken_releases,
    capability_of_series,
    compilers,
    cuda_of_driver,
    highest_capability_of,
    releases_before,
    year_of_gpu,
    year_of_release,
)
from .facts import Case, first_of, unsure_of, with_names
from .library_rules import LIBRARY_NOT_LOADED, PROVIDER_NOT_CREATED
from .model import Fact, Finding, likely, possible, proved
from .status_codes import version_tuple

Capability = tuple[int, ...]  # a compute capability: (9, 0)

# The first capability with fast half precision, which CTranslate2 and others require.
_FAST_HALF_PRECISION = (7, 0)
_CUDNN_BEFORE_AMPERE = 7  # a major version; 8.0 is the first with code for compute capability 8.0
# Messages that no cuDNN algorithm worked.
_NO_ALGORITHM = ("no-algorithm", "convolution-algorithm")
_NO_GEMM = ("memory-for-start",)  # of cuBLAS, "Blas GEMM launch failed"
# Since CUDA 11.0, a driver supports the later minor versions of its own major version.
_MINOR_VERSION_COMPATIBILITY = (11, 0)
# Without any code list, a GPU newer than this is more likely newer than the build than older.
_LAST_COMMON_CAPABILITY = (7, 5)
# Current compilers dropped the GPUs before this one. They know the later ones, or dropped them.
_FIRST_COMMON_CAPABILITY = (5, 0)
# Earlier CUDA releases compile for Maxwell (5.0) and later GPUs. If a program that was built with
# one has no code for such a GPU, the flags of its build are older than the GPU.
_FIRST_CUDA_OF_LATER_GPUS = (10, 0)
# For so many years a GPU is more likely newer than a build without code for it than older.
_YEARS_OF_NEW_GPU = 2
# A build for many architectures, of which the first is old, has code for most old GPUs.
_MANY_ARCHITECTURES = 3
_FIRST_OF_MANY = (3, 7)
# A build that has no code for this GPU and for older ones lacks code for an old GPU.
_LAST_OLD_CAPABILITY = (6, 2)
_NEW_CAPABILITY = (10, 0)  # builds from before 2025 have no code for a GPU since this one
_KINDS_OF_BUILD = ("toolkit", "cuda-built", "cuda-named")
_FIRST_CUDA_FOR_ALL = (13,)  # compiles for all new GPUs, and for none before 7.5
_KINDS_OF_CUDA = ("toolkit", "cuda-built", "cuda-named", "driver-cuda")
_PTX_NOT_COMPILED = "PTX not compiled"
_FIRST_YEAR_OF_PTX_STATUS = 2021  # drivers since then have a status of their own for newer PTX
_STATUS_OF_OLD_GPUS = "invalid device function"
_STATUSES_OF_OLD_GPUS = (_STATUS_OF_OLD_GPUS, "ARCH_MISMATCH")
_STATUSES_OF_LOADER = ("no kernel image", _STATUS_OF_OLD_GPUS)
# What libraries of CUDA return if they cannot start, and the ends of the names of these statuses.
_LIBRARIES_THAT_START = ("cudnn", "cublas", "cusolver", "cusparse", "cufft", "curand")
_STATUSES_OF_START = ("_NOT_INITIALIZED", "_INITIALIZATION_FAILED", "_SETUP_FAILED")
# What the driver returns for code that it compiled, but cannot run.
_STATUSES_OF_CODE = (
    "CUDA_ERROR_INVALID_HANDLE",
    "CUDA_ERROR_INVALID_IMAGE",
    "CUDA_ERROR_INVALID_PTX",
    "CUDA_ERROR_NO_BINARY_FOR_GPU",
)
_STATUS_OF_NEW_GPUS = "CUDNN_STATUS_EXECUTION_FAILED"
_DOUBTFUL = ("flags", "words")  # lists of code that may not be those of the whole build
_FIRST_CAPABILITY_OF_IMAGES = (6, 0)  # programs with few images often have none for an older GPU
_FIRST_CAPABILITY_OF_TRITON = (7, 0)  # README of Triton, "Compatibility"
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
# Messages that ONNX Runtime has no provider for CUDA.
_PROVIDER_MESSAGES = ("cpu-onnxruntime", "providers-of-cpu-package", "two-onnxruntimes")


# ---- CPU builds ---------------------------------------------------------------------------------


def cpu_builds(case: Case) -> Iterator[Finding]:
    """Find a CPU build where a GPU was meant to be used."""
    builds = [fact for fact in case.of_kind("cuda-built") if fact.from_log]
    if case.symptoms("gpu-backend"):
        builds = [build for build in builds if build.subject != "jax"]
    took_cpu = case.symptoms("took-cpu") if case.of_kind("gpu") else []
    unmeant = case.symptoms("cuda-unavailable", "cuda-asked") + took_cpu
    if case.of_kind("gpu", "driver", "driver-cuda"):
        unmeant += case.symptoms("reported-unavailable")
    for build in builds:
        signs = unmeant
        if not signs and build.subject == "jax":
            signs = case.of_kind("gpu", "driver", "toolkit")
        if build.value == "none" and signs:
            yield likely("cpu_only_build", build, signs[0])
        elif build.value == "none" and case.symptoms("unexplained"):
            for gpu in case.of_kind("gpu")[:1]:
                yield possible("cpu_only_build", build, gpu)
    for fact in case.of_kind("library-missing"):
        if _PROVIDER_FILE.match(fact.subject):
            yield likely("cpu_only_build", fact)
    has_cuda_build = any(build.value != "none" for build in builds)
    if took_cpu and not has_cuda_build and not case.of_kind("driver"):
        yield from _cpu_instead_of_gpu(case, took_cpu)


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
        capability = _capability(gpu.value)
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
        is_tensorflow = "tensorflow" in _newest_releases(case)
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
        if driver.from_log and _is_driver_older(version_tuple(driver.value), oldest):
            finding = likely if unavailable else possible
            yield finding("driver_too_old", builds[oldest], driver)
            break
    compiled = _compiled_capabilities(newest)
    for capability, gpu in _devices(case):
        # A GPU of a later minor version runs the same code.
        if compiled and capability[0] > compiled[1][0]:
            # A missing library is a failure that comes before any code for the GPU.
            finding = possible if case.of_kind("library-missing") else likely
            yield finding("gpu_too_new_for_build", gpu, builds[newest])
            break


def default_build(case: Case) -> Iterator[Finding]:
    """Compare the CUDA version of the default build of a release with the driver's."""
    newest = _newest_releases(case).get("torch")
    if newest is None or case.of_kind("cuda-built") or not case.symptoms("cuda-unavailable"):
        return
    version, release = newest
    cuda = _row_before("default_cuda", "torch", version)
    for driver in case.of_kind("driver-cuda"):
        if cuda and driver.from_log and _is_driver_older(version_tuple(driver.value), cuda):
            yield possible("driver_too_old", release, driver)
            return


def driver_of_named(case: Case) -> Iterator[Finding]:
    """Compare the newest CUDA version that a log names with the driver's.

    This counts if a library does not start or no device is seen. A framework's build has its own
    CUDA version, which `cuda_of_build` compares.
    """
    older = _driver_older_than_named(case, _is_driver_older)
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
                _driver_cuda(driver): driver
                for driver in case.of_kind("driver-cuda")
                if driver.where != fact.where or _driver_cuda(driver) != least
            }
        if not drivers:
            yield likely("driver_too_old", fact)
        elif max(drivers) < least:
            yield likely("driver_too_old", fact, drivers[max(drivers)])
    for fact in case.of_kind("driver-cuda-least", "cuda-least"):
        drivers = {_driver_cuda(driver): driver for driver in case.of_kind("driver-cuda", "driver")}
        least = version_tuple(fact.value)
        if drivers and max(drivers) < least:
            # A driver runs the later minor versions of its own major version, too.
            is_later_major = max(drivers)[:1] < least[:1] and not case.of_kind("toolkit")
            is_sure = fact.kind == "driver-cuda-least" or is_later_major
            finding = likely if is_sure else possible
            yield finding("driver_too_old", fact, drivers[max(drivers)])


def suggested_by_driver(case: Case) -> Iterator[Finding]:
    """Suggest a driver that is older than the newest CUDA version that a log names."""
    older = _driver_older_than_named(case, _is_driver_older)
    if older:
        yield possible("driver_too_old", *older)


def _driver_older_than_named(
    case: Case,
    is_older: Callable[[tuple[int, ...], tuple[int, ...]], bool],
) -> tuple[Fact, Fact] | None:
    """Return the CUDA version that a log names and the driver that is older, or None."""
    drivers = {_driver_cuda(fact): fact for fact in case.of_kind("driver-cuda", "driver")}
    named = {version_tuple(fact.value): fact for fact in case.of_kind("cuda-named", "toolkit")}
    if not drivers or not named or case.of_kind("cuda-built"):
        return None
    driver, cuda = max(drivers), max(named)
    if not drivers[driver].from_log or not is_older(driver, cuda):
        return None
    return named[cuda], drivers[driver]


def _driver_cuda(fact: Fact) -> tuple[int, ...]:
    """Return the CUDA version that a driver supports, by that version or by its release."""
    return version_tuple(cuda_of_driver(fact.value) if fact.kind == "driver" else fact.value)


def _cuda_builds(case: Case) -> dict[tuple[int, ...], Fact]:
    """Return the CUDA versions of the builds that a log names."""
    builds = {}
    for fact in case.of_kind("cuda-built"):
        version = version_tuple(fact.value)
        if fact.from_log and version:
            builds[version] = fact
    return builds


def _is_driver_older(driver: tuple[int, ...], cuda: tuple[int, ...]) -> bool:
    """Whether a driver for one CUDA version does not support builds for another."""
    if not driver:
        return False
    return cuda[0] > driver[0] or driver < cuda < _MINOR_VERSION_COMPATIBILITY


def _is_older_than_ptx(driver: tuple[int, ...], cuda: tuple[int, ...]) -> bool:
    """Whether a driver cannot compile PTX of a CUDA version: it needs the same minor version."""
    return bool(driver) and driver[:2] < cuda[:2]


def _compiled_capabilities(cuda: tuple[int, ...]) -> tuple[Capability, Capability] | None:
    """Return the lowest and the highest capability that a CUDA release compiles for, or None.

    A major version alone stands for its last release.
    """
    newest = None
    for since, lowest, highest in compilers():
        if cuda >= since[: len(cuda)]:
            newest = lowest, highest
    return newest


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
    return cuda != other and cuda < _MINOR_VERSION_COMPATIBILITY


# ---- code for the GPU ---------------------------------------------------------------------------


def architectures(case: Case) -> Iterator[Finding]:
    """Explain missing code for a GPU: is the GPU newer or older than the build supports?"""
    for stated in (_out_of_stated_range, _below_least, _above_most, _after_build):
        yield from stated(case)
    missing, lists = _missing_code(case)
    if missing and all(fact.value == _PTX_NOT_COMPILED for fact in missing):
        yield from _not_compiled(case, missing[0])
    elif missing:
        yield from _missing_for_gpu(case, missing, lists)


def _missing_for_gpu(case: Case, missing: list[Fact], lists: list[Fact]) -> Iterator[Finding]:
    """Explain missing code by the GPU of the log and the list of what the build has code for."""
    built_for = [text for fact in lists for text in fact.value.split()]
    device = _unserved_device(case, built_for)
    if device is None and missing == lists[:1] and any(_devices(case)):
        return  # the list is no sign of missing code: the build has code for the GPU
    if device is None:
        yield from _new_or_old(case, missing, [*missing[:2], *lists[:1]])
        return
    yield from _newer_or_older(case, missing, lists, built_for, device)


def _newer_or_older(
    case: Case,
    missing: list[Fact],
    lists: list[Fact],
    built_for: list[str],
    device: tuple[Capability, Fact],
) -> Iterator[Finding]:
    """Say whether a GPU without code is newer or older than the build supports.

    Another GPU that works, the installed toolkit and the time of the log decide first.
    """
    capability, gpu = device
    facts = [*missing[:2], gpu, *lists[:1]]
    finding = _sureness_of_missing(case, missing, lists)
    beyond = None if built_for else _beyond_toolkit(case, capability)
    beside = None if _is_certain(case, lists) else _beside_working(case, capability)
    by_time = [] if built_for else list(_by_time(case, missing, facts, capability, finding))
    if beside:
        cause, working = beside
        yield likely(cause, *facts, working)
    elif beyond:
        cause, toolkit = beyond
        yield finding(cause, *facts, toolkit)
    elif by_time:
        yield from by_time
    elif capability > max(map(version_tuple, built_for), default=_LAST_COMMON_CAPABILITY):
        yield finding("gpu_too_new_for_build", *facts)
    elif capability < _FIRST_COMMON_CAPABILITY or not _is_refused_by_compiler(case):
        yield finding("gpu_too_old_for_build", *facts)
    elif capability <= _LAST_OLD_CAPABILITY and _is_of_nvrtc(missing):
        yield likely("gpu_too_old_for_build", *facts)
    else:
        yield from _new_or_old(case, missing, facts)


def _is_certain(case: Case, lists: list[Fact]) -> bool:
    """Whether a list is of the whole build. The flags of one file may differ from others'."""
    of_build = any(fact.subject not in _DOUBTFUL for fact in lists)
    return of_build or case.failed("architecture") is not None


def _is_of_nvrtc(missing: list[Fact]) -> bool:
    """Whether NVRTC refuses a GPU; a program brings its own, which is mostly a late one."""
    return any("nvrtc" in fact.text.lower() for fact in missing)


def _sureness_of_missing(
    case: Case, missing: list[Fact], lists: list[Fact]
) -> Callable[..., Finding]:
    """Return how sure a verdict about missing code is; what a person tells is only possible."""
    if all(fact.subject == "words" for fact in missing):
        return possible
    return proved if _is_certain(case, lists) else likely


def _by_time(
    case: Case,
    missing: list[Fact],
    facts: list[Fact],
    capability: Capability,
    finding: Callable[..., Finding],
) -> Iterator[Finding]:
    """Explain missing code by the ages of the GPUs in a log, and by the year of the log."""
    outside = _outside_of_cuda(case)
    if _are_on_both_sides(case) and outside:
        cause, gpu, named = outside
        sure = possible if finding is possible else likely
        yield sure(cause, *missing[:2], gpu, named)
    elif _are_on_both_sides(case):
        yield from _new_or_old(case, missing, facts)
    elif _is_new_in_its_time(case, capability):
        yield finding("gpu_too_new_for_build", *facts, _latest_year(case)[1])
    elif _is_of_any_time(case, missing, capability):
        yield from _new_or_old(case, missing, facts)


def _outside_of_cuda(case: Case) -> tuple[str, Fact, Fact] | None:
    """Return the cause, the GPU and the CUDA version if it has code for all named GPUs but this."""
    named = {version_tuple(fact.value): fact for fact in case.of_kind(*_KINDS_OF_BUILD)}
    compiled = _compiled_capabilities(max(named)) if named else None
    if compiled is None:
        return None
    working = _working_gpus(case)
    unserved: dict[str, Fact] = {}
    for capability, gpu in _devices(case):
        if capability not in working and capability < compiled[0]:
            unserved.setdefault("gpu_too_old_for_build", gpu)
        elif capability not in working and capability > compiled[1]:
            unserved.setdefault("gpu_too_new_for_build", gpu)
    if len(unserved) != 1:
        return None
    cause, gpu = unserved.popitem()
    return cause, gpu, named[max(named)]


def _missing_code(case: Case) -> tuple[list[Fact], list[Fact]]:
    """Return what says that code is missing, and the lists of what the build has code for."""
    failed = case.failed("architecture")
    missing = case.of_kind("architecture-missing")
    if failed:
        missing.append(failed)
    lists = _code_lists(case)
    if not missing and case.unexplained():
        # The list that a build prints may be all that the log shows of the reason.
        lists = [fact for fact in lists if fact.subject != "flags"]
        missing = lists[:1]
    return missing, lists


def toolkit_targets(case: Case) -> Iterator[Finding]:
    """Compare the newest toolkit that a log names with the architectures that it is asked for."""
    toolkits = {version_tuple(fact.value): fact for fact in case.of_kind("toolkit")}
    if not toolkits or case.of_kind("architecture-missing"):
        return
    failed = case.faults() or case.unexplained()
    newest = max(toolkits)
    compiled = _compiled_capabilities(newest)
    if not failed or compiled is None or not toolkits[newest].from_log:
        return
    lowest, highest = compiled
    flags = case.about("architectures", "flags")
    for fact in flags:
        asked = [version_tuple(text) for text in fact.value.split()]
        if max(asked) > highest:
            yield likely("gpu_too_new_for_build", fact, toolkits[newest])
        elif min(asked) < lowest:
            yield likely("gpu_too_old_for_build", fact, toolkits[newest])
    gpu = _gpu_above(case, highest)
    if gpu and (flags or "nvcc" in toolkits[newest].text):
        yield possible("gpu_too_new_for_build", gpu, toolkits[newest])


def _code_lists(case: Case) -> list[Fact]:
    """Return the lists of the architectures that a build has code for, each once."""
    # Of equal lists, the last one counts: flags say less than the list of a build.
    flags_first = sorted(case.of_kind("architectures"), key=lambda fact: fact.subject != "flags")
    lists = {fact.value: fact for fact in flags_first}
    if not _is_refused_by_compiler(case):
        return list(lists.values())
    # The flags of a compiler that refuses an architecture are those that it refuses.
    return [fact for fact in lists.values() if fact.subject != "flags"]


def _new_or_old(case: Case, missing: list[Fact], facts: list[Fact]) -> Iterator[Finding]:
    """Yield both causes of missing code, the more frequent one first.

    New GPUs appear more often than builds and compilers drop an architecture. The status of older
    CUDA releases comes mostly from old GPUs; a program of such a release is older than a GPU that
    nothing had dropped then. A program that works on a new GPU fails on an old one.
    """
    early = [gpu for capability, gpu in _devices(case) if _early_status(case, capability)]
    if early:
        yield likely("gpu_too_new_for_build", *facts, early[0])
        return
    order = ["gpu_too_new_for_build", "gpu_too_old_for_build"]
    working = _working_gpus(case)
    built_for = _built_for(case)
    if working:
        is_old = max(working) > _LAST_COMMON_CAPABILITY
    elif _dropped_gpus(case) or (built_for and min(built_for) > _LAST_OLD_CAPABILITY):
        is_old = True
    elif len(built_for) >= _MANY_ARCHITECTURES and min(built_for) <= _FIRST_OF_MANY:
        is_old = False
    else:
        is_old = all(fact.value in _STATUSES_OF_OLD_GPUS for fact in missing)
    if is_old:
        order.reverse()
    for cause in order:
        yield possible(cause, *facts)


def _dropped_gpus(case: Case) -> bool:
    """Whether a build has dropped GPUs, if the log names none: an older one works, or its CUDA."""
    if any(_devices(case)):
        return False
    versions = [version_tuple(fact.value) for fact in case.of_kind(*_KINDS_OF_BUILD)]
    is_late = max(versions, default=()) >= _FIRST_CUDA_FOR_ALL
    return is_late or bool(case.symptoms("older-release-works"))


def _not_compiled(case: Case, failed: Fact) -> Iterator[Finding]:
    """Explain PTX that the driver could not compile: PTX of a newer CUDA, or for a newer GPU."""
    older = _driver_older_than_named(case, _is_older_than_ptx)
    if older:
        yield likely("driver_too_old", failed, *older)
        return
    old = [gpu for capability, gpu in _devices(case) if capability <= _LAST_COMMON_CAPABILITY]
    if old:
        yield likely("gpu_too_old_for_build", failed, old[0])
    elif _latest_year(case)[0] >= _FIRST_YEAR_OF_PTX_STATUS:
        yield possible("gpu_too_old_for_build", failed)
    else:
        yield possible("driver_too_old", failed)


def _built_for(case: Case) -> list[Capability]:
    """Return the capabilities that the builds of a log have code for, each once."""
    targets = {text for fact in _code_lists(case) for text in fact.value.split()}
    return [version_tuple(text) for text in targets]


def _is_new_in_its_time(case: Case, capability: Capability) -> bool:
    """Whether the log is from the first years of a GPU that builds dropped later."""
    year, _fact = _latest_year(case)
    if not year or not _FIRST_COMMON_CAPABILITY <= capability <= _LAST_COMMON_CAPABILITY:
        return False
    return year - year_of_gpu(capability) <= _YEARS_OF_NEW_GPU


def _is_of_any_time(case: Case, missing: list[Fact], capability: Capability) -> bool:
    """Whether neither a year nor the message tells if the last of the common GPUs was new."""
    is_of_loader = any(fact.value in _STATUSES_OF_LOADER for fact in missing)
    return capability == _LAST_COMMON_CAPABILITY and is_of_loader and not _latest_year(case)[0]


def _latest_year(case: Case) -> tuple[int, Fact | None]:
    """Return the latest year that a date or a release in the log states; 0 if it states none."""
    latest: tuple[int, Fact | None] = (0, None)
    for fact in case.of_kind("year", "version", *_KINDS_OF_CUDA):
        if fact.kind == "year":
            year = int(fact.value)
        else:
            framework = fact.subject if fact.kind == "version" else "cuda"
            year = year_of_release(framework, version_tuple(fact.value))
        if fact.from_log and year > latest[0]:
            latest = year, fact
    return latest


def invalid_images(case: Case) -> Iterator[Finding]:
    """Explain an invalid image: an old GPU that it has no code for, or a driver older than it."""
    images = case.symptoms("invalid-image")
    if not images:
        return
    built_for = [text for fact in _code_lists(case) for text in fact.value.split()]
    device = _unserved_device(case, built_for) if built_for else None
    if device and device[0] > max(map(version_tuple, built_for)):
        yield likely("gpu_too_new_for_build", images[0], device[1])
        return
    if case.of_kind("architecture-missing"):
        return  # the same failure, with its reason
    is_triton = any("triton" in image.text.lower() for image in images)
    oldest = _FIRST_CAPABILITY_OF_TRITON if is_triton else _FIRST_CAPABILITY_OF_IMAGES
    for capability, gpu in _devices(case):
        if capability < oldest:
            yield possible("gpu_too_old_for_build", images[0], gpu)
            return
    yield likely("driver_too_old", images[0])


def jit_compiled(case: Case) -> Iterator[Finding]:
    """Find a GPU that a build has no code for, if CUDA fails with the code compiled from PTX."""
    compiled = case.symptoms("jit-compiled")
    failed = [fact for fact in case.about("status", "cuda") if fact.value in _STATUSES_OF_CODE]
    if compiled and failed:
        yield likely("gpu_too_new_for_build", failed[0], compiled[0])


def failed_executions(case: Case) -> Iterator[Finding]:
    """Suggest that a GPU is too new where cuDNN's kernel failed, unless all named GPUs are old."""
    failed = [fact for fact in case.of_kind("status") if fact.value == _STATUS_OF_NEW_GPUS]
    working = _working_gpus(case)
    devices = [(device, gpu) for device, gpu in _devices(case) if device not in working]
    if not failed or case.of_kind("out-of-memory"):
        return
    newer = [gpu for capability, gpu in devices if capability >= _LAST_COMMON_CAPABILITY]
    if newer or not devices:
        yield possible("gpu_too_new_for_build", failed[0], *newer[:1])


def wrong_numbers(case: Case) -> Iterator[Finding]:
    """Suggest that the build does not support the GPU if the results of a program are NaN."""
    if any(fact.value == "nan" for fact in case.about("outside", "program")):
        yield from _beyond_named(case)


def suggested_by_gpu(case: Case) -> Iterator[Finding]:
    """Suggest a cause where many builds do not support the GPU yet, or have dropped it."""
    yield from _beyond_named(case)
    is_new = bool(case.symptoms("gpu-is-new"))
    for capability, fact in _devices(case):
        beside = _beside_working(case, capability)
        if case.symptoms("older-release-works") and capability < _LAST_COMMON_CAPABILITY:
            yield possible("gpu_too_old_for_build", fact)
        if beside and beside[1].value != fact.value:
            yield possible(beside[0], fact, beside[1])
        elif capability >= _NEW_CAPABILITY or (is_new and capability >= _LAST_COMMON_CAPABILITY):
            yield possible("gpu_too_new_for_build", fact)
        elif capability < _FIRST_COMMON_CAPABILITY:
            yield possible("gpu_too_old_for_build", fact)


def _beyond_named(case: Case) -> Iterator[Finding]:
    """Suggest a GPU that the CUDA version or the framework that a log names does not support."""
    named = case.of_kind("cuda-named", "cuda-built", "toolkit")
    newest = max((version_tuple(fact.value) for fact in named), default=())
    compiled = _compiled_capabilities(newest) if newest else None
    limits = [compiled[1]] if compiled else []
    if any(int(fact.value) <= _CUDNN_BEFORE_AMPERE for fact in _cudnn_of_words(case)):
        limits.append(_LAST_COMMON_CAPABILITY)
    for framework, (version, _release) in _newest_releases(case).items():
        highest = _row_before("newest", framework, version)
        if highest:
            limits.append(highest)
    gpu = _gpu_above(case, min(limits)) if limits else None
    if gpu:
        yield possible("gpu_too_new_for_build", gpu)
    lowest = compiled[0] if compiled else ()
    for capability, device in _devices(case):
        if capability < lowest:
            yield possible("gpu_too_old_for_build", device)


def _cudnn_of_words(case: Case) -> list[Fact]:
    """Return the cuDNN that a reporter names, if it is one major version."""
    named = case.of_kind("cudnn-named")
    return named if len({fact.value for fact in named}) == 1 else []


def _is_refused_by_compiler(case: Case) -> bool:
    """Return whether a compiler lacks the architecture: the compiler is too old, or dropped it."""
    return bool(case.about("architecture-missing", "compiler"))


def _out_of_stated_range(case: Case) -> Iterator[Finding]:
    """Compare a GPU with the range that a build states; later minor versions run the same code."""
    for fact in case.of_kind("architecture-range"):
        device, lowest, highest = map(version_tuple, fact.value.split(" "))
        if device < lowest:
            yield proved("gpu_too_old_for_build", fact)
        elif device[:1] > highest[:1]:
            yield proved("gpu_too_new_for_build", fact)


def _below_least(case: Case) -> Iterator[Finding]:
    """Compare the GPUs with the lowest compute capability that a program asks for.

    A program that refuses a GPU of a later major version does not know it.
    """
    for fact in case.of_kind("capability-least"):
        least = version_tuple(fact.value)
        devices = list(_devices(case))
        older = [gpu for capability, gpu in devices if capability < least]
        later = [gpu for capability, gpu in devices if capability[:1] > least[:1]]
        if older:
            yield likely("gpu_too_old_for_build", fact, older[0])
        elif later:
            yield possible("gpu_too_new_for_build", fact, later[0])
        elif not devices:
            yield possible("gpu_too_old_for_build", fact)


def _above_most(case: Case) -> Iterator[Finding]:
    """Compare the GPUs with the highest compute capability that a program knows."""
    for fact in case.of_kind("capability-most"):
        gpu = _gpu_above(case, version_tuple(fact.value))
        if gpu:
            finding = likely if case.faults() or case.unexplained() else possible
            yield finding("gpu_too_new_for_build", gpu, fact)


def _after_build(case: Case) -> Iterator[Finding]:
    """Compare the years of the GPUs with the year of the program that fails."""
    working = _working_gpus(case)
    for fact in case.of_kind("build-year"):
        for capability, gpu in _devices(case):
            is_newer = year_of_gpu(capability) > int(fact.value)
            if is_newer and capability not in working and (case.faults() or case.unexplained()):
                yield likely("gpu_too_new_for_build", gpu, fact)
                return


def _unserved_device(case: Case, built_for: list[str]) -> tuple[tuple[int, int], Fact] | None:
    """Return the first GPU that the build has no SASS for, or None."""
    targets = {text.replace(".", "") for text in built_for}
    working = _working_gpus(case)
    for capability, fact in _devices(case):
        if capability not in working and not any_sass_runs(targets, capability):
            return capability, fact
    return None


def _working_gpus(case: Case) -> dict[Capability, Fact]:
    """Return the GPUs on which the program works, by their compute capabilities."""
    working: dict[Capability, Fact] = {}
    for fact in case.of_kind("gpu-works"):
        capability = _capability(fact.value)
        if capability:
            working[capability] = fact
    return working


def _beside_working(case: Case, device: Capability) -> tuple[str, Fact] | None:
    """Return the cause and the GPU if every GPU on which the program works is newer, or older."""
    working = _working_gpus(case)
    if working and device > max(working):
        return "gpu_too_new_for_build", working[max(working)]
    if working and device < min(working):
        return "gpu_too_old_for_build", working[min(working)]
    return None


def _are_on_both_sides(case: Case) -> bool:
    """Whether a log names old and new GPUs: it does not tell for which one code is missing."""
    working = _working_gpus(case)
    devices = [capability for capability, _fact in _devices(case) if capability not in working]
    return min(devices) <= _LAST_COMMON_CAPABILITY < max(devices)


def _devices(case: Case) -> Iterator[tuple[tuple[int, int], Fact]]:
    """Yield the compute capabilities that facts state, then those of GPUs known by name."""
    for fact in case.of_kind("capability"):
        version = version_tuple(fact.value)
        if len(version) > 1:
            yield (version[0], version[1]), fact
    for fact in case.of_kind("gpu"):
        capability = _capability(fact.value)
        if capability:
            yield capability, fact


def _beyond_toolkit(case: Case, device: Capability) -> tuple[str, Fact] | None:
    """Return the cause and the toolkit if a CUDA toolkit has no code for a GPU."""
    toolkit = case.first("toolkit") or case.first("cuda-named")
    compiled = _compiled_capabilities(version_tuple(toolkit.value)) if toolkit else None
    if toolkit is None or compiled is None:
        early = _early_status(case, device)
        return ("gpu_too_new_for_build", early) if early else None
    lowest, highest = compiled
    if device > highest:
        return "gpu_too_new_for_build", toolkit
    if device < lowest:
        return "gpu_too_old_for_build", toolkit
    if _is_refused_by_compiler(case):
        # The compiler that ran is older than the toolkit. A version in words may be of anything.
        is_newer = toolkit.kind == "toolkit" and device >= _FIRST_COMMON_CAPABILITY
    else:
        # Nothing had dropped the GPU, so the flags of the program are older than it.
        is_early = version_tuple(toolkit.value) < _FIRST_CUDA_OF_LATER_GPUS
        is_newer = is_early and device >= _FIRST_COMMON_CAPABILITY and not case.of_kind("framework")
    return ("gpu_too_new_for_build", toolkit) if is_newer else None


def _early_status(case: Case, device: Capability) -> Fact | None:
    """Return a status that programs print if their CUDA is older than 10.1; None if there is none.

    It counts for GPUs that those CUDA releases support.
    """
    if case.of_kind("framework"):
        return None
    if device >= _FIRST_COMMON_CAPABILITY and case.symptoms("early-status"):
        return case.symptoms("early-status")[0]
    statuses = [
        fact for fact in case.of_kind("architecture-missing") if fact.value == _STATUS_OF_OLD_GPUS
    ]
    # Later releases return this status less often, and print its name.
    if device >= _FIRST_CAPABILITY_OF_IMAGES and statuses and "cudaError" not in statuses[0].text:
        return statuses[0]
    return None


def _capability(name: str) -> tuple[int, int] | None:
    """Return the compute capability of a GPU by its name, or None for an unknown name."""
    return highest_capability_of(name) or capability_of_series(name)


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
    newest = _newest_releases(case).get("tensorflow")
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
    for framework, (version, release) in _newest_releases(case).items():
        for library, cause in _CAUSES_OF_RELEASE.items():
            built = _row_before(f"built_{library}", framework, version)
            other = _other_than(case, library, built) if built else None
            if other is not None:
                yield likely(cause, release, other, failures[0])


def cudnn_of_provider(case: Case) -> Iterator[Finding]:
    """Find what ONNX Runtime lacks if a log names the CUDA of its release: cuDNN."""
    failed = with_names(case, "cuda_lib_missing", PROVIDER_NOT_CREATED)
    release = _newest_releases(case).get("onnxruntime")
    if not failed or release is None or case.of_kind("library-missing", "cudnn-named"):
        return
    built = _row_before("built_cuda", "onnxruntime", release[0])
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
    for framework, (version, release) in _newest_releases(case).items():
        highest = _row_before("newest", framework, version)
        gpu = _gpu_above(case, highest) if highest else None
        if gpu:
            yield likely("gpu_too_new_for_build", failures[0], release, gpu)


def gpu_after_cudnn(case: Case) -> Iterator[Finding]:
    """Find a GPU that is newer than every cuDNN that the log names, if cuDNN fails."""
    named = case.of_kind("cudnn-named")
    if not named or any(int(fact.value) > _CUDNN_BEFORE_AMPERE for fact in named):
        return
    failures = [
        *case.about("status", "cudnn"),
        *case.symptoms("cudnn-start", "cudnn-call"),
        *with_names(case, "out_of_memory_masked", _NO_ALGORITHM),
    ]
    gpu = _gpu_above(case, _LAST_COMMON_CAPABILITY)
    if failures and gpu:
        yield likely("gpu_too_new_for_build", failures[0], named[0], gpu)


def _row_before(table: str, framework: str, version: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the value of the first row of releases.toml that a release is older than."""
    for before, value in releases_before(table, framework):
        if version < before:
            return value
    return None


def _gpu_above(case: Case, highest: Capability) -> Fact | None:
    """Return the first GPU with a higher compute capability, or None."""
    for capability, gpu in _devices(case):
        if capability > highest:
            return gpu
    return None


def _newest_releases(case: Case) -> dict[str, tuple[tuple[int, ...], Fact]]:
    """Return the newest release of each framework that the facts name."""
    newest: dict[str, tuple[tuple[int, ...], Fact]] = {}
    for fact in case.of_kind("version"):
        version = version_tuple(fact.value)
        if fact.subject not in newest or newest[fact.subject][0] < version:
            newest[fact.subject] = (version, fact)
    return newest
