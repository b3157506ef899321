"""Records of runs on real devices, replayed as far as a machine without the device can."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

import gpuenv
from gpuenv.model import Check, Request
from gpuenv.render.checks import ok
from gpuenv.serialize import host_from_plain

FOLDER = Path(__file__).parent.parent / "docs" / "hosts"
RECORDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
LOCKED = [name for name, record in RECORDS.items() if "versions" in record]
FOUND = ("h200-frameworks", "h200-2026-11-28", "h200-x2")  # environments that gpuenv did not make
# what was planted, and the checks that found it
FAULTS = {
    "another cuDNN in front": {
        "loader variables",
        "cudnn origin",
        "cudnn version",
        "torch libraries",
    },
    "a sub-library swapped": {"files", "cudnn libraries", "cudnn convolution GPU 0 NVIDIA H200"},
    "a sub-library removed": {
        "files",
        "closure",
        "cudnn libraries",
        "cudnn convolution GPU 0 NVIDIA H200",
    },
    "an old cuDNN under jax": {"files", "cudnn version", "jax import"},
    "a device that is not there": {"device GPU 0"},
    "wrong numerics of the frameworks": {
        f"{name} convolution GPU 0 NVIDIA H200" for name in ("torch", "jax", "cupy")
    },
    "wrong numerics of cuDNN": {"cudnn convolution GPU 0 NVIDIA H200"},
    "a child that hangs": {"torch import"},
    "a child that aborts": {"torch import"},
    "120 MiB left on the card": {"device GPU 0 NVIDIA H200"},
    "700 MiB left on the card": {"device GPU 0 NVIDIA H200"},
}
COMPANION_FAULTS = {
    "an operation of torchvision that is wrong": {"files", "operation torchvision"},
    "a library of torchaudio that is hidden": {"files", "import torchaudio"},
    "torchaudio-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl in its place": {
        "dependencies",
        "rules torchaudio 2.9.1",
        "import torchaudio",
    },
}
PLANTED = [("h200-frameworks", fault, found) for fault, found in FAULTS.items()]
PLANTED += [("h200-companions", fault, found) for fault, found in COMPANION_FAULTS.items()]


@pytest.fixture(params=RECORDS)
def any_record(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(RECORDS[request.param])


@pytest.fixture(params=LOCKED)
def record(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(RECORDS[request.param])


def checks(step: dict[str, Any]) -> list[Check]:
    return [Check(**fields) for fields in step["document"]["checks"]]


def steps(name: str) -> dict[str, dict[str, Any]]:
    return {row["step"]: row for row in RECORDS[name]["steps"]}


def test_there_are_records() -> None:
    assert LOCKED and set(FOUND) <= set(RECORDS)


@pytest.mark.parametrize("name", FOUND)
def test_an_environment_that_works_is_verified(name: str) -> None:
    gpus = RECORDS[name]["host"]["gpus"]
    for step in ("verify", "verify again"):
        found = checks(steps(name)[step])
        assert steps(name)[step]["exit"] == 0 and ok(found)
        assert not [check for check in found if check.status == "fail"]
        passed = {f"{check.name} {check.subject}" for check in found if check.status == "pass"}
        for ordinal, gpu in enumerate(gpus):
            for who in (
                "torch convolution",
                "jax convolution",
                "cupy convolution",
                "cudnn convolution",
                "device",
            ):
                assert f"{who} GPU {ordinal} {gpu['name']}" in passed
    alone = steps(name)["cuDNN without a framework"]
    assert alone["exit"] == 0 and alone["seconds"] <= 2
    assert {check.status for check in checks(alone)} == {"pass"}


@pytest.mark.parametrize(("name", "fault", "expected"), PLANTED)
def test_a_planted_fault_was_found(name: str, fault: str, expected: set[str]) -> None:
    step = steps(name)[fault]
    found = checks(step)
    assert step["exit"] == 1 and not step["document"]["ok"] and not ok(found)
    status = (
        "unknown" if "left on the card" in fault else "fail"
    )  # a full card is no fault of the environment
    assert expected <= {
        f"{check.name} {check.subject}".strip() for check in found if check.status == status
    }


def test_onnxruntime_for_cuda_is_verified() -> None:
    step = steps("h200-onnxruntime")["verify"]
    found = {f"{check.name} {check.subject}": check for check in checks(step)}
    assert step["exit"] == 0 and {check.status for check in found.values()} == {"pass"}
    evidence = found["onnxruntime convolution GPU 0"].evidence
    assert "Conv float32 on CUDAExecutionProvider" in evidence
    assert "Conv float16 on CUDAExecutionProvider" in evidence


def test_wheels_of_another_machine_are_installed_and_verified() -> None:
    step = steps("h200-download")["sync"]
    assert step["command"][-1] == "--no-index" and step["exit"] == 0
    found = {f"{check.name} {check.subject}": check.status for check in checks(step)}
    assert found["torch convolution GPU 0 NVIDIA H200"] == "pass"
    assert set(found.values()) == {"pass"}


def test_an_untouched_copy_is_verified() -> None:
    assert steps("h200-frameworks")["the copy, untouched"]["document"]["ok"]


def test_what_a_verification_costs() -> None:
    """Recorded, not timed: beside the bare convolution of torch at most 15 % and 1.5 s."""
    times = steps("h200-frameworks")["cost of torch"]["seconds_of"]
    assert statistics.median(times["verify"]) <= 1.15 * statistics.median(times["bare"]) + 1.5


def test_the_detected_host_is_a_host(any_record: dict[str, Any]) -> None:
    host = host_from_plain(any_record["host"])
    assert host.gpus and host.driver and host.driver_cuda
    assert dict(host.sources)["driver"].startswith("NVML")


def test_the_snapshot_gives_the_host_the_same_builds(record: dict[str, Any]) -> None:
    """What was solved there from a folder of wheels is what the snapshot gives for that version."""
    versions = record["versions"]
    host = host_from_plain(record["host"])
    framework = next(name for name in ("torch", "tensorflow") if name in versions)
    request = Request(frameworks=(f"{framework}=={versions[framework]}",), default_index_only=True)
    mine = {pin.wheel.name: pin.wheel.version for pin in gpuenv.solve(request, host).pins}
    libraries = {
        name for name in mine if name.startswith(("nvidia-", framework, "triton", "cuda-toolkit"))
    }
    assert len(libraries) > 10
    assert {name: mine[name] for name in libraries} == {name: versions[name] for name in libraries}
