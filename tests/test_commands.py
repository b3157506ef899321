"""tree, why, outdated, cache, completion, settings, lock --add, solve --dry-run and scripts."""

import os
import shutil
import subprocess
import sys

import pytest

import small_wheels
from gpuenv.cli import all_commands, command_parser
from processes import run_program
from tables import data_file, each, read_data
from test_cli import SOLVE, command_environment, contents, run, run_process

TABLES = data_file("tables/commands.json")

CPU = "--gpu none"
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
def index(server):
    server.add("alpha", "1.0", ["beta>=1", "gamma"])
    server.add("beta", "1.0", ["gamma"])
    server.add("gamma", "1.0")
    server.add("delta", "1.0")
    return server


@pytest.fixture
def locked(folder, index):
    run(f"solve alpha beta {CPU} --index-url {index.url}", folder)
    return folder


# ---- locks ---------------------------------------------------------------------------------------


def test_the_tree_of_a_lock(locked):
    lines = run("tree", locked).stdout.splitlines()
    assert lines[:6] == [
        "alpha 1.0",
        "  beta 1.0",
        "    gamma 1.0",
        "  gamma 1.0",
        "beta 1.0 (*)",
        "(*) is shown in full above",
    ]
    assert lines[6].startswith("3 packages, ")
    assert run("tree --depth 1", locked).stdout.splitlines()[:2] == ["alpha 1.0", "beta 1.0"]
    document = run("tree --json", locked).document
    assert document["asked"] == ["alpha", "beta"]
    assert {"name": "beta", "version": "1.0", "requires": ["gamma"]} in document["packages"]


def test_why_a_package_is_in_a_lock(locked):
    assert run("why Gamma", locked).stdout.splitlines() == [
        "gamma 1.0 is in the lock because of",
        "  alpha 1.0 -> gamma 1.0",
        "  beta 1.0 -> gamma 1.0",
    ]
    assert run("why alpha", locked).stdout.splitlines()[1] == "  alpha 1.0 (asked for)"
    document = run("why gamma --json", locked).document
    assert document["required_by"] == ["alpha", "beta"]
    assert "gpuenv tree" in run("why delta", locked, status=2).stderr
    assert "did you mean gamma?" in run("why amm", locked, status=2).stderr


def test_outdated_packages_of_a_lock(locked, index):
    outdated = f"outdated --index-url {index.url} --refresh"
    before = contents(locked)
    assert "a new solve gives the same 3 packages" in run(outdated, locked).stdout
    index.add("beta", "2.0", ["delta"])
    lines = run(outdated, locked).stdout.splitlines()
    assert lines[0] == "pylock.toml: a new solve changes 2 packages"
    assert [line.split()[:3] for line in lines[2:]] == [
        ["beta", "1.0", "2.0"],
        ["delta", "-", "1.0"],
    ]
    document = run(f"{outdated} --json", locked).document
    assert {"name": "delta", "locked": "-", "newest": "1.0"} in document["packages"]
    assert contents(locked) == before


def test_dry_run_and_stdout(folder):
    dry = run(f"{SOLVE} --dry-run", folder)
    assert dry.stdout.startswith("solved: ") and contents(folder) == {}
    document = run(f"{SOLVE} --dry-run --json", folder)
    assert document.document["lock"] is None and contents(folder) == {}
    printed = run(f"{SOLVE} -o -", folder).stdout
    assert contents(folder) == {}
    run(SOLVE, folder)
    assert (folder / "pylock.toml").read_text() == printed


# ---- pyproject.toml ------------------------------------------------------------------------------


# `uv add` writes its index between the tables of gpuenv.
@each("between", ["", '[[tool.uv.index]]\nname = "own"\nurl = "{url}"\n\n'])
def test_lock_adds_and_removes_requirements(folder, index, between):
    project = PROJECT.format(url=index.url)
    project = project.replace(
        "[tool.gpuenv.profiles", f"{between.format(url=index.url)}[tool.gpuenv.profiles", 1
    )
    (folder / "pyproject.toml").write_text(project)
    run("lock --add delta>=1 --add beta --remove alpha", folder)
    text = (folder / "pyproject.toml").read_text()
    expected = project.replace('    "alpha",  # needed\n', "")
    expected = expected.replace('"beta>=1",\n', '"beta",\n    "delta>=1",\n')
    assert text.replace("  # needed", "") == expected.replace("  # needed", "")
    lock = read_data(folder / "pylock.cpu.toml")
    assert [package["name"] for package in lock["packages"]] == ["beta", "delta", "gamma"]


@each("flags status says", TABLES["a_failed_change_leaves_every_file"])
def test_a_failed_change_leaves_every_file(folder, index, flags, status, says):
    (folder / "pyproject.toml").write_text(PROJECT.format(url=index.url))
    before = contents(folder)
    assert says in run(["lock", *flags], folder, status=status).stderr
    assert contents(folder) == before


# ---- settings ------------------------------------------------------------------------------------


def test_flags_come_from_variables_and_from_a_file(folder):
    config = folder / "config.toml"
    config.write_text('driver = "580.65.06"\ngpu = ["V100"]\n[solve]\ndry-run = true\n')
    solve, host = "solve torch --json", {"GPUENV_CONFIG_FILE": str(config)}
    document = run(solve, folder, **host).document
    assert document["host"]["gpus"][0]["name"] == "V100" and document["lock"] is None
    document = run(solve, folder, GPUENV_GPU="H100 A100", **host).document
    assert [gpu["name"] for gpu in document["host"]["gpus"]] == ["H100", "A100"]
    document = run(f"{solve} --gpu T4", folder, GPUENV_GPU="H100", **host).document
    assert [gpu["name"] for gpu in document["host"]["gpus"]] == ["T4"]
    config.unlink()
    quiet = run(f"solve torch {CPU}", folder, GPUENV_QUIET="1", GPUENV_OUTPUT="pylock.a.toml")
    assert (quiet.stdout, os.listdir(folder)) == ("", ["pylock.a.toml"])


@each("text variables says", TABLES["a_wrong_setting_is_one_line"])
def test_a_wrong_setting_is_one_line(folder, text, variables, says):
    config = folder / "config.toml"
    config.write_text(text)
    done = run(f"solve torch {CPU}", folder, GPUENV_CONFIG_FILE=str(config), **variables, status=2)
    done.says_in_one_line(says)


# ---- the program ---------------------------------------------------------------------------------


def test_the_cache(locked):
    folder = locked.parent / "cache"
    assert run("cache dir", locked).stdout == f"{folder}\n"
    size = run("cache size --json", locked).document
    assert size["folder"] == str(folder) and size["files"]
    (folder / "mine.txt").write_text("stays")
    assert "removed" in run("cache clean", locked).stdout
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    assert run("cache size --json", locked).document["files"] == 1


def test_help_and_version(folder):
    everything = run("help", folder).stdout
    assert run("--help", folder).stdout == everything
    assert all(f"  {name} " in everything for name in all_commands())
    assert run("help solve", folder).stdout == run("solve --help", folder).stdout
    assert run("-V", folder).stdout == run("--version", folder).stdout
    assert "did you mean solve?" in run("help slove", folder, status=2).stderr


@each("words completions", TABLES["completion_in_bash"])
def test_completion_in_bash(folder, words, completions):
    (folder / "gpuenv.bash").write_text(run("completion bash", folder).stdout)
    script = (
        f"source ./gpuenv.bash; COMP_WORDS=(gpuenv {' '.join(words)}); "
        f'COMP_CWORD={len(words)}; _shtab_gpuenv; echo "${{COMPREPLY[@]}}"'
    )
    done = run_program(["bash", "-c", script], cwd=folder)
    assert done.stdout.split() == completions


@each("words", ["solve ./{}", "solve {}", "explain ./{}", "install --target env --no-verify {}"])
def test_the_path_of_a_wheel_is_a_requirement(folder, words):
    name = small_wheels.make_wheel(folder, "alpha", "1.0").filename
    done = run(f"{words.format(name)} --gpu none --no-index", folder)
    assert "possible: 1 package" in done.stdout or "alpha 1.0" in done.stdout


@each(
    "words status",
    [
        ("help", 0),
        ("explain torch==2.15.0 --gpu V100 --json", 3),
        ("solve torch==2.15.0 --gpu V100 --json", 3),
    ],
)
def test_nobody_reads_the_output(folder, words, status):
    """`gpuenv ... | true`: the document of a failure, too. The exit status is the same."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "gpuenv", *words.split()]
    environment = command_environment(folder, {"GPUENV_OFFLINE": "1"})
    with open(writer, "wb") as stdout:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=stdout, stderr=subprocess.PIPE, check=False
        )
    assert b"Traceback" not in done.stderr and b"pipe" not in done.stderr
    assert done.returncode == status


def test_a_long_refusal_is_folded(folder):
    """The deciding reason and what helps stand on half a screen; -v has every reason."""
    words = "explain torch==2.8.0 torchaudio==2.11.0 --gpu H100 --driver 580.65.06 --offline"
    short, long = (
        run(f"{words}{more}", folder, status=3).stdout.splitlines() for more in ("", " -v")
    )
    assert len(short) <= 14 < len(long) and short[:3] == long[:3] and short[-1] == long[-1]
    assert any("more (-v lists all)" in line for line in short)
    assert not any("lists all" in line for line in long)


@each("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_scripts_name_every_command_and_flag(folder, shell):
    script = run(f"completion {shell}", folder).stdout
    for name in all_commands():
        assert name in script
        for flag in command_parser(name).settable_flags():
            assert (f"-l {flag[2:]}" if shell == "fish" else flag) in script
    if shutil.which(shell):
        run_program([shell, "-n"], input=script)


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


def test_a_script_gets_an_environment_that_is_kept(folder, index):
    (folder / "script.py").write_text(SCRIPT)
    command = f"run {CPU} script.py a --json"
    variables = {"PIP_INDEX_URL": index.url, "UV_INDEX_URL": index.url}
    first = run_process(command, folder, **variables, status=7)
    assert first.stdout == "1.0 ['a', '--json']\n"
    assert "installing 3 packages" in first.stderr
    index.projects.clear()  # a second run asks no index
    second = run_process(command, folder, **variables, status=7)
    assert (second.stdout, second.stderr) == (first.stdout, "")


@each("block says", TABLES["wrong_script_metadata_is_one_line"])
def test_wrong_script_metadata_is_one_line(folder, block, says):
    (folder / "script.py").write_text(f"# /// script\n# {block}\n# ///\n")
    done = run_process(f"run {CPU} script.py", folder, status=2)
    done.says_in_one_line(says)


def test_a_script_without_metadata_is_a_command(folder):
    (folder / "plain.py").write_text("print(1)\n")
    done = run_process(f"run --target {sys.prefix} plain.py", folder, status=127)
    assert "plain.py: not found" in done.stderr
