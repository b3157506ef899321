"""Records of runs on real devices, replayed as far as a machine without the device can."""

import json

import pytest

import gpuenv
from gpuenv.model import Check, Request
from gpuenv.serialize import host_from_plain
from tables import ROOT

FOLDER = ROOT / "docs" / "hosts"
RECORDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
LOCKED = [name for name, record in RECORDS.items() if "versions" in record]
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
def any_record(request):
    return dict(RECORDS[request.param])


@pytest.fixture(params=LOCKED)
def record(request):
    return dict(RECORDS[request.param])


def checks(step):
    return [Check(**fields) for fields in step["document"]["checks"]]


def steps(name):
    return {row["step"]: row for row in RECORDS[name]["steps"]}


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
    mine = {pin.wheel.name: pin.wheel.version for pin in gpuenv.solve(request, host).pins}
    libraries = {
        name for name in mine if name.startswith(("nvidia-", framework, "triton", "cuda-toolkit"))
    }
    assert len(libraries) > 10
    assert {name: mine[name] for name in libraries} == {name: versions[name] for name in libraries}
