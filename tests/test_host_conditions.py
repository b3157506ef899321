"""Conditions of a host that verify must tell apart, on stand-ins in C for NVML, CUDA and cuDNN.

Each case is one process that detects the host and verifies an environment on it, as `gpuenv verify`
does.
"""

import json
import os
import shutil
import sys
import time
import venv
from functools import partial
from pathlib import Path

import pytest

from gpuenv.model import Check
from gpuenv.verify import environment
from gpuenv.verify.cudnn_log import calls, reasons
from gpuenv.verify.runner import PROBES, Children
from native_build import build, nvml_script
from processes import run_program
from small_wheels import replace_in, write_record
from tables import cases, data_file, on_linux
from test_verification import (
    CLEAN,
    CUDNN,
    install,
    place,
    require,
    running_with,
    show,
    site_of,
    verified,
    wait_until,
)

HERE = Path(__file__).parent
RESOLVER = HERE.parent / "resolver"
TABLES = data_file("host_conditions.toml")
CASES = TABLES["case"]
NVML, CUDA = "libnvidia-ml.so.1", "libcuda.so.1"

pytestmark = on_linux

VERIFY = """
import json, os, sys
from gpuenv.api import compatibility_data as data
from gpuenv.detect.host import detect
from gpuenv.verify.environment import verify
root, target, timeout, verbose, tests, kept = json.loads(sys.argv[1])
sys.path.append(tests)
import kept_answers
kept_answers.keep_in(kept)
host = detect(root=root, python="3.12")
checks = verify(None, target, host, data=data(), frameworks=(), timeout=timeout, verbose=verbose)
keys = "name", "subject", "status", "evidence"
told = [one for one in checks if one.name != "rules"]
json.dump([{key: getattr(one, key) for key in keys} for one in told], sys.stdout)
"""


@pytest.fixture(scope="module")
def environments(native, tmp_path_factory):
    """An environment with a stand-in of cuDNN 9 and one of cuDNN 8; no test changes them."""
    found = {}
    for major in (9, 8):
        target = tmp_path_factory.mktemp("env") / f"cudnn{major}"  # a folder of its own
        venv.create(target, symlinks=True)
        found[major] = target
    install(site_of(found[9]), native, [])
    install_eight(site_of(found[8]), native)
    return found


def install_eight(site, native):
    members = {"": "ops_infer cnn_infer", "ops_infer": "", "cnn_infer": "ops_infer"}
    paths = []
    for member, names in members.items():
        name = f"libcudnn_{member}.so.8" if member else "libcudnn.so.8"
        texts = "".join(f"\\0libcudnn_{one}.so" for one in names.split())
        defines = ["VERSION=8907", f'NAMES="{texts}"', *(["MAIN"] if member == "" else [])]
        flags = ["-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"]
        place(
            build("cudnn_stub.c", name, native, defines=defines, flags=flags), site / CUDNN / name
        )
        paths.append(CUDNN / name)
    write_record(site, "nvidia-cudnn-cu12", "8.9.7.29", paths)


def variables_of(case, native, folder):
    """The environment variables that make the host of a case."""
    gpu = {"name": "Stand-in", "cc": "9.0", **case.get("gpu", {})}
    script = {
        "driver": case.get("driver", "580.65.06"),
        "gpus": [gpu] * case.get("gpus", 1),
        **case.get("nvml", {}),
    }
    (folder / "nvml.txt").write_text(nvml_script(script))
    missing = [
        name for key, name in (("nvml_missing", NVML), ("cuda_missing", CUDA)) if case.get(key)
    ]
    stubs = [("nvml_stub.c", NVML), ("cuda_stub.c", CUDA)]
    folders = [build(source, name, native).parent for source, name in stubs if name not in missing]
    told = {"CUDA_STUB_DEVICES": str(case.get("gpus", 1))}
    told |= {f"CUDA_STUB_{key}": value for key, value in case.get("cuda", {}).items()}
    told |= {f"CUDNN_STUB_{key}": value for key, value in case.get("cudnn", {}).items()}
    return {
        **CLEAN,
        **told,
        **case.get("env", {}),
        "NVML_STUB": str(folder / "nvml.txt"),
        "LD_LIBRARY_PATH": ":".join(map(str, folders)),
        # The machine's own driver, if it has one, is not the host of the case.
        "LD_AUDIT": str(build("refuse_audit.c", "refuse_audit.so", native)),
        "REFUSE_EXCEPT": str(native),
        "PATH": str(folder),
        "PYTHONPATH": str(RESOLVER),
    }


@cases(CASES)
def test_condition(case, environments, native, tmp_path):
    target = environments[case.get("release", 9)]
    (tmp_path / "root").mkdir()
    options = case.get("timeout", 60), case.get("verbose", False), str(HERE), str(target.parent)
    arguments = json.dumps([str(tmp_path / "root"), str(target), *options])
    env = variables_of(case, native, tmp_path)
    done = run_program([sys.executable, "-c", VERIFY, arguments], timeout=100, env=env)
    checks = [Check(**fields) for fields in done.document]
    require(checks, case["expect"])
    said = show(checks)
    assert [text for text in case.get("not", ()) if text in said] == []


def test_there_are_enough_conditions():
    assert len({case["name"] for case in CASES}) == len(CASES) >= 25


def test_hung_children_are_ended_together_and_in_time(environments, native):
    """--timeout holds within two seconds, however many children hang, and no process is left."""
    marker = f"marker-{os.getpid()}-{native}"
    env = {**CLEAN, "CUDA_STUB_DEVICES": "8", "CUDA_STUB_FAIL": "cuInit=9001", "MARKER": marker}
    env["LD_LIBRARY_PATH"] = str(build("cuda_stub.c", CUDA, native).parent)
    begin = time.monotonic()
    checks = verified(environments[9], devices=8, device=None, timeout=2, env=env)
    assert time.monotonic() - begin < 2 + 2
    hung = [one for one in checks if one.name == "device" and "the driver hangs" in one.evidence]
    assert len(hung) == 8
    assert wait_until(lambda: running_with(marker) == [])


@pytest.fixture
def probes(tmp_path, monkeypatch):
    """A copy of the probes, which a verification runs instead of them."""
    folder = str(tmp_path / "probes")
    monkeypatch.setattr(environment, "Children", partial(Children, probes=folder))
    return shutil.copytree(PROBES, tmp_path / "probes")


def test_a_tampered_reference_is_seen(environments, native, probes):
    """The comparison can fail: a copy of the probes whose reference is other."""
    line = "value / (UNIT * UNIT) for value in sums"
    replace_in(probes / "_reference.py", line, f"1 + {line}")
    env = {**CLEAN, "LD_LIBRARY_PATH": str(build("cuda_stub.c", CUDA, native).parent)}
    checks = verified(environments[9], devices=1, device=None, env=env)
    (bad,) = [one for one in checks if one.status == "fail"]
    assert bad.name == "cudnn convolution"
    assert "float32 on the default stream: 8192 of 8192 values are wrong" in bad.evidence


def test_a_fleet_sees_one_bit_that_no_tolerance_does(environments, native, tmp_path):
    """Three nodes verify themselves; one bit of one node's results differs from the others'."""
    lines = []
    for node in ("n1", "n2", "odd"):
        variables = variables_of({"gpus": 2}, native, tmp_path)
        if node == "odd":
            variables["CUDNN_STUB_BIT"] = "1"
        command = f"{sys.executable} -m gpuenv"
        verify_node = f"{command} verify --json --target {environments[9]}"
        document = run_program(verify_node, env=variables, status=None).document
        assert [one for one in document["checks"] if one["status"] == "fail"] == []
        assert [path for path in document["libraries"] if path.endswith("/libcudnn.so.9")] != []
        lines.append(json.dumps({"node": node, **document}))
    nodes = {"input": "\n".join(lines), "env": variables}
    done = run_program(f"{command} fleet verify --from - --json", status=1, **nodes)
    outliers = [one for one in done.document["outliers"] if one["what"] != "time"]
    assert {(one["node"], one["what"], one["agree"]) for one in outliers} == {
        ("odd", "convolution", 2)
    }
    assert len(outliers) == 2 * 3 * 3  # devices, types, streams


def test_children_that_need_a_scarce_device_take_turns(environments, native, probes, tmp_path):
    """In exclusive mode two children would disturb each other; a probe notes when it runs."""
    note = tmp_path / "notes"
    (probes / "convolution.py").write_text(
        "import os, time\n"
        f"note = open({str(note)!r}, 'a', 1)\n"
        "note.write('in\\n')\ntime.sleep(0.2)\nnote.write('out\\n')\nos._exit(3)\n"
    )
    for mode, together in (("exclusive-process", False), ("default", True)):
        note.write_text("")
        checks = verified(environments[9], devices=3, device=None, compute_mode=mode)
        assert (note.read_text().split() != ["in", "out"] * 3) == together
        assert [one.status for one in checks if one.name == "device"] == ["unknown"] * 3


def test_a_child_that_writes_without_end_does_not_fill_the_memory(tmp_path):
    (tmp_path / "loud.py").write_text(
        "import sys\nfor _ in range(3000):\n    sys.stderr.write('x' * 10000 + '\\n')\n"
        "sys.stdout.write('y' * 10 ** 7 + '\\ngpuenv-probe: {\"a\": 1}\\n')\n"
    )
    with Children(sys.executable, CLEAN, time.monotonic() + 60, str(tmp_path)) as children:
        outcome = children.run("loud", {})
    assert outcome.answer == {"a": 1}
    assert len("".join(outcome.noise)) < 1 << 20


# ---- cuDNN's log ---------------------------------------------------------------------------------


@cases(TABLES["log"])
def test_the_reasons_in_a_log(case):
    assert [*reasons(case["text"])] == case["reasons"]
    assert "last" not in case or calls(case["text"])[-1] == case["last"]
