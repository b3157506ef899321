"""Wrong inputs: each gives one line that says what is wrong, where, and what to type.

Nothing is written.
"""

import shlex
import tempfile
from pathlib import Path

from small_wheels import make_wheel
from tables import data_file, each, together
from test_cli import contents, run
from test_state import PROJECT

HOST = "--gpu H100 --driver 580.65.06 --offline"
CASES, OTHERS = (data_file("wrong_inputs.toml")[key] for key in ("case", "others"))


@each("case", CASES, ids=lambda case: case["command"])
def test_a_wrong_input_is_one_line(case, folder):
    done = run(
        shlex.split(f"{case['command']} {HOST if case.get('host') else ''}"), folder, status=2
    )
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("gpuenv") and "internal error" not in line
    assert [text for text in case["says"] if text not in line] == [], line
    assert contents(folder) == {}


@together(OTHERS["rows"])
def test_what_users_of_other_tools_type(row):
    with tempfile.TemporaryDirectory() as name:
        require_one_line(row, Path(name))


@each("columns", ["40", "80", "120"])
def test_wrong_inputs_in_a_project(tmp_path, columns):
    """In a folder with a space and an umlaut, in every locale and at several widths."""
    folder = tmp_path / "a \u00fcber"
    (folder / "links").mkdir(parents=True)
    make_wheel(folder / "links", "alpha", "1.0")
    (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    run("lock", folder)
    locale = {"40": "C", "80": "de_DE.ISO-8859-1", "120": "POSIX"}[columns]
    for row in OTHERS["in_project"]:
        require_one_line(row, folder, COLUMNS=columns, LC_ALL=locale)


def require_one_line(row, folder, **variables):
    before = contents(folder)
    done = run(row[0], folder, **variables, status=2)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert row[1] in done.stderr and "internal error" not in done.stderr, done.stderr
    assert contents(folder) == before


def test_no_command_shows_the_state(tmp_path):
    assert "next         gpuenv install FRAMEWORK" in run("", tmp_path).stdout


TARGET = "--platform linux-x86_64 --glibc 2.35 --python 3.12 --offline"
DRIVER = f"--driver 580.65.06 {TARGET}"
RIGHT = data_file("tables/wrong_inputs.json")["right"]
REFUSED = data_file("tables/wrong_inputs.json")["refused"]


@each("flags", [*RIGHT])
def test_a_spelling_that_people_use(flags, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    host = TARGET if "cpu" in flags else DRIVER
    done = call("solve torch", *flags.split(), *host.split(), "-o", "pylock.toml")
    assert RIGHT[flags] in done.text


@each("request_flags", [*REFUSED])
def test_a_refusal_names_the_builds_and_what_helps(request_flags, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    done = call("solve", *request_flags.split(), *DRIVER.split(), status=3)
    text = done.text
    assert [part for part in REFUSED[request_flags] if part not in text] == []


def test_a_driver_too_old_for_the_gpu_is_the_only_reason(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    host = ["--gpu", "B200", "--driver", "535.104.05", *TARGET.split()]
    done = call("solve --framework torch tensorflow", *host, status=3)
    first, reason, others, _, driver, *_ = done.stderr.splitlines()
    assert first == "gpuenv: no environment for torch and tensorflow on this host"
    need = "B200 needs a driver of branch R570 or newer"
    assert reason == f"  {need}; this host has driver 535.104.05"
    assert others.startswith("  no release avoids this (--json lists ")
    assert driver.startswith("  driver 570.26 or newer: gives torch ")
    text = call("solve --framework torch cupy==99", *host, status=3).stderr
    assert "B200 needs a driver" in text and "needs cupy-cuda13x==99" in text


def test_a_wrong_name_is_told_before_the_host_is_needed(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    for command in ("solve", "explain", "install"):
        target = ["--target", "env"] if command == "install" else []
        done = call(f"{command} --framework tourch", *target, status=2)
        assert "did you mean torch?" in done.stderr


def test_a_misspelled_package_without_a_network(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    done = call("solve numpi --gpu none", *TARGET.split(), status=4)
    assert "--offline is on; did you mean numpy? Otherwise" in done.stderr
