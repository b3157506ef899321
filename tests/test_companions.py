"""Imports of what is beside the frameworks, and checks of other packages, in real environments."""

import os
import shutil
from pathlib import Path

import pytest

from gpuenv.api.data import compatibility_data
from gpuenv.verify import companions
from native_build import build
from small_wheels import make_lock, write_files, write_record
from tables import cases, data_file, on_linux, read_data
from test_verification import CLEAN, place, show, site_of, verified

HERE = Path(__file__).parent
TABLES = data_file("companions.toml")
BODIES = {
    "load": "import ctypes, glob, os\n"
    "for path in sorted(glob.glob(os.path.dirname(__file__) + '/*.so')):\n    ctypes.CDLL(path)\n"
}
BODIES["hide"] = BODIES["load"].replace(
    "ctypes.CDLL(path)",
    "try:\n        ctypes.CDLL(path)\n    except OSError as error:\n        print(error)",
)
TORCH = "import ctypes, os\nctypes.CDLL(os.path.dirname(__file__) + '/lib/libtorch_cpu.so')\n"
NUMPY = {"NUMPY1": "", "NUMPY2": "numpy._core._multiarray_umath\\0"}

pytestmark = on_linux


def library(native, name, needs, function):
    """A compiled library that needs others, of which empty stand-ins are compiled first."""
    if needs in NUMPY:
        texts = f"_ARRAY_API\\0{NUMPY[needs]}numpy.core._multiarray_umath"
        defines, flags = [f'NAMES="{texts}"', f'RAISES="{function}"'], []
    else:
        defines = ["CRASH"] if function == "CRASH" else [f"NEEDS={function}"] * bool(function)
        others = [str(build("library_stub.c", other, native)) for other in needs.split()]
        flags = ["-Wl,--no-as-needed", *others]
    return build("library_stub.c", name, native, defines=defines, flags=flags)


def add(site, name, files, paths=(), requires=()):
    """A distribution with texts, {path: text}, and with files that are there."""
    write_files(site, files)
    write_record(site, name, "1.0", [Path(path) for path in (*files, *paths)], requires=requires)


@pytest.fixture
def site(env, native):
    """An environment with torch and a library of CUDA 12."""
    site = site_of(env)
    torch = build("library_stub.c", "libtorch_cpu.so", native, defines=["HAS=torch_new"])
    place(torch, site / "torch/lib/libtorch_cpu.so")
    add(site, "torch", {"torch/__init__.py": TORCH}, ["torch/lib/libtorch_cpu.so"])
    add(site, "torch-user", {}, requires=["torch"])
    nvrtc = "nvidia/nvrtc/lib/libnvrtc.so.12"
    place(build("library_stub.c", "libnvrtc.so.12", native), site / nvrtc)
    add(site, "nvidia-cuda-nvrtc-cu12", {}, [nvrtc])
    add(site, "numpy", {"numpy/__init__.py": "", "numpy/broken.py": "1 / 0"})
    metadata = site / "numpy-1.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.0", "Version: 2.2.6"))
    return site


def checks_of(site, devices=0, lock=None, **env):
    """The checks that are not of files, of a verification without frameworks."""
    options = {"devices": devices, "device": devices > 0, "env": {**CLEAN, **env}, "timeout": 60}
    found = verified(site.parent.parent.parent, lock, data=compatibility_data(), **options)
    return [check for check in found if check.name in ("import", "operation", "check")]


@cases(TABLES["case"])
def test_an_import(case, site, native):
    paths, distribution = [], case.get("distribution", "odd")
    for name, needs, function in case.get("libraries", ()):
        paths.append(os.path.normpath(f"odd/{name}"))
        place(library(native, os.path.basename(name), needs, function), site / paths[-1])
    body = BODIES.get(case["body"], case["body"])
    files = {f"{distribution}/__init__.py": body, **case.get("files", {})}
    add(site, distribution, files, paths, case.get("requires", ()))
    lock = make_lock().replace(requirements=tuple(case.get("asked", ())))
    found = checks_of(site, lock=lock)
    (check,) = [check for check in found if check.subject == distribution]
    assert check.status == case["status"], show(found)
    assert [text for text in case.get("has", ()) if text not in check.evidence] == [], show(found)


def test_what_the_data_names_is_imported_and_its_operation_runs_on_every_gpu(site):
    torch = "def tensor(values, device): return values\ndef arange(count, device): return count\n"
    (site / "torch/__init__.py").write_text(torch)
    scatter = "from types import SimpleNamespace as Space\nimport os\n"
    scatter += "def scatter(values, index, reduce):\n"
    scatter += (
        "    if os.environ.get('RAISES'): raise RuntimeError('no kernel image is available')\n"
    )
    scatter += "    return Space(tolist=lambda: [2.0, float(os.environ['SECOND'])])\n"
    add(site, "torch_scatter", {"torch_scatter/__init__.py": scatter})
    add(site, "flax", {"flax/__init__.py": "import jax.no_such_name"})
    for devices, env, status, text in TABLES["operation"]:
        found = {check.name: check for check in checks_of(site, devices, **env)}
        assert (found["operation"].status, text in found["operation"].evidence) == (status, True)
        assert found["import"].status == "pass"  # of torch-scatter, the last one
    cpu = "from types import SimpleNamespace\nversion = SimpleNamespace(cuda=None)\n"
    (site / "torch/__init__.py").write_text(cpu)
    assert {check.name for check in checks_of(site, 1)} == {"import"}
    (flax,) = [check for check in checks_of(site) if check.subject == "flax"]
    assert (flax.status, "No module named 'jax'" in flax.evidence) == ("fail", True)


OWN = TABLES["own"]


def test_checks_of_other_packages(site, monkeypatch):
    monkeypatch.setattr(companions, "OWN_LIMIT", 2.0)
    bodies = [f"def {name}(*, device):\n    {body}\n" for name, (body, _, _) in OWN.items() if body]
    module = "".join(["import os, sys, time, unittest\n", *bodies])
    entries = "".join(f"{name} = own:{name}\n" for name in OWN)
    points = "own-1.0.dist-info/entry_points.txt"
    add(site, "own", {"own.py": module, points: f"[gpuenv.checks]\n{entries}"})
    found = checks_of(site)
    own = {check.subject: check for check in found if check.name == "check"}
    assert list(own) == [f"own {name}" for name in OWN]
    for name, (_, status, text) in OWN.items():
        check = own[f"own {name}"]
        assert (check.status, text in check.evidence) == (status, True), show(found)


def test_the_documented_example(site):
    page = (HERE.parent / "docs" / "api.md").read_text()
    project = read_data(HERE / "example_checks" / "pyproject.toml")["project"]
    shutil.copy(HERE / "example_checks" / "example_checks.py", site)
    (group,) = project["entry-points"]
    entries = project["entry-points"][group]
    points = "".join(f"{name} = {value}\n" for name, value in entries.items())
    path = "example_checks-1.0.dist-info/entry_points.txt"
    add(site, project["name"], {path: f"[{group}]\n{points}"}, ["example_checks.py"])
    found = checks_of(site, EXAMPLE_LICENSE="lic1")
    assert [
        (check.subject, check.status, check.evidence) for check in found if check.name == "check"
    ] == [
        ("example-checks license", "pass", "the license server is lic1"),
        ("example-checks cache", "unknown", "the kernel cache is on a GPU, and none is used"),
    ]
    for path in (HERE / "example_checks").glob("*.*"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert [line for line in lines[path.suffix == ".toml" and 4 :] if line not in page] == []
