"""The regression corpus: a sample of its requests gives the recorded results.

`python scripts/tools.py prove corpus replay` runs all of it. The sample is, of each kind of case,
the first one and every thirty-second one after it (`Corpus.chosen`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import run_program
from script_modules import load_script, tool

corpus = load_script("prove.corpus")


def replay(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = tool("prove", "corpus", "replay", *arguments)
    return run_program(command, timeout=300)


@pytest.mark.skipif(sys.platform != "linux", reason="the described hosts have facts of Linux")
def test_a_sample_gives_the_recorded_results() -> None:
    done = replay("--sample")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_case_has_a_result_and_each_kind_is_in_the_sample() -> None:
    whole = corpus.Corpus()
    whole.load()
    assert [case["name"] for case in whole.cases] == list(whole.results)
    assert len(whole.cases) >= 300
    kinds = [
        {case["name"].partition("/")[0] for case in cases}
        for cases in (whole.cases, whole.chosen(sampled=True))
    ]
    assert kinds[0] == kinds[1]
    digests = {digest for one in whole.results.values() for digest in one["files"].values()}
    assert digests == set(whole.texts)


@pytest.mark.skipif(sys.platform != "linux", reason="the described hosts have facts of Linux")
def test_a_changed_result_fails(tmp_path: Path) -> None:
    (tmp_path / "cases.toml").write_text('[[case]]\nname = "one"\nrun = "matrix list --json"\n')
    folder = ["--corpus", str(tmp_path)]
    assert subprocess.run(tool("prove", "corpus", "record", *folder), check=False).returncode == 0
    assert replay(*folder).returncode == 0
    recorded = json.loads((tmp_path / "results.jsonl").read_text())
    recorded["json"]["frameworks"][0]["name"] = "changed"
    (tmp_path / "results.jsonl").write_text(json.dumps(recorded) + "\n")
    done = replay(*folder)
    assert done.returncode == 1
    assert "DIFFERENT: one stdout" in done.stdout
    assert '"name": "changed"' in done.stdout


RESULT: dict[str, Any] = {"status": 3, "json": {"a": 1}, "stderr": [], "files": {}}


@pytest.mark.parametrize(
    ("change", "part", "lines"),
    [
        ({"status": 0}, "status", ["'-3'", "'+0'"]),
        ({"json": {"a": 2}}, "stdout", ["'- \"a\": 1\\n'", "'+ \"a\": 2\\n'"]),
        ({"stderr": ["x"]}, "stderr", ["'+x'"]),
        ({"files": {"f": "1"}}, "files/f", ["'-<not written>'", "'+a\\n'"]),
    ],
)
def test_what_differs(change: dict[str, Any], part: str, lines: list[str]) -> None:
    found = corpus.differences(RESULT, RESULT | change, {"1": "a\n"})
    assert found == [(part, lines)]
