"""The scenarios of data/conda_scenarios.toml, alone and in a conda."""

import pytest

import conda_scenarios
from conda_scenarios import SCENARIOS
from gpuenv.cli import main
from processes import run_program
from tables import cases

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


@cases(SCENARIOS)
def test_a_scenario_in_a_conda(case, channels, conda, tmp_path):
    """GPUENV_TEST_CONDA names the conda. Each of its solvers runs the scenario."""

    def run(words, folder, env):
        command = [conda.executable, "gpuenv", *words]
        done = run_program(command, 600, status=None, cwd=folder, env={**conda.env, **env})
        return done.returncode, done.output

    for solver in conda.solvers():
        folder = tmp_path / solver
        folder.mkdir()
        assert conda_scenarios.play(case, folder, channels, run, solver) == ""
