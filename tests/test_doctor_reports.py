"""From messages in their general form, with and without the host's facts, to the first verdict."""

import re

from gpuenv.doctor import catalog
from gpuenv.doctor.catalog import areas, causes, fact_rows, messages, rules
from gpuenv.doctor.judge import diagnose
from gpuenv.doctor.log_reader import read_log
from tables import data_file, together
from test_doctor_rules import facts_of

CASES = data_file("doctor/cases.toml")["case"]
REPORTS = data_file("doctor/reports.toml")
OUTSIDE = data_file("doctor_outside.toml")
TRAINING = [
    f"2026-01-02 03:04:{step},890 epoch 5 step {step} loss 0.36776" for step in range(10, 40)
]


def of_host(case):
    return facts_of(case.get("host", ()), of_log=False)


@together(CASES)
def test_a_message_leads_to_its_cause(case):
    found = diagnose(read_log([case["log"]]), of_host(case))
    names = [verdict.cause for verdict in found.verdicts]
    assert (names[:1] or [""])[0] == case["first"], names
    assert case.get("not") not in names
    if "sure" in case:
        assert found.verdicts[0].confidence == case["sure"]
    if "lines" in case:
        assert [line.partition(":")[0] for line in found.verdicts[0].evidence] == case["lines"]
    for text in case.get("says", ()):
        assert text in "\n".join(found.verdicts[0].evidence[:2])
    if "abstained" in case:
        assert found.abstained is case["abstained"]
    for verdict in found.verdicts:
        assert verdict.evidence and verdict.fix
        assert all(line.startswith(("log line ", "host: ")) for line in verdict.evidence)


@together([case for case in CASES if case["first"]], sampled=True)
def test_a_message_leads_to_its_cause_between_other_lines(case):
    log = "\n".join([*TRAINING, case["log"], *TRAINING])
    found = diagnose(read_log([log]), of_host(case))
    names = [verdict.cause for verdict in found.verdicts]
    assert names[:1] == [case["first"]], names


@together(REPORTS["failures"])
def test_a_printed_failure_is_never_called_no_fault(log):
    found = diagnose(read_log([log]), ())
    assert found.verdicts or found.abstained


@together(REPORTS["ordinary"])
def test_a_text_without_a_failure_gets_no_verdict(log):
    found = diagnose(read_log([log]), ())
    assert (found.verdicts, found.failures) == ((), ())


@together(REPORTS["labeled"])
def test_a_report_leads_to_its_cause(report):
    found = diagnose(read_log([report["log"]]), ())
    names = [verdict.cause for verdict in found.verdicts]
    assert (names[:1] or [""])[0] == report["first"], names


def test_a_release_that_is_known_to_use_no_gpu_is_named_with_the_one_to_use():
    log = "tensorflow 2.21.0\nCannot dlopen some GPU libraries. Skipping registering GPU devices..."
    verdict = diagnose(read_log([log]), ()).verdicts[0]
    assert "Use tensorflow 2.20.0." in verdict.advice[0]


@together(OUTSIDE["case"])
def test_a_failure_outside_the_environment_gets_no_verdict(case):
    found = diagnose(read_log([case["log"]]), ())
    area = found.outside.cause if found.outside else ""
    assert area == case["area"], found
    assert [verdict.cause for verdict in found.verdicts][:1] == [
        cause for cause in [case.get("verdict")] if cause
    ]
    if found.outside:
        assert found.outside.fix and not found.next_tests


@together(OUTSIDE["ordinary"])
def test_an_ordinary_line_names_no_area(log):
    found = diagnose(read_log([log]), ())
    assert (found.verdicts, found.failures) == ((), ())


PREFIXES = ("", "\x1b[31m", "[rank7]: ", "2026-01-02T03:04:05.678Z stderr F ", '{"log":"')


@together([case for case in CASES if "\n" not in case["log"]], sampled=True)
def test_prefixes_change_no_verdict(case):
    host = of_host(case)
    plain = [verdict.cause for verdict in diagnose(read_log([case["log"]]), host).verdicts]
    for prefix in PREFIXES:
        found = diagnose(read_log([f"begin\n{prefix}{case['log']}\x1b[0m\nend"]), host)
        assert [verdict.cause for verdict in found.verdicts] == plain, prefix


def test_every_refutation_holds():
    """A cause that a test of the host rules out is no verdict, whatever the log says."""
    for cause in causes().values():
        said = facts_of([("says", cause.id, "x")], of_log=True)
        assert diagnose(said, ()).verdicts[0].cause == cause.id
        for name in cause.passes:
            passed = facts_of([("test", name, "pass")], of_log=False)
            assert cause.id not in {verdict.cause for verdict in diagnose(said, passed).verdicts}


def test_the_data_speak_the_vocabulary():
    known = causes()
    for cause in known.values():
        assert {*cause.fails, *cause.passes} <= set(catalog.tests())
        assert cause.scope in ("environment", "host", "program")
        assert cause.fix.isascii() and cause.proves
    for rule in rules():
        assert rule.cause in known and rule.confidence in ("proved", "likely", "possible")
        kinds = {kind for one in (*rule.when, *rule.unless) for kind in one.kinds}
        assert kinds <= set(fact_rows()["kinds"]), rule
    for message in messages():
        assert message.compiled() and message.needles
        stated = [fact[1] for fact in message.facts if fact[0] in ("says", "hints", "maybe")]
        assert set(stated) <= set(known), message.name
        pattern = message.compiled()
        fields = re.findall(r"\{(\d)", "".join(map("".join, message.facts)))
        assert all(int(field) <= pattern.groups for field in fields), message.name
        assert {kind for kind, _subject, _value in message.facts} <= set(fact_rows()["kinds"]), (
            message.name
        )
        named = {subject for kind, subject, _value in message.facts if kind == "outside"}
        assert named <= set(areas()), message.name


def test_the_names_of_messages_differ():
    names = [message.name for message in messages()]
    assert sorted(names) == sorted(set(names))


def test_every_pattern_is_bounded():
    """No quantifier without an end: a pattern's time is that of its window."""
    for message in messages():
        bare = re.sub(r"\[[^\]]*\]", "", re.sub(r"\\.", "", message.pattern))
        assert not set(bare) & {"*", "+"}, message.name
        assert not re.search(r"\{\d*,\}", bare), message.name
