"""`gpuenv verify --format`: what monitoring tools read, and the exit status that each expects."""

import json
import sys
import venv

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from gpuenv.model import Check, Gpu, Host, Python
from gpuenv.render.checks import FORMATS, NPD_CHARACTERS, Outcome
from processes import run_program
from tables import data_file, each

HOST = Host(
    python=Python(version=(3, 12)),
    gpus=(Gpu(name="NVIDIA H100", compute_capability=(9, 0)),),
    driver="580.65.06",
)


def check(name, subject="", status="pass", evidence="fine"):
    return Check(name=name, subject=subject, status=status, evidence=evidence, seconds=0.25)


GOOD = (
    check("files"),
    check("device", "GPU 0 NVIDIA H100"),
    check("cudnn convolution", "GPU 0 NVIDIA H100"),
)
MIXED = check(
    "cudnn", "libraries", "fail", 'cuDNN "9.10" | 9.12\nare mixed \\ \x1b[31m' + "x" * 200
)
DOUBT = check("rules", "torch", "unknown", "its code is not known")
BUSY = check("device", "GPU 0 NVIDIA H100", "unknown", "no memory is free")


def outcome(*checks):
    return Outcome(checks=checks, host=HOST, seconds=3.5)


OUTCOMES = {
    "verified": outcome(*GOOD),
    "a doubt": outcome(*GOOD, DOUBT),
    "a failure": outcome(*GOOD, DOUBT, MIXED),
    "a busy device": outcome(check("files"), BUSY),
    "no check": outcome(),
    "time limit": Outcome(problem="time limit: no result in 60 s; it was at: the checks"),
    "bad input": Outcome(problem="/x: does not exist", error_status=2),
}
# The severity of each outcome, and the exit status of each format.
EXPECTED = data_file("tables/formats.json")["expected"]
NODE_VERDICT = Draft202012Validator(data_file("node_verdict.schema.json"))


@each("name", [*OUTCOMES])
def test_the_exit_status_of_each_format(name):
    assert {form: make(OUTCOMES[name]).status for form, make in FORMATS.items()} == EXPECTED[name][
        1
    ]


@each("name", [name for name in OUTCOMES if name != "bad input"])
def test_the_node_verdict_is_valid_by_its_schema(name):
    document = json.loads(FORMATS["node-verdict"](OUTCOMES[name]).text)
    NODE_VERDICT.validate(document)
    assert document["overall_severity"] == EXPECTED[name][0]
    assert bool(document["affected_components"]) == any(
        verdict["severity"] != "PASS" for verdict in document["check_verdicts"]
    )


def test_no_verdict_is_no_document():
    report = FORMATS["node-verdict"](OUTCOMES["bad input"])
    assert (report.text, report.status) == ("gpuenv: /x: does not exist", 2)
    assert report.is_error  # stdout has nothing


@each("name", [name for name in OUTCOMES if name != "bad input"])
def test_both_parsers_of_prometheus_read_the_metrics(name):
    text = FORMATS["openmetrics"](OUTCOMES[name]).text + "\n"
    for parse in (
        openmetrics_parser.text_string_to_metric_families,
        text_string_to_metric_families,
    ):
        families = {family.name: family for family in parse(text)}
        [success] = families["gpuenv_verify_success"].samples
        assert success.value == float(EXPECTED[name][0] in ("PASS", "WARNING"))
        checks = OUTCOMES[name].checks
        if checks:
            states = families["gpuenv_verify_check_status"].samples
            assert len(states) == 3 * len(checks)
            assert {sample.labels["check"] for sample in states} == {one.name for one in checks}
            assert sum(sample.value for sample in states) == len(checks)
    assert all(family.documentation for family in families.values())


text = st.text(max_size=40)
any_check = st.builds(
    check, text, text, st.sampled_from(["pass", "fail", "unknown"]), st.text(max_size=200)
)


@settings(max_examples=40, deadline=None)
@given(st.lists(any_check, max_size=5))
def test_any_text_is_one_valid_report(checks):
    reports = {form: make(outcome(*checks)) for form, make in FORMATS.items()}
    assert (
        len(
            list(
                openmetrics_parser.text_string_to_metric_families(
                    reports["openmetrics"].text + "\n"
                )
            )
        )
        == 5
    )
    NODE_VERDICT.validate(json.loads(reports["node-verdict"].text))
    plugin = reports["nagios"].text
    assert "\n" not in plugin
    assert plugin.count("|") == 1
    assert len(reports["npd"].text) <= NPD_CHARACTERS
    assert reports["npd"].text.isascii()
    assert "\n" not in reports["npd"].text


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("formats")
    venv.create(folder / "env", symlinks=True)

    def gpuenv(flags, status=0):
        command = f"{sys.executable} -m gpuenv verify --no-device {flags}"
        return run_program(command, cwd=folder, timeout=60, status=status)

    return gpuenv


@each("form", ["json", *FORMATS])
def test_the_command(run, form):
    done = run(f"--format {form} --target env")
    assert done.stderr == ""
    starts = {"openmetrics": "# HELP", "nagios": "GPUENV OK - ", "npd": ""}
    assert done.stdout.startswith(starts.get(form, "{"))
    assert done.stdout.endswith("\n")
    if form == "node-verdict":
        NODE_VERDICT.validate(done.document)


@each("form", [*FORMATS])
def test_bad_input_of_the_command(run, form):
    done = run(f"--format {form} --target nowhere", status=EXPECTED["bad input"][1][form])
    assert "nowhere: does not exist" in (done.stdout if form in ("nagios", "npd") else done.stderr)


def test_formats_exclude_other_forms(run):
    for flag in ("--hook", "--json"):
        done = run(f"--format nagios {flag} --target env", status=2)
        assert f"--format nagios: leave {flag} out" in done.stderr
