"""The rules of the doctor, case by case: what they conclude from a few facts, and from which."""

from gpuenv.doctor import check_facts, rules
from gpuenv.doctor.facts import Case
from gpuenv.doctor.model import Fact
from gpuenv.model import Check
from tables import data_file, together

CASES = data_file("doctor_rules.toml")["case"]


def facts_of(rows, *, of_log):
    facts = []
    for number, row in enumerate(rows):
        kind, subject, value, text, line = (*row, *("", "", "", "", number)[len(row) :])
        where = f"log line {line}" if of_log else "host: a test"
        facts.append(Fact(kind=kind, subject=subject, value=value, where=where, text=text))
    return facts


@together(CASES)
def test_what_the_rules_conclude(case):
    log = facts_of(case.get("log", ()), of_log=True)
    host = facts_of(case.get("host", ()), of_log=False)
    found = {f"{finding.confidence} {finding.cause}" for finding in rules.findings(Case(log, host))}
    assert found == {" ".join(line.split()[:2]) for line in case["finds"]}


CHECKS = data_file("doctor_checks.json")


@together(CHECKS)
def test_what_checks_state(case):
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
