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
from pathlib import Path

import pytest

from gpuenv.verify.cudnn_log import calls, reasons
from gpuenv.verify.environment import verify
from gpuenv.verify.runner import PROBES, Children
from native_build import build, nvml_script
from processes import run_program
from small_wheels import write_record
from tables import cases, data_file, on_linux
from test_verification import (
    CLEAN,
    CUDNN,
    host_of,
    install,
    place,
    running_with,
    site_of,
    wait_until,
)

HERE = Path(__file__).parent
RESOLVER = HERE.parent / "resolver"
CASES = data_file("host_conditions.toml")["case"]
NVML, CUDA = "libnvidia-ml.so.1", "libcuda.so.1"

pytestmark = on_linux

VERIFY = """
import json, os, sys
from gpuenv.detect.host import detect
from gpuenv.verify.environment import verify
root, target, timeout, verbose, tests, kept = json.loads(sys.argv[1])
sys.path.append(tests)
import kept_answers
kept_answers.keep_in(kept)
host = detect(root=root, python="3.12")
checks = verify(None, target, host, frameworks=(), timeout=timeout, verbose=verbose)
json.dump([[one.name, one.subject, one.status, one.evidence] for one in checks], sys.stdout)
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
    arguments = [
        str(tmp_path / "root"),
        str(target),
        case.get("timeout", 60),
        case.get("verbose", False),
        str(HERE),
        str(target.parent),
    ]
    done = run_program(
        [sys.executable, "-c", VERIFY, json.dumps(arguments)],
        env=variables_of(case, native, tmp_path),
        timeout=100,
    )
    checks = json.loads(done.stdout)
    said = "\n".join(
        f"{status:8}{name} {subject}: {evidence}" for name, subject, status, evidence in checks
    )
    left = list(checks)
    for want in case["expect"]:
        found = [
            one
            for one in left
            if one[0] == want["check"] and subject_fits(one[1], want["subject"], case["expect"])
        ]
        assert [one[2] for one in found] == [want["status"]], f"{want}\n{said}"
        for text in want.get("has", []):
            assert text in found[0][3], f"{text}\n{said}"
        left.remove(found[0])
    assert {one[2] for one in left} <= {"pass"}, said
    for text in case.get("not", []):
        assert text not in said


def subject_fits(subject, want, expect):
    """By its beginning; the empty subject is itself."""
    return subject.startswith(want) if want else subject == ""


def test_there_are_enough_conditions():
    assert len({case["name"] for case in CASES}) == len(CASES) >= 25


def test_hung_children_are_ended_together_and_in_time(environments, native):
    """--timeout holds within two seconds, however many children hang, and no process is left."""
    marker = f"marker-{os.getpid()}-{native}"
    libcuda = build("cuda_stub.c", CUDA, native)
    env = {**CLEAN, "CUDA_STUB_DEVICES": "8", "CUDA_STUB_FAIL": "cuInit=9001", "MARKER": marker}
    begin = time.monotonic()
    checks = verify(
        None,
        str(environments[9]),
        host_of(8),
        frameworks=(),
        timeout=2,
        env={**env, "LD_LIBRARY_PATH": str(libcuda.parent)},
    )
    assert time.monotonic() - begin < 2 + 2
    assert (
        len([one for one in checks if one.name == "device" and "the driver hangs" in one.evidence])
        == 8
    )
    assert wait_until(lambda: running_with(marker) == [])


def test_a_tampered_reference_is_seen(environments, native, tmp_path):
    """The comparison can fail: a copy of the probes whose reference is other."""
    probes = tmp_path / "probes"
    shutil.copytree(PROBES, probes)
    script, line = (probes / "_reference.py").read_text(), "value / (UNIT * UNIT) for value in sums"
    assert line in script
    (probes / "_reference.py").write_text(script.replace(line, f"1 + {line}"))
    libcuda = build("cuda_stub.c", CUDA, native)
    checks = verify(
        None,
        str(environments[9]),
        host_of(1),
        frameworks=(),
        env={**CLEAN, "LD_LIBRARY_PATH": str(libcuda.parent)},
        probes=str(probes),
    )
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
        verify_node = f"verify --json --target {environments[9]}"
        done = run_program(f"{command} {verify_node}", env=variables, status=None)
        document = json.loads(done.stdout)
        assert [one for one in document["checks"] if one["status"] == "fail"] == []
        assert [path for path in document["libraries"] if path.endswith("/libcudnn.so.9")] != []
        lines.append(json.dumps({"node": node, **document}))
    done = run_program(
        f"{command} fleet verify --from - --json",
        input="\n".join(lines), env=variables, status=1)  # fmt: skip
    outliers = [one for one in json.loads(done.stdout)["outliers"] if one["what"] != "time"]
    assert {(one["node"], one["what"], one["agree"]) for one in outliers} == {
        ("odd", "convolution", 2)
    }
    assert len(outliers) == 2 * 3 * 3  # devices, types, streams


def test_children_that_need_a_scarce_device_take_turns(environments, native, tmp_path):
    """In exclusive mode two children would disturb each other; a probe notes when it runs."""
    probes = tmp_path / "probes"
    shutil.copytree(PROBES, probes)
    note = tmp_path / "notes"
    (probes / "convolution.py").write_text(
        "import os, time\n"
        f"note = open({str(note)!r}, 'a', 1)\n"
        "note.write('in\\n')\ntime.sleep(0.2)\nnote.write('out\\n')\nos._exit(3)\n"
    )
    host = host_of(3)
    for mode, together in (("exclusive-process", False), ("default", True)):
        note.write_text("")
        gpus = tuple(gpu.replace(compute_mode=mode) for gpu in host.gpus)
        checks = verify(
            None,
            str(environments[9]),
            host.replace(gpus=gpus),
            frameworks=(),
            env=CLEAN,
            probes=str(probes),
        )
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

# Real texts, of releases that ran on a machine without a GPU.
LOG_NINE = """
E! CuDNN (v92800 42) function cudnnCreate() called:
e!         Error: CUDNN_STATUS_NOT_INITIALIZED; Reason: cudaGetDeviceCount(&count) != cudaSuccess
e! Time: 2026-11-21T10:12:10.539843 (0d+0h+0m+0s since start)
e! Process=3194; Thread=3194; GPU=NULL; Handle=NULL; StreamId=NULL.


W! CuDNN (v92000 48) function cudnnBackendFinalize() called:
w!         Warning: CUDNN_STATUS_SUCCESS; Reason: cuDNN Library configuration is set to AUTO. \
Automatically configuring the library mode to FULL.

w! Time: 2026-11-21T10:12:10.539843 (0d+0h+0m+0s since start)


E! CuDNN (v92000 48) function cudnnBackendFinalize() called:
e!     Info: Traceback contains 3 message(s)
e!         Error: CUDNN_STATUS_BAD_PARAM_NULL_POINTER; Reason: Received null pointer on operation \
set at: nullptr == opset_ptr
e!         Error: CUDNN_STATUS_BAD_PARAM_NULL_POINTER; Reason: finalize_internal()
e!         Error: CUDNN_STATUS_BAD_PARAM_NULL_POINTER; Reason: ptrDesc->finalize()
e! Time: 2026-11-21T10:12:10.572292 (0d+0h+0m+0s since start)
e! Process=3194; Thread=3194; GPU=NULL; Handle=NULL; StreamId=NULL.
"""
LOG_EIGHT = """
I! CuDNN (v8907) function cudnnCreate() called:
i!     handle: location=host; addr=0x7f9c6df27190;
i! Time: 2026-11-21T10:12:10.878607 (0d+0h+0m+0s since start)
i! Process=3204; Thread=3204; GPU=NULL; Handle=NULL; StreamId=NULL.


E! CuDNN (v8907) function cudnnCreate() called:
e!     Info: Traceback contains 1 message(s)
e!         Error: CUDNN_STATUS_NOT_INITIALIZED; Reason: cudaGetDeviceCount(&count) != cudaSuccess
e! Time: 2026-11-21T10:12:10.878831 (0d+0h+0m+0s since start)


E! CuDNN (v8907) function cudnnBackendFinalize() called:
e!         Error: CUDNN_STATUS_BAD_PARAM; Reason: !knob.isValidKnob()
e!         Error: CUDNN_STATUS_BAD_PARAM; Reason: finalize_internal()


E! CuDNN (v8907) function cudnnBackendFinalize() called:
e!         Error: CUDNN_STATUS_BAD_PARAM; Reason: finalize_internal()
"""
LOG_MISSING = """
Unable to load any of {libcudnn_heuristic.so.9.28.0, libcudnn_heuristic.so.9}.
E! CuDNN (v92800 42) function cudnnBackendFinalize() called:
e!         Warning: CUDNN_STATUS_SUCCESS; Reason: Unable to load any of \
{libcudnn_heuristic.so.9.28.0}. cuDNN Library configuration is set to AUTO. Automatically \
configuring the library mode to JIT.

e!         Error: CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED; Reason: ptrDesc->finalize()
"""


def test_reasons_of_nine_without_what_callers_hand_on():
    assert reasons(LOG_NINE) == (
        "cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED: cudaGetDeviceCount(&count) != cudaSuccess",
        "cudnnBackendFinalize: CUDNN_STATUS_BAD_PARAM_NULL_POINTER: Received null pointer on "
        "operation set at: "
        "nullptr == opset_ptr",
    )


def test_reasons_of_eight():
    assert reasons(LOG_EIGHT) == (
        "cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED: cudaGetDeviceCount(&count) != cudaSuccess",
        "cudnnBackendFinalize: CUDNN_STATUS_BAD_PARAM: !knob.isValidKnob()",
        "cudnnBackendFinalize: CUDNN_STATUS_BAD_PARAM: finalize_internal()",
    )
    assert calls(LOG_EIGHT)[-1] == "cudnnBackendFinalize"


def test_reasons_of_a_library_that_cannot_be_loaded():
    found = reasons(LOG_MISSING)
    assert (
        found[0] == "Unable to load any of {libcudnn_heuristic.so.9.28.0, libcudnn_heuristic.so.9}."
    )
    assert found[1].startswith(
        "cudnnBackendFinalize: warning: Unable to load any of {libcudnn_heuristic.so.9.28.0}"
    )


def test_reasons_of_a_log_that_was_quoted_by_hand():
    text = (
        "Error: CuDNN (v92400 43) function cudnnGetConvolutionForwardAlgorithmMaxCount() called:\n"
        "Error: CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED; Reason: xDesc.finalize()\n"
    )
    call = "cudnnGetConvolutionForwardAlgorithmMaxCount"
    assert reasons(text) == (f"{call}: CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED: xDesc.finalize()",)
    assert reasons("nothing of cuDNN\nError: other") == ()
