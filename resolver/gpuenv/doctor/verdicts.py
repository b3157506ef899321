"""From facts to verdicts: what the rules find, less what the host refutes, the first cause before its followers."""

from __future__ import annotations

from collections.abc import Iterable

from .catalog import causes
from .facts import Case, Finding
from .model import Diagnosis, Fact, Verdict
from .rules import findings

LINES = 4  # of evidence of one verdict
_SURE = {"says": "proved", "hints": "likely", "maybe": "possible"}
_ORDER = {"proved": 0, "likely": 1, "possible": 2}
# Failures that others bring about: follower -> what may stand before it although its line comes later.
_DRIVER = {
    "driver_not_loaded", "driver_userspace_kernel_mismatch", "driver_too_old", "compat_libcuda_misuse",
    "container_gpu_not_injected", "container_gpu_access_lost", "wsl_driver_or_toolkit", "fabric_manager_not_running",
    "gpu_hardware_fault",
}  # fmt: skip
_FOLLOWS = {
    "visible_devices_wrong": _DRIVER | {"driver_not_found", "cpu_only_build", "uvm_or_driver_state_broken"},
    "driver_not_found": _DRIVER,
    "driver_not_loaded": {"wsl_driver_or_toolkit"},
    "compat_libcuda_misuse": {"driver_userspace_kernel_mismatch"},
    "uvm_or_driver_state_broken": _DRIVER | {"driver_not_found", "fork_after_cuda_init"},
    "container_gpu_not_injected": {"driver_not_loaded", "driver_too_old", "wsl_driver_or_toolkit"},
    "cudnn_sublib_missing": {"cudnn_major_mismatch", "cudnn_sublibs_mixed", "host_libc_too_old"},
    "cudnn_missing": {"cudnn_major_mismatch", "cudnn_sublib_missing"},
    "cuda_lib_missing": {"mixed_cuda_wheels", "cuda_major_mismatch", "cudnn_missing", "cudnn_major_mismatch"},
    "cuda_major_mismatch": {"mixed_cuda_wheels"},
    "lib_shadowing": {"mixed_cuda_wheels"},
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
        "cuda_lib_missing", "cudnn_missing", "lib_shadowing", "mixed_cuda_wheels", "cudnn_runtime_older_than_build",
        "cudnn_major_mismatch", "driver_too_old",
    },
    "companion_binary_mismatch": {"lib_shadowing", "mixed_cuda_wheels"},
    "install_resolution_failure": {"host_libc_too_old", "cpu_only_build"},
}
_CUDNN_TESTS = (
    "fresh-process", "clean-loader", "one-folder", "free-memory", "float32-convolution", "other-stream", "each-device",
    "cudnn-version", "driver-runtime", "architecture",
)  # fmt: skip
_OTHER_TESTS = ("fresh-process", "clean-loader", "float32-convolution", "each-device", "cuinit", "context", "health")


_REFUTED_BY_FAILURE = {
    "unsupported_op_config": "float32-convolution",
    "fork_after_cuda_init": "fresh-process",
    "cudnn_handle_misused": "fresh-process",
}


def diagnose(log_facts: Iterable[Fact], host_facts: Iterable[Fact]) -> Diagnosis:
    """What the facts say. A cause that the host refutes is no verdict, and a status alone names no cause.

    Either may be empty: without a log it is a check of the host's health, without a host the log's words decide.
    """
    case = Case(log_facts, host_facts)
    found: dict[str, tuple[str, list[Fact]]] = {}
    for cause, sure, facts in (*_told(case), *findings(case)):
        if facts and not refutation(case, cause):
            _add(found, cause, sure, facts)
    verdicts = [_verdict(cause, *found[cause]) for cause in _ordered(found)]
    if verdicts:
        return Diagnosis(verdicts=tuple(verdicts))
    return _abstention(case)


def _told(case: Case) -> list[Finding]:
    """What a message names, and what a test of the host proves by failing."""
    made: list[Finding] = []
    for kind, sure in _SURE.items():
        made += [(each.subject, sure, [each]) for each in case.every(kind)]
    for cause in causes().values():
        failed = [each for each in (case.test(name, "fail") for name in cause.fails) if each is not None]
        if failed:
            made.append((cause.id, _failed(cause.id), failed))
    return made


def _failed(cause: str) -> str:
    """How sure a failed test makes: the memory of now says less of a log of then."""
    return "likely" if cause in ("out_of_memory_masked", "driver_not_found") else "proved"


def refutation(case: Case, cause: str) -> Fact | None:
    """The fact that rules a cause out, None where there is none."""
    rule = causes()[cause]
    for name in rule.passes:
        passed = case.test(name, "pass")
        if passed is not None and not (cause == "out_of_memory_masked" and case.memory_is_free() is None):
            return passed
    if cause == "out_of_memory_masked":
        return case.memory_is_free()
    if cause in _REFUTED_BY_FAILURE:  # the program's own mistakes: what fails without the program is none
        never = case.symptom("cudnn-start") if cause == "unsupported_op_config" else []  # it was asked for no operation
        return next(iter(never), case.test(_REFUTED_BY_FAILURE[cause], "fail"))
    absent = {"wsl_driver_or_toolkit": "wsl", "container_gpu_access_lost": "container",
              "container_gpu_not_injected": "container"}.get(cause)  # fmt: skip
    if absent is not None:
        return next((each for each in case.host if each.kind == absent and each.value == "no"), None)
    if cause == "driver_not_loaded":
        loaded = [each for each in case.host if (each.kind, each.subject) == ("driver", "kernel")]
        loaded += [each for each in case.host if (each.kind, each.subject) == ("module", "nvidia")]
        loaded = [each for each in loaded if each.kind == "driver" or each.value == "loaded"]
        return loaded[0] if loaded else case.test("nvml", "pass")
    return None


def _add(found: dict[str, tuple[str, list[Fact]]], cause: str, sure: str, facts: list[Fact]) -> None:
    """Joins what is found of one cause: the surest word, its facts first."""
    known = found.get(cause)
    if known is None:
        found[cause] = (sure, list(facts))
        return
    better = _ORDER[sure] < _ORDER[known[0]]
    joined = [*facts, *known[1]] if better else [*known[1], *facts]
    found[cause] = (sure if better else known[0], list(dict.fromkeys(joined)))


def _ordered(found: dict[str, tuple[str, list[Fact]]]) -> list[str]:
    """The causes, the surest first; of those as sure, what is seen in log and host, then what comes first."""

    def key(cause: str) -> tuple[int, int, int, int, int]:
        sure, facts = found[cause]
        before = [other for other in _FOLLOWS.get(cause, ()) if other in found]
        follows = any(_ORDER[found[other][0]] <= _ORDER[sure] for other in before)
        lines = [line(each) for each in facts if each.from_log]
        both = bool(lines) and len(lines) < len(facts)
        return _ORDER[sure], int(follows), int(not both), min(lines, default=1 << 60), -causes()[cause].rank

    return sorted(found, key=key)


def line(fact: Fact) -> int:
    """The number of a log's line that a fact is from."""
    number = fact.where.rpartition(" ")[2]
    return int(number) if number.isdigit() else 0


def _verdict(cause: str, sure: str, facts: list[Fact]) -> Verdict:
    lines = list(dict.fromkeys(shown(each) for each in facts))
    return Verdict(cause=cause, confidence=sure, evidence=tuple(lines[:LINES]), fix=causes()[cause].fix)


def shown(fact: Fact) -> str:
    """A fact as a line of evidence: where it was seen, and what stood there."""
    return f"{fact.where}: {fact.text or ' '.join(part for part in (fact.kind, fact.subject, fact.value) if part)}"


def _abstention(case: Case) -> Diagnosis:
    """No cause is left: tests to make where something failed, nothing at all where nothing did."""
    faults = case.faults()
    if not faults:
        return Diagnosis()
    cudnn = [each for each in faults if each.subject in ("cudnn", "cudnn-start", "cudnn-call")]
    tests = case.untried(_CUDNN_TESTS if cudnn else _OTHER_TESTS)
    if not cudnn:
        return Diagnosis(abstained=True, next_tests=tests)
    unknown = _verdict("cudnn_init_failed_unknown", "possible", cudnn)
    return Diagnosis(abstained=True, verdicts=(unknown,), next_tests=tests)
