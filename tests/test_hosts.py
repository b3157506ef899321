"""Records of runs on real devices, replayed as far as a machine without the device can."""

import pytest

import gpuenv
from gpuenv.model import Request
from gpuenv.serialize import host_from_plain
from tables import ROOT, read_data

FOLDER = ROOT / "docs" / "hosts"
RECORDS = {path.stem: read_data(path) for path in sorted(FOLDER.glob("*.json"))}
LOCKED = [name for name, record in RECORDS.items() if "versions" in record]


@pytest.fixture(params=RECORDS)
def any_record(request):
    return dict(RECORDS[request.param])


@pytest.fixture(params=LOCKED)
def record(request):
    return dict(RECORDS[request.param])


def test_the_detected_host_is_a_host(any_record):
    host = host_from_plain(any_record["host"])
    assert host.gpus and host.driver and host.driver_cuda
    assert dict(host.sources)["driver"].startswith("NVML")


def test_the_snapshot_gives_the_host_the_same_builds(record):
    """What was solved there from a folder of wheels is what the snapshot gives for that version."""
    versions = record["versions"]
    host = host_from_plain(record["host"])
    framework = next(name for name in ("torch", "tensorflow") if name in versions)
    request = Request(frameworks=(f"{framework}=={versions[framework]}",), default_index_only=True)
    mine = gpuenv.solve(request, host).versions
    libraries = {
        name for name in mine if name.startswith(("nvidia-", framework, "triton", "cuda-toolkit"))
    }
    assert len(libraries) > 10
    assert {name: mine[name] for name in libraries} == {name: versions[name] for name in libraries}
