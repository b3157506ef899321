"""Rules about the code that builds have for GPUs: too new or too old a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..compat.architectures import any_sass_runs
from .case_versions import (
    CUDNN_BEFORE_AMPERE,
    LAST_COMMON_CAPABILITY,
    Capability,
    capability_of_name,
    compiled_capabilities,
    driver_older_than_named,
    gpu_above,
    gpu_capabilities,
    is_older_than_ptx,
    newest_capability,
    newest_releases,
)
from .catalog import year_of_gpu, year_of_release
from .facts import Case, with_names
from .model import Fact, Finding, likely, possible, proved
from .status_codes import version_tuple

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
# What the driver returns for code that it compiled, but cannot run.
_STATUSES_OF_CODE = (
    "CUDA_ERROR_INVALID_HANDLE",
    "CUDA_ERROR_INVALID_IMAGE",
    "CUDA_ERROR_INVALID_PTX",
    "CUDA_ERROR_NO_BINARY_FOR_GPU",
)
_NO_NVRTC = ("nvrtc-builtins",)  # without it, programs load what NVRTC did not compile
_STATUS_OF_NEW_GPUS = "CUDNN_STATUS_EXECUTION_FAILED"
_DOUBTFUL = ("flags", "words")  # lists of code that may not be those of the whole build
_FIRST_CAPABILITY_OF_IMAGES = (6, 0)  # programs with few images often have none for an older GPU
_FIRST_CAPABILITY_OF_TRITON = (7, 0)  # README of Triton, "Compatibility"


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
    if device is None and missing == lists[:1] and any(gpu_capabilities(case)):
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
    elif capability > max(map(version_tuple, built_for), default=LAST_COMMON_CAPABILITY):
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
    compiled = compiled_capabilities(max(named)) if named else None
    if compiled is None:
        return None
    working = _working_gpus(case)
    unserved: dict[str, Fact] = {}
    for capability, gpu in gpu_capabilities(case):
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
    compiled = compiled_capabilities(newest)
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
    gpu = gpu_above(case, highest)
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
    early = [gpu for capability, gpu in gpu_capabilities(case) if _early_status(case, capability)]
    if early:
        yield likely("gpu_too_new_for_build", *facts, early[0])
        return
    order = ["gpu_too_new_for_build", "gpu_too_old_for_build"]
    working = _working_gpus(case)
    built_for = _built_for(case)
    if working:
        is_old = max(working) > LAST_COMMON_CAPABILITY
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
    if any(gpu_capabilities(case)):
        return False
    versions = [version_tuple(fact.value) for fact in case.of_kind(*_KINDS_OF_BUILD)]
    is_late = max(versions, default=()) >= _FIRST_CUDA_FOR_ALL
    return is_late or bool(case.symptoms("older-release-works"))


def _not_compiled(case: Case, failed: Fact) -> Iterator[Finding]:
    """Explain PTX that the driver could not compile: PTX of a newer CUDA, or for a newer GPU."""
    older = driver_older_than_named(case, is_older_than_ptx)
    if older:
        yield likely("driver_too_old", failed, *older)
        return
    old = [
        gpu for capability, gpu in gpu_capabilities(case) if capability <= LAST_COMMON_CAPABILITY
    ]
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
    if not year or not _FIRST_COMMON_CAPABILITY <= capability <= LAST_COMMON_CAPABILITY:
        return False
    return year - year_of_gpu(capability) <= _YEARS_OF_NEW_GPU


def _is_of_any_time(case: Case, missing: list[Fact], capability: Capability) -> bool:
    """Whether neither a year nor the message tells if the last of the common GPUs was new."""
    is_of_loader = any(fact.value in _STATUSES_OF_LOADER for fact in missing)
    return capability == LAST_COMMON_CAPABILITY and is_of_loader and not _latest_year(case)[0]


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
    if case.of_kind("architecture-missing") or with_names(case, "cuda_lib_missing", _NO_NVRTC):
        return  # the same failure, with its reason
    is_triton = any("triton" in image.text.lower() for image in images)
    oldest = _FIRST_CAPABILITY_OF_TRITON if is_triton else _FIRST_CAPABILITY_OF_IMAGES
    for capability, gpu in gpu_capabilities(case):
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
    devices = [(device, gpu) for device, gpu in gpu_capabilities(case) if device not in working]
    if not failed or case.of_kind("out-of-memory"):
        return
    newer = [gpu for capability, gpu in devices if capability >= LAST_COMMON_CAPABILITY]
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
    for capability, fact in gpu_capabilities(case):
        beside = _beside_working(case, capability)
        if case.symptoms("older-release-works") and capability < LAST_COMMON_CAPABILITY:
            yield possible("gpu_too_old_for_build", fact)
        if beside and beside[1].value != fact.value:
            yield possible(beside[0], fact, beside[1])
        elif capability >= _NEW_CAPABILITY or (is_new and capability >= LAST_COMMON_CAPABILITY):
            yield possible("gpu_too_new_for_build", fact)
        elif capability < _FIRST_COMMON_CAPABILITY:
            yield possible("gpu_too_old_for_build", fact)


def _beyond_named(case: Case) -> Iterator[Finding]:
    """Suggest a GPU that the CUDA version or the framework that a log names does not support."""
    named = case.of_kind("cuda-named", "cuda-built", "toolkit")
    newest = max((version_tuple(fact.value) for fact in named), default=())
    compiled = compiled_capabilities(newest) if newest else None
    limits = [compiled[1]] if compiled else []
    if any(int(fact.value) <= CUDNN_BEFORE_AMPERE for fact in _cudnn_of_words(case)):
        limits.append(LAST_COMMON_CAPABILITY)
    for framework, (version, _release) in newest_releases(case).items():
        highest = newest_capability(framework, version)
        if highest:
            limits.append(highest)
    gpu = gpu_above(case, min(limits)) if limits else None
    if gpu:
        yield possible("gpu_too_new_for_build", gpu)
    lowest = compiled[0] if compiled else ()
    for capability, device in gpu_capabilities(case):
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
        devices = list(gpu_capabilities(case))
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
        gpu = gpu_above(case, version_tuple(fact.value))
        if gpu:
            finding = likely if case.faults() or case.unexplained() else possible
            yield finding("gpu_too_new_for_build", gpu, fact)


def _after_build(case: Case) -> Iterator[Finding]:
    """Compare the years of the GPUs with the year of the program that fails."""
    working = _working_gpus(case)
    for fact in case.of_kind("build-year"):
        for capability, gpu in gpu_capabilities(case):
            is_newer = year_of_gpu(capability) > int(fact.value)
            if is_newer and capability not in working and (case.faults() or case.unexplained()):
                yield likely("gpu_too_new_for_build", gpu, fact)
                return


def _unserved_device(case: Case, built_for: list[str]) -> tuple[tuple[int, int], Fact] | None:
    """Return the first GPU that the build has no SASS for, or None."""
    targets = {text.replace(".", "") for text in built_for}
    working = _working_gpus(case)
    for capability, fact in gpu_capabilities(case):
        if capability not in working and not any_sass_runs(targets, capability):
            return capability, fact
    return None


def _working_gpus(case: Case) -> dict[Capability, Fact]:
    """Return the GPUs on which the program works, by their compute capabilities."""
    working: dict[Capability, Fact] = {}
    for fact in case.of_kind("gpu-works"):
        capability = capability_of_name(fact.value)
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
    devices = [
        capability for capability, _fact in gpu_capabilities(case) if capability not in working
    ]
    return min(devices) <= LAST_COMMON_CAPABILITY < max(devices)


def _beyond_toolkit(case: Case, device: Capability) -> tuple[str, Fact] | None:
    """Return the cause and the toolkit if a CUDA toolkit has no code for a GPU."""
    toolkit = case.first("toolkit") or case.first("cuda-named")
    compiled = compiled_capabilities(version_tuple(toolkit.value)) if toolkit else None
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
