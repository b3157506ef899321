"""Run the kernels of variant wheels on this host: those of the chosen wheel, and of all others.

    tools.py prove variant-kernels [--nvcc EXE] [--record FILE.json] [--gpu GPU --driver RELEASE]

nvcc compiles a small library for each variant, with real device code for other architectures. They
become wheels, from which gpuenv solves for this host, syncs an environment and verifies it. Then
the library of the chosen wheel runs its kernel on every device, and so does each other library:
exactly those that gpuenv did not refuse for their device code must succeed. With --gpu another host
is solved for, and nothing runs.

Exit status: 0 if all of it is so, 1 otherwise.
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

from common import write_record
from gpuenv.prefix import interpreter_of
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


def gpuenv(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run a command and return its JSON document. End if the command fails."""
    command = [sys.executable, "-m", "gpuenv", *arguments, "--json"]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        sys.exit(
            f"{' '.join(command)}: exit {process.returncode}\n{process.stdout}{process.stderr}"
        )
    document: dict[str, Any] = json.loads(process.stdout)
    return document


def run_library(python: str, path: Path) -> int:
    """Return what the library returns, in a process of its own."""
    command = [python, "-c", RUN, str(path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(process.stdout) if process.returncode == 0 else -1


def prove(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return what was chosen, what was refused, and what ran."""
    libraries = make_wheels(arguments.nvcc, folder)
    host = []
    if arguments.gpu:
        host = ["--gpu", arguments.gpu, "--driver", arguments.driver]
    source = ["--no-index", "--find-links", "links"]
    plan = gpuenv(folder, "solve", *PACKAGES, *source, *host)
    lock = (folder / "pylock.toml").read_text()
    refused: dict[str, list[str]] = {package: [] for package in PACKAGES}
    for row in plan["skipped"]:
        if any(reason["code"] == "no-code-for-device" for reason in row["reasons"]):
            refused[row["name"]].append(row["version"].partition("(")[2].rstrip(")"))
    record: dict[str, Any] = {"gpus": [gpu["name"] for gpu in plan["host"]["gpus"]], "packages": {}}
    python = sys.executable
    if not host:
        gpuenv(folder, "sync", "pylock.toml", "--target", "env", "--no-verify")
        python = interpreter_of(str(folder / "env"))
    for package, labels in PACKAGES.items():
        row: dict[str, Any] = {"refused": sorted(refused[package])}
        for label in labels:
            if f"{package}-1.0-py3-none-any-{label}.whl" in lock:
                row["chosen"] = label
        if not host:
            (site,) = folder.glob("env/lib/python*/site-packages")
            installed = site / f"{package}_library.so"
            row["devices of the installed library"] = run_library(python, installed)
            row["devices of each library"] = {
                label: run_library(python, libraries[package, label])
                for label in labels
                if (package, label) in libraries
            }
        record["packages"][package] = row
    return record


def is_proved(record: dict[str, Any]) -> bool:
    """Return whether the chosen libraries ran everywhere, and only the refused ones did not."""
    count = len(record["gpus"])
    for row in record["packages"].values():
        if row.get("devices of the installed library", count) != count:
            return False
        results = row.get("devices of each library", {})
        failed = sorted(label for label, result in results.items() if result != count)
        if results and failed != row["refused"]:
            return False
    return True


def main(words: list[str]) -> int:
    """Run, print the record, and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nvcc", default="nvcc", metavar="EXE")
    parser.add_argument("--record", metavar="FILE")
    parser.add_argument("--gpu", metavar="GPU")
    parser.add_argument("--driver", default="580.65.06", metavar="RELEASE")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="variants-") as temporary:
        record = prove(arguments, Path(temporary))
    write_record(record, arguments.record)
    return 0 if is_proved(record) else 1
