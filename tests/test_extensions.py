"""Packages that compile code for what is installed: solve, sync, and what must be there.

The index has a torch of a few lines under the version of a real one, and projects whose backends
import it. They write what their build saw into their wheel.
"""

import os

from index_server import BACKEND, BUILD_SYSTEM
from processes import program, run_program
from tables import data_file, each
from test_asking import HERE, lock_of, pins
from test_cli import contents

SEEN = "MAX_JOBS TORCH_CUDA_ARCH_LIST CUDA_HOME FLASH_ATTN_CUDA_ARCHS FLASH_ATTENTION_FORCE_BUILD"
# Writes the version of the package that it imports, and variables of the build, into the wheel.
COMPILES = """
import os, json, {module}
names = "{seen}".split()
seen = {{name: os.environ[name] for name in names if name in os.environ}}
seen["module"] = {module}.__version__
"""
WRITES = 'f"built = {seen!r}\\n"'
GPU = f"--gpu 'RTX 3090' --driver 580.65.06 --python {HERE}"

SYNC = f"sync pylock.toml --target env --no-verify {GPU}"


def backend(module):
    head = COMPILES.format(module=module, seen=SEEN)
    return head + BACKEND.replace('"built = True\\n"', WRITES)


def nvcc(folder, version):
    """A toolkit whose nvcc tells its version."""
    home = folder.parent / f"cuda-{version}"
    (home / "include" / "crt").mkdir(parents=True)
    (home / "bin").mkdir()
    program(home / "bin" / "nvcc", f"echo Cuda compilation tools, release {version}, V{version}.1")
    return str(home)


def seen(folder):
    code = "import json, flash_attn; print(json.dumps(flash_attn.built))"
    return run_program([folder / "env" / "bin" / "python", "-c", code]).document


def add_torch(server, version, **options):
    for tool in ("ninja", "packaging", "psutil", "wheel"):
        server.add(tool, "99.0")
    server.add("torch", version, files={"torch/__init__.py": f"__version__ = '{version}'\n"})
    options = {"metadata_version": "2.1", "backend": backend("torch")} | options
    server.add_sdist("flash-attn", "2.8.3", ["torch"], **options)


def test_from_the_request_to_the_environment(folder, server, command):
    """It is built beside torch, for the GPU, and again when torch is another release."""
    home = nvcc(folder, "13.0")
    add_torch(server, "2.14.0")
    server.add("torch", "2.15.0", files={"torch/__init__.py": "__version__ = '2.15.0'\n"})
    done = command(f"solve flash-attn torch==2.14.0 {GPU}")
    assert "flash-attn 2.8.3: sync compiles it for torch 2.14.0, which needs a C++" in done.text
    assert "building" not in done.stderr
    own = {one["name"]: one.get("tool") for one in lock_of(folder)["packages"]}
    assert own == {"flash-attn": {"gpuenv": {"built-with": "torch"}}, "torch": None}
    synced = command(SYNC, CUDA_HOME=home, MAX_JOBS="3")
    assert "building a wheel of flash-attn 2.8.3: no wheel fits; it is compiled" in synced.stderr
    assert seen(folder) == {
        "module": "2.14.0",
        "MAX_JOBS": "3",
        "CUDA_HOME": home,
        "TORCH_CUDA_ARCH_LIST": "8.6",
        "FLASH_ATTN_CUDA_ARCHS": "80",
        "FLASH_ATTENTION_FORCE_BUILD": "TRUE",
    }
    assert "building" not in command(SYNC, CUDA_HOME=home).stderr
    command(f"solve flash-attn torch {GPU}")
    assert "building" in command(SYNC, CUDA_HOME=home).stderr
    assert seen(folder)["module"] == "2.15.0"


@each("torch variables says", data_file("tables/extensions.json")["missing"])
def test_what_is_missing_is_said_first(folder, torch, variables, says, server, command):
    places = {
        name: nvcc(folder, text) if text[0].isdigit() else text for name, text in variables.items()
    }
    add_torch(server, torch)
    command(f"solve flash-attn torch {GPU}")
    before = contents(folder)
    done = command(SYNC, **places, status=4)
    assert contents(folder) == before
    assert says in done.text
    assert "making" not in done.stderr and "/packages/" not in " ".join(server.paths()[-1:])


def test_without_a_toolkit_nvcc_comes_from_wheels_of_the_index(folder, server, command):
    add_torch(server, "2.15.0")
    command(f"solve flash-attn torch {GPU}")
    before = contents(folder)
    said = command(SYNC, CUDA_HOME="/nowhere", status=4).text
    assert contents(folder) == before
    assert "nvidia-cuda-nvcc" in said and "no CUDA 13 toolkit is here" in said
    assert "install the CUDA toolkit 13." in said


def test_a_module_that_a_release_requires_is_there_when_it_is_built(folder, server, command):
    """The isolated build fails; nothing is known about the project in advance."""
    server.add("beta", "1.0", files={"beta.py": "__version__ = '1.0'\n"})
    options = {"metadata_version": "2.1", "backend": backend("beta")}
    server.add_sdist("others", "1.0", ["beta"], **options)
    server.add_sdist("without", "1.0", [], **options)
    command("solve others")
    assert pins(folder) == {"beta": "1.0", "others": "1.0"}
    command("sync --target env --no-verify")
    assert "needs beta at build time" in command("solve without", status=3).text


STATES = BUILD_SYSTEM.replace("[]", '["torch<2.11"]')


@each(
    "gpu options says",
    [
        ("V100", {}, "needs code for compute capability 7.0"),
        ("none", {}, "flash-attn 2.8.3 needs a GPU"),
        ("RTX 3090", {"build_system": STATES}, "torch 2.10.0"),
    ],
)
def test_what_a_build_needs_decides_the_solve(folder, gpu, options, says, server, command):
    """Which devices a project compiles for, and which torch its build requires."""
    add_torch(server, "2.10.0", **options)
    server.add("torch", "2.15.0")
    driver = "--driver 580.65.06" if gpu != "none" else ""
    host = f"--gpu '{gpu}' --python {HERE} {driver}"
    assert says in command(f"solve flash-attn torch {host}", status=None).text


def test_a_download_has_its_source_distribution(folder, server, command):
    """No other environment has the torch to compile for: sync builds it."""
    add_torch(server, "2.15.0")
    command(f"solve flash-attn torch {GPU}")
    done = command("download pylock.toml -d files")
    assert "flash-attn 2.8.3 is compiled for torch when it is installed" in done.stderr
    names = {"flash_attn-2.8.3.tar.gz", "torch-2.15.0-py3-none-any.whl"}
    assert names <= set(os.listdir(folder / "files"))
