"""Makes verdicts from facts: applies the rules, drops what the host rules out, sorts the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .advice import advice, advice_row
from .architecture_rules import suggested_by_gpu
from .build_rules import (
    cpu_packages,
    named_broken_release,
    overwrites_cuda_build,
    suggested_by_driver,
    suggested_by_unavailable,
)
from .catalog import Area, areas, causes, cuda_of_driver
from .facts import NVIDIA_KINDS, Case, is_absence, with_names
from .library_rules import PROVIDER_NOT_CREATED
from .model import Diagnosis, Fact, Finding, Outside, Verdict, possible
from .rules import (
    COMPARES_DRIVER,
    DRIVER_ABSENT_IN_WORDS,
    DRIVER_OR_CUDART_ABSENT,
    INSUFFICIENT_DRIVER,
    NO_DRIVER_FILES,
    SMI_FAILED,
    WORKS_AFTER_PROGRAM_ON_HOST,
    driver_in_use,
    findings,
    has_driver_of_container,
    lacks_driver_of_container,
)
from .status_codes import XID_PROGRAM, version_tuple

EVIDENCE_LINES = 4  # of one verdict
UNKNOWN_CAUSE = "cudnn_init_failed_unknown"
_CONFIDENCE_OF_MESSAGE = {"says": "proved", "hints": "likely", "maybe": "possible"}
_CONFIDENCE_ORDER = {"proved": 0, "likely": 1, "possible": 2}
_LAST_LINE = 1 << 60
# A log from a container that was started without the GPU is no evidence for these causes.
_DRIVER_ON_HOST = {"driver_not_found", "driver_not_loaded", "driver_too_old"}
# Messages that files of a loaded driver are absent. The driver may not be installed.
_FILES_OF_DRIVER = (NO_DRIVER_FILES, "kernel-driver-not-running")
_DRIVER_ABSENT = ("driver_not_found", "container_gpu_not_injected")
_DRIVER_CAUSES = {
    "driver_not_loaded",
    "driver_userspace_kernel_mismatch",
    "driver_too_old",
    "compat_libcuda_misuse",
    "container_gpu_not_injected",
    "container_gpu_access_lost",
    "wsl_driver_or_toolkit",
    "fabric_manager_not_running",
    "gpu_hardware_fault",
}
# Failures that other failures bring about: a cause -> the causes that may be behind it. Those come
# first, although their messages may come later in the log.
FOLLOWS: dict[str, set[str]] = {
    "visible_devices_wrong": _DRIVER_CAUSES
    | {
        "driver_not_found",
        "cpu_only_build",
        "uvm_or_driver_state_broken",
        "gpu_busy_or_exclusive",
    },
    "driver_not_found": _DRIVER_CAUSES,
    "driver_too_old": {"driver_not_loaded"},
    "driver_not_loaded": {
        "wsl_driver_or_toolkit",
        "gpu_hardware_fault",
        "driver_userspace_kernel_mismatch",  # a loaded module is of another release
    },
    "compat_libcuda_misuse": {"driver_userspace_kernel_mismatch"},
    "driver_userspace_kernel_mismatch": {"wsl_driver_or_toolkit"},
    "uvm_or_driver_state_broken": _DRIVER_CAUSES | {"driver_not_found", "fork_after_cuda_init"},
    "gpu_busy_or_exclusive": {"gpu_hardware_fault"},
    "gpu_too_old_for_build": {"driver_too_old"},  # a driver that cannot compile the build's PTX
    "container_gpu_not_injected": {
        "compat_libcuda_misuse",
        "driver_not_loaded",
        "driver_too_old",
        "gpu_busy_or_exclusive",
        "wsl_driver_or_toolkit",
    },
    "container_gpu_access_lost": {"container_gpu_not_injected"},
    "cudnn_sublib_missing": {"cudnn_major_mismatch", "cudnn_sublibs_mixed", "host_libc_too_old"},
    "cudnn_missing": {
        "cudnn_major_mismatch",
        "cudnn_sublib_missing",
        "mixed_cuda_wheels",
        "lib_shadowing",
    },
    "cuda_lib_missing": {
        "lib_shadowing",
        "mixed_cuda_wheels",
        "cuda_major_mismatch",
        "cudnn_missing",
        "cudnn_major_mismatch",
    },
    "cuda_major_mismatch": {"mixed_cuda_wheels"},
    "lib_shadowing": {"mixed_cuda_wheels"},
    "cudnn_major_mismatch": {"cuda_major_mismatch"},
    "unsupported_op_config": {
        "cpu_only_build",
        "out_of_memory_masked",
        "gpu_too_new_for_build",
        "gpu_too_old_for_build",
        "cudnn_runtime_older_than_build",
        "cudnn_sublibs_mixed",
        "cudnn_sublib_missing",
        "cudnn_major_mismatch",
        "lib_shadowing",
        "driver_too_old",
        "gpu_hardware_fault",
        "fork_after_cuda_init",
        "cudnn_handle_misused",
    },
    "out_of_memory_masked": {
        "cudnn_runtime_older_than_build",
        "gpu_hardware_fault",
        "driver_too_old",
        "gpu_too_new_for_build",
    },
    "cpu_only_build": {
        "container_gpu_not_injected",
        "cuda_lib_missing",
        "cudnn_missing",
        "lib_shadowing",
        "mixed_cuda_wheels",
        "cudnn_runtime_older_than_build",
        "cudnn_major_mismatch",
        "driver_too_old",
    },
    "companion_binary_mismatch": {"lib_shadowing", "mixed_cuda_wheels"},
    "install_resolution_failure": {
        "host_libc_too_old",
        "cpu_only_build",
        "cudnn_sublibs_mixed",
        "cudnn_major_mismatch",
        "cudnn_runtime_older_than_build",
        "lib_shadowing",
        "companion_binary_mismatch",
    },
}
# Ends of the names of statuses that a CUDA library returns after it has started on a GPU.
_STATUSES_OF_COMPUTING = ("_EXECUTION_FAILED", "_MAPPING_ERROR", "_NOT_SUPPORTED", "_ARCH_MISMATCH")
# Causes that words suggest, and that a machine with a driver of its own has.
_OWN_DRIVER = ("driver_not_found", "driver_not_loaded")
# A cause that a failure outside the GPU's environment explains: the area of that failure.
EXPLAINED_OUTSIDE = {"install_resolution_failure": "network"}
# Causes by whose messages a program shows that it has no NVIDIA GPU.
_WITHOUT_NVIDIA_GPU = {
    "container_gpu_not_injected",
    "cpu_only_build",
    "cuda_lib_missing",
    "cudnn_missing",
    "driver_not_found",
    "driver_not_loaded",
    "driver_too_old",
    "visible_devices_wrong",
    "wsl_driver_or_toolkit",
}
# Tests to propose for a failure of cuDNN, and for another failure.
CUDNN_TESTS = (
    "fresh-process",
    "clean-loader",
    "one-folder",
    "free-memory",
    "float32-convolution",
    "other-stream",
    "each-device",
    "cudnn-version",
    "driver-runtime",
    "architecture",
)
_OTHER_TESTS = (
    "fresh-process",
    "clean-loader",
    "float32-convolution",
    "each-device",
    "cuinit",
    "context",
    "health",
)
# A mistake of the program is ruled out by a test that fails without the program.
REFUTED_BY_FAILURE = {
    "unsupported_op_config": "float32-convolution",
    "fork_after_cuda_init": "fresh-process",
    "cudnn_handle_misused": "fresh-process",
}


def diagnose(log_facts: Iterable[Fact], host_facts: Iterable[Fact]) -> Diagnosis:
    """Return the verdicts that follow from the facts of a log and of a host; either may be empty.

    A cause that the host rules out is no verdict. A status alone names no cause. Without facts of
    a log, the host's health is judged; without facts of a host, the log decides. Beside a log,
    what is absent on the host proves nothing, and comes after what the log says.
    """
    case = Case(log_facts, host_facts)
    proposed = [*_stated(case), *findings(case)]
    kept = [finding for finding in proposed if refutation(case, finding.cause) is None]
    kept = [_less_sure(finding, case) for finding in kept]
    if case.log:
        kept = _below_log(kept)
    outside = _outside(case)
    merged: dict[str, Finding] = {}
    for finding in kept:
        if not _is_outside(finding, outside, case):
            _merge(merged, finding)
    ordered = _ordered(merged, case)
    if case.log:
        ordered.sort(key=_absent_last)
    verdicts = [_verdict(finding, case) for finding in ordered]
    if verdicts:
        return Diagnosis(verdicts=tuple(verdicts))
    if outside is not None:
        return Diagnosis(abstained=True, failures=outside.evidence, outside=outside)
    suggested = _suggested(case)
    if suggested is not None:
        return Diagnosis(verdicts=(_verdict(suggested, case),))
    return _abstention(case)


def _stated(case: Case) -> Iterator[Finding]:
    """Yield the causes that messages name, and those that failed tests of the host prove."""
    for kind, confidence in _CONFIDENCE_OF_MESSAGE.items():
        for fact in case.of_kind(kind):
            yield Finding(cause=fact.subject, confidence=confidence, facts=(fact,))
    if case.faults() or case.unexplained():
        for fact in case.of_kind("told"):
            if fact.value != "machine-without-gpu" or not case.of_kind(*NVIDIA_KINDS):
                yield Finding(cause=fact.subject, confidence="likely", facts=(fact,))
    for cause in causes().values():
        failures = tuple(filter(None, map(case.failed, cause.fails)))
        if failures:
            confidence = _confidence_of_failure(cause.id)
            yield Finding(cause=cause.id, confidence=confidence, facts=failures)


def _suggested(case: Case) -> Finding | None:
    """Return the cause that most words near the failures suggest, or None."""
    if not (case.faults() or case.unexplained()):
        return None
    by_cause: dict[str, list[Fact]] = {}
    words = [possible(fact.subject, fact) for fact in case.of_kind("suggests")]
    for finding in (*words, *suggested_by_gpu(case), *suggested_by_driver(case)):
        if finding.cause == "driver_too_old" and _driver_suffices(case):
            continue
        if finding.cause == "container_gpu_not_injected" and _started_computing(case):
            continue
        cause = _cause_in_surroundings(finding.cause, case)
        if refutation(case, cause) is None:
            by_cause.setdefault(cause, []).extend(finding.facts)
    if not by_cause:
        return next(suggested_by_unavailable(case), None)
    cause = max(by_cause, key=lambda cause: (len(by_cause[cause]), causes()[cause].rank))
    return possible(cause, *by_cause[cause])


def _started_computing(case: Case) -> bool:
    """Whether a CUDA library started on a GPU, and failed later."""
    statuses = case.of_kind("status")
    return any(fact.value.endswith(_STATUSES_OF_COMPUTING) for fact in statuses)


def _cause_in_surroundings(cause: str, case: Case) -> str:
    """Return the cause that words suggest.

    WSL and a container have no driver of their own. If another program uses the GPU, the build of
    this one does not.
    """
    is_unseen = cause == "visible_devices_wrong" and not case.of_kind("variable")
    if cause not in _OWN_DRIVER and not is_unseen:
        return cause
    if driver_in_use(case):
        return "cpu_only_build"
    if case.first("wsl", value="yes"):
        return "wsl_driver_or_toolkit"
    if case.first("container", value="yes") and not has_driver_of_container(case):
        return "container_gpu_not_injected"
    return cause


def _confidence_of_failure(cause: str) -> str:
    # The state of the host now says less about the time when the log was written.
    if cause in ("out_of_memory_masked", "driver_not_found"):
        return "likely"
    return "proved"


def _below_log(proposed: Sequence[Finding]) -> list[Finding]:
    """Return the findings, with less confidence in those that rest on absence alone."""
    shown = [finding for finding in proposed if not _rests_on_absence(finding)]
    highest = "possible" if shown else "likely"
    absent = [
        finding.replace(confidence=_lower(finding.confidence, highest))
        for finding in proposed
        if _rests_on_absence(finding)
    ]
    return shown + absent


def _lower(confidence: str, other: str) -> str:
    """Return the lower one of two confidences."""
    if _CONFIDENCE_ORDER[confidence] > _CONFIDENCE_ORDER[other]:
        return confidence
    return other


def _absent_last(finding: Finding) -> tuple[int, bool]:
    return _CONFIDENCE_ORDER[finding.confidence], _rests_on_absence(finding)


def _rests_on_absence(finding: Finding) -> bool:
    """Whether a finding is about something that is not on the host, and nothing else shows it."""
    if any(fact.from_log for fact in finding.facts):
        return False
    return any(map(is_absence, finding.facts))


# ---- what the host rules out --------------------------------------------------------------------


def refutation(case: Case, cause: str) -> Fact | None:
    """Return the fact that rules a cause out, or None."""
    for test in causes()[cause].passes:
        passed = case.passed(test)
        if passed is not None and _passing_counts(case, cause):
            return passed
    if cause == "out_of_memory_masked":
        return _free_memory(case)
    if cause in REFUTED_BY_FAILURE:
        return _refutation_of_program(case, cause)
    if cause == "driver_not_loaded":
        return _loaded_driver(case)
    return None


def _passing_counts(case: Case, cause: str) -> bool:
    """Whether a passed test rules a cause out.

    What the log says of memory outweighs the test. The CUDA build that the test found may be one of
    another framework, or a CPU build may have overwritten it. A release may not look for libraries
    that are there.
    """
    if cause == "out_of_memory_masked":
        return _free_memory(case) is not None
    if cause == "cpu_only_build":
        return not overwrites_cuda_build(case) and not any(cpu_packages(case))
    if cause == "cuda_lib_missing":
        return named_broken_release(case) is None
    return True


def _free_memory(case: Case) -> Fact | None:
    """Return the fact that memory was not what was short, or None.

    If the log states that an allocation failed, memory that is free now shows nothing. Nor does
    free memory that is too small for the allocation.
    """
    if case.failed_allocation(above_total=False):
        return None
    fact = case.free_memory_fact() or _words_of_memory(case)
    is_stated = any(failed.from_log for failed in case.of_kind("out-of-memory"))
    if fact is not None and is_stated and not fact.from_log:
        return None
    return fact


def _words_of_memory(case: Case) -> Fact | None:
    """Return the words that memory suffices; None if the log has none or shows a shortage."""
    words = case.symptoms("memory-suffices")
    if not words or case.memory() or case.of_kind("out-of-memory"):
        return None
    return words[0]


def _refutation_of_program(case: Case, cause: str) -> Fact | None:
    """Return the fact that a mistake of the program cannot explain, or None."""
    if cause == "unsupported_op_config":
        starts = case.symptoms("cudnn-start")
        if starts:
            return starts[0]  # cuDNN failed before the program asked for an operation
    return case.failed(REFUTED_BY_FAILURE[cause])


def _loaded_driver(case: Case) -> Fact | None:
    """Return the fact that the driver's kernel module is loaded, or None."""
    loaded = _host_fact(case, "driver", "kernel") or _host_fact(case, "module", "nvidia", "loaded")
    return loaded or case.passed("nvml")


def _host_fact(case: Case, kind: str, subject: str = "", value: str = "") -> Fact | None:
    """Return the host's first fact of a kind, with the subject and the value if these are given."""
    for fact in case.host:
        if fact.kind == kind and subject in ("", fact.subject) and value in ("", fact.value):
            return fact
    return None


# ---- what another line of the log contradicts ---------------------------------------------------


def _less_sure(finding: Finding, case: Case) -> Finding:
    """Return the finding, which is not proved if another line of the log speaks against it."""
    if finding.cause in _DRIVER_ON_HOST and _may_be_of_container(finding, case):
        return finding.replace(confidence="possible")
    if _is_of_container(finding, case) or _is_without_driver(finding, case):
        return finding.replace(confidence="possible")
    if _is_contradicted_in_words(finding, case):
        return finding.replace(confidence="possible")
    absent = [fact for cause in _DRIVER_ABSENT for fact in case.about("hints", cause)]
    absent += case.about("library-missing", "libcuda.so.1") + case.symptoms("hosted-runner")
    if absent and _may_lack_driver(finding, case):
        return finding.replace(confidence="possible")
    if finding.confidence == "proved" and _is_contradicted(finding, case):
        return finding.replace(confidence="likely")
    return finding


def _has_no_gpu_in_words(case: Case) -> bool:
    """Whether a reporter says that the machine has no NVIDIA GPU."""
    if case.symptoms("machine-without-gpu") and not case.of_kind(*NVIDIA_KINDS):
        return True
    told = case.about("told", "driver_not_found")
    return any(fact.value == "machine-without-nvidia" for fact in told)


def _may_be_of_container(finding: Finding, case: Case) -> bool:
    """Whether a container that was started without the GPU explains a verdict about the driver."""
    if any(fact.value in COMPARES_DRIVER for fact in finding.facts):
        return False
    if case.symptoms("started-without-gpu"):
        return True
    return all(lacks_driver_of_container(fact, case) for fact in finding.facts)


def _is_contradicted(finding: Finding, case: Case) -> bool:
    if not all(fact.from_log for fact in finding.facts):
        return False
    if finding.cause == "driver_too_old":
        return (
            _driver_suffices(case)
            or _may_lack_driver(finding, case)
            or _may_be_driver_of_host(finding, case)
        )
    if finding.cause in ("driver_not_loaded", "driver_userspace_kernel_mismatch"):
        # In WSL, the kernel module is that of Windows.
        in_wsl = finding.cause != "driver_not_loaded" and case.first("wsl", value="yes")
        return bool(in_wsl or case.of_kind("smi-memory"))  # nvidia-smi worked
    if finding.cause == "cpu_only_build":
        return any(fact.value != "none" for fact in case.of_kind("cuda-built"))
    return False


def _is_contradicted_in_words(finding: Finding, case: Case) -> bool:
    """Whether another line speaks against what a message or a reporter says in words."""
    if finding.cause == "container_gpu_not_injected":
        told = case.about("told", "uvm_or_driver_state_broken")
        works_later = any(fact.value == WORKS_AFTER_PROGRAM_ON_HOST for fact in told)
        return works_later or _has_no_gpu_in_words(case)
    if finding.cause == "cpu_only_build" and finding.confidence == "likely":
        # Only a build with CUDA tries to create the provider.
        return bool(with_names(case, "cuda_lib_missing", PROVIDER_NOT_CREATED))
    if finding.cause == "driver_not_found":
        return driver_in_use(case) is not None and all(
            fact.value in (DRIVER_ABSENT_IN_WORDS, DRIVER_OR_CUDART_ABSENT)
            for fact in finding.facts
        )
    return False


def _driver_suffices(case: Case) -> bool:
    """Whether the driver supports the CUDA major version of the builds that a log names."""
    supported = [version_tuple(fact.value) for fact in case.of_kind("driver-cuda")]
    supported += [version_tuple(cuda_of_driver(fact.value)) for fact in case.of_kind("driver")]
    builds = [version_tuple(fact.value) for fact in case.of_kind("cuda-built", "toolkit")]
    newest = max(builds, default=())
    return bool(newest) and any(version[:1] >= newest[:1] for version in supported)


def _is_of_container(finding: Finding, case: Case) -> bool:
    """Whether a verdict about the host's driver rests on what a container lacks."""
    if finding.cause != "driver_not_loaded" or not case.first("container", value="yes"):
        return False
    lacking: tuple[str, ...] = (NO_DRIVER_FILES,)
    if case.symptoms("gpu-works-on-host") and not case.symptoms("fails-on-host"):
        lacking += SMI_FAILED
    return all(fact.from_log and fact.value in lacking for fact in finding.facts)


def _is_without_driver(finding: Finding, case: Case) -> bool:
    """Whether the driver may not be installed: its module is not loaded, and libcuda is absent."""
    if finding.cause != "driver_not_loaded":
        return False
    absent = case.about("library-missing", "libcuda.so.1") or [
        fact for fact in case.about("hints", "driver_not_found") if "303" in fact.text
    ]
    files_alone = all(fact.value in _FILES_OF_DRIVER for fact in finding.facts)
    return files_alone and bool(absent)


def _may_lack_driver(finding: Finding, case: Case) -> bool:
    """Whether a verdict rests on a status alone that the runtime also gives without a driver."""
    return _is_status_alone(finding) and not case.of_kind("driver", "driver-cuda", "smi-memory")


def _may_be_driver_of_host(finding: Finding, case: Case) -> bool:
    """Whether a program in a container may see no driver: the one in the log may be the host's."""
    return _is_status_alone(finding) and bool(case.first("container", value="yes"))


def _is_status_alone(finding: Finding) -> bool:
    return all(fact.value in INSUFFICIENT_DRIVER for fact in finding.facts)


# ---- order and text -----------------------------------------------------------------------------


def _merge(merged: dict[str, Finding], finding: Finding) -> None:
    """Join the findings of one cause: the highest confidence counts, and its facts come first."""
    known = merged.get(finding.cause)
    if known is None:
        merged[finding.cause] = finding
        return
    first, second = known, finding
    if _CONFIDENCE_ORDER[finding.confidence] < _CONFIDENCE_ORDER[known.confidence]:
        first, second = finding, known
    facts = dict.fromkeys((*first.facts, *second.facts))
    merged[finding.cause] = first.replace(facts=tuple(facts))


def _ordered(merged: Mapping[str, Finding], case: Case) -> list[Finding]:
    """Return the findings, the best first.

    Order: confidence; of possible causes, how many words suggest it; causes before what follows
    from them; what both the log and the host show; the first line in the log; the rank of the
    cause.
    """
    known = causes()

    def key(finding: Finding) -> tuple[int, int, bool, bool, int, int]:
        is_possible = finding.confidence == "possible"
        suggestions = len(case.about("suggests", finding.cause)) if is_possible else 0
        lines = [line_number(fact) for fact in finding.facts if fact.from_log]
        on_both = 0 < len(lines) < len(finding.facts)
        return (
            _CONFIDENCE_ORDER[finding.confidence],
            -suggestions,
            _follows_another(finding, merged),
            not on_both,
            min(lines, default=_LAST_LINE),
            -known[finding.cause].rank,
        )

    return sorted(merged.values(), key=key)


def _follows_another(finding: Finding, merged: Mapping[str, Finding]) -> bool:
    """Whether a cause that may be behind a finding was found with the same confidence or higher."""
    order = _CONFIDENCE_ORDER[finding.confidence]
    for cause in FOLLOWS.get(finding.cause, ()):
        behind = merged.get(cause)
        if behind is not None and _CONFIDENCE_ORDER[behind.confidence] <= order:
            return True
    return False


def line_number(fact: Fact) -> int:
    """Return the line of the log that a fact is from; 0 if it names none."""
    number = fact.where.rpartition(" ")[2]
    if not number.isdigit():
        return 0
    return int(number)


def _verdict(finding: Finding, case: Case) -> Verdict:
    lines = tuple(dict.fromkeys(evidence_line(fact) for fact in finding.facts))
    verdict = Verdict(
        cause=finding.cause,
        confidence=finding.confidence,
        evidence=lines[:EVIDENCE_LINES],
        fix=causes()[finding.cause].fix,
        advice=advice(case, finding.cause),
    )
    row = advice_row(case, finding)
    if row is None:
        return verdict
    if row.alone:
        return verdict.replace(fix=row.says, advice=(), title=row.title, complete=True)
    return verdict.replace(advice=(row.says, *verdict.advice), title=row.title)


def evidence_line(fact: Fact) -> str:
    """Return a fact as a line of evidence: where it was seen, and its text."""
    text = fact.text or " ".join(filter(None, (fact.kind, fact.subject, fact.value)))
    return f"{fact.where}: {text}"


# ---- failures outside the GPU's environment -----------------------------------------------------


def _outside(case: Case) -> Outside | None:
    """Return the first area that the log shows to have failed, or None.

    A failure on a machine with another maker's GPU alone is one of that GPU if no area is stated.
    """
    stated = [fact for fact in case.of_kind("outside") if fact.from_log]
    for area in areas().values():
        facts = [fact for fact in stated if fact.subject == area.id]
        if area.id == "program":
            facts += [fact for fact in case.of_kind("xid") if fact.value in XID_PROGRAM]
        if facts:
            return _failure_of(area, facts)
    named = _other_gpus(case)
    if named and (case.faults() or case.unexplained()):
        return _failure_of(areas()["other-gpu"], named)
    return None


def _failure_of(area: Area, facts: Iterable[Fact]) -> Outside:
    evidence = tuple(dict.fromkeys(map(evidence_line, facts)))[:EVIDENCE_LINES]
    return Outside(area=area.id, title=area.title, evidence=evidence, fix=area.fix)


def _other_gpus(case: Case) -> list[Fact]:
    """Return where a log names another maker's GPU; nothing if it shows one of NVIDIA, too.

    Hosted notebooks have no GPU of another maker.
    """
    if case.of_kind(*NVIDIA_KINDS) or case.symptoms("nvidia-gpu", "hosted-notebook"):
        return []
    return case.symptoms("other-gpu")


def _is_outside(finding: Finding, outside: Outside | None, case: Case) -> bool:
    """Whether a failure outside the GPU's environment explains a finding."""
    if outside is None:
        return False
    if all(fact.from_log for fact in finding.facts):
        if finding.cause in _WITHOUT_NVIDIA_GPU and _other_gpus(case):
            return True
        if case.about("outside", "other-gpu"):
            return not case.of_kind(*NVIDIA_KINDS)
    return EXPLAINED_OUTSIDE.get(finding.cause) == outside.area


def _abstention(case: Case) -> Diagnosis:
    """Return the tests to run if something failed, or an empty diagnosis if nothing did."""
    faults = case.faults() or case.unexplained()
    if not faults:
        return Diagnosis()
    failures = tuple(dict.fromkeys(map(evidence_line, faults)))[:EVIDENCE_LINES]
    of_cudnn = [fact for fact in faults if fact.subject in ("cudnn", "cudnn-start", "cudnn-call")]
    if not of_cudnn:
        tests = case.untested(_OTHER_TESTS)
        return Diagnosis(abstained=True, next_tests=tests, failures=failures)
    finding = Finding(cause=UNKNOWN_CAUSE, confidence="possible", facts=tuple(of_cudnn))
    unknown = _verdict(finding, case)
    return Diagnosis(
        abstained=True,
        verdicts=(unknown,),
        next_tests=case.untested(CUDNN_TESTS),
        failures=unknown.evidence,
    )
