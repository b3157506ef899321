"""Files of another project, in the working folder of the tests, above it and at home."""

import os
import sys
from pathlib import Path

import pytest

from processes import run_program
from stray_files import plant
from tables import ROOT, each
from test_cli import contents

# Tests of commands that can take a lock, a project or an environment of their working folder.
TESTS = ("test_stray_files.py", "test_conda_answers.py")

# Command -> what it misses
MISSED = {
    "verify": "no environment is active",
    "sync --target env --gpu none": "pylock.toml: cannot be read",
    "tree": "pylock.toml: cannot be read",
    "lock --check": "pyproject.toml",
}


@each("command", [*MISSED])
def test_a_test_has_no_files_but_its_own(command, call, monkeypatch):
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "")
    assert MISSED[command] in call(*command.split(), status=2).stderr
    assert os.listdir() == [] and not (Path.home() / "pylock.toml").exists()


@pytest.mark.skipif("STRAY_FILES" in os.environ, reason="these tests run among stray files")
def test_stray_files_change_no_result_and_no_test_changes_them(tmp_path):
    working, home = tmp_path / "above" / "clone", tmp_path / "home"
    for folder in (working.parent, working, home):
        folder.mkdir()
        plant(folder)
    before = contents(tmp_path)
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-c", str(ROOT / "pyproject.toml"), *(str(ROOT / "tests" / one) for one in TESTS)]
    run_program(command, cwd=working, env={**variables, "HOME": str(home), "STRAY_FILES": "1"})
    assert contents(tmp_path) == before
