"""Wrong words in commands: one line names the mistake and what to type. Other words pass."""

from pathlib import Path

import pytest

from gpuenv.cli import main

TARGET = "--platform linux-x86_64 --glibc 2.35 --python 3.12 --offline"
HOST = f"--driver 580.65.06 {TARGET}"
WRONG = {
    "solve --framework pytroch --gpu H100": "no framework has that name; did you mean torch?",
    "solve --framework PyTorch --gpu H100": "did you mean torch? Known are cupy, jax",
    "solve --framework tf --gpu H100": "did you mean tensorflow?",
    "solve --framework xyz --gpu H100": "no framework has that name; known are cupy, jax",
    "solve torch --gpu A6000": "did you mean RTX A6000",
    "solve torch --gpu RTX6000": "did you mean Quadro RTX 6000 (sm_75) or RTX 6000 Ada (sm_89) or ",
    "solve torch --gpu TITAN-X": "did you mean GTX TITAN X (sm_52) or TITAN X (Pascal) (sm_61)?",
    "solve torch --gpu NVIDIA-TITANX": "did you mean GTX TITAN X (sm_52) or TITAN X (Pascal) (",
    "solve torch --gpu H100,H10O": "--gpu 'H10O' is not a known GPU",
    "solve torch --gpu H100,none": "--gpu none cannot be combined",
    "solve torch --gpu H100 --cuda x": "--cuda x: is no CUDA version; give a version or the tag",
    "solve pandas+cu128 --gpu H100": "pandas is no framework, which has builds",
    "solve torch --gpu sm9": "--gpu 'sm9' is not a known GPU",
    "solve torch 2.9 --gpu H100": "2.9: is a version, not a requirement; write it with the name",
    "solve requirements.txt --gpu H100": "read its requirements with -r requirements.txt",
    "solve torch pyproject.toml --gpu H100": "is a file, not a requirement; give the folder of a",
    "install environment.YML --target e": "with --backend conda -r environment.YML",
    "explain uv.lock --gpu H100": "uv.lock: is a file, not a requirement; gpuenv takes pylock.toml",
    "explain missing.toml": "missing.toml: cannot be read: No such file or directory",
}
RIGHT = {
    "--gpu sm90": "torch 2.15.0 cu132 13.2",
    "--gpu SM_90": "torch 2.15.0 cu132 13.2",
    "--gpu h100,a100": "torch 2.15.0 cu132 13.2",
    "--gpu H100 --cuda 12.6": "torch 2.13.0 cu126 12.6",
    "--gpu H100 --cuda cu126": "torch 2.13.0 cu126 12.6",
    "--gpu H100 --cuda 12": "torch 2.13.0 cu126 12.6",
    "--gpu H100 --framework torch+cu126": "torch 2.13.0 cu126 12.6",
    "--gpu cpu": "torch 2.13.0 cpu",
}
REFUSED = {
    "torch==2.4.0+cu118 --gpu H100": ["this build exists", "offline data"],
    "torch==2.13.0+cu199 --gpu H100": ["2.13.0 (cu130), 2.13.0+cpu (cpu), 2.13.0+cu126"],
    "--framework torch --gpu H100 --cuda 99.9": [
        "not for CUDA 99.9, which was chosen by hand",
        "leave out --cuda 99.9: gives torch 2.15.0 (cu132)",
    ],
    "--framework torch --gpu H100 --cuda 12.7": [
        "--cuda 12 instead of --cuda 12.7: gives torch 2.13.0 (cu126)",
        "leave out --cuda 12.7: gives torch 2.15.0 (cu132)",
    ],
    "--framework torch --gpu H100 --cuda 11": ["not for CUDA 11, which was chosen by hand"],
    "torch[opt-einsum]==99 numpy --gpu H100": [
        "torch needs torch==99; available: 2.0.0 to 2.15.0",
        "torch 2.15.0 instead of torch[opt-einsum]==99: gives torch 2.15.0 (cu132)",
    ],
    "torch+cu118 --gpu RTX5090": [
        "not the build cu118, which was chosen by hand",
        "any build instead of torch+cu118: gives torch 2.15.0 (cu132)",
    ],
}


@pytest.mark.parametrize("command", WRONG)
def test_a_wrong_word(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), *HOST.split()]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert WRONG[command] in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", RIGHT)
def test_a_spelling_that_people_use(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    host = TARGET if "cpu" in flags else HOST
    assert main(["solve", "torch", *flags.split(), *host.split(), "-o", "pylock.toml"]) == 0
    assert RIGHT[flags] in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("request_flags", REFUSED)
def test_a_refusal_names_the_builds_and_what_helps(
    request_flags: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["solve", *request_flags.split(), *HOST.split()]) == 3
    text = " ".join(capsys.readouterr().err.split())
    assert [part for part in REFUSED[request_flags] if part not in text] == []


def test_a_driver_too_old_for_the_gpu_is_the_only_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    host = ["--gpu", "B200", "--driver", "535.104.05", *TARGET.split()]
    assert main(["solve", "--framework", "torch", "tensorflow", *host]) == 3
    first, reason, others, _, driver, *_ = capsys.readouterr().err.splitlines()
    assert first == "gpuenv: no environment for torch and tensorflow on this host"
    need = "B200 needs a driver of branch R570 or newer"
    assert reason == f"  {need}; this host has driver 535.104.05"
    assert others.startswith("  no release avoids this (--json lists ")
    assert driver.startswith("  a driver of branch R570 or newer: gives torch ")
    assert main(["solve", "--framework", "torch", "cupy==99", *host]) == 3
    text = capsys.readouterr().err
    assert "B200 needs a driver" in text and "needs cupy-cuda13x==99" in text


def test_a_wrong_name_is_told_before_the_host_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("solve", "explain", "install"):
        target = ["--target", "env"] if command == "install" else []
        assert main([command, "--framework", "tourch", *target]) == 2
        assert "did you mean torch?" in capsys.readouterr().err


def test_a_misspelled_package_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["solve", "numpi", "--gpu", "none", *TARGET.split()]) == 4
    assert "--offline is on; did you mean numpy? Otherwise" in capsys.readouterr().err
