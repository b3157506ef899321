"""Run the kernels of variant wheels on this host: those of the chosen wheel, and of all others.

    python scripts/tools.py prove variant-kernels [--nvcc EXE] [--record FILE]

nvcc compiles a small library for each variant, with real device code for other architectures. They
become wheels, from which gpuenv solves for this host, syncs an environment and verifies it. Then
the library of the chosen wheel runs its kernel on every device, and so does each other library:
exactly those that gpuenv did not refuse for their device code must succeed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import run_gpuenv
from gpuenv.prefix import interpreter_of
from prove.device import gpu_host
from variant_maker import NVIDIA_PROVIDER, make_release

# Returns the number of devices on which the kernel ran, or the negative error of CUDA.
SOURCE = r"""
__global__ void write_answer(int *out) { *out = 42; }

extern "C" int run_on_all_devices(void) {
    int count = 0, ran = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    for (int device = 0; !error && device < count; device++) {
        int *memory = 0, answer = 0;
        error = cudaSetDevice(device);
        if (!error) error = cudaMalloc(&memory, sizeof(int));
        if (!error) write_answer<<<1, 1>>>(memory);
        if (!error) error = cudaGetLastError();
        if (!error) error = cudaMemcpy(&answer, memory, sizeof(int), cudaMemcpyDeviceToHost);
        ran += answer == 42;
    }
    return error ? -(int)error : ran;
}
"""
RUN = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).run_on_all_devices())"

# package -> label -> (the properties sm_arch, the targets of nvcc)
PACKAGES: dict[str, dict[str, tuple[list[str], list[str]]]] = {
    "split": {
        "ampere": (["80_real"], ["sm_80"]),
        "hopper": (["90_real"], ["sm_90"]),
        "blackwell": (["100_real", "120_real"], ["sm_100", "sm_120"]),
        "null": ([], []),
    },
    "ptx": {"only_ptx": (["80_virtual"], ["compute_80"]), "null": ([], [])},
    "liar": {
        "first": (["90_real"], ["sm_80"]),
        "second": (["80_real"], ["sm_80", "sm_90"]),
        "null": ([], []),
    },
}


def compile_library(nvcc: str, targets: Sequence[str], path: Path) -> bytes:
    """Return a shared library with a kernel for some targets."""
    source = path.with_suffix(".cu")
    source.write_text(SOURCE)
    flags = ["-shared", "-Xcompiler", "-fPIC", "-cudart", "static"]
    for target in targets:
        number = target.partition("_")[2]
        flags += ["-gencode", f"arch=compute_{number},code={target}"]
    subprocess.run([nvcc, *flags, "-o", str(path), str(source)], check=True)
    return path.read_bytes()


def make_wheels(nvcc: str, folder: Path) -> dict[tuple[str, str], Path]:
    """Write the wheels to links/, and return the libraries by package and label."""
    toolkit = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    bound = toolkit.partition("release ")[2].partition(",")[0]
    libraries = {}
    (folder / "links").mkdir()
    for package, labels in PACKAGES.items():
        variants, files = {}, {}
        for label, (properties, targets) in labels.items():
            variants[label] = {}
            if targets:
                path = folder / f"{package}-{label}.so"
                content = compile_library(nvcc, targets, path)
                libraries[package, label] = path
                files[label] = {f"{package}_library.so": content}
                nvidia = {"cuda_version_lower_bound": [bound], "sm_arch": properties}
                variants[label] = {"nvidia": nvidia}
        make_release(
            folder / "links",
            package,
            "1.0",
            variants,
            providers={"nvidia": NVIDIA_PROVIDER},
            files=files,
        )
    return libraries


def ask(folder: Path, *words: str) -> dict[str, Any]:
    """Run a command of gpuenv and return its JSON document. End if the command fails."""
    done = run_gpuenv(*words, "--json", folder=folder)
    if done.returncode:
        sys.exit(f"gpuenv {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def run_library(python: str, path: Path) -> int:
    """Return what the library returns, in a process of its own."""
    command = [python, "-c", RUN, str(path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(process.stdout) if process.returncode == 0 else -1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the compiler."""
    parser.add_argument("--nvcc", default="nvcc", metavar="EXE")


def prove(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run the installed library of each package, and those of all its variants."""
    gpus = gpu_host()["gpus"]
    with tempfile.TemporaryDirectory(prefix="variants-") as name:
        folder = Path(name)
        libraries = make_wheels(arguments.nvcc, folder)
        plan = ask(folder, "solve", *PACKAGES, "--no-index", "--find-links", "links")
        ask(folder, "sync", "pylock.toml", "--target", "env", "--no-verify")
        python = interpreter_of(str(folder / "env"))
        (site,) = folder.glob("env/lib/python*/site-packages")
        record: dict[str, Any] = {"gpus": [gpu["name"] for gpu in gpus], "packages": {}}
        faults = []
        for package in PACKAGES:
            refused = sorted(
                row["version"].partition("(")[2].rstrip(")")
                for row in plan["skipped"]
                if row["name"] == package
                and any(reason["code"] == "no-code-for-device" for reason in row["reasons"])
            )
            installed = run_library(python, site / f"{package}_library.so")
            devices = {
                label: run_library(python, path)
                for (name, label), path in libraries.items()
                if name == package
            }
            failed = sorted(label for label, count in devices.items() if count != len(gpus))
            record["packages"][package] = {"refused": refused, "devices": devices}
            if installed != len(gpus):
                faults.append(f"{package}: the installed library runs on {installed} devices")
            if failed != refused:
                faults.append(f"{package}: {failed} do not run, {refused} are refused")
    return record, faults
