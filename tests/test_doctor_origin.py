"""The origin of a log, what this machine may add, and failures that no message explains."""

import io
import venv

import gpuenv
from gpuenv.doctor.judge import diagnose
from gpuenv.doctor.log_reader import read_log
from gpuenv.model import Gpu, Host, Problem, Python
from gpuenv.render import doctor as render
from small_wheels import write_record
from tables import cases, data_file, together
from test_verification import site_of

CASES = data_file("doctor_origin.toml")["case"]
LOGS = [case["log"] for case in data_file("doctor/cases.toml")["case"]]

# The GPU's memory is nearly full, which explains failures of cuDNN on this machine only.
CARD = Gpu(
    name="NVIDIA GeForce RTX 4090",
    compute_capability=(8, 9),
    memory_total=24 << 30,
    memory_free=40 << 20,
)
NO_GPU = Host(
    python=Python(version=(3, 11)),
    glibc=(2, 36),
    problems=(Problem(code="no-gpu", detail="this machine has no NVIDIA GPU"),),
)
WITH_GPU = NO_GPU.replace(gpus=(CARD,), driver="580.65.06", driver_cuda=(13, 0), problems=())
MACHINES = {
    "no-gpu": NO_GPU,
    "no-gpu-container": NO_GPU.replace(virtualization="container"),
    "gpu": WITH_GPU,
    "container": WITH_GPU.replace(virtualization="container"),
    "no-driver": NO_GPU.replace(
        problems=(Problem(code="driver-not-installed", detail="a GPU without NVIDIA's driver"),)
    ),
}


def environment(case, folder):
    """Return an environment with the metadata of the case's packages, or None."""
    if "packages" not in case:
        return None
    target = folder / "env"
    venv.create(target, symlinks=True)
    for name, version in case["packages"].items():
        write_record(site_of(target), name, version)
    return str(target)


@cases(CASES)
def test_the_origin_decides_what_is_evidence(case, tmp_path):
    log = io.BytesIO(case["log"].encode()) if "log" in case else None
    found = gpuenv.examine(
        log,
        MACHINES[case["machine"]],
        target=environment(case, tmp_path),
        target_is_named=case.get("named", False),
        stated_origin=case.get("stated", ""),
        root=str(tmp_path),
    )
    name = "the log" if log else ""
    text = "\n".join(render.doctor_lines(found, name, verbose=True))
    document = render.doctor_json(found)
    assert (document["origin"] or {"place": ""})["place"] == case["place"], text
    verdicts = [
        verdict
        for verdict in document["verdicts"]
        if verdict["cause"] != "cudnn_init_failed_unknown"
    ]
    first = verdicts[0] if verdicts else {"cause": "", "confidence": ""}
    assert first["cause"] == case.get("first", ""), text
    assert first["confidence"] == case.get("sure", first["confidence"]), text
    assert document["abstained"] is case.get("abstained", False), text
    assert bool(document["failures"]) is document["abstained"]
    assert (0 if render.well(found) else 1) == case["status"], text
    for part in case.get("says", ()):
        assert part in text
    for part in case.get("never", ()):
        assert part not in text


@together(LOGS, sampled=True)
def test_a_machine_without_a_gpu_changes_no_diagnosis(log):
    found = gpuenv.examine(io.BytesIO(log.encode()), NO_GPU)
    assert found.diagnosis == diagnose(read_log([log.encode()]), ())
