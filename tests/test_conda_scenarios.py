"""The scenarios that need no conda, and the commands of the pages about conda, as typed."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import conda_scenarios
from conda_scenarios import SCENARIOS
from gpuenv.cli import main
from index_server import make_wheel
from tables import ROOT, cases

pytestmark = pytest.mark.usefixtures("one_rattler")


@pytest.fixture(scope="module")
def channels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return conda_scenarios.make_channels(tmp_path_factory.mktemp("channels"))


@cases([row for row in SCENARIOS if not row.get("inside")])
def test_a_scenario(
    case: dict[str, Any],
    channels: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def run(words: list[str], folder: Path, env: Mapping[str, str]) -> tuple[int, str]:
        monkeypatch.chdir(folder)
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            status = main(words) if words[0] != "run" else main([*words[:1], "--json", *words[1:]])
        return status, "".join(capfd.readouterr())

    assert conda_scenarios.play(case, tmp_path, channels, run) == ""


def commands(page: str) -> list[str]:
    """The commands of gpuenv in a page, in its order."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^    gpuenv ((?:[^#\n]|(?<! )#)+)", text, re.MULTILINE)


@pytest.mark.parametrize("page", ["conda.md"])
def test_the_commands_of_a_page(
    page: str,
    channels: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One after the other, in one folder, as a reader types them."""
    monkeypatch.chdir(tmp_path)
    for name, data in (make_wheel("trl", "0.9"), make_wheel("leaf-kit", "1.0")):
        Path("wheels").mkdir(exist_ok=True)
        Path("wheels", name).write_bytes(data)
    project = f"channels: ['{channels['CHANNEL']}']\ndependencies: [numpy, pip: [leaf-kit]]\n"
    Path("environment.yml").write_text(project)
    variables = {**conda_scenarios.HOST, "GPUENV_CHANNEL": channels["CHANNEL"]}
    variables |= {"GPUENV_FIND_LINKS": "wheels", "GPUENV_NO_INDEX": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["solve", "--backend", "conda", "--framework", "torch", "--quiet"]) == 0
    listed = commands(page)
    assert len(listed) >= 2
    for line in listed:
        words = shlex.split(line.replace("PREFIX", "env"))
        status = main([*words, "--no-device"] if words[0] == "verify" else words)
        assert status == 0, (line, capfd.readouterr())


def test_the_record_has_every_scenario() -> None:
    record = json.loads((ROOT / "docs" / "records" / "conda-scenarios.json").read_text())
    assert len(record["right"]) >= 4 and record["lost"] == []
    assert {record["scenarios"], *record["right"].values()} == {len(SCENARIOS)}
