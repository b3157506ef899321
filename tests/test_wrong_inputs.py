"""Wrong inputs: each gives one line that says what is wrong, where, and what to type.

Nothing is written.
"""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gpuenv.cli import main
from small_wheels import make_wheel
from tables import data_file, together
from test_cli import contents, run
from test_state import PROJECT

HOST = "--gpu H100 --driver 580.65.06 --offline"
CASES, OTHERS = (data_file("wrong_inputs.toml")[key] for key in ("case", "others"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["command"])
def test_a_wrong_input_is_one_line(case: dict[str, Any], folder: Path) -> None:
    done = run(shlex.split(f"{case['command']} {HOST if case.get('host') else ''}"), folder)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("gpuenv") and "internal error" not in line
    assert [text for text in case["says"] if text not in line] == [], line
    assert contents(folder) == {}


@together(OTHERS["rows"])
def test_what_users_of_other_tools_type(row: tuple[str, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        require_one_line(row, Path(name))


@pytest.mark.parametrize("columns", ["40", "80", "120"])
def test_wrong_inputs_in_a_project(tmp_path: Path, columns: str) -> None:
    """In a folder with a space and an umlaut, in every locale and at several widths."""
    folder = tmp_path / "a \u00fcber"
    (folder / "links").mkdir(parents=True)
    make_wheel(folder / "links", "alpha", "1.0")
    (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    assert run("lock", folder).returncode == 0
    locale = {"40": "C", "80": "de_DE.ISO-8859-1", "120": "POSIX"}[columns]
    for row in OTHERS["in_project"]:
        require_one_line(row, folder, COLUMNS=columns, LC_ALL=locale)


def require_one_line(row: tuple[str, str], folder: Path, **variables: str) -> None:
    before = contents(folder)
    done = run(row[0], folder, **variables)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert row[1] in done.stderr and "internal error" not in done.stderr, done.stderr
    assert contents(folder) == before


def test_no_command_shows_the_state(tmp_path: Path) -> None:
    done = run([], tmp_path)
    assert done.returncode == 0 and "next         gpuenv install FRAMEWORK" in done.stdout


TARGET = "--platform linux-x86_64 --glibc 2.35 --python 3.12 --offline"
DRIVER = f"--driver 580.65.06 {TARGET}"
RIGHT = {
    "--gpu sm90": "torch 2.15.0 cu132 13.2",
    "--gpu SM_90": "torch 2.15.0 cu132 13.2",
    "--gpu h100,a100": "torch 2.15.0 cu132 13.2",
    "--gpu H100 --cuda 12.6": "torch 2.13.0 cu126 12.6",
    "--gpu H100 --cuda cu126": "torch 2.13.0 cu126 12.6",
    "--gpu H100 --cuda 12": "torch 2.13.0 cu126 12.6",
    "--gpu H100 --framework torch+cu126": "torch 2.13.0 cu126 12.6",
    "--gpu cpu": "torch 2.13.0 cpu",
}
REFUSED = data_file("tables/wrong_inputs.json")["refused"]


@pytest.mark.parametrize("flags", RIGHT)
def test_a_spelling_that_people_use(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    host = TARGET if "cpu" in flags else DRIVER
    assert main(["solve", "torch", *flags.split(), *host.split(), "-o", "pylock.toml"]) == 0
    assert RIGHT[flags] in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("request_flags", REFUSED)
def test_a_refusal_names_the_builds_and_what_helps(
    request_flags: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["solve", *request_flags.split(), *DRIVER.split()]) == 3
    text = " ".join(capsys.readouterr().err.split())
    assert [part for part in REFUSED[request_flags] if part not in text] == []


def test_a_driver_too_old_for_the_gpu_is_the_only_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    host = ["--gpu", "B200", "--driver", "535.104.05", *TARGET.split()]
    assert main(["solve", "--framework", "torch", "tensorflow", *host]) == 3
    first, reason, others, _, driver, *_ = capsys.readouterr().err.splitlines()
    assert first == "gpuenv: no environment for torch and tensorflow on this host"
    need = "B200 needs a driver of branch R570 or newer"
    assert reason == f"  {need}; this host has driver 535.104.05"
    assert others.startswith("  no release avoids this (--json lists ")
    assert driver.startswith("  driver 570.26 or newer: gives torch ")
    assert main(["solve", "--framework", "torch", "cupy==99", *host]) == 3
    text = capsys.readouterr().err
    assert "B200 needs a driver" in text and "needs cupy-cuda13x==99" in text


def test_a_wrong_name_is_told_before_the_host_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("solve", "explain", "install"):
        target = ["--target", "env"] if command == "install" else []
        assert main([command, "--framework", "tourch", *target]) == 2
        assert "did you mean torch?" in capsys.readouterr().err


def test_a_misspelled_package_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["solve", "numpi", "--gpu", "none", *TARGET.split()]) == 4
    assert "--offline is on; did you mean numpy? Otherwise" in capsys.readouterr().err
