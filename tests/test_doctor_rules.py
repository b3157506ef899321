"""The rules of the doctor, case by case: what they conclude from a few facts, and from which."""

from collections.abc import Sequence
from typing import Any

from gpuenv.doctor import case_versions, check_facts, rules
from gpuenv.doctor.facts import Case
from gpuenv.doctor.model import Fact
from gpuenv.model import Check
from tables import data_file, each, together

TABLES = data_file("tables/doctor_rules.json")

CASES: list[dict[str, Any]] = data_file("doctor_rules.toml")["case"]


def facts_of(rows: Sequence[Sequence[Any]], *, of_log: bool) -> list[Fact]:
    facts = []
    for number, row in enumerate(rows):
        kind, subject, value, text, line = (*row, *("", "", "", "", number)[len(row) :])
        where = f"log line {line}" if of_log else "host: a test"
        facts.append(Fact(kind=kind, subject=subject, value=value, where=where, text=text))
    return facts


@together(CASES)
def test_what_the_rules_conclude(case: dict[str, Any]) -> None:
    log = facts_of(case.get("log", ()), of_log=True)
    host = facts_of(case.get("host", ()), of_log=False)
    found = {f"{finding.confidence} {finding.cause}" for finding in rules.findings(Case(log, host))}
    assert found == {" ".join(line.split()[:2]) for line in case["finds"]}


def test_a_conflict_is_told_in_sentences() -> None:
    rows = [
        ("hints", "install_resolution_failure", "x"),
        ("requirement", "you", "torch==2.0.0"),
        ("requirement", "b 1.0", "torch==2.1"),
    ]
    (finding,) = rules.findings(Case(facts_of(rows, of_log=True), ()))
    texts = [fact.text for fact in finding.facts]
    assert texts == ["you require torch==2.0.0", "b 1.0 requires torch==2.1"]


@each("driver cuda older older_than_ptx", TABLES["older_drivers"])
def test_a_driver_runs_later_minor_versions_since_cuda_11(
    driver: list[int], cuda: list[int], older: bool, older_than_ptx: bool
) -> None:
    """The CUDA of the driver, and another CUDA: is it too old for its builds?"""
    assert not driver or case_versions.is_driver_older(tuple(driver), tuple(cuda)) is older


CHECKS = data_file("doctor_checks.json")


@together(CHECKS)
def test_what_checks_state(case: dict[str, Any]) -> None:
    """Each check is [name, subject, status] and its marks; each fact is [kind, subject, value]."""
    checks = [
        Check(
            name=name,
            subject=subject,
            status=status,
            evidence="seen",
            marks=tuple(map(tuple, marks[0] if marks else ())),
        )
        for name, subject, status, *marks in case["checks"]
    ]
    facts = check_facts.check_facts(checks)
    assert [[fact.kind, fact.subject, fact.value] for fact in facts] == case["facts"]
    assert all(fact.where.startswith("host: check") and fact.text for fact in facts)


@each("second answer", TABLES["every_device_must_pass_the_convolution"])
def test_every_device_must_pass_the_convolution(second: str | None, answer: str | None) -> None:
    status = {"device": ("pass", "pass"), "cudnn convolution": ("pass", second)}
    checks = [
        Check(name=name, subject=f"GPU {number}", status=one, evidence="seen")
        for name, both in status.items()
        for number, one in enumerate(both)
        if one
    ]
    tests = {fact.subject: fact.value for fact in check_facts.check_facts(checks)}
    assert tests.get("each-device") == answer
