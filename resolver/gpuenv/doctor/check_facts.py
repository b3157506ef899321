"""Turns the results of the checks of `gpuenv verify` and of the probe tests into facts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from ..model import Check, Mark
from .host_facts import fact
from .model import Fact

_TestResult = tuple[str, str]  # a key of TESTS, and pass, fail or unknown

# A CUresult of the check "device" -> the fact that it shows: (kind, subject, value).
_FACT_OF_RESULT = {
    802: ("test", "fabric", "fail"),
    803: ("test", "driver-versions", "fail"),
    804: ("says", "compat_libcuda_misuse", "804"),
    34: ("test", "loader-path", "fail"),
    214: ("test", "health", "fail"),
    220: ("test", "health", "fail"),
}
# Checks with the same result as one test.
_TEST_OF_CHECK = {
    ("loader", "variables"): "loader-path",
    ("build", ""): "cuda-build",
    ("glibc", ""): "libc",
}
# Checks that state facts although their status is unknown.
_STATED_WHEN_UNKNOWN = ("device", "cudnn", "device code")
_TESTS_OF_CONTEXT = ("libcuda", "cuinit", "context", "fabric", "driver-versions")
_TESTS_OF_CONVOLUTION = ("float32-convolution", "other-stream", "one-folder")
# Tests that also fail if a variable or another package replaces the environment's libraries.
_CONSEQUENCES = frozenset(
    {"one-folder", "cudnn-complete", "cudnn-present", "libraries-resolve", "environment"}
)


def check_facts(checks: Sequence[Check]) -> tuple[Fact, ...]:
    """Return the facts of the checks.

    A failure that follows from another is reported as that other one: a variable that leads to
    another cuDNN, or packages that overwrite each other's libraries, make later checks fail.
    """
    root_test = _root_test(checks)
    library_marks = _failed_library_marks(checks)
    facts: list[Fact] = []
    for check in sorted(checks, key=_sort_key):
        observed = _facts_of_check(check, library_marks)
        facts.extend(_attributed(fact, root_test) for fact in observed)
    facts += _each_device_facts(checks)
    facts += _owner_facts(checks)
    return tuple(facts)


def marks_about(marks: Iterable[Mark], code: str) -> list[str]:
    """Return the subjects of the marks that have the code."""
    return [subject for mark_code, subject, _ in marks if mark_code == code]


def _sort_key(check: Check) -> bool:
    """Sort the checks that explain others to the front."""
    return check.name not in ("loader", "owners")


def _where(check: Check) -> str:
    return f"host: check {check.name} {check.subject}".rstrip()


# ---- failures that follow from others -----------------------------------------------------------


def _root_test(checks: Sequence[Check]) -> str | None:
    """Return the test whose failure makes others fail, or None."""
    for check in checks:
        if (check.name, check.subject, check.status) == ("loader", "variables", "fail"):
            return "loader-path"
    marks = [mark for check in checks if check.name in ("owners", "files") for mark in check.marks]
    for code, path, owners in marks:
        if code == "two-owners" and _is_library_of_two(path, owners):
            return "one-cuda-major" if "nvidia-" in owners else "environment"
    if any(code in ("no-record", "twice") for code, _, _ in marks):
        # Without its list of files, other checks find no file of a distribution.
        return "environment"
    return None


def _is_library_of_two(path: str, owners: str) -> bool:
    """Whether a file of two owners is a library, or belongs to two NVIDIA packages."""
    return ".so" in os.path.basename(path) or owners.count("nvidia-") > 1


def _attributed(observed: Fact, root_test: str | None) -> Fact:
    """Return the fact, or for a consequence the failed test that explains it."""
    is_failure = observed.kind == "test" and observed.value == "fail"
    if root_test is not None and is_failure and observed.subject in _CONSEQUENCES:
        return observed.replace(subject=root_test)
    return observed


def _failed_library_marks(checks: Sequence[Check]) -> tuple[Mark, ...]:
    """Return the marks of the failed check that opened cuDNN's libraries."""
    marks: list[Mark] = []
    for check in checks:
        if (check.name, check.subject, check.status) == ("cudnn", "libraries", "fail"):
            marks += check.marks
    return tuple(marks)


# ---- facts of all checks together ---------------------------------------------------------------


def _each_device_facts(checks: Sequence[Check]) -> Iterator[Fact]:
    """Yield the test "each-device" if the convolution was run on every GPU."""
    runs = [check for check in checks if check.name == "cudnn convolution"]
    devices = [
        check for check in checks if check.name == "device" and check.subject.startswith("GPU")
    ]
    if runs and len(runs) == len(devices):
        passed = sum(check.status == "pass" for check in runs)
        status = "pass" if passed == len(runs) else "fail"
        text = f"the convolution was correct on {passed} of {len(runs)} GPUs"
        yield fact("test", "each-device", status, "host: check cudnn convolution", text)


def _owner_facts(checks: Sequence[Check]) -> Iterator[Fact]:
    """Yield the passed test "one-cuda-major" if every check of files passed."""
    names = (("owners", ""), ("files", ""), ("closure", ""))  # changed data files say nothing
    file_checks = [check for check in checks if (check.name, check.subject) in names]
    if file_checks and all(check.status == "pass" for check in file_checks):
        text = "no library has two owners, and the files of NVIDIA match their records"
        where = "host: checks owners, files and closure"
        yield fact("test", "one-cuda-major", "pass", where, text)


# ---- facts of one check -------------------------------------------------------------------------


def _facts_of_check(check: Check, library_marks: Sequence[Mark]) -> Iterator[Fact]:
    """Yield the facts of one check.

    Args:
        library_marks: the marks of the failed check of cuDNN's libraries, or ().
    """
    if check.status == "unknown" and check.name not in _STATED_WHEN_UNKNOWN:
        return
    test = _TEST_OF_CHECK.get((check.name, check.subject)) or _TEST_OF_CHECK.get((check.name, ""))
    if test is not None:
        yield from _test_facts(check, [(test, check.status)])
    elif check.name == "cudnn":
        yield from _cudnn_facts(check, library_marks)
    elif check.name == "closure":
        yield from _closure_facts(check)
    elif check.name in ("owners", "files"):
        yield from _file_facts(check)
    elif check.name == "device":
        yield from _context_facts(check)
    elif check.name == "device code":
        yield from _device_code_facts(check)
    elif check.name == "cudnn handle":
        yield from _status_facts(check)
        yield from _test_facts(check, [("fresh-process", check.status)])
    elif check.name == "cudnn convolution":
        yield from _status_facts(check)
        yield from _test_facts(check, _convolution_tests(check))


def _test_facts(check: Check, results: Iterable[_TestResult]) -> Iterator[Fact]:
    for test, status in results:
        yield fact("test", test, status, _where(check), check.evidence)


def _cudnn_facts(check: Check, library_marks: Sequence[Mark]) -> Iterator[Fact]:
    """Yield the facts of the checks of cuDNN's files, of their versions and of their code."""
    if check.subject == "libraries" and check.status != "unknown":
        yield from _test_facts(check, [(_library_test(check.marks), check.status)])
    elif check.subject in ("origin", "version"):
        for code, _, version in check.marks:
            if code == "version":
                yield fact("cudnn-loaded", "", version, _where(check), check.evidence)
        yield from _test_facts(check, _folder_tests(check, library_marks))
    elif check.subject == "device version" and check.status == "fail":
        yield fact("architecture-missing", "cudnn", check.evidence, _where(check), check.evidence)
        yield from _test_facts(check, [("architecture", "fail")])


def _library_test(marks: Sequence[Mark]) -> str:
    """Return the test that cuDNN's libraries fail.

    There is no cuDNN, or a library is missing, or one is of another release, so that the others do
    not find its symbols.
    """
    if marks_about(marks, "none"):
        return "cudnn-present"
    if marks_about(marks, "symbol") and not _misses_cudnn(marks):
        return "one-folder"
    return "cudnn-complete"


def _misses_cudnn(marks: Sequence[Mark]) -> bool:
    return any(name.startswith("libcudnn") for name in marks_about(marks, "missing"))


def _folder_tests(check: Check, library_marks: Sequence[Mark]) -> list[_TestResult]:
    """Return the test that cuDNN is of one folder and version, or the missing library behind it."""
    if check.status == "unknown":
        return []
    crashed = marks_about(check.marks, "crashed") and not marks_about(library_marks, "symbol")
    if check.status == "fail" and (crashed or _misses_cudnn(library_marks)):
        return [("cudnn-complete", "fail")]
    return [("one-folder", check.status)]


def _closure_facts(check: Check) -> Iterator[Fact]:
    """Yield what the check of needed libraries found missing, mixed, broken or outside."""
    if check.status == "pass":
        yield from _test_facts(check, [("libraries-resolve", "pass")])
        return
    failed: dict[str, None] = {}  # ordered, each once
    for code, name, detail in check.marks:
        if code == "missing":
            text = f"{name}, which {detail} needs, is not found"
            needed_by = detail.partition(",")[0]
            yield fact("library-missing", name, needed_by, _where(check), text)
        test = _closure_test(code, name)
        if test:
            failed[test] = None
    yield from _test_facts(check, [(test, "fail") for test in failed])


def _closure_test(code: str, library: str) -> str | None:
    """Return the test that a mark of the closure check fails."""
    if code == "missing" and library.startswith("libcudnn_"):
        return "cudnn-complete"
    if code == "outside" and library.startswith("libcudnn"):
        return "one-folder"
    tests = {
        "missing": "libraries-resolve",
        "outside": "libraries-resolve",
        "mixed": "one-cuda-major",
        "broken": "environment",
    }
    return tests.get(code)


def _device_code_facts(check: Check) -> Iterator[Fact]:
    """Yield what files without code for a device have.

    A file that its distribution may not need is no fault by itself: it explains one of the log.
    """
    name = check.subject.partition(" ")[0]
    for code, _, capabilities in check.marks[:1]:
        if code == "no-code" and capabilities:
            yield fact("architectures", name, capabilities, _where(check), check.evidence)
    if check.status == "fail":
        yield fact("architecture-missing", name, check.evidence, _where(check), check.evidence)
        yield from _test_facts(check, [("architecture", "fail")])


def _file_facts(check: Check) -> Iterator[Fact]:
    """Yield the test that fails if a library has two owners, or files differ from their records."""
    if check.status != "fail":
        return
    test = "environment"
    if check.name == "owners":
        for code, _, owners in check.marks:
            if code == "two-owners" and "nvidia-" in owners:
                test = "one-cuda-major"
    yield from _test_facts(check, [(test, "fail")])


# ---- facts of the checks on a device ------------------------------------------------------------


def _convolution_tests(check: Check) -> list[_TestResult]:
    if check.status == "pass":
        return [(test, "pass") for test in _TESTS_OF_CONVOLUTION]
    if marks_about(check.marks, "foreign"):
        return [("one-folder", "fail")]
    return [("float32-convolution", "fail")]


def _status_facts(check: Check) -> Iterator[Fact]:
    """Yield the statuses of a failed check."""
    if check.status == "fail":
        for code, library, status in check.marks:
            if code == "status":
                yield fact("status", library, status, _where(check), check.evidence)


def _context_facts(check: Check) -> Iterator[Fact]:
    """Yield the facts of the driver, from loading libcuda to a context on the device."""
    if check.status == "pass":
        yield from _test_facts(check, [(test, "pass") for test in _TESTS_OF_CONTEXT])
        return
    for code, subject, value in check.marks:
        if code == "result":
            yield from _result_facts(check, subject, int(value))
        elif code == "status":
            yield fact("status", subject, value, _where(check), check.evidence)
        elif code == "no-driver":
            yield from _test_facts(check, [("libcuda", "fail")])
        elif code == "memory":
            yield from _test_facts(check, [("free-memory", "fail")])


def _result_facts(check: Check, function: str, result: int) -> Iterator[Fact]:
    """Yield the facts of a CUresult that is not 0."""
    test = "cuinit" if function == "cuInit" else "context"
    yield from _test_facts(check, [(test, "fail")])
    if result in _FACT_OF_RESULT:
        kind, subject, value = _FACT_OF_RESULT[result]
        yield fact(kind, subject, value, _where(check), check.evidence)


# ---- probe tests --------------------------------------------------------------------------------


def test_facts(results: Iterable[tuple[str, int, str, str]]) -> tuple[Fact, ...]:
    """Return one fact per probe test, its worst result, and the test "each-device".

    Args:
        results: (test, device, status, evidence) rows.
    """
    rows: dict[str, list[tuple[int, str, str]]] = {}
    for test, device, status, evidence in results:
        rows.setdefault(test, []).append((device, status, evidence))
    facts = []
    for test, rows_of_test in rows.items():
        device, status, evidence = _worst(rows_of_test)
        text = f"GPU {device}: {evidence}"
        facts.append(fact("test", test, status, f"host: test {test}", text))
    fresh = rows.get("fresh-process", [])
    if fresh:
        passed = sum(status == "pass" for _device, status, _evidence in fresh)
        status = "pass" if passed == len(fresh) else "fail"
        text = f"{passed} of {len(fresh)} GPUs computed correctly in a fresh process"
        facts.append(fact("test", "each-device", status, "host: test each-device", text))
    return tuple(facts)


def _worst(rows: Sequence[tuple[int, str, str]]) -> tuple[int, str, str]:
    """Return the first row that failed, else the first unknown one, else the first."""
    for worst in ("fail", "unknown"):
        for row in rows:
            if row[1] == worst:
                return row
    return rows[0]
