"""tree, why, outdated, cache, completion, settings, lock --add, solve --dry-run and scripts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import small_wheels
from gpuenv.cli import all_commands, command_parser, load_command
from index_server import IndexServer
from tables import data_file, each
from test_cli import SOLVE, command_environment, contents, run, run_process

TABLES = data_file("tables/commands.json")

CPU = ["--gpu", "none"]
PROJECT = """\
# what we run
[project]
name = "ours"   # the name
version = "1"
dependencies = [
    "alpha",  # needed
    "beta>=1",
]

[tool.gpuenv]
requirements = []
project-dependencies = true
python = "3.11"
index-url = "{url}"

[tool.gpuenv.profiles.cpu]
gpu = "none"
"""


@pytest.fixture
def index(server: IndexServer) -> IndexServer:
    server.add("alpha", "1.0", ["beta>=1", "gamma"])
    server.add("beta", "1.0", ["gamma"])
    server.add("gamma", "1.0")
    server.add("delta", "1.0")
    return server


@pytest.fixture
def locked(folder: Path, index: IndexServer) -> Path:
    done = run(["solve", "alpha", "beta", *CPU, "--index-url", index.url], folder)
    assert done.returncode == 0, done.stderr
    return folder


def run_json(args: list[str], folder: Path) -> dict[str, object]:
    done = run([*args, "--json"], folder)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


# ---- locks ---------------------------------------------------------------------------------------


def test_the_tree_of_a_lock(locked: Path) -> None:
    lines = run(["tree"], locked).stdout.splitlines()
    assert lines[:6] == [
        "alpha 1.0",
        "  beta 1.0",
        "    gamma 1.0",
        "  gamma 1.0",
        "beta 1.0 (*)",
        "(*) is shown in full above",
    ]
    assert lines[6].startswith("3 packages, ")
    assert run("tree --depth 1", locked).stdout.splitlines()[:2] == [
        "alpha 1.0",
        "beta 1.0",
    ]
    document = run_json(["tree"], locked)
    assert document["asked"] == ["alpha", "beta"]
    assert {"name": "beta", "version": "1.0", "requires": ["gamma"]} in document["packages"]


def test_why_a_package_is_in_a_lock(locked: Path) -> None:
    assert run("why Gamma", locked).stdout.splitlines() == [
        "gamma 1.0 is in the lock because of",
        "  alpha 1.0 -> gamma 1.0",
        "  beta 1.0 -> gamma 1.0",
    ]
    assert run("why alpha", locked).stdout.splitlines()[1] == "  alpha 1.0 (asked for)"
    document = run_json(["why", "gamma"], locked)
    assert document["required_by"] == ["alpha", "beta"]
    missing = run("why delta", locked)
    assert missing.returncode == 2 and "gpuenv tree" in missing.stderr
    part_of_a_name = run("why amm", locked)
    assert part_of_a_name.returncode == 2 and "did you mean gamma?" in part_of_a_name.stderr


def test_outdated_packages_of_a_lock(locked: Path, index: IndexServer) -> None:
    flags = ["outdated", "--index-url", index.url, "--refresh"]
    before = contents(locked)
    assert "a new solve gives the same 3 packages" in run(flags, locked).stdout
    index.add("beta", "2.0", ["delta"])
    lines = run(flags, locked).stdout.splitlines()
    assert lines[0] == "pylock.toml: a new solve changes 2 packages"
    assert [line.split()[:3] for line in lines[2:]] == [
        ["beta", "1.0", "2.0"],
        ["delta", "-", "1.0"],
    ]
    document = run_json(flags, locked)
    assert {"name": "delta", "locked": "-", "newest": "1.0"} in document["packages"]
    assert contents(locked) == before


def test_dry_run_and_stdout(folder: Path) -> None:
    dry = run([*SOLVE, "--dry-run"], folder)
    assert dry.stdout.startswith("solved: ") and contents(folder) == {}
    document = run([*SOLVE, "--dry-run", "--json"], folder)
    assert json.loads(document.stdout)["lock"] is None and contents(folder) == {}
    printed = run([*SOLVE, "-o", "-"], folder).stdout
    assert contents(folder) == {}
    assert run(SOLVE, folder).returncode == 0
    assert (folder / "pylock.toml").read_text() == printed


# ---- pyproject.toml ------------------------------------------------------------------------------


# `uv add` writes its index between the tables of gpuenv.
@pytest.mark.parametrize("between", ["", '[[tool.uv.index]]\nname = "own"\nurl = "{url}"\n\n'])
def test_lock_adds_and_removes_requirements(folder: Path, index: IndexServer, between: str) -> None:
    project = PROJECT.format(url=index.url)
    project = project.replace(
        "[tool.gpuenv.profiles", f"{between.format(url=index.url)}[tool.gpuenv.profiles", 1
    )
    (folder / "pyproject.toml").write_text(project)
    done = run("lock --add delta>=1 --add beta --remove alpha", folder)
    assert done.returncode == 0, done.stderr
    text = (folder / "pyproject.toml").read_text()
    expected = project.replace('    "alpha",  # needed\n', "")
    expected = expected.replace('"beta>=1",\n', '"beta",\n    "delta>=1",\n')
    assert text.replace("  # needed", "") == expected.replace("  # needed", "")
    lock = tomllib.loads((folder / "pylock.cpu.toml").read_text())
    assert [package["name"] for package in lock["packages"]] == ["beta", "delta", "gamma"]


@each("flags status says", TABLES["a_failed_change_leaves_every_file"])
def test_a_failed_change_leaves_every_file(
    folder: Path, index: IndexServer, flags: list[str], status: int, says: str
) -> None:
    (folder / "pyproject.toml").write_text(PROJECT.format(url=index.url))
    before = contents(folder)
    done = run(["lock", *flags], folder)
    assert done.returncode == status and says in done.stderr
    assert contents(folder) == before


# ---- settings ------------------------------------------------------------------------------------


def test_flags_come_from_variables_and_from_a_file(folder: Path) -> None:
    config = folder / "config.toml"
    config.write_text('driver = "580.65.06"\ngpu = ["V100"]\n[solve]\ndry-run = true\n')
    flags, host = ["solve", "torch", "--json"], {"GPUENV_CONFIG_FILE": str(config)}
    document = json.loads(run(flags, folder, **host).stdout)
    assert document["host"]["gpus"][0]["name"] == "V100" and document["lock"] is None
    document = json.loads(run(flags, folder, GPUENV_GPU="H100 A100", **host).stdout)
    assert [gpu["name"] for gpu in document["host"]["gpus"]] == ["H100", "A100"]
    document = json.loads(run([*flags, "--gpu", "T4"], folder, GPUENV_GPU="H100", **host).stdout)
    assert [gpu["name"] for gpu in document["host"]["gpus"]] == ["T4"]
    config.unlink()
    quiet = run(["solve", "torch", *CPU], folder, GPUENV_QUIET="1", GPUENV_OUTPUT="pylock.a.toml")
    assert (quiet.stdout, os.listdir(folder)) == ("", ["pylock.a.toml"])


@each("text variables says", TABLES["a_wrong_setting_is_one_line"])
def test_a_wrong_setting_is_one_line(
    folder: Path, text: str, variables: dict[str, str], says: str
) -> None:
    config = folder / "config.toml"
    config.write_text(text)
    done = run(["solve", "torch", *CPU], folder, GPUENV_CONFIG_FILE=str(config), **variables)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and len(done.stderr.splitlines()) == 1


# ---- the program ---------------------------------------------------------------------------------


def test_the_cache(locked: Path) -> None:
    folder = locked.parent / "cache"
    assert run("cache dir", locked).stdout == f"{folder}\n"
    size = run_json(["cache", "size"], locked)
    assert size["folder"] == str(folder) and size["files"]
    (folder / "mine.txt").write_text("stays")
    assert "removed" in run("cache clean", locked).stdout
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    assert run_json(["cache", "size"], locked)["files"] == 1


@pytest.mark.parametrize("name", all_commands())
def test_the_help_of_a_command(name: str) -> None:
    command = load_command(name)
    text = command_parser(name).format_help()
    assert text.startswith(f"Usage: gpuenv {name} ")
    for part in (command.HELP, command.DESCRIPTION):
        assert part[0].isupper() and len(command.HELP) <= 66
    assert command.DESCRIPTION.endswith(".") and "Examples:" in text
    for example, purpose in command.EXAMPLES:
        assert "gpuenv" in example and purpose[0].isupper()
    assert all(action.help for action in command_parser(name).shown_actions())


def test_help_and_version(folder: Path) -> None:
    everything = run(["help"], folder).stdout
    assert run(["--help"], folder).stdout == everything
    assert all(f"  {name} " in everything for name in all_commands())
    assert run("help solve", folder).stdout == run("solve --help", folder).stdout
    assert run(["-V"], folder).stdout == run(["--version"], folder).stdout
    wrong = run("help slove", folder)
    assert wrong.returncode == 2 and "did you mean solve?" in wrong.stderr


@each("words completions", TABLES["completion_in_bash"])
def test_completion_in_bash(folder: Path, words: list[str], completions: list[str]) -> None:
    (folder / "gpuenv.bash").write_text(run("completion bash", folder).stdout)
    script = (
        f"source ./gpuenv.bash; COMP_WORDS=(gpuenv {' '.join(words)}); "
        f'COMP_CWORD={len(words)}; _shtab_gpuenv; echo "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == completions


@each(
    "words status says",
    [
        ("help pip install", 0, "Usage: gpuenv pip install [OPTIONS] [REQUIREMENT ...]\n"),
        ("help matrix show", 0, "Usage: gpuenv matrix show [OPTIONS] NAME [VERSION]\n"),
        ("help cache clean", 0, "Usage: gpuenv cache [OPTIONS] dir|size|clean\n"),
        (
            "help matrix draw",
            2,
            "gpuenv: gpuenv matrix has no command draw; gpuenv matrix --help\n",
        ),
    ],
)
def test_help_of_a_command_of_a_command(folder: Path, words: str, status: int, says: str) -> None:
    done = run(words, folder)
    assert done.returncode == status and (done.stdout or done.stderr).startswith(says)


@each("words", ["solve ./{}", "solve {}", "explain ./{}", "install --target env --no-verify {}"])
def test_the_path_of_a_wheel_is_a_requirement(folder: Path, words: str) -> None:
    name = small_wheels.make_wheel(folder, "alpha", "1.0").filename
    done = run(f"{words.format(name)} --gpu none --no-index", folder)
    assert done.returncode == 0, done.stderr
    assert "possible: 1 package" in done.stdout or "alpha 1.0" in done.stdout


@each(
    "words",
    ["help", "explain torch==2.15.0 --gpu V100 --json", "solve torch==2.15.0 --gpu V100 --json"],
)
def test_nobody_reads_the_output(folder: Path, words: str) -> None:
    """`gpuenv ... | true`: the document of a failure, too."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "gpuenv", *words.split()]
    environment = command_environment(folder, {"GPUENV_OFFLINE": "1"})
    with open(writer, "wb") as stdout:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=stdout, stderr=subprocess.PIPE, check=False
        )
    assert done.stderr == b"" and done.returncode == 0


def test_a_long_refusal_is_folded(folder: Path) -> None:
    """The deciding reason and what helps stand on half a screen; -v has every reason."""
    words = "explain torch==2.8.0 torchaudio==2.11.0 --gpu H100 --driver 580.65.06 --offline"
    short, long = (run(f"{words}{more}", folder).stdout.splitlines() for more in ("", " -v"))
    assert len(short) <= 14 < len(long) and short[:3] == long[:3] and short[-1] == long[-1]
    assert any("more (-v lists all)" in line for line in short)
    assert not any("lists all" in line for line in long)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_scripts_name_every_command_and_flag(folder: Path, shell: str) -> None:
    script = run(["completion", shell], folder).stdout
    for name in all_commands():
        assert name in script
        for flag in command_parser(name).settable_flags():
            assert (f"-l {flag[2:]}" if shell == "fish" else flag) in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


# ---- scripts -------------------------------------------------------------------------------------


SCRIPT = """\
#!/usr/bin/env python
# /// script
# requires-python = ">=3.9"
# dependencies = ["alpha"]
# ///
import importlib.metadata, sys
print(importlib.metadata.version("alpha"), sys.argv[1:])
sys.exit(7)
"""


def test_a_script_gets_an_environment_that_is_kept(folder: Path, index: IndexServer) -> None:
    (folder / "script.py").write_text(SCRIPT)
    command = ["run", *CPU, "script.py", "a", "--json"]
    variables = {"PIP_INDEX_URL": index.url, "UV_INDEX_URL": index.url}
    first = run_process(command, folder, **variables)
    assert (first.returncode, first.stdout) == (7, "1.0 ['a', '--json']\n"), first.stderr
    assert "installing 3 packages" in first.stderr
    index.projects.clear()  # a second run asks no index
    second = run_process(command, folder, **variables)
    assert (second.returncode, second.stdout, second.stderr) == (7, first.stdout, "")


@each("block says", TABLES["wrong_script_metadata_is_one_line"])
def test_wrong_script_metadata_is_one_line(folder: Path, block: str, says: str) -> None:
    (folder / "script.py").write_text(f"# /// script\n# {block}\n# ///\n")
    done = run_process(["run", *CPU, "script.py"], folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_script_without_metadata_is_a_command(folder: Path) -> None:
    (folder / "plain.py").write_text("print(1)\n")
    done = run_process(["run", "--target", sys.prefix, "plain.py"], folder)
    assert done.returncode == 127 and "plain.py: not found" in done.stderr
