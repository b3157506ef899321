"""The checks of an environment: those of `gpuenv verify`, and those of conda's own records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from . import command

Check = dict[str, Any]  # of `gpuenv verify --json`: name, subject, status, evidence, seconds

# Packages of conda-forge and of the old pytorch channel, and gpuenv's name of the framework ("" is none).
WATCHED = {
    "cuda-version": "",
    "cudatoolkit": "",
    "cudnn": "",
    "libcudnn": "",
    "cupy": "cupy",
    "cupy-core": "cupy",
    "jax": "jax",
    "jaxlib": "jax",
    "libtorch": "torch",
    "onnxruntime": "onnxruntime",
    "onnxruntime-cpp": "onnxruntime",
    "pytorch": "torch",
    "pytorch-cuda": "torch",
    "pytorch-gpu": "torch",
    "tensorflow": "tensorflow",
    "tensorflow-base": "tensorflow",
    "tensorflow-gpu": "tensorflow",
}
TIMEOUT = 120.0  # s, of the checks after a transaction
SHOWN = 6  # failed checks that a message names


def examine(prefix: str, timeout: float) -> list[Check]:
    """The checks of `gpuenv verify`, and those of conda's own records. RuntimeError says why there are none."""
    packages = records(prefix)
    checks = [*cuda_check(packages, os.environ), *cudnn_check(packages, wheels(prefix))]
    if os.path.exists(os.path.join(prefix, "bin", "python")) or os.path.exists(os.path.join(prefix, "python.exe")):
        # The override describes another host than this one: nothing can be proved on the devices that are here.
        elsewhere = ["--no-device"] if os.environ.get("CONDA_OVERRIDE_CUDA") is not None else []
        arguments = ["verify", "--json", "--target", prefix, "--timeout", str(timeout), *elsewhere]
        found = asked(arguments, prefix, timeout + 30)["checks"]
        told = {(one["name"], one["subject"]) for one in found}
        checks = [*found, *(one for one in checks if (one["name"], one["subject"]) not in told)]
    return checks


def asked(arguments: Sequence[str], folder: str, timeout: float) -> dict[str, Any]:
    """The JSON document that gpuenv answers with. RuntimeError, with its own words, if it does not."""
    import json
    import subprocess

    done = subprocess.run(command(arguments), cwd=folder, capture_output=True, timeout=timeout, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or done.returncode not in (0, 1):
        words = done.stderr.decode(errors="replace").strip().splitlines() or [f"gpuenv ended with {done.returncode}"]
        raise RuntimeError(words[-1])
    return answer


def records(prefix: str) -> dict[str, str]:
    """name -> version of conda's packages, by the names of their records: cudnn-9.10.2.21-h1_0.json."""
    try:
        names = os.listdir(os.path.join(prefix, "conda-meta"))
    except OSError:
        return {}
    parts = [name.removesuffix(".json").rsplit("-", 2) for name in names if name.endswith(".json")]
    return {three[0]: three[1] for three in parts if len(three) == 3}


def wheels(prefix: str) -> dict[str, tuple[str, str]]:
    """name -> (version, folder) of the cuDNN that pip installed into the environment."""
    found = {}
    lib = os.path.join(prefix, "lib")
    folders = [os.path.join(lib, name, "site-packages") for name in _listed(lib) if name.startswith("python3")]
    for folder in [*folders, os.path.join(prefix, "Lib", "site-packages")]:
        for name in _listed(folder):
            if name.startswith("nvidia_cudnn") and name.endswith(".dist-info"):
                title, _, version = name.removesuffix(".dist-info").partition("-")
                found[title.replace("_", "-")] = (version, folder)
    return found


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def cuda_check(packages: dict[str, str], env: Any) -> list[Check]:
    """The driver's CUDA against the environment's: conda's solvers pass over `constrains: __cuda` (R1)."""
    wanted = packages.get("cuda-version") or packages.get("cudatoolkit")
    if wanted is None:
        return []
    override = env.get("CONDA_OVERRIDE_CUDA")
    where = "CONDA_OVERRIDE_CUDA says" if override else "this host's driver runs"
    if override is None:
        host = asked(["detect", "--json"], os.curdir, 60)
        override = ".".join(map(str, host.get("driver_cuda") or ()))
    have = override.split(".")[0]
    status = "unknown"
    if not have.isdigit():
        evidence = f"CUDA {wanted} is installed, and no driver is known that would run it"
    elif int(have) >= int(wanted.split(".")[0]):
        status, evidence = "pass", f"CUDA {wanted} is installed, {where} CUDA {override}"
    elif "cuda-compat" in packages:
        evidence = f"CUDA {wanted} is installed, {where} CUDA {override}, and cuda-compat is to bridge that"
    else:
        status = "fail"
        evidence = f"CUDA {wanted} is installed, {where} CUDA {override} and nothing newer than {have}.x"
    return [{"name": "driver", "subject": "cuda-version", "status": status, "evidence": evidence, "seconds": 0.0}]


def cudnn_check(packages: dict[str, str], installed: dict[str, tuple[str, str]]) -> list[Check]:
    """Names the cuDNN of conda and that of pip where one environment has both (R5: one owner)."""
    version = packages.get("libcudnn") or packages.get("cudnn")
    if version is None or not installed:
        return []
    names = [f"{name} {one} ({folder})" for name, (one, folder) in sorted(installed.items())]
    evidence = f"cudnn {version} of conda and {', '.join(names)} of pip: imports decide which one a process gets"
    return [{"name": "owners", "subject": "cuDNN", "status": "fail", "evidence": evidence, "seconds": 0.0}]


def summary(checks: Sequence[Check], prefix: str) -> list[str]:
    """What the checks came to: a line, then one for each that failed."""
    counts = {status: sum(one["status"] == status for one in checks) for status in ("pass", "fail", "unknown")}
    lines = [f"{prefix}: {counts['pass']} checks passed, {counts['fail']} failed, {counts['unknown']} unknown"]
    failed = [check_line(one) for one in checks if one["status"] == "fail"]
    more = [f"  and {len(failed) - SHOWN} more: conda gpuenv verify --target {prefix}"] if len(failed) > SHOWN else []
    return [*lines, *failed[:SHOWN], *more]


def check_line(check: Check) -> str:
    """One check for people."""
    mark = {"pass": "ok  ", "fail": "FAIL"}.get(check["status"], "?   ")
    return f"  {mark} {' '.join(part for part in (check['name'], check['subject']) if part)}: {check['evidence']}"


def frameworks(packages: Iterable[str]) -> list[str]:
    """gpuenv's names of the frameworks among conda's packages."""
    return sorted({WATCHED.get(name, "") for name in packages} - {""})
