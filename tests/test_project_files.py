"""What the files of a project say is honored, or named: commands as users type them.

A case has an index of small wheels, the files of the project, and a command. The result is the
pins of the lock, or what the command says.
"""

import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpuenv.cli import main
from index_server import make_wheel
from tables import cases, data_file

CASES = data_file("project_files.toml")


def put(folder: Path, releases: dict[str, dict[str, list[str]]]) -> None:
    folder.mkdir()
    for name, versions in releases.items():
        for version, requires in versions.items():
            filename, content = make_wheel(name, version, requires)
            (folder / filename).write_bytes(content)


@cases(CASES["case"])
def test_solve(case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for index, releases in {**CASES["indexes"], **case.get("indexes", {})}.items():
        put(tmp_path / index, releases)
    for name, text in case.get("files", {}).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{here}", str(tmp_path)))
    described = f"--gpu none --python 3.12 --platform linux-x86_64 --index-url file://{tmp_path}"
    command = f"solve {case['command']} {described}/default -o pylock.toml"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        status = main(shlex.split(command))
    said = capsys.readouterr().err
    if "pins" in case:
        assert status == 0, said
        lock = tomllib.loads((tmp_path / "pylock.toml").read_text())
        pins = [f"{row['name']} {row['version']}" for row in lock["packages"]]
        assert pins == case["pins"]
        return
    assert status == case.get("status", 2)
    for text in case["says"]:
        assert text in said
