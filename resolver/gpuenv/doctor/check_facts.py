"""Turns the results of the checks of `gpuenv verify` and of the probe tests into facts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from ..model import Check, Mark
from ..verify.probe_tests import Shown
from .catalog import fact_rows
from .host_facts import fact
from .model import Fact

_Match = tuple[str, str, str]
# Tests that also fail if a variable or another package replaces the environment's libraries.
_CONSEQUENCES = (
    "one-folder", "cudnn-complete", "cudnn-present", "libraries-resolve", "environment",
)  # fmt: skip


def check_facts(checks: Sequence[Check]) -> tuple[Fact, ...]:
    """Return the facts of the checks.

    A failure that follows from another is reported as that other one: a variable that leads to
    another cuDNN, or packages that overwrite each other's libraries, make later checks fail.
    """
    root_test = _root_test(checks)
    libraries = ("cudnn", "libraries", "fail")  # the failed check that opened cuDNN's libraries
    library_marks = [
        mark
        for check in checks
        if (check.name, check.subject, check.status) == libraries
        for mark in check.marks
    ]
    facts: list[Fact] = []
    # The checks that explain others come first.
    for check in sorted(checks, key=lambda check: check.name not in ("loader", "owners")):
        for observed in _facts_of_check(check, library_marks):
            is_failure = (observed.kind, observed.value) == ("test", "fail")
            follows = root_test and is_failure and observed.subject in _CONSEQUENCES
            facts.append(observed.replace(subject=root_test) if follows else observed)
    runs = [check.status for check in checks if check.name == "cudnn convolution"]
    devices = [
        check for check in checks if check.name == "device" and check.subject.startswith("GPU")
    ]
    if runs and len(runs) == len(devices):
        text = f"the convolution was correct on {runs.count('pass')} of {len(runs)} GPUs"
        facts.append(_each_device(runs, "host: check cudnn convolution", text))
    names = (("owners", ""), ("files", ""), ("closure", ""))  # changed data files say nothing
    file_checks = [check for check in checks if (check.name, check.subject) in names]
    if file_checks and all(check.status == "pass" for check in file_checks):
        text = "no library has two owners, and the files of NVIDIA match their records"
        where = "host: checks owners, files and closure"
        facts.append(fact("test", "one-cuda-major", "pass", where, text))
    return tuple(facts)


# ---- failures that follow from others -----------------------------------------------------------


def _root_test(checks: Sequence[Check]) -> str | None:
    """Return the test whose failure makes others fail, or None."""
    for check in checks:
        if (check.name, check.subject, check.status) == ("loader", "variables", "fail"):
            return "loader-path"
    marks = [mark for check in checks if check.name in ("owners", "files") for mark in check.marks]
    for code, path, owners in marks:
        # A library, or a file of two NVIDIA packages.
        is_library = ".so" in os.path.basename(path) or owners.count("nvidia-") > 1
        if code == "two-owners" and is_library:
            return "one-cuda-major" if "nvidia-" in owners else "environment"
    if any(code in ("no-record", "twice") for code, _, _ in marks):
        # Without its list of files, other checks find no file of a distribution.
        return "environment"
    return None


# ---- facts of one check -------------------------------------------------------------------------


def _facts_of_check(check: Check, library_marks: Sequence[Mark]) -> list[Fact]:
    """Return what the rows [[check]] of facts.toml say about one check, each fact once.

    Args:
        library_marks: the marks of the failed check of cuDNN's libraries, or ().
    """
    facts: dict[tuple[str, str, str], Fact] = {}
    where = f"host: check {check.name} {check.subject}".rstrip()
    name = check.subject.partition(" ")[0]
    fields = {"status": check.status, "evidence": check.evidence, "name": name}
    for row in fact_rows()["check"]:
        is_about = check.name == row["check"] and check.status in row.get("status", "pass|fail")
        if not is_about or not re.fullmatch(row.get("subject", ".*"), check.subject):
            continue
        lacks = (check.marks, row.get("unless", ())), (library_marks, row.get("beside_unless", ()))
        if any(_marked(marks, form) for marks, forms in lacks for form in forms):
            continue
        if not all(_marked(library_marks, form) for form in row.get("beside", ())):
            continue
        # Each mark that the row is about, with the first group of its value.
        matches = _marked(check.marks, row["mark"]) if "mark" in row else [("", "", "")]
        for match in matches[: 1 if row.get("first") else None]:
            text = row.get("text", "{evidence}").format("", *match, **fields)
            for kind, *templates in row["facts"]:
                subject, value = (template.format("", *match, **fields) for template in templates)
                observed = fact(kind, subject, value, where, text)
                facts.setdefault((kind, subject, value), observed)
        if matches and row.get("last"):
            break
    return list(facts.values())


def _marked(marks: Iterable[Mark], form: Sequence[str]) -> list[_Match]:
    """Return (subject, value, first group of the value) of the marks that have a form.

    A form has regular expressions for the code, the subject and the value of a mark.
    """
    found = []
    for code, subject, value in marks:
        matched = re.fullmatch(form[2] or ".*", value)
        if code == form[0] and re.fullmatch(form[1] or ".*", subject) and matched:
            found.append((subject, value, "".join(matched.groups()[:1])))
    return found


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
        text = f"{fresh.count('pass')} of {len(fresh)} GPUs computed correctly in a fresh process"
        facts.append(_each_device(fresh, "host: test each-device", text))
    return tuple(facts)


def _each_device(results: Sequence[str], where: str, text: str) -> Fact:
    """Return the test "each-device", which passes if the results of all GPUs are passes."""
    status = "pass" if set(results) == {"pass"} else "fail"
    return fact("test", "each-device", status, where, text)
