"""One answer about conda packages: explain, sync, verify, and the reasons that they print."""

import pytest

import conda_prefixes
from conda_prefixes import HOST
from gpuenv.conda_plugin import health_check
from gpuenv.model import Choice
from gpuenv.render import values
from gpuenv.resolve.conda import solvers
from processes import program
from tables import data_file, each

TABLES = data_file("tables/conda_answers.json")

pytestmark = pytest.mark.usefixtures("own_conda_caches")


@pytest.fixture(scope="module")
def folder(environment_channels):
    return environment_channels[0]


def test_explain_asks_the_channels(folder, call):
    command = f"explain --backend conda --channel {folder.as_uri()} {HOST}"
    done = call(f"{command} torch==2.13.0")
    assert "torch 2.13.0 (cuda129, CUDA 12.9, cuDNN 9.10.2.21" in done.stdout
    reasons = call(f"{command} torch==2.12.0 --json", status=3).document["reasons"]
    (reason,) = [reason for reason in reasons if reason["subject"].startswith("pytorch ")]
    assert (reason["code"], reason["subject"]) == ("driver-floor", "pytorch 2.12.0 (cuda130)")


# name -> (variables, exit status, a text of the output)
OVERRIDES = TABLES["overrides"]


@each("name", [*OVERRIDES])
def test_the_overrides_of_conda_apply_to_explain_and_sync(
    name, folder, tmp_path, call, monkeypatch
):
    variables, status, text = OVERRIDES[name]
    asked = f"--backend conda --channel {folder.as_uri()} torch"
    lock = tmp_path / "lock.txt"
    call(f"solve {asked} {HOST} -o {lock}")
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    done = call(f"sync {lock} --target {tmp_path}/prefix --no-verify", status=status)
    assert text in done.output
    if "CONDA_OVERRIDE_CUDA_ARCH" in variables:  # without a GPU there are CPU builds
        done = call(f"explain {asked}", status=3 if status else 0)
        assert text in done.output


@each("choice text", TABLES["what_is_known_of_the_architectures"])
def test_what_is_known_of_the_architectures(choice, text):
    fields = {"framework": "torch", "version": "2.9.0", "variant": "x", "cudnn": None, **choice}
    assert values.evidence_text(Choice(**fields)) == text


# Variables -> what fails in an environment for CUDA 13
HOSTS = TABLES["hosts"]


@each("name", [*HOSTS])
def test_the_environment_of_another_tool_is_verified_without_conda(
    name, folder, tmp_path, call, monkeypatch
):
    """As micromamba, mamba and pixi make them: packages with records, and no conda."""
    variables, failing = HOSTS[name]
    rows = conda_prefixes.rows_of([folder])
    packages = ["python 3.12.1", "cuda-version 13.0", "cudnn 9.14.0.64"]
    packages.append("pytorch 2.12.0 cuda130_py312_h0_300")
    with solvers.RattlerSolver((), ("linux-64", "noarch")) as solver:
        solver.install(str(tmp_path / "env"), [rows[package] for package in packages], "linux-64")
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    done = call(f"verify --target {tmp_path}/env --no-device --json", status=bool(failing))
    checks = done.document["checks"]
    assert {check["subject"] for check in checks if check["status"] == "fail"} == {*failing}


# ---- two cuDNNs ----------------------------------------------------------------------------------

TWO_CUDNNS = TABLES["two_cudnns"]


@each("name", [*TWO_CUDNNS])
def test_the_fixer_uninstalls_a_second_cudnn_that_nothing_needs(name, tmp_path, capsys):
    wheels, text = TWO_CUDNNS[name]
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "python", f'echo "$@" > {tmp_path}/called')
    conda_prefixes.describe(tmp_path, {"installed": [], "wheels": wheels}, {})
    questions = []
    assert health_check._remove_cudnn(str(tmp_path), questions.append) is (text == "")
    assert text in capsys.readouterr().out
    if text:
        assert not questions and not (tmp_path / "called").exists()
    else:
        called = (tmp_path / "called").read_text()
        assert called == "-m pip uninstall --yes nvidia-cudnn-cu12\n"
        assert questions == [f"Uninstall nvidia-cudnn-cu12 (pip) from {tmp_path}?"]
