"""Makes a diagnosis from facts: what follows, what the host rules out, and what is best shown.

Confidence comes from the rules. Causes of the same confidence are ordered by evidence: a cause that
brings another about comes first, then what both the log and the host show, then what more facts
show, then the earliest line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from .advice import advice, advice_row
from .catalog import areas, causes, rules, tests_for
from .facts import NVIDIA_KINDS, Case, is_absence
from .model import Diagnosis, Fact, Finding, Verdict, finding_of, likely, possible
from .rules import broken_release, driver_suffices, evidence, findings

EVIDENCE_LINES = 4  # of one verdict
UNKNOWN_CAUSE = "cudnn_init_failed_unknown"
_CONFIDENCE_OF_MESSAGE = {"says": "proved", "hints": "likely", "maybe": "possible"}
_LAST_LINE = 1 << 60
# Kinds of facts by which a program states what was at its own moment: the host's state now does not
# refute them. That a build finds no compiler is no matter of the libraries that load.
_OF_THE_MOMENT = ("out-of-memory", "library-missing", "symbol-missing", "libc-wanted", "xid")
_MESSAGES_OF_THE_MOMENT = (
    "unsupported-ptx", "unable-to-load-any", "cudnn-sublibrary-loading", "compiler-not-found",
    "cuda-version-mismatches", "framework-not-installed",
)  # fmt: skip
# Causes whose state may have changed since the log was written.
_OF_NOW = ("out_of_memory_masked", "driver_not_found")
# What else fails a build or the loading of what was built, and the causes that then explain less.
_FAIL_A_BUILD = ("compiler", "host-memory", "library", "storage")
_OF_BUILDS = ("companion_binary_mismatch", "install_resolution_failure")
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
# Causes by which a program reaches no device.
_WITHOUT_DEVICE = ("container_gpu_not_injected", "driver_not_found", "driver_not_loaded")
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
    kept: list[Finding] = []
    refuted: list[Finding] = []
    for finding in (*_stated(case), *findings(case)):
        found = refuted if _is_refuted(case, finding) else kept
        found.append(_less_sure(finding, case))
    kept += _replacements(case, refuted, kept)
    if case.log:
        kept = [*_below_log(kept, case)]
    outside = _outside(case)
    merged: dict[str, Finding] = {}
    for finding in kept:
        if _is_outside(finding, outside, case):
            continue
        # Of one cause, the highest confidence counts, and its facts come first.
        known = merged.get(finding.cause, finding)
        first, second = sorted((known, finding), key=lambda found: found.order)
        facts = dict.fromkeys(first.facts + second.facts)
        merged[finding.cause] = first.replace(facts=tuple(facts))
    verdicts = [_verdict(finding, case) for finding in _ordered(merged, case)]
    if verdicts:
        named = [causes()[verdict.cause] for verdict in verdicts]
        tests = [test for cause in named for test in (*cause.fails, *cause.passes)]
        is_open = verdicts[0].confidence != "proved"
        return Diagnosis(
            verdicts=tuple(verdicts), next_tests=case.untested(tests) if is_open else ()
        )
    if outside is not None:
        return Diagnosis(abstained=True, failures=outside.evidence, outside=outside)
    return _abstention(case)


def _stated(case: Case) -> Iterator[Finding]:
    """Yield the causes that messages name, and those that failed tests of the host prove."""
    for kind, confidence in _CONFIDENCE_OF_MESSAGE.items():
        for fact in case.of_kind(kind):
            yield finding_of(confidence, fact.subject, fact)
    for cause in causes().values():
        failures = list(map(case.failed, cause.fails))
        if any(failures):
            yield finding_of("likely" if cause.id in _OF_NOW else "proved", cause.id, *failures)


# ---- what the host rules out --------------------------------------------------------------------


def _is_refuted(case: Case, finding: Finding) -> bool:
    """Whether the host rules a finding out."""
    for fact in finding.facts:
        # A program states in a log what the host's state now cannot refute.
        is_of_compiler = (fact.kind, fact.subject) == ("architecture-missing", "compiler")
        is_of_the_moment = fact.kind in _OF_THE_MOMENT or fact.value in _MESSAGES_OF_THE_MOMENT
        if fact.from_log and (is_of_compiler or is_of_the_moment):
            return False
    cause = finding.cause
    if any(map(case.passed, causes()[cause].passes)):
        if cause == "out_of_memory_masked":  # what the log says of memory outweighs the test
            rules_out = not any(row.fact.from_log for row in case.memory())
        elif cause == "cpu_only_build":  # it may have overwritten the CUDA build that was found
            rules_out = all(fact.from_log for fact in case.about("package", "onnxruntime"))
        else:  # a release may not look for libraries that are there
            rules_out = cause != "cuda_lib_missing" or broken_release(case) is None
        if rules_out:
            return True
    if cause == "unsupported_op_config" and case.symptoms("cudnn-start"):
        return True
    return cause in REFUTED_BY_FAILURE and case.failed(REFUTED_BY_FAILURE[cause]) is not None


def _replacements(
    case: Case, refuted: Iterable[Finding], kept: Iterable[Finding]
) -> Iterator[Finding]:
    """Yield what explains a failure whose usual cause the host rules out.

    If the framework and cuDNN have code for every GPU, another binary has none.
    """
    for ptx in case.stated("driver_too_old", "unsupported-ptx"):
        for binary in case.about("other-binary", "driver"):
            yield likely("driver_too_old", ptx, binary)
    others = {
        "gpu_too_new_for_build": case.about("other-binary", "newer"),
        "gpu_too_old_for_build": case.about("other-binary", "older"),
    }
    missing = [
        fact for finding in refuted for fact in finding.facts if fact.kind == "architecture-missing"
    ]
    if not missing or any(finding.cause in others for finding in kept):
        return
    served = case.passed("architecture")
    if served is not None:
        text = "the framework and cuDNN have code for this GPU: another binary has none"
        served = served.replace(text=text)
    for cause, binaries in others.items():
        if binaries:
            yield likely(cause, missing[0], *binaries)
        elif not any(others.values()):
            yield possible(cause, missing[0], served)


# ---- how sure -----------------------------------------------------------------------------------


def _below_log(proposed: Iterable[Finding], case: Case) -> Iterator[Finding]:
    """Yield the findings, with less confidence in those that rest on absence alone.

    That the program of the log reached no device is evidence that a device is absent.
    """
    found = list(proposed)
    absent = [finding for finding in found if _rests_on_absence(finding)]
    unreached = [fact for cause in _WITHOUT_DEVICE for fact in case.stated(cause) if fact.from_log]
    unreached += case.stated("visible_devices_wrong", "no-device", "no-usable-device")
    unreached += case.symptoms("no-device", "cuda-unavailable")
    for finding in found:
        if finding not in absent:
            yield finding
            continue
        stated = unreached[:1] if finding.cause in _WITHOUT_DEVICE else []
        highest = "likely" if stated or len(absent) == len(found) else "possible"
        yield finding.at_most(highest).replace(facts=(*stated, *finding.facts))


def _rests_on_absence(finding: Finding) -> bool:
    """Whether a finding is about something that is not on the host, and nothing else shows it."""
    is_logged = any(fact.from_log for fact in finding.facts)
    return not is_logged and any(map(is_absence, finding.facts))


def _less_sure(finding: Finding, case: Case) -> Finding:
    """Return a finding of the log alone, as sure as other facts allow: the rows [[cap]]."""
    if not all(fact.from_log for fact in finding.facts):
        return finding
    for cap in rules("cap"):
        is_about = all(re.fullmatch(cap.of, fact.value) for fact in finding.facts)
        if cap.cause == finding.cause and is_about and evidence(case, cap) is not None:
            finding = finding.at_most(cap.confidence)
    if finding.cause == "driver_too_old" and driver_suffices(case):
        return finding.at_most("likely")
    return finding


# ---- order and text -----------------------------------------------------------------------------


def _ordered(merged: Mapping[str, Finding], case: Case) -> list[Finding]:
    """Return the findings, the best first."""

    def key(finding: Finding) -> tuple[bool, int, bool, bool, int, int]:
        numbers = [fact.where.rpartition(" ")[2] for fact in finding.facts if fact.from_log]
        lines = [int(number) if number.isdigit() else 0 for number in numbers]
        on_both = 0 < len(lines) < len(finding.facts)
        behind = [merged[cause] for cause in causes()[finding.cause].behind if cause in merged]
        return (
            bool(case.log) and _rests_on_absence(finding),
            finding.order,
            any(found.order <= finding.order for found in behind),
            not on_both,
            min(lines, default=_LAST_LINE),
            -len(finding.facts),
        )

    return sorted(merged.values(), key=key)


def _verdict(finding: Finding, case: Case) -> Verdict:
    verdict = Verdict(
        cause=finding.cause,
        confidence=finding.confidence,
        evidence=_evidence_lines(finding.facts),
        fix=causes()[finding.cause].fix,
        advice=advice(case, finding.cause),
    )
    row = advice_row(case, finding)
    if row is None:
        return verdict
    if row.alone:
        fix = row.says.replace("{advice}", " ".join(verdict.advice)).strip()
        return verdict.replace(fix=fix, advice=(), title=row.title, complete=True)
    return verdict.replace(advice=(row.says, *verdict.advice), title=row.title)


def _evidence_lines(facts: Iterable[Fact]) -> tuple[str, ...]:
    """Return facts as lines of evidence: where each was seen, and its text."""
    lines: dict[str, None] = {}
    for fact in facts:
        text = fact.text or " ".join(filter(None, (fact.kind, fact.subject, fact.value)))
        lines[f"{fact.where}: {text}"] = None
    return tuple(lines)[:EVIDENCE_LINES]


# ---- failures outside the GPU's environment -----------------------------------------------------


def _outside(case: Case) -> Verdict | None:
    """Return the first area that the log shows to have failed, or None.

    A failure on a machine with another maker's GPU alone is one of that GPU if no area is stated.
    """
    for name, area in areas().items():
        facts = case.about("outside", name)
        if facts:
            return area.replace(evidence=_evidence_lines(facts))
    named = _other_gpus(case)
    if named and case.faults():
        return areas()["other-gpu"].replace(evidence=_evidence_lines(named))
    return None


def _other_gpus(case: Case) -> list[Fact]:
    """Return where a log names another maker's GPU; nothing if it shows one of NVIDIA, too."""
    if case.of_kind(*NVIDIA_KINDS) or case.symptoms("nvidia-gpu"):
        return []
    return case.symptoms("other-gpu")


def _is_outside(finding: Finding, outside: Verdict | None, case: Case) -> bool:
    """Whether a failure outside the GPU's environment explains a finding."""
    if outside is None or not all(fact.from_log for fact in finding.facts):
        return False
    if finding.cause == "install_resolution_failure" and outside.cause in ("network", "storage"):
        return True
    if finding.confidence == "possible" and (
        case.first("outside", value="device-assert")  # later calls of CUDA fail because of it
        or (finding.cause in _OF_BUILDS and outside.cause in _FAIL_A_BUILD)
    ):
        return True
    if finding.cause in _WITHOUT_NVIDIA_GPU and _other_gpus(case):
        return True
    return bool(case.about("outside", "other-gpu")) and not case.of_kind(*NVIDIA_KINDS)


def _abstention(case: Case) -> Diagnosis:
    """Return the tests to run if something failed, or an empty diagnosis if nothing did."""
    faults = case.faults()
    if not faults:
        return Diagnosis(abstained=bool(case.of_kind("words")))
    failures = _evidence_lines(faults)
    of_cudnn = [fact for fact in faults if fact.subject in ("cudnn", "cudnn-start", "cudnn-call")]
    if not of_cudnn:
        # A test of the GPU says nothing of an exception that names none.
        is_open = any(fact.subject != "exception" for fact in faults)
        tests = case.untested(tests_for("other")) if is_open else ()
        return Diagnosis(abstained=True, next_tests=tests, failures=failures)
    unknown = _verdict(possible(UNKNOWN_CAUSE, *of_cudnn), case)
    return Diagnosis(
        abstained=True,
        verdicts=(unknown,),
        next_tests=case.untested(tests_for("cudnn")),
        failures=unknown.evidence,
    )
