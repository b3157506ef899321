"""Turns the results of the checks of `gpuenv verify` and of the probe tests into facts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from ..model import Check, Mark
from ..verify.probe_tests import Shown
from .catalog import Row, fact_rows
from .host_facts import fact
from .model import Fact

_FIELD = re.compile(r"\{(\w+)\}")
_Match = tuple[str, str, str]
_MarkForm = Sequence[str]  # regular expressions for a mark: its code, subject and value
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
    """Yield what the rows [[check]] of facts.toml say about one check, each fact once.

    Args:
        library_marks: the marks of the failed check of cuDNN's libraries, or ().
    """
    seen = set()
    for row in fact_rows()["check"]:
        matches = _matches(row, check, library_marks)
        for match in matches[: 1 if row.get("first") else None]:
            for one in _facts_of_match(row, check, match):
                if (one.kind, one.subject, one.value) not in seen:
                    seen.add((one.kind, one.subject, one.value))
                    yield one
        if matches and row.get("last"):
            return


def _matches(row: Row, check: Check, library_marks: Sequence[Mark]) -> list[_Match]:
    """Return the marks that a row is about, with the first group of each; [] if it says nothing."""
    if check.name != row["check"] or check.status not in row.get("status", "pass|fail"):
        return []
    if "subject" in row and not re.fullmatch(row["subject"], check.subject):
        return []
    lacks = (check.marks, row.get("unless", ())), (library_marks, row.get("beside_unless", ()))
    if any(_marked(marks, form) for marks, forms in lacks for form in forms):
        return []
    if not all(_marked(library_marks, form) for form in row.get("beside", ())):
        return []
    return _marked(check.marks, row["mark"]) if "mark" in row else [("", "", "")]


def _marked(marks: Iterable[Mark], form: _MarkForm) -> list[_Match]:
    """Return (subject, value, first group of the value) of the marks that have a form."""
    found = []
    for code, subject, value in marks:
        matched = re.fullmatch(form[2] or ".*", value)
        if code == form[0] and re.fullmatch(form[1] or ".*", subject) and matched:
            found.append((subject, value, "".join(matched.groups()[:1])))
    return found


def _facts_of_match(row: Row, check: Check, match: _Match) -> Iterator[Fact]:
    names = {"1": match[0], "2": match[1], "3": match[2], "status": check.status}
    names |= {"evidence": check.evidence, "name": check.subject.partition(" ")[0]}

    def filled(text: str) -> str:
        return _FIELD.sub(lambda field: names[field[1]], text)

    text = filled(row.get("text", "{evidence}"))
    for kind, subject, value in row["facts"]:
        yield fact(kind, filled(subject), filled(value), _where(check), text)


# ---- probe tests --------------------------------------------------------------------------------


def test_facts(results: Sequence[Shown]) -> tuple[Fact, ...]:
    """Return one fact per probe test, its worst result, and the test "each-device"."""
    facts = []
    for test in dict.fromkeys(result.test for result in results):
        of_test = [result for result in results if result.test == test]
        worst = min(of_test, key=lambda result: ("fail", "unknown", "pass").index(result.status))
        text = f"GPU {worst.device}: {worst.evidence}"
        facts.append(fact("test", test, worst.status, f"host: test {test}", text))
    fresh = [result.status for result in results if result.test == "fresh-process"]
    if fresh:
        passed = fresh.count("pass")
        status = "pass" if passed == len(fresh) else "fail"
        text = f"{passed} of {len(fresh)} GPUs computed correctly in a fresh process"
        facts.append(fact("test", "each-device", status, "host: test each-device", text))
    return tuple(facts)
