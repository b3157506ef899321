"""The regression corpus: a sample of its requests gives the recorded results.

`python scripts/tools.py prove corpus replay` runs all of it. The sample is, of each kind of case,
the first one and every thirty-second one after it (`corpus.chosen`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from processes import run_program
from script_modules import load_script, tool
from tables import data_file, each

TABLES = data_file("tables/corpus.json")

REASON = {"code": "driver-floor", "need": "driver 580.65.06 or newer", "have": "driver 550.54.14"}


corpus = load_script("prove.corpus")


def replay(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = tool("prove", "corpus", "replay", *arguments)
    return run_program(command, timeout=300)


def result(**changes: Any) -> dict[str, Any]:
    document = {"possible": False, "reasons": [REASON]}
    return {"status": 3, "json": document, "stderr": [], "files": {}, **changes}


def differences(new: dict[str, Any], recorded: dict[str, Any] | None = None) -> list[Any]:
    versions = {"1": "2.15.0", "2": "2.14.1"}
    texts = {key: f'name = "torch"\nversion = "{value}"\n' for key, value in versions.items()}
    found: list[Any] = corpus.compare(recorded or result(), new, texts, exact=False)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="the described hosts have facts of Linux")
def test_a_sample_gives_the_recorded_results() -> None:
    done = replay("--sample")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_case_has_a_result_and_each_kind_is_in_the_sample() -> None:
    whole = corpus.Corpus()
    whole.load()
    assert [case["name"] for case in whole.cases] == list(whole.results)
    assert len(whole.cases) >= 300
    sample = corpus.chosen(whole.cases, None, sampled=True)
    kinds = {corpus.kind_of(case["name"]) for case in whole.cases}
    assert {corpus.kind_of(case["name"]) for case in sample} == kinds
    digests = {digest for one in whole.results.values() for digest in one["files"].values()}
    assert digests == set(whole.texts)


@pytest.mark.skipif(sys.platform != "linux", reason="the described hosts have facts of Linux")
def test_a_changed_result_fails_unless_it_is_intended(tmp_path: Path) -> None:
    (tmp_path / "cases.toml").write_text('[[case]]\nname = "one"\nrun = "matrix list --json"\n')
    folder = ["--corpus", str(tmp_path)]
    done = subprocess.run(tool("prove", "corpus", "record", *folder), check=False)
    assert done.returncode == 0
    assert replay(*folder).returncode == 0
    recorded = json.loads((tmp_path / "results.jsonl").read_text())
    recorded["json"]["frameworks"][0]["name"] = "changed"
    (tmp_path / "results.jsonl").write_text(json.dumps(recorded) + "\n")
    done = replay(*folder)
    assert done.returncode == 1
    assert "DIFFERENT: one json/frameworks/0/name" in done.stdout
    intended = tmp_path / "intended.toml"
    intended.write_text('[[intended]]\nfield = "json/frameworks/0/name"\nwhy = "It is a test."\n')
    done = replay(*folder)
    assert done.returncode == 0
    assert "intended: one json/frameworks/0/name: It is a test." in done.stdout
    with intended.open("a") as file:
        file.write('[[intended]]\ncase = "two"\nwhy = "No case has this name."\n')
    done = replay(*folder)
    assert done.returncode == 1
    assert "UNUSED" in done.stdout


@pytest.mark.parametrize(
    ("new", "field"),
    [
        (result(status=0), "status"),
        (result(json={"possible": True, "reasons": [REASON]}), "json/possible"),
        (result(json={"possible": False, "reasons": []}), "json/reasons"),
        (result(json={"reasons": [REASON]}), "json/possible"),
        (
            result(json={"possible": False, "reasons": [{**REASON, "code": "x"}]}),
            "json/reasons/0/code",
        ),
        (
            result(json={"possible": False, "reasons": [{**REASON, "have": "driver 535.54.03"}]}),
            "json/reasons/0/have",
        ),
        (result(stderr=["gpuenv: sm_90 is unknown"]), "stderr"),
        (result(files={"pylock.toml": "1"}), "files/pylock.toml"),
    ],
)
def test_a_changed_fact_is_a_difference(new: dict[str, Any], field: str) -> None:
    found = differences(new)
    assert [(one.field, one.wording) for one in found] == [(field, False)]


def test_other_words_with_the_same_facts_are_wording() -> None:
    reason = {**REASON, "need": "at least driver 580.65.06"}
    found = differences(result(json={"possible": False, "reasons": [reason]}))
    assert [(one.field, one.wording) for one in found] == [("json/reasons/0/need", True)]


def test_a_changed_file_is_told_by_the_keys_of_its_lines() -> None:
    recorded = result(files={"pylock.toml": "1"})
    found = differences(result(files={"pylock.toml": "2"}), recorded)
    assert [one.field for one in found] == ["files/pylock.toml/version"]
    assert (found[0].recorded, found[0].new) == ('version = "2.15.0"', 'version = "2.14.1"')


@each("text facts", TABLES["facts_of_a_text"])
def test_facts_of_a_text(text: str, facts: list[str]) -> None:
    assert corpus.facts(text) == Counter(facts)
