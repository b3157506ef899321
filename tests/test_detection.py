"""Detection: a real process sees each made-up host of data/hosts.

The driver is a compiled libnvidia-ml.so.1.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuenv.api.data import compatibility_data
from gpuenv.detect import described, nvml, visible
from gpuenv.detect import host as detection
from gpuenv.errors import InputError
from gpuenv.model import Gpu, Host, Problem, Python
from gpuenv.serialize import to_plain
from native_build import build, nvml_script
from processes import program, run_program
from small_wheels import write_files
from tables import cases, data_file, each

TABLES = data_file("tables/detection.json")

HERE = Path(__file__).parent
RESOLVER = HERE.parent / "resolver"
NVML = "libnvidia-ml.so.1"
CASES = [
    pytest.param(case, id=f"{name}: {case['name']}")
    for name in ("nvml", "visible", "fallback")
    for case in data_file(f"hosts/{name}.json")
]

DETECT = """
import json, sys
from gpuenv.detect.host import detect
from gpuenv.serialize import to_plain
root, env, python = json.loads(sys.argv[1])
json.dump(to_plain(detect(root=root, env=env, python=python)), sys.stdout)
"""

# A fork for each line of stdin runs DETECT. The loader reads LD_LIBRARY_PATH at the start only, and
# the start is most of the time of a detection.
DETECT_EACH = """
import json, os, signal, sys
import pynvml
from gpuenv.detect.host import detect
from gpuenv.serialize import to_plain
for line in sys.stdin:
    (root, env, python), variables = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os.environ.update(variables)
        print(json.dumps(to_plain(detect(root=root, env=env, python=python))), flush=True)
        os._exit(0)
    print("status", os.waitpid(child, 0)[1], flush=True)
"""


class Stubs:
    """The compiled stand-ins: NVML, NVML of 2018, libcuda, and the audit module.

    The audit module hides the real libraries.
    """

    def __init__(self, folder):
        self.folder = folder
        self.nvml = build("nvml_stub.c", NVML, folder)
        self.old = build("nvml_stub.c", NVML, folder, defines=["OLD_DRIVER"])
        self.cuda = build("cuda_version_stub.c", "libcuda.so.1", folder)
        self.audit = build("refuse_audit.c", "refuse_audit.so", folder)


@pytest.fixture(scope="session")
def stubs(native):
    return Stubs(native)


def run(code, arguments, env):
    """What a fresh interpreter prints as JSON."""
    done = run_program(
        [sys.executable, "-c", code, json.dumps(arguments)],
        env={"PYTHONPATH": str(RESOLVER), "PATH": "", **env},
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


class Detectors:
    """Interpreters that detect hosts in forks, {LD_LIBRARY_PATH: its interpreter}."""

    def __init__(self, folders, environment):
        self.processes = {}
        environment = {"PYTHONPATH": str(RESOLVER), "PATH": "", **environment}
        for folder in folders:
            self.processes[folder] = subprocess.Popen(
                [sys.executable, "-c", DETECT_EACH], env={**environment, "LD_LIBRARY_PATH": folder},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip

    def close(self):
        for process in self.processes.values():
            process.communicate()

    def detect(self, arguments, env):
        """The host that a process with these variables detects."""
        process = self.processes.get(env["LD_LIBRARY_PATH"])
        if process is None:
            return run(DETECT, arguments, env)
        process.stdin.write(json.dumps([arguments, env]) + "\n")
        process.stdin.flush()
        output = ""
        for line in process.stdout:
            if line.startswith("status "):
                break
            output += line
        assert line == "status 0\n", output
        return json.loads(output)


@pytest.fixture(scope="module")
def detectors(stubs, tmp_path_factory):
    """Yield interpreters: one that finds the stand-in of NVML, and one that does not."""
    allowed = f"{stubs.folder}:{tmp_path_factory.getbasetemp()}"
    environment = {"LD_AUDIT": str(stubs.audit), "REFUSE_EXCEPT": allowed}
    detectors = Detectors(["", str(stubs.nvml.parent)], environment)
    yield detectors
    detectors.close()


def make_root(case, root):
    write_files(root, case.get("files", {}))
    for name, target in case.get("links", {}).items():
        (root / target).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(root / target)


def make_nvidia_smi(case, folder):
    """Write a script that answers the two queries of gpuenv and refuses any other command line."""
    folder.mkdir()
    if "smi" not in case:
        return
    lines = ['[ "$2" = "--format=csv,noheader,nounits" ] || exit 9', 'case "$1" in']
    base = "--query-gpu=index,name,uuid,pci.bus_id,memory.total,memory.free,driver_version"
    for kind, pattern in (("with", f"{base},compute_cap"), ("without", base)):
        answer = case["smi"].get(kind, {"out": "", "status": 9})
        out = answer["out"].replace("'", "'\\''")
        lines.append(f"{pattern}) printf '%s\\n' '{out}'; exit {answer.get('status', 0)};;")
    program(folder / "nvidia-smi", "\n".join([*lines, "esac", "exit 9"]))


def make_loader_env(case, stubs, tmp_path, root):
    env = {
        "LD_AUDIT": str(stubs.audit),
        "REFUSE_EXCEPT": f"{stubs.folder}:{tmp_path}",
        "NVML_STUB": str(tmp_path / "nvml.txt"),
        "NVML_STUB_LOG": str(tmp_path / "calls.txt"),
    }
    folders = []
    (tmp_path / "nvml.txt").write_text(nvml_script(case.get("nvml", {})))
    kind = case.get("nvml_kind", "loader" if "nvml" in case else "missing")
    if kind in ("loader", "old"):
        folders.append((stubs.nvml if kind == "loader" else stubs.old).parent)
    elif kind == "broken":
        folders.append(tmp_path / "broken")
        folders[-1].mkdir()
        (folders[-1] / NVML).touch()
    elif kind != "missing":
        (root / kind).mkdir(parents=True)
        (root / kind / NVML).symlink_to(stubs.nvml)
    if "libcuda" in case:
        folders.append(stubs.cuda.parent)
        env["CUDA_VERSION_STUB"] = str(case["libcuda"])
    return env | {"LD_LIBRARY_PATH": ":".join(map(str, folders))}


@each("case", CASES)
def test_host(case, stubs, detectors, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    make_root(case, root)
    make_nvidia_smi(case, tmp_path / "bin")
    loader = make_loader_env(case, stubs, tmp_path, root)
    env = {"PATH": str(tmp_path / "bin"), **case.get("env", {})}
    host = detectors.detect([str(root), env, "3.12"], loader)

    expect = case["expect"]
    for key in ("driver", "driver_cuda", "virtualization"):
        if key in expect:
            assert host.get(key) == expect[key], key
    problems = host.get("problems", [])
    assert [problem["code"] for problem in problems] == expect["problems"], problems
    assert all(problem["detail"] and problem["hint"] for problem in problems)
    said = "\n".join(f"{problem['detail']}\n{problem['hint']}" for problem in problems)
    for text in expect.get("says", []):
        assert text in said
    assert len(host.get("gpus", [])) == len(expect["gpus"]), host
    defaults = Gpu(name="", compute_capability=None)
    for gpu, facts in zip(host.get("gpus", []), expect["gpus"], strict=True):
        assert {key: gpu.get(key, getattr(defaults, key)) for key in facts} == facts
    sources = dict(host["sources"])
    assert {key: sources.get(key) for key in expect.get("sources", {})} == expect.get("sources", {})
    check_calls(tmp_path / "calls.txt", case)


def test_what_the_driver_does_not_say_the_tables_know(stubs, tmp_path):
    """An nvidia-smi that knows no compute capability names the GPU and the driver's release."""
    case = next(
        one.values[0] for one in CASES if one.id == "fallback: nvidia-smi without compute_cap"
    )
    root = tmp_path / "root"
    root.mkdir()
    make_root(case, root)
    make_nvidia_smi(case, tmp_path / "bin")
    loader = make_loader_env(case, stubs, tmp_path, root)
    composed = DETECT.replace("from gpuenv.detect.host import detect", "from gpuenv import detect")
    host = run(composed, [str(root), {"PATH": str(tmp_path / "bin")}, "3.12"], loader)
    assert [gpu["compute_capability"] for gpu in host["gpus"]] == [[9, 0]]
    assert host["driver_cuda"] == [12, 2]
    assert ["compute_capability", "the GPU's name"] in host["sources"]


def check_calls(log, case):
    """NVML is shut down only if it was started. The unreliable call is never made."""
    calls = log.read_text().split() if log.exists() else []
    refused = any(name == "nvmlInitWithFlags" for name, *_ in case.get("nvml", {}).get("fail", []))
    assert calls.count("nvmlInitWithFlags") == ("nvml" in case)
    assert calls.count("nvmlShutdown") == ("nvml" in case and not refused)
    assert "nvmlSystemGetCudaDriverVersion" not in calls


def test_driver_that_hangs(stubs, tmp_path):
    """The devices and the release come from /proc; nvidia-smi would hang too and is not run."""
    root = tmp_path / "root"
    smi = {"with": {"out": "0, NVIDIA X, GPU-1, 0:0, 1, 1, 999.99, 9.0"}}
    case = {
        "files": {"proc/driver/nvidia/gpus/0000:1b:00.0/information": "Model: Tesla T4\n"},
        "smi": smi,
    }
    root.mkdir()
    make_root(case, root)
    make_nvidia_smi(case, tmp_path / "bin")
    for function in ("nvmlInitWithFlags", "nvmlDeviceGetCount_v2"):
        hang = {"nvml": {"hang": [function]}}
        code = DETECT.replace(
            "import json, sys", "import json, sys\nfrom gpuenv.detect import nvml"
        ).replace("root, env", "nvml.read.__defaults__ = (0.2,)\nroot, env", 1)
        env = {"PATH": str(tmp_path / "bin")}
        host = run(code, [str(root), env, "3.12"], make_loader_env(hang, stubs, tmp_path, root))
        assert [problem["code"] for problem in host["problems"]] == ["nvml-timeout"]
        assert [gpu["name"] for gpu in host["gpus"]] == ["Tesla T4"]


# ---- the laws of CUDA_VISIBLE_DEVICES ------------------------------------------------------------

ENTRIES = st.sampled_from(
    ["0", "1", "2", "3", "-1", "", " 1", "1x", "GPU-", "GPU-a", "GPU-b0", "MIG-", "MIG-a", "no"]
)
DEVICES = [
    nvml.Device(index=0, gpu=Gpu(name="A", compute_capability=(8, 0), index=0, uuid="GPU-a0")),
    nvml.Device(index=1, gpu=Gpu(name="A", compute_capability=(8, 0), index=1, uuid="GPU-b0")),
    nvml.Device(index=2, gpu=None),
]


@given(
    st.lists(ENTRIES, max_size=4) | st.lists(st.text(max_size=6), max_size=4),
    st.sampled_from([None, "580.65"]),
)
def test_visible_devices_are_devices(entries, driver):
    gpus, problems, _ = visible.select(DEVICES, {"CUDA_VISIBLE_DEVICES": ",".join(entries)}, driver)
    assert len(set(gpus)) == len(gpus)
    assert set(gpus) <= {device.gpu for device in DEVICES}
    # CUDA reads the number that an entry begins with. Device 2 is lost; detection has said so.
    assert gpus or problems or re.match(r"\s*\+?0*2(?!\d)", entries[0])


@given(st.permutations(range(4)), st.integers(1, 4))
def test_index_and_uuid_mean_the_same(order, count):
    devices = [
        nvml.Device(index=n, gpu=Gpu(name="A", compute_capability=(8, 0), index=n, uuid=f"GPU-{n}"))
        for n in range(4)
    ]
    by_index = visible.select(
        devices, {"CUDA_VISIBLE_DEVICES": ",".join(map(str, order[:count]))}, None
    )
    by_uuid = visible.select(
        devices, {"CUDA_VISIBLE_DEVICES": ",".join(f"GPU-{n}" for n in order[:count])}, None
    )
    assert [gpu.index for gpu in by_index[0]] == order[:count]
    assert by_index[:2] == by_uuid[:2]


# ---- interpreters --------------------------------------------------------------------------------


def test_python_asked(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    version = ".".join(map(str, sys.version_info[:3]))
    for python in (str(tmp_path / "bin" / "python"), str(tmp_path), "python"):
        host = detection.detect(
            root=str(tmp_path), env={"PATH": str(tmp_path / "bin")}, python=python
        )
        assert host.python.version == sys.version_info[:2]
        assert (host.python.full_version or "").startswith(version)
        assert host.python.executable == str(tmp_path / "bin" / "python")
        assert dict(host.sources)["glibc"] == "the target interpreter"


@each("script", ["exit 1", "echo hello", "echo 'gpuenv|2.7.18||none'", "echo 'gpuenv|x|y'"])
def test_python_that_is_none(tmp_path, script):
    python = program(tmp_path / "python", script)
    with pytest.raises(InputError, match=str(python)):
        detection.detect(root=str(tmp_path), env={"PATH": ""}, python=str(python))


@each("files python", TABLES["active_virtual_environment"])
def test_active_virtual_environment(tmp_path, files, python):
    make_root({"files": files | {"bin/python": "never run"}}, tmp_path)
    host = detection.detect(root=str(tmp_path), env={"VIRTUAL_ENV": str(tmp_path), "PATH": ""})
    assert (host.python.full_version or "") + "t" * host.python.free_threaded == python
    assert host.python.version == tuple(map(int, python.split(".")[:2]))
    assert host.python.executable == str(tmp_path / "bin" / "python")
    assert dict(host.sources)["python"] == "VIRTUAL_ENV: pyvenv.cfg"


def test_active_conda_environment(tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    host = detection.detect(root=str(tmp_path), env={"CONDA_PREFIX": str(tmp_path), "PATH": ""})
    assert host.python.version == sys.version_info[:2]
    assert host.python.executable == str(python)
    assert dict(host.sources)["python"] == f"CONDA_PREFIX: asked {python}"


# ---- hosts made of flags -------------------------------------------------------------------------

DESCRIBED = data_file("hosts/described.json")
DATA = compatibility_data()
BASE = Host(
    machine="x86_64",
    glibc=(2, 31),
    python=Python(version=(3, 11), executable="/usr/bin/python3"),
    gpus=(Gpu(name="A", compute_capability=(8, 0)),),
    driver="535.183.01",
    driver_cuda=(12, 2),
    virtualization="container",
    problems=(
        Problem(code="driver-library-mismatch", detail="d"),
        Problem(code="gpu-lost", detail="d"),
    ),
    sources=(("driver", "NVML"), ("glibc", "confstr"), ("mig", "x")),
)


def describe(flags, base):
    names = ("gpus", "driver", "python", "platform", "glibc")
    facts = {"gpus": [], "python": "3.12"} | flags
    return described.describe(base, DATA, **{name: facts.get(name) for name in names})


@cases(DESCRIBED["hosts"])
def test_described(case):
    plain = to_plain(describe(case["flags"], BASE if case.get("base") else None))
    host = Host(python=Python(version=(3, 12)))
    defaults = to_plain({name: getattr(host, name) for name in Host.__struct_fields__})
    assert {key: plain.get(key, defaults[key]) for key in case["expect"]} == case["expect"]


@each("case", DESCRIBED["refused"], ids=lambda case: case["error"])
def test_described_refused(case):
    with pytest.raises(InputError) as error:
        describe(case["flags"], None)
    assert case["error"] in error.value.message
    assert "\n" not in error.value.message
    assert case["hint"] in error.value.hint


# ---- hosts as files ------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
PAIR = st.tuples(st.integers(0, 99), st.integers(0, 99))
SIZE = st.none() | st.integers(0, 2**50)
GPU = st.builds(
    Gpu, name=TEXT, compute_capability=st.none() | PAIR, index=SIZE, uuid=st.none() | TEXT,
    pci_bus_id=st.none() | TEXT,
    memory_total=SIZE, memory_free=SIZE, compute_mode=st.none() | TEXT,
    ecc=st.none() | st.booleans(), mig=st.booleans()
)  # fmt: skip
HOST = st.builds(
    Host,
    os=TEXT, machine=TEXT, glibc=st.none() | PAIR,
    python=st.builds(Python, version=PAIR, full_version=st.none() | TEXT,
                     free_threaded=st.booleans(), executable=st.none() | TEXT),
    gpus=st.lists(GPU, max_size=3).map(tuple),
    driver=st.none() | st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){1,3}", fullmatch=True),
    driver_cuda=st.none() | PAIR, virtualization=st.none() | TEXT,
    problems=st.lists(st.builds(Problem, code=TEXT, detail=TEXT, hint=TEXT), max_size=2).map(tuple),
    sources=st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple),
)  # fmt: skip


@pytest.fixture(scope="session")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("hosts") / "host.json"


@given(host=HOST)
def test_file_gives_the_host_back(scratch, host):
    detection.write_host(host, scratch)
    assert detection.read_host(scratch) == host
    assert os.listdir(scratch.parent) == ["host.json"]


@each("text said", TABLES["files_refused"])
def test_file_refused(tmp_path, text, said):
    path = tmp_path / "h.json"
    path.write_text(text.replace("DEEP", "[" * 100_000), encoding="latin-1")
    with pytest.raises(InputError) as error:
        detection.read_host(path)
    assert str(path) in str(error.value)
    assert said in str(error.value)
