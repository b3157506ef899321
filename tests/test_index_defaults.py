"""The default index: what pip and uv are configured with."""

import json
import os
import re
import sys

import pytest

from gpuenv.errors import InputError
from gpuenv.index.default_index import DefaultIndex, builtin_index, default_index, pip_files
from processes import run_program
from small_wheels import write_files
from tables import data_file, each

CASES = data_file("default_index.json")
BUILTIN, STORE = builtin_index()


@pytest.fixture(autouse=True)
def _settings(monkeypatch, tmp_path):
    """A machine with no settings but those of the test."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "system"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr("gpuenv.index.default_index._SYSTEM", str(tmp_path / "etc"))


def fill(value, folder):
    """The value with {tmp} in its texts replaced."""
    return json.loads(json.dumps(value).replace("{tmp}", str(folder)))


@each("case", CASES, ids=lambda case: case["case"])
def test_settings_are_found_where_pip_and_uv_find_them(case, tmp_path, monkeypatch):
    case = fill(case, tmp_path)
    write_files(tmp_path, case.get("files", {}))
    for name, value in case.get("env", {}).items():
        monkeypatch.setenv(name, value)
    if "error" in case:
        with pytest.raises(InputError) as caught:
            default_index()
        assert str(caught.value).startswith(case["error"])
        assert "\n" not in str(caught.value)
        return
    assert default_index() == DefaultIndex(
        url=case.get("url", BUILTIN),
        file_store=STORE,
        builtin="url" not in case,
        cert=case.get("cert"),
    )


def test_the_default_named_in_a_setting_is_still_the_default(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", BUILTIN + "/")
    found = default_index()
    assert (found.url, found.builtin) == (BUILTIN, True)


def test_the_built_in_index_is_that_of_pip():
    """pip prints it in its help, without any setting."""
    environ = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "COLUMNS": "500"}
    command = [sys.executable, "-m", "pip", "install", "--help"]
    done = run_program(command, env=environ)
    assert f"(default {BUILTIN})" in done.text


def test_the_files_are_those_of_pip(monkeypatch):
    monkeypatch.undo()
    command = [sys.executable, "-m", "pip", "config", "debug"]
    done = run_program(command)
    paths = re.findall(r"^  (.+), exists: ", done.stdout, re.MULTILINE)
    assert sorted(paths) == sorted(pip_files())
