"""The frameworks' probes: real frameworks on the CPU, and stand-ins with planted faults."""

import importlib.machinery
import json
import math
import os
import subprocess
import sys
import types
import venv

import pytest

from gpuenv.interpreters import find_interpreter_of
from gpuenv.loader_env import DRIVER_SONAMES, is_driver_library
from gpuenv.model import Choice, Python
from gpuenv.probes import _bindings as bindings
from gpuenv.probes import _framework as framework
from gpuenv.probes import _reference as reference
from gpuenv.verify.runner import LAUNCHER, PROBES
from native_build import build
from processes import run_program
from small_wheels import write_files, write_record
from tables import data_file, each, on_linux
from test_verification import (
    CLEAN,
    CUDNN,
    FAKES,
    install,
    lock_of,
    require,
    show,
    site_of,
    verified,
)

CASES = [
    pytest.param(name, case, id=f"{name}-{case['name']}")
    for case in data_file("probes.toml")["case"]
    for name in case["framework"]
]
IMPORT_ALL = """
import importlib, os, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
for name in sorted(os.listdir(sys.argv[1])):
    if name.endswith(".py"):
        try:
            importlib.import_module("probes." + name[:-3])
        except ModuleNotFoundError:  # a framework
            pass
print("imported")
"""
# 200 MB. TensorFlow's build for the CPU alone has 250, PyTorch's 200.
REAL = {"jax": "jax>=0.4.30", "onnxruntime": "onnxruntime>=1.18"}

pytestmark = on_linux


def install_fake(site, name, case):
    files = {
        "fake_arrays.py": "fake_arrays.py",
        "numpy.py": "numpy.py",
        f"{name}/__init__.py": f"{name}.py",
    }
    if name == "jax" and "plugin" not in case.get("without", ()):
        files |= {
            "jax_cuda13_plugin/__init__.py": "",
            "jax_cuda13_plugin/_versions.py": "jax_versions.py",
        }
    if "cupy.cudnn" in case.get("with", ()):
        files["cupy/cudnn.py"] = "cupy_cudnn.py"
    texts = {path: (FAKES / source).read_text() if source else "" for path, source in files.items()}
    write_files(site, texts)
    write_record(site, f"{name}-fake", "1.0", files)


def test_the_oldest_python_imports_the_probes():
    python = find_interpreter_of(Python(version=(3, 8)))
    if python is None:
        pytest.skip("no Python 3.8")
    assert run_program([python, "-B", "-c", IMPORT_ALL, PROBES]).stdout == "imported\n"


@each("name case", CASES)
def test_planted_faults(name, case, env, native):
    without, devices = case.get("without", ()), case.get("devices", 1)
    visible = case.get("visible", devices)
    if "cudnn" not in without:
        install(site_of(env), native, [])
    install_fake(site_of(env), name, case)
    variables = {"FAKE_DEVICES": str(devices), "FAKE_RESULTS": str(native)}
    variables |= {"CUDA_STUB_DEVICES": str(visible), **case.get("env", {})}
    variables["LD_LIBRARY_PATH"] = str(build("cuda_stub.c", "libcuda.so.1", native).parent)
    if "engine" not in without:
        engine = site_of(env) / CUDNN / "libcudnn_engines_precompiled.so.9"
        variables["FAKE_LIBRARIES"] = str(engine)
    options = {"devices": visible, "device": None, "frameworks": [(name, name, name)]}
    options |= {"timeout": case.get("timeout", 60), "env": {**CLEAN, **variables}}
    checks = verified(env, **options)
    # All others pass, unless the case says that they need not.
    others = {one.status for one in checks if one.name != name}
    assert case.get("shared") or others == {"pass"}, show(checks)
    require([one for one in checks if one.name == name], case["expect"])


@each("name version says", [("tensorflow", "2.21.0", False), ("torch", "2.13.0", True)])
def test_a_build_with_cuda_where_the_lock_has_none(name, version, says, env, native):
    """TensorFlow has one wheel for hosts with a GPU and without."""
    install_fake(site_of(env), name, {})
    choice = Choice(framework=name, version=version, variant="cpu", cuda=None, cudnn=None)
    variables = {"FAKE_DEVICES": "0", "FAKE_RESULTS": str(native)}
    options = {"frameworks": [(name, name, name)], "env": {**CLEAN, **variables}}
    checks = verified(env, lock_of({f"{name}-fake": "1.0"}, [choice]), **options)
    (imported,) = [one for one in checks if (one.name, one.subject) == (name, "import")]
    assert (imported.status == "fail") is says, show(checks)
    assert ("the lock says no CUDA" in imported.evidence) is says


# ---- the reference -------------------------------------------------------------------------------


def load(path):
    loader = importlib.machinery.SourceFileLoader(path.stem, str(path))
    module = types.ModuleType(loader.name)
    loader.exec_module(module)
    return module


ARRAYS = load(FAKES / "fake_arrays.py")


def test_the_reference_is_the_convolution_by_its_definition():
    images, filters = reference.inputs()
    out = ARRAYS.convolve(
        ARRAYS.Array(images, reference.INPUT), ARRAYS.Array(filters, reference.WEIGHT), ARRAYS.CPU
    )
    assert out.flat == reference.reference()


def made_framework():
    return framework.Framework({"import_name": "odd", "device": False, "devices": 0})


def test_what_is_no_number_or_too_large_or_too_few_is_never_right():
    work = made_framework()
    right = reference.reference()
    assert work.error(right) == 0
    assert math.isnan(work.error([*right[:-1], math.nan]))
    assert work.error([math.inf, *right[1:]]) == math.inf
    assert work.error([1e300, *right[1:]]) == math.inf
    with pytest.raises(ValueError, match="8191 values, not 8192"):
        work.error(right[:-1])


# ---- real frameworks, on the CPU -----------------------------------------------------------------


@pytest.fixture(scope="module")
def real(made_once):
    """An environment with the frameworks' builds for the CPU. uv keeps the downloads."""
    made = made_once("real", lambda folder: install_real(folder / "env"))
    return made / "env"


def install_real(folder):
    venv.create(folder, symlinks=True)
    install = f"{sys.executable} -m uv pip install --quiet --python {folder}/bin/python"
    done = run_program([*install.split(), *REAL.values()], status=None)
    if done.returncode != 0 and not os.environ.get("CI"):
        pytest.skip(f"no package index: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    # Probes write no bytecode: without this each of them compiles the frameworks.
    imports = "import jax.numpy, onnxruntime"
    subprocess.run([folder / "bin" / "python", "-I", "-c", imports], check=True)


def test_real_frameworks_on_the_cpu(real):
    frameworks = [(name, name, name) for name in REAL]
    found = verified(real, frameworks=frameworks, timeout=240)
    checks = {(one.name, one.subject): one for one in found}
    for name in REAL:
        assert "a CPU build" in checks[name, "import"].evidence
        for subject in ("import", "convolution CPU", "libraries"):
            assert checks[name, subject].status == "pass", checks[name, subject]


# ---- the launcher -------------------------------------------------------------------------------


def test_a_probe_runs_in_a_package_that_nothing_installed_replaces(tmp_path):
    """The folder of the probes, which has a torch.py, is not on sys.path."""
    (tmp_path / "_common.py").write_text("MARK = 'ours'\n")
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')\n")
    (tmp_path / "show.py").write_text(
        "import json, sys\nfrom . import _common\nprint(json.dumps([_common.MARK, sys.argv[1], "
        "__name__, sys.path]))\n"
    )
    command = [sys.executable, "-B", "-I", LAUNCHER, str(tmp_path / "show.py"), "{}"]
    done = run_program(command)
    mark, options, name, path = json.loads(done.stdout)
    assert (mark, options, name) == ("ours", "{}", "__main__")
    assert str(tmp_path) not in path and PROBES not in path


DRIVER_FILES = (
    "libcuda.so.1",
    "libcuda.so.580.65.06",
    "libcudadebugger.so.1",
    "libnvcuvid.so.1",
    "libnvoptix.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
)


def test_probes_and_checks_agree_on_the_libraries_of_the_driver():
    """A probe reports the libraries that a check then tells to be the driver's."""
    for name in DRIVER_FILES:
        assert is_driver_library(name) and framework.LIBRARY.match(name)
    assert all(is_driver_library(name) and bindings.LIBRARY.match(name) for name in DRIVER_SONAMES)
    for name in ("libcudart.so.13", "libcudnn.so.9", "libnvrtc.so.13", "libcurl.so.4"):
        assert not is_driver_library(name)
