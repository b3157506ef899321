"""One answer about conda packages: explain, sync, verify, and the reasons that they print."""

import json
from pathlib import Path
from typing import Any

import pytest

import conda_prefixes
from conda_prefixes import HOST
from gpuenv.cli import main
from gpuenv.conda_plugin import health_check
from gpuenv.model import Choice
from gpuenv.render import values
from gpuenv.resolve.conda import solvers
from tables import data_file, each

TABLES = data_file("tables/conda_answers.json")

pytestmark = pytest.mark.usefixtures("own_conda_caches")


@pytest.fixture(scope="module")
def folder(environment_channels: list[Path]) -> Path:
    return environment_channels[0]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_explain_asks_the_channels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["explain", "--backend", "conda", "--channel", folder.as_uri()]
    status, output = run(capsys, *command, "torch==2.13.0", *HOST)
    assert status == 0 and "torch 2.13.0 (cuda129, CUDA 12.9, cuDNN 9.10.2.21" in output
    status, output = run(capsys, *command, "torch==2.12.0", *HOST, "--json")
    reasons = json.loads(output)["reasons"]
    assert status == 3
    (reason,) = [reason for reason in reasons if reason["subject"].startswith("pytorch ")]
    assert (reason["code"], reason["subject"]) == ("driver-floor", "pytorch 2.12.0 (cuda130)")


# name -> (variables, exit status, a text of the output)
OVERRIDES = TABLES["overrides"]


@pytest.mark.parametrize("name", OVERRIDES)
def test_the_overrides_of_conda_apply_to_explain_and_sync(
    name: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables, status, text = OVERRIDES[name]
    channel = ["--channel", folder.as_uri()]
    lock = str(tmp_path / "lock.txt")
    assert run(capsys, "solve", "--backend", "conda", *channel, "torch", *HOST, "-o", lock)[0] == 0
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    target = str(tmp_path / "prefix")
    installed, output = run(capsys, "sync", lock, "--target", target, "--no-verify")
    assert (installed, text in output) == (status, True), output
    if "CONDA_OVERRIDE_CUDA_ARCH" in variables:  # without a GPU there are CPU builds
        explained, output = run(capsys, "explain", "--backend", "conda", *channel, "torch")
        assert (explained, text in output) == (3 if status else 0, True), output


@each("choice text", TABLES["what_is_known_of_the_architectures"])
def test_what_is_known_of_the_architectures(choice: dict[str, Any], text: str) -> None:
    fields = {"framework": "torch", "version": "2.9.0", "variant": "x", "cudnn": None, **choice}
    assert values.evidence_text(Choice(**fields)) == text


# Variables -> what fails in an environment for CUDA 13
HOSTS = TABLES["hosts"]


@pytest.mark.parametrize("name", HOSTS)
def test_the_environment_of_another_tool_is_verified_without_conda(
    name: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As micromamba, mamba and pixi make them: packages with records, and no conda."""
    variables, failing = HOSTS[name]
    rows = conda_prefixes.rows_of([folder])
    packages = ["python 3.12.1", "cuda-version 13.0", "cudnn 9.14.0.64"]
    packages.append("pytorch 2.12.0 cuda130_py312_h0_300")
    with solvers.RattlerSolver((), ("linux-64", "noarch")) as solver:
        solver.install(str(tmp_path / "env"), [rows[package] for package in packages], "linux-64")
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    status, output = run(
        capsys, "verify", "--target", str(tmp_path / "env"), "--no-device", "--json"
    )
    checks = json.loads(output)["checks"]
    failed = {check["subject"] for check in checks if check["status"] == "fail"}
    assert (status, failed) == (1 if failing else 0, {*failing}), output


# ---- two cuDNNs ----------------------------------------------------------------------------------

# the wheels of pip with their requirements -> what is said; "" where the cuDNN is uninstalled
CUDNN_WHEEL = "nvidia-cudnn-cu12 9.5.1.17"
TWO_CUDNNS: dict[str, tuple[dict[str, list[str]], str]] = {
    "a cuDNN that nothing needs": ({CUDNN_WHEEL: []}, ""),
    "a cuDNN that an extra would need": (
        {CUDNN_WHEEL: [], "kit 1.0": ["nvidia-cudnn-cu12; extra == 'gpu'"]},
        "",
    ),
    "a cuDNN that a wheel needs": (
        {CUDNN_WHEEL: [], "torch 2.6.0": ["nvidia-cudnn-cu12==9.5.1.17; sys_platform == 'linux'"]},
        "torch of pip needs nvidia-cudnn-cu12",
    ),
}


@pytest.mark.parametrize("name", TWO_CUDNNS)
def test_the_fixer_uninstalls_a_second_cudnn_that_nothing_needs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheels, text = TWO_CUDNNS[name]
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\n')
    python.chmod(0o755)
    conda_prefixes.describe(tmp_path, {"installed": [], "wheels": wheels}, {})
    questions: list[str] = []
    assert health_check._remove_cudnn(str(tmp_path), questions.append) is (text == "")
    assert text in capsys.readouterr().out
    if text:
        assert not questions and not (tmp_path / "called").exists()
    else:
        called = (tmp_path / "called").read_text()
        assert called == "-m pip uninstall --yes nvidia-cudnn-cu12\n"
        assert questions == [f"Uninstall nvidia-cudnn-cu12 (pip) from {tmp_path}?"]
