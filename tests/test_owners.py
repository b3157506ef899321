"""R5: packages that install the same paths, from the request to the environment."""

import os
import shlex
import sys
from pathlib import Path

import pytest

import forked
from gpuenv import cli
from small_wheels import installed, make_lock, make_wheel, write_lock
from tables import DATA, each, read_data

TABLE = read_data(DATA / "owners.toml")
FLAGS = {
    "explain": ["--gpu"],
    "install": ["--gpu", "--find-links", "--installer"],
    "pip": ["--gpu", "--find-links", "--installer"],
    "solve": ["--gpu", "--find-links"],
    "sync": ["--gpu", "--find-links", "--installer"],
    "verify": [],
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("wheels"), {}
    for label, row in TABLE["wheels"].items():
        name, version = label.split()
        files = dict.fromkeys(row.get("files", ()), f"# {label}")
        files |= dict.fromkeys(row.get("equal", ()), "# equal")
        requires = row.get("requires", ())
        made[label] = make_wheel(folder, name, version, requires=requires, files=files)
    return made


# pip installs where the order of files, or what is removed first, is to be seen.
CASES = [(case, "uv") for case in TABLE["case"]]
CASES += [(case, "pip") for case in TABLE["case"] if "files" in case or "uses_pip" in case]


@each("case installer", CASES, ids=[f"{case['name']} by {installer}" for case, installer in CASES])
def test_commands(case, installer, wheels, tmp_path):
    target, lock = tmp_path / "env", tmp_path / "pylock.toml"
    folder = Path(next(iter(wheels.values())).url.removeprefix("file://")).parent
    if "lock" in case:
        write_lock(lock, make_lock(*(wheels[label] for label in case["lock"])))
    for command, status, texts in case["runs"]:
        words = shlex.split(command)
        flags = {"--gpu": "none", "--find-links": str(folder), "--installer": installer}
        for flag in FLAGS[words[0]]:
            words += [flag, flags[flag]]
        environment = {**os.environ, "VIRTUAL_ENV": str(target), "COLUMNS": "1000"}
        done = forked.run(lambda: sys.exit(cli.main(words)), words, tmp_path, environment)  # noqa: B023
        said = done.text
        assert done.returncode == status, said
        for text in texts:
            assert (text.removeprefix("-") in said) != text.startswith("-"), said
    assert case.get("locked", "") in (lock.read_text() if lock.exists() else "")
    if "installed" in case:
        present = installed(target)
        assert {name: present[name] for name in present if name not in ("pip",)} == case[
            "installed"
        ]
    site = next(target.glob("lib/python3*/site-packages"), target)
    for path, label in case.get("files", {}).items():
        assert (site / path).read_text() == f"# {label}"
