"""The regression corpus: a sample of its requests gives the recorded results.

`python scripts/tools.py prove corpus replay` runs all of it. The sample is, of each kind of case,
the first one and every thirty-second one after it (`Corpus.chosen`).
"""

import json

from processes import run_program
from script_modules import load_script, tool
from tables import on_linux

corpus = load_script("prove.corpus")


def replay(*arguments, status=0):
    command = tool("prove", "corpus", "replay", *arguments)
    return run_program(command, timeout=300, status=status)


@on_linux
def test_a_sample_gives_the_recorded_results():
    replay("--sample")


def test_each_case_has_a_result_and_each_kind_is_in_the_sample():
    whole = corpus.Corpus()
    whole.load()
    assert [case["name"] for case in whole.cases] == list(whole.results)
    assert len(whole.cases) >= 300
    kinds = [
        {case["name"].partition("/")[0] for case in cases}
        for cases in (whole.cases, whole.chosen(sampled=True))
    ]
    assert kinds[0] == kinds[1]


@on_linux
def test_a_changed_result_fails(tmp_path):
    (tmp_path / "cases.toml").write_text('[[case]]\nname = "one"\nrun = "matrix list --json"\n')
    folder = ["--corpus", str(tmp_path)]
    run_program(tool("prove", "corpus", "record", *folder))
    replay(*folder)
    recorded = json.loads((tmp_path / "results.jsonl").read_text())
    recorded["json"]["frameworks"][0]["name"] = "changed"
    recorded["status"], recorded["stderr"] = 7, ["a line"]
    (tmp_path / "results.jsonl").write_text(json.dumps(recorded) + "\n")
    lines = replay(*folder, status=1).stdout.splitlines()
    parts = [line for line in lines if line.startswith("DIFFERENT")]
    assert parts == [f"DIFFERENT: one {part}" for part in ("status", "stderr", "stdout")]
    assert any('"name": "changed"' in line for line in lines)
