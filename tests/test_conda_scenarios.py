"""The scenarios that need no conda, and the commands of the pages about conda, as typed."""

import re

import pytest

import conda_scenarios
from conda_scenarios import SCENARIOS
from gpuenv.cli import main
from tables import ROOT, cases

pytestmark = pytest.mark.usefixtures("one_rattler")


@pytest.fixture(scope="module")
def channels(tmp_path_factory):
    return conda_scenarios.make_channels(tmp_path_factory.mktemp("channels"))


@cases([row for row in SCENARIOS if not row.get("inside")])
def test_a_scenario(case, channels, tmp_path, monkeypatch, capfd):
    def run(words, folder, env):
        monkeypatch.chdir(folder)
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            status = main(words) if words[0] != "run" else main([*words[:1], "--json", *words[1:]])
        return status, "".join(capfd.readouterr())

    assert conda_scenarios.play(case, tmp_path, channels, run) == ""


def commands(page):
    """The commands of gpuenv in a page, in its order."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^    gpuenv ((?:[^#\n]|(?<! )#)+)", text, re.MULTILINE)
