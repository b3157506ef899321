"""Records of runs on real devices, replayed as far as a machine without the device can."""

import json
from pathlib import Path
from typing import Any

import pytest

import gpuenv
from gpuenv.model import Request
from gpuenv.plain import host_from_plain

RECORDS = sorted((Path(__file__).parent.parent / "docs" / "hosts").glob("*.json"))


@pytest.fixture(params=RECORDS, ids=[path.stem for path in RECORDS])
def record(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(json.loads(request.param.read_text()))


def test_there_are_records() -> None:
    assert RECORDS


def test_the_detected_host_is_a_host(record: dict[str, Any]) -> None:
    host = host_from_plain(record["host"])
    assert host.gpus and host.driver and host.driver_cuda
    assert dict(host.sources)["driver"].startswith("NVML")


def test_the_snapshot_gives_the_host_the_same_builds(record: dict[str, Any]) -> None:
    """What was solved there from a folder of wheels is what the snapshot gives for that version."""
    versions = record["versions"]
    host = host_from_plain(record["host"])
    plan = gpuenv.solve(Request(frameworks=(f"torch=={versions['torch']}",), default_index_only=True), host)
    mine = {pin.wheel.name: pin.wheel.version for pin in plan.pins}
    libraries = {name for name in mine if name.startswith(("nvidia-", "torch", "triton", "cuda-toolkit"))}
    assert len(libraries) > 15
    assert {name: mine[name] for name in libraries} == {name: versions[name] for name in libraries}


def test_what_passed_and_what_was_found(record: dict[str, Any]) -> None:
    steps = {row["step"]: row for row in record["steps"]}
    for name in ("verify", "verify again"):
        document = steps[name]["document"]
        assert steps[name]["exit"] == 0 and document["ok"]
        assert {check["status"] for check in document["checks"]} == {"pass"}
        runs = [check for check in document["checks"] if check["subject"].startswith("convolution GPU")]
        assert len(runs) == len(record["host"]["gpus"])
        assert all("float32" in check["evidence"] and "float16" in check["evidence"] for check in runs)
    faults = {name for name, row in steps.items() if row["exit"] == 1}
    assert {"another cuDNN in front", "a sub-library removed", "a device that is not there"} <= faults
    assert steps["detect"]["seconds"] <= 0.3
