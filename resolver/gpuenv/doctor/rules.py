"""The rules: what follows from the facts of a case.

A rule is a row of rules.toml, or a function here if it has to compare versions, files or memory.
The order of the functions means nothing: confidence, and then the evidence, order the findings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..compat.architectures import any_sass_runs
from . import library_rules
from .catalog import (
    Condition,
    Rule,
    broken_releases,
    compiled_capabilities,
    newest_capability,
    rules,
)
from .facts import (
    MINOR_VERSION_COMPATIBILITY,
    Case,
    Memory,
    driver_cuda,
    first_of,
)
from .model import Capability, Fact, Finding, finding_of, likely, possible, proved, version_tuple

# TensorFlow takes nearly all memory of a GPU, also where other programs use it.
_OF_TENSORFLOW = re.compile(r"(?i)tensorflow|\bkeras\b|(?<!/)\bcuda_dnn\.cc")
# Ends of the statuses of CUDA libraries that do not start.
_STATUSES_OF_START = ("_NOT_INITIALIZED", "_INITIALIZATION_FAILED", "_SETUP_FAILED")
_LEAST_BYTES_OF_HANDLE = 128 << 20  # with less, a handle of cuDNN cannot be created
# Without any code list, a GPU newer than this is more likely newer than the build than older.
_LAST_COMMON_CAPABILITY = (7, 5)
_PTX_NOT_COMPILED = "PTX not compiled"
# Compilers and flags state what they are asked for, not what a whole build has.
_FLAGS = "flags"
_FIRST_CAPABILITY_OF_IMAGES = (6, 0)  # programs with few images often have none for an older GPU
# What older CUDA releases return for code that a GPU cannot run.
_STATUSES_OF_OLD_GPUS = ("invalid device function", "ARCH_MISMATCH")


def findings(case: Case) -> Iterator[Finding]:
    """Yield what follows from the facts, by the rows and by the functions."""
    for rule in rules():
        facts = evidence(case, rule)
        if facts is not None:
            yield finding_of(rule.confidence, rule.cause, *facts)
    for function in _FUNCTIONS:
        yield from function(case)


def evidence(case: Case, rule: Rule) -> Iterable[Fact] | None:
    """Return the facts that a rule rests on; None if it does not hold.

    These are all facts that meet the first condition, and the first fact for each other one.
    """
    facts: list[Fact] = []
    for place, condition in enumerate(rule.when):
        matching = _matching(case, condition)
        if not matching:
            return None
        if condition.kind:  # that a log has any fact is no evidence
            facts += matching[: 1 if place else None]
    if any(_matching(case, condition) for condition in rule.unless):
        return None
    return dict.fromkeys(facts)


def _matching(case: Case, condition: Condition) -> list[Fact]:
    facts = case.of_kind(*condition.kinds) if condition.kinds else [*case.host, *case.log]
    return [fact for fact in facts if condition.meets(fact)]


# ---- the driver ---------------------------------------------------------------------------------


def driver_releases(case: Case) -> Iterator[Finding]:
    """Compare the release of the kernel module with the release of the driver's libraries."""
    kernel = case.first("driver", subject="kernel")
    userspace = case.first("driver", subject="userspace")
    failed = case.failed("driver-versions")
    # TensorFlow prints 470.82 as "470.82.0".
    versions = [(*fact.version, 0, 0, 0)[:3] for fact in (kernel, userspace) if fact]
    differ = len(versions) == 2 and versions[0] != versions[1]
    if not (differ or failed):
        return
    facts = (failed, *((kernel, userspace) if differ else ()))
    compat = case.symptoms("compat-path") + [
        fact
        for fact in case.of_kind("library-from")
        if fact.subject.startswith("libcuda.so") and "/compat" in fact.value
    ]
    container = case.first("container", value="yes")
    if compat or (container and differ and versions[1] > versions[0]):
        yield proved("compat_libcuda_misuse", *facts, *compat[:1], container)
    else:
        yield proved("driver_userspace_kernel_mismatch", *facts)


def modules_of_kernels(case: Case) -> Iterator[Finding]:
    """Find a kernel for which the driver's module is not installed, by dkms's list."""
    built = case.about("kernel-built", "nvidia")
    for running in case.of_kind("kernel-running") if built else ():
        kernel = running.value
        if not any(
            kernel.startswith(fact.value) or fact.value.startswith(kernel) for fact in built
        ):
            yield likely("driver_not_loaded", running, *built)


def driver_of_build(case: Case) -> Iterator[Finding]:
    """Compare the driver with the CUDA version of a build or of a toolkit."""
    driver = case.newest_driver(of_log=True)
    built = [fact for fact in case.of_kind("cuda-built") if fact.from_log and fact.value != "none"]
    builds = {fact.version: fact for fact in built}
    failures = case.symptoms("cuda-unavailable", "took-cpu", "reported-unavailable")
    if builds and driver and (failures or case.faults()):
        oldest = min(builds)
        if _is_driver_older(driver[0], oldest):
            is_likely = failures or case.stated("driver_not_found")
            sure = likely if is_likely else possible
            yield sure("driver_too_old", builds[oldest], driver[1])
    toolkit = case.newest("toolkit")
    if driver and toolkit and not builds and _is_driver_older(driver[0], toolkit.version):
        for fact in case.of_kind("status"):
            if fact.subject != "cuda" and fact.value.endswith(_STATUSES_OF_START):
                yield likely("driver_too_old", fact, toolkit, driver[1])


def driver_asked_for(case: Case) -> Iterator[Finding]:
    """Compare the driver with the release, or the CUDA version, that a program asks for."""
    for least in case.of_kind("driver-least"):
        releases = {fact.version: fact for fact in case.of_kind("driver")}
        if not releases:
            yield likely("driver_too_old", least)
        elif max(releases) < least.version:
            yield likely("driver_too_old", least, releases[max(releases)])
    for least in case.of_kind("driver-cuda-least", "cuda-least"):
        known = case.newest_driver()
        if known and known[0] < least.version:
            is_sure = least.kind == "driver-cuda-least" or known[0][0] < least.version[0]
            yield (likely if is_sure else possible)("driver_too_old", least, known[1])


def _is_driver_older(driver: tuple[int, ...], cuda: tuple[int, ...]) -> bool:
    """Whether a driver for one CUDA version does not support builds for another."""
    return cuda[0] > driver[0] or driver < cuda < MINOR_VERSION_COMPATIBILITY


# ---- code for the GPU ---------------------------------------------------------------------------


def missing_code(case: Case) -> Iterator[Finding]:
    """Explain missing code for a GPU: is the GPU newer or older than the build supports?"""
    missing = case.of_kind("architecture-missing")
    if not missing:
        return
    if all(fact.value == _PTX_NOT_COMPILED for fact in missing):
        yield from _not_compiled(case, missing)
        return
    lists = _code_lists(case)
    targets = [text for fact in lists for text in fact.value.split()]
    device = _unserved_device(case, targets)
    if device is None:
        # If the lists have code for the GPU, another binary has none.
        if not (targets and any(case.gpu_capabilities())):
            yield from _new_or_old(case, [*missing[:2], *lists[:1]], targets)
        return
    capability, gpu = device
    facts = [*missing[:2], gpu, *lists[:1]]
    of_build = any(fact.subject != _FLAGS for fact in lists) or case.failed("architecture")
    sure = proved if of_build else likely
    build = case.newest("cuda-built", "torch") or case.newest("cuda-built")
    toolkit = case.newest("toolkit") or build
    # What the newest CUDA that a log names compiles for, if no list states it.
    limits = compiled_capabilities(toolkit.version) if toolkit and not targets else None
    newest = max(map(version_tuple, targets), default=_LAST_COMMON_CAPABILITY)
    if limits and capability < limits[0]:
        yield sure("gpu_too_old_for_build", *facts, toolkit)
    elif limits and capability > limits[1]:
        yield sure("gpu_too_new_for_build", *facts, toolkit)
    elif capability > newest:
        yield sure("gpu_too_new_for_build", *facts)
    elif capability == _LAST_COMMON_CAPABILITY and not targets:
        yield from _new_or_old(case, facts, targets)
    else:
        yield sure("gpu_too_old_for_build", *facts)


def _code_lists(case: Case) -> list[Fact]:
    """Return the lists of the architectures that a build has code for, each once."""
    # Of equal lists, the last one counts: flags say less than the list of a build.
    flags_first = sorted(case.of_kind("architectures"), key=lambda fact: fact.subject != _FLAGS)
    lists = {fact.value: fact for fact in flags_first}
    if case.about("architecture-missing", "compiler"):
        # The flags of a compiler that refuses an architecture are those that it refuses.
        return [fact for fact in lists.values() if fact.subject != _FLAGS]
    return list(lists.values())


def _unserved_device(case: Case, targets: Iterable[str]) -> tuple[Capability, Fact] | None:
    """Return what a compiler refuses, or the first GPU that no target has SASS for, or None."""
    for fact in case.about("capability", "compiler"):
        return fact.version, fact
    names = {text.replace(".", "") for text in targets}
    for capability, fact in case.gpu_capabilities():
        if not any_sass_runs(names, capability):
            return capability, fact
    return None


def _new_or_old(case: Case, facts: Sequence[Fact], targets: Sequence[str]) -> Iterator[Finding]:
    """Yield both causes of missing code, the more frequent one first.

    New GPUs appear more often than builds drop an architecture. A build without code for the first
    common GPUs, or for CUDA 13, has dropped old ones.
    """
    causes = ["gpu_too_new_for_build", "gpu_too_old_for_build"]
    is_old = all(
        fact.value in _STATUSES_OF_OLD_GPUS for fact in case.of_kind("architecture-missing")
    )
    builds = case.newest("cuda-built") or case.newest("toolkit")
    lowest = min(map(version_tuple, targets), default=())
    if is_old or (builds and builds.version >= (13,)) or lowest > _LAST_COMMON_CAPABILITY:
        causes.reverse()
    for cause in causes:
        yield possible(cause, *facts)


def _not_compiled(case: Case, missing: Sequence[Fact]) -> Iterator[Finding]:
    """Explain PTX that the driver could not compile: PTX of a newer CUDA, or for a newer GPU."""
    old = [
        gpu for capability, gpu in case.gpu_capabilities() if capability <= _LAST_COMMON_CAPABILITY
    ]
    driver, build = case.newest_driver(), case.newest("toolkit") or case.newest("cuda-built")
    if driver and build and driver[0][:2] < build.version[:2]:
        yield likely("driver_too_old", missing[0], build, driver[1])
    elif old:
        yield likely("gpu_too_old_for_build", missing[0], old[0])
    else:
        yield possible("gpu_too_old_for_build", missing[0])
        yield possible("driver_too_old", missing[0])


def stated_ranges(case: Case) -> Iterator[Finding]:
    """Compare GPUs with the range, or the lowest capability, that a program states."""
    for fact in case.of_kind("architecture-range"):
        device, lowest, highest = map(version_tuple, fact.value.split(" "))
        if device < lowest:
            yield proved("gpu_too_old_for_build", fact)
        elif device[:1] > highest[:1]:  # later minor versions run the same code
            yield proved("gpu_too_new_for_build", fact)
    devices = list(case.gpu_capabilities())
    for fact in case.of_kind("capability-least"):
        least = fact.version
        older = [gpu for capability, gpu in devices if capability < least]
        # A program that refuses a GPU of a later major version does not know it.
        later = [gpu for capability, gpu in devices if capability[:1] > least[:1]]
        if older:
            yield likely("gpu_too_old_for_build", fact, older[0])
        elif later:
            yield possible("gpu_too_new_for_build", fact, later[0])
        elif not devices and case.faults():
            yield possible("gpu_too_old_for_build", fact)


def compiler_targets(case: Case) -> Iterator[Finding]:
    """Compare the newest CUDA of a log with the GPUs and the targets that it has to compile for."""
    if not case.faults() or case.of_kind("architecture-missing"):
        return
    toolkit, build = case.newest("toolkit"), case.newest("cuda-built")
    limits = compiled_capabilities(toolkit.version) if toolkit else None
    if toolkit and limits:
        for flags in case.about("architectures", _FLAGS):
            asked = [version_tuple(text) for text in flags.value.split()]
            if max(asked) > limits[1]:
                yield likely("gpu_too_new_for_build", flags, toolkit)
            elif min(asked) < limits[0]:
                yield likely("gpu_too_old_for_build", flags, toolkit)
    compiled = compiled_capabilities(build.version) if build else None
    newer = [
        gpu
        for capability, gpu in case.gpu_capabilities()
        if compiled and capability[0] > compiled[1][0]
    ]
    if build and build.from_log and newer:
        sure = possible if case.of_kind("library-missing") else likely
        yield sure("gpu_too_new_for_build", newer[0], build)


def images(case: Case) -> Iterator[Finding]:
    """Explain an invalid image: a GPU that it has no code for, or a driver older than it."""
    image = first_of(case.symptoms("invalid-image"))
    if (
        image is None
        or case.of_kind("architecture-missing")
        or case.about("capability", "compiler")
    ):
        return  # the other is the same failure, with its reason
    targets = [text for fact in _code_lists(case) for text in fact.value.split()]
    device = _unserved_device(case, targets) if targets else None
    old = [
        gpu
        for capability, gpu in case.gpu_capabilities()
        if capability < _FIRST_CAPABILITY_OF_IMAGES
    ]
    if device and device[0] > max(map(version_tuple, targets)):
        yield likely("gpu_too_new_for_build", image, device[1])
    elif old:
        yield possible("gpu_too_old_for_build", image, old[0])
    else:
        yield likely("driver_too_old", image)


def gpu_after_release(case: Case) -> Iterator[Finding]:
    """Find a GPU that is newer than the release of the framework whose libraries fail on it."""
    failures = [fact for fact in case.of_kind("status") if fact.subject not in ("cuda", "nvml")]
    failures += case.symptoms("launch", "cudnn-start", "cudnn-call")
    failures += case.stated("out_of_memory_masked", "no-algorithm", "convolution-algorithm")
    failures += case.stated("unsupported_op_config", "find-no-engine")
    if not failures or case.of_kind("out-of-memory", "architecture-missing"):
        return
    for framework, release in case.newest_releases().items():
        highest = newest_capability(framework, release.version)
        newer = [
            gpu for capability, gpu in case.gpu_capabilities() if highest and capability > highest
        ]
        if newer:
            yield likely("gpu_too_new_for_build", failures[0], release, newer[0])
            return


# ---- memory -------------------------------------------------------------------------------------


def memory(case: Case) -> Iterator[Finding]:
    """Find exhausted memory, from a clear message or from a status that hides it."""
    rows, at_start = case.memory(), case.stated("process_limit", "memory-at-start")
    if at_start:  # before any allocation on the GPU
        yield possible("out_of_memory_masked", at_start[0])
    lines = {fact.where for fact in at_start}
    stated = [fact for fact in case.of_kind("out-of-memory") if fact.where not in lines]
    if stated:
        full = [row.fact for row in rows if not row.is_mostly_free]
        yield proved("out_of_memory_masked", stated[0], first_of(full))
        total = max((row.total for row in rows), default=0)
        for fact in case.of_kind("wanted-bytes"):
            if rows and int(fact.value) > total and not full:
                # The program asks for more memory than the GPU has.
                yield likely("unsupported_op_config", fact, rows[0].fact)
    else:
        yield from _hidden_out_of_memory(case, rows)


def _hidden_out_of_memory(case: Case, rows: Sequence[Memory]) -> Iterator[Finding]:
    """Find exhausted memory behind a status of cuDNN or cuBLAS."""
    failure = first_of(
        case.about("status", "cudnn", "cublas") + case.symptoms("cudnn-start", "cudnn-call")
    )
    if failure is None:
        return
    preallocated = first_of(case.symptoms("preallocated"))
    shown = [row for row in rows if row.fact.kind == "smi-memory"]
    if shown and all(row.is_nearly_full for row in shown):
        yield likely("out_of_memory_masked", failure, shown[0].fact)
    for row in rows:
        if row.fact.kind != "free-bytes" or row.is_mostly_free:
            continue
        is_full = row.fact.from_log and row.free < _LEAST_BYTES_OF_HANDLE
        sure = possible
        # A program that has allocated most of the memory for itself leaves little, which may
        # suffice.
        if is_full and not preallocated:
            sure = proved
        elif is_full or (row.is_nearly_full and not preallocated):
            sure = likely
        yield sure("out_of_memory_masked", failure, row.fact, preallocated)
    growth = first_of(case.symptoms("growth"))
    of_tensorflow = _OF_TENSORFLOW.search(failure.text) or case.about("version", "tensorflow")
    if not rows and (growth or of_tensorflow) and not failure.value.endswith("_EXECUTION_FAILED"):
        yield possible("out_of_memory_masked", failure, growth)


# ---- packages -----------------------------------------------------------------------------------


def conflicting_requirements(case: Case) -> Iterator[Finding]:
    """Find the two requirements for which a resolver found no solution."""
    cause = "install_resolution_failure"
    first: dict[str, Fact] = {}
    for fact in case.of_kind("requirement") if case.stated(cause) else ():
        name = re.split(r"[^\w.-]", fact.value)[0].lower().replace("_", "-")
        other = first.setdefault(name, fact)
        if other.subject != fact.subject and other.value != fact.value:
            yield proved(cause, _as_sentence(other), _as_sentence(fact))
            return


def _as_sentence(requirement: Fact) -> Fact:
    verb = "require" if requirement.subject == "you" else "requires"
    return requirement.replace(text=f"{requirement.subject} {verb} {requirement.value}")


def releases_without_gpu(case: Case) -> Iterator[Finding]:
    """Find a release that is known to use no GPU, if the log says that none was used."""
    failures = [*case.stated("cuda_lib_missing"), *case.symptoms("cuda-unavailable", "took-cpu")]
    named = broken_release(case)
    if failures and named is not None:
        yield likely("cuda_lib_missing", failures[0], named)


def broken_release(case: Case) -> Fact | None:
    """Return the first package whose release for Linux is known to use no GPU, or None."""
    if case.first("os", value="windows") and not case.first("wsl", value="yes"):
        return None
    broken, packages = broken_releases(), case.preferred("package")
    return first_of([fact for fact in packages if (fact.subject, fact.value) in broken])


def driver_suffices(case: Case) -> bool:
    """Whether the driver supports the CUDA major version of the builds that a log names."""
    drivers = case.of_kind("driver-cuda", "driver")
    newest = max((fact.version for fact in case.of_kind("cuda-built", "toolkit")), default=())
    return bool(newest) and any(driver_cuda(fact)[:1] >= newest[:1] for fact in drivers)


_FUNCTIONS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    *library_rules.RULES,
    driver_releases,
    modules_of_kernels,
    driver_of_build,
    driver_asked_for,
    missing_code,
    stated_ranges,
    compiler_targets,
    images,
    gpu_after_release,
    memory,
    conflicting_requirements,
    releases_without_gpu,
)
