"""Packages that compile code for what is installed: solve, sync, and what must be there.

The index has a torch of a few lines under the version of a real one, and projects whose backends
import it. They write what their build saw into their wheel.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from index_server import BACKEND, BUILD_SYSTEM, IndexServer
from tables import each
from test_asking import HERE, lock_of, pins
from test_cli import contents, run

SEEN = "MAX_JOBS TORCH_CUDA_ARCH_LIST CUDA_HOME FLASH_ATTN_CUDA_ARCHS FLASH_ATTENTION_FORCE_BUILD"
# Writes the version of the package that it imports, and variables of the build, into the wheel.
COMPILES = """
import os, json, {module}
names = "{seen}".split()
seen = {{name: os.environ[name] for name in names if name in os.environ}}
seen["module"] = {module}.__version__
"""
WRITES = 'f"built = {seen!r}\\n"'
GPU = ["--gpu", "RTX 3090", "--driver", "580.65.06", "--python", HERE]
TORCH = {"cuda 13": "2.15.0", "cuda 12": "2.10.0"}


def backend(module: str) -> str:
    head = COMPILES.format(module=module, seen=SEEN)
    return head + BACKEND.replace('"built = True\\n"', WRITES)


def nvcc(folder: Path, version: str) -> str:
    """A toolkit whose nvcc tells its version."""
    home = folder.parent / f"cuda-{version}"
    (home / "include" / "crt").mkdir(parents=True)
    (home / "bin").mkdir()
    program = home / "bin" / "nvcc"
    program.write_text(f"#!/bin/sh\necho Cuda compilation tools, release {version}, V{version}.1\n")
    program.chmod(0o755)
    return str(home)


def seen(folder: Path) -> dict[str, str]:
    python = str(folder / "env" / "bin" / "python")
    command = [python, "-c", "import json, flash_attn; print(json.dumps(flash_attn.built))"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


def command(folder: Path, server: IndexServer, *words: str, **environment: str) -> Any:
    return run([*words, *GPU, "--index-url", server.url], folder, **environment)


def add_torch(server: IndexServer, version: str, **options: Any) -> None:
    for tool in ("ninja", "packaging", "psutil", "wheel"):
        server.add(tool, "99.0")
    server.add("torch", version, files={"torch/__init__.py": f"__version__ = '{version}'\n"})
    options = {"metadata_version": "2.1", "backend": backend("torch")} | options
    server.add_sdist("flash-attn", "2.8.3", ["torch"], **options)


def sync(folder: Path, server: IndexServer, **environment: str) -> Any:
    words = ("sync", "pylock.toml", "--target", "env", "--no-verify")
    return command(folder, server, *words, **environment)


def test_from_the_request_to_the_environment(folder: Path) -> None:
    """It is built beside torch, for the GPU, and again when torch is another release."""
    home = nvcc(folder, "13.0")
    with IndexServer() as server:
        add_torch(server, "2.14.0")
        server.add("torch", "2.15.0", files={"torch/__init__.py": "__version__ = '2.15.0'\n"})
        done = command(folder, server, "solve", "flash-attn", "torch==2.14.0")
        assert done.returncode == 0, done.stderr
        text = " ".join(done.stdout.split())
        assert "flash-attn 2.8.3: sync compiles it for torch 2.14.0, which needs a C++" in text
        assert "building" not in done.stderr
        own = {one["name"]: one.get("tool") for one in lock_of(folder)["packages"]}
        assert own == {"flash-attn": {"gpuenv": {"built-with": "torch"}}, "torch": None}
        synced = sync(folder, server, CUDA_HOME=home, MAX_JOBS="3")
        assert synced.returncode == 0, synced.stderr
        assert (
            "building a wheel of flash-attn 2.8.3: no wheel fits; it is compiled" in synced.stderr
        )
        assert seen(folder) == {
            "module": "2.14.0",
            "MAX_JOBS": "3",
            "CUDA_HOME": home,
            "TORCH_CUDA_ARCH_LIST": "8.6",
            "FLASH_ATTN_CUDA_ARCHS": "80",
            "FLASH_ATTENTION_FORCE_BUILD": "TRUE",
        }
        again = sync(folder, server, CUDA_HOME=home)
        assert again.returncode == 0 and "building" not in again.stderr, again.stderr
        assert command(folder, server, "solve", "flash-attn", "torch").returncode == 0
        synced = sync(folder, server, CUDA_HOME=home)
        assert synced.returncode == 0 and "building" in synced.stderr, synced.stderr
        assert seen(folder)["module"] == "2.15.0"


MISSING = {
    "no compiler": (
        "2.15.0",
        {"CXX": "no-such-compiler"},
        "this needs a C++ compiler; found",
    ),
    "no toolkit": (
        "2.10.0",
        {"CUDA_HOME": "/nowhere"},
        "this needs nvcc of CUDA 12, as torch has; found none; install the CUDA toolkit 12.8",
    ),
    "a toolkit of another major": (
        "2.10.0",
        {"CUDA_HOME": "13.0"},
        "this needs nvcc of CUDA 12, as torch has; found",
    ),
}


@each("torch variables says", MISSING)
def test_what_is_missing_is_said_first(
    folder: Path, torch: str, variables: dict[str, str], says: str
) -> None:
    places = {
        name: nvcc(folder, text) if text[0].isdigit() else text for name, text in variables.items()
    }
    with IndexServer() as server:
        add_torch(server, torch)
        assert command(folder, server, "solve", "flash-attn", "torch").returncode == 0
        before = contents(folder)
        done = sync(folder, server, **places)
        assert done.returncode == 4 and contents(folder) == before
        assert says in " ".join(done.stderr.split())
        assert "making" not in done.stderr and "/packages/" not in " ".join(server.paths()[-1:])


def test_without_a_toolkit_nvcc_comes_from_wheels_of_the_index(folder: Path) -> None:
    with IndexServer() as server:
        add_torch(server, "2.15.0")
        assert command(folder, server, "solve", "flash-attn", "torch").returncode == 0
        before = contents(folder)
        done = sync(folder, server, CUDA_HOME="/nowhere")
        said = " ".join(done.stderr.split())
        assert done.returncode == 4 and contents(folder) == before
        assert "nvidia-cuda-nvcc" in said and "no CUDA 13 toolkit is here" in said
        assert "install the CUDA toolkit 13." in said


def test_a_module_that_a_release_requires_is_there_when_it_is_built(folder: Path) -> None:
    """The isolated build fails; nothing is known about the project in advance."""
    with IndexServer() as server:
        server.add("beta", "1.0", files={"beta.py": "__version__ = '1.0'\n"})
        options = {"metadata_version": "2.1", "backend": backend("beta")}
        server.add_sdist("others", "1.0", ["beta"], **options)
        server.add_sdist("without", "1.0", [], **options)
        words = ("--gpu", "none", "--python", HERE, "--index-url", server.url)
        done = run(["solve", "others", *words], folder)
        assert done.returncode == 0, done.stderr
        assert pins(folder) == {"beta": "1.0", "others": "1.0"}
        done = run(["sync", "--target", "env", "--no-verify", *words], folder)
        assert done.returncode == 0, done.stderr
        done = run(["solve", "without", *words], folder)
        assert done.returncode == 3 and "needs beta at build time" in " ".join(done.stderr.split())


STATES = BUILD_SYSTEM.replace("[]", '["torch<2.11"]')


@pytest.mark.parametrize(
    ("gpu", "options", "says"),
    [
        ("V100", {}, "needs code for compute capability 7.0"),
        ("none", {}, "flash-attn 2.8.3 needs a GPU"),
        ("RTX 3090", {"build_system": STATES}, "torch 2.10.0"),
    ],
)
def test_what_a_build_needs_decides_the_solve(
    folder: Path, gpu: str, options: dict[str, Any], says: str
) -> None:
    """Which devices a project compiles for, and which torch its build requires."""
    with IndexServer() as server:
        add_torch(server, "2.10.0", **options)
        server.add("torch", "2.15.0")
        words = ["--gpu", gpu, "--python", HERE]
        words += ["--driver", "580.65.06"] if gpu != "none" else []
        done = run(["solve", "flash-attn", "torch", *words, "--index-url", server.url], folder)
        assert says in " ".join((done.stdout + done.stderr).split())


def test_a_download_has_its_source_distribution(folder: Path) -> None:
    """No other environment has the torch to compile for: sync builds it."""
    with IndexServer() as server:
        add_torch(server, "2.15.0")
        assert command(folder, server, "solve", "flash-attn", "torch").returncode == 0
        words = ["download", "pylock.toml", "-d", "files", "--index-url", server.url]
        done = run(words, folder)
        assert done.returncode == 0, done.stderr
        assert "flash-attn 2.8.3 is compiled for torch when it is installed" in done.stderr
        names = {"flash_attn-2.8.3.tar.gz", "torch-2.15.0-py3-none-any.whl"}
        assert names <= set(os.listdir(folder / "files"))
