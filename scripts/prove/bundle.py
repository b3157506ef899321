"""Install a bundle in a root that has nothing but Python.

    python scripts/tools.py prove bundle LOCK [--python EXE] [--flags FLAGS] [--host FLAGS]

The root has an interpreter, its standard library and the system's shared libraries: no pip, no uv,
no shell, no network (`unshare --net`). The bundle is written twice, and the bytes must be equal. It
is carried there, installed, verified without a device, and installed again, which changes nothing.
FLAGS are those of `gpuenv download`, and of the host ("--gpu H100 --driver 580"; default: none).
It needs Linux and root.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import run_gpuenv

# What an interpreter says about itself.
QUESTION = """
import json, os, sys, sysconfig
stdlib = sysconfig.get_path("stdlib")
print(json.dumps([os.path.realpath(sys.executable), sys.version.split()[0], stdlib]))
"""
# What is there besides the bundle.
IMAGE = """
import importlib.util, json, shutil, socket
print(json.dumps({
    "modules": [name for name in ("pip", "uv", "gpuenv") if importlib.util.find_spec(name)],
    "programs": [name for name in ("pip", "uv", "sh") if shutil.which(name)],
    "interfaces": [name for _, name in socket.if_nameindex()],
}))
"""
INSTALLED = """
import importlib.metadata, json
print(json.dumps({d.name.lower(): d.version for d in importlib.metadata.distributions()}))
"""


class Image:
    """A root folder with an interpreter. Commands run in it without a network."""

    def __init__(self, root: Path, python: str, stdlib: str) -> None:
        self.root = root
        self.mounts: list[str] = []
        for name in ("work", "tmp", "dev", "home"):
            (root / name).mkdir(parents=True)
        system = ("/lib64", "/usr/lib/x86_64-linux-gnu", "/proc", "/dev/null", "/dev/urandom")
        for path in (*system, stdlib, python):
            inside = root / path.lstrip("/")
            if os.path.isdir(path):
                inside.mkdir(parents=True, exist_ok=True)
            else:
                inside.parent.mkdir(parents=True, exist_ok=True)
                inside.touch()
            self.mounts.append(shlex.join(["mount", "--rbind", path, str(inside)]))
        if not (root / "lib").exists():
            (root / "lib").symlink_to("usr/lib")
        site = f"{stdlib}/site-packages"
        if os.path.isdir(site):
            self.mounts.append(shlex.join(["mount", "-t", "tmpfs", "none", f"{root}{site}"]))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the image."""
        variables = ["PATH=/usr/bin:/bin", "HOME=/home", "TMPDIR=/tmp"]
        inside = shlex.join(["env", "-i", *variables, "/usr/sbin/chroot", str(self.root), *words])
        script = " && ".join([*self.mounts, f"exec {inside}"])
        isolate = ["unshare", "--map-root-user", "--net", "--mount", "sh", "-ec", script]
        return subprocess.run(isolate, capture_output=True, text=True, check=False)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the lock and the host."""
    parser.add_argument("lock")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--flags", type=shlex.split, default=[])
    parser.add_argument("--host", type=shlex.split, default=["--gpu", "none"])


def prove(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Make a bundle, and install it in the image."""
    ask = [arguments.python, "-I", "-c", QUESTION]
    python, version, stdlib = json.loads(subprocess.run(ask, stdout=-1, check=True).stdout)
    faults = []
    record: dict[str, Any] = {"lock": arguments.lock, "python": version, "runs": {}}
    with tempfile.TemporaryDirectory(dir=".", prefix=".prove-bundle-") as name:
        folder = Path(name).resolve()
        image = Image(folder / "root", python, stdlib)
        bundle = image.root / "work" / "env.pyz"
        copies = []
        for _ in range(2):
            words = ["-d", str(folder / "wheels"), "--bundle", str(bundle), *arguments.flags]
            done = run_gpuenv("download", arguments.lock, *words)
            if done.returncode:
                sys.exit(done.stderr)
            copies.append(bundle.read_bytes())
        record["bytes"] = len(copies[0])
        if copies[0] != copies[1]:
            faults.append("the bytes of two bundles differ")
        record["image"] = json.loads(image.run(python, "-c", IMAGE).stdout)
        if record["image"] != {"modules": [], "programs": [], "interfaces": ["lo"]}:
            faults.append(f"the image has {record['image']}")
        install = ["--target", "env", *arguments.host, "--json"]
        runs = {
            "install": install,
            "verify": ["verify", "--target", "env", "--no-device", "--json"],
            "install again": install,
        }
        for run, words in runs.items():
            change = "import os, sys; os.chdir('/work'); os.execv(sys.argv[1], sys.argv[1:])"
            done = image.run(python, "-c", change, python, "env.pyz", *words)
            checks = json.loads(done.stdout or "{}").get("checks", [])
            failed = [check["name"] for check in checks if check["status"] != "pass"]
            record["runs"][run] = {"status": done.returncode, "passed": len(checks) - len(failed)}
            if done.returncode or failed:
                faults.append(f"{run}: {done.returncode} {failed} {done.stderr[-500:]}")
        left = {*os.listdir(image.root / "work"), *os.listdir(image.root / "tmp")}
        # ONNX Runtime writes .ses when it is imported.
        faults += [f"{name} is left" for name in left - {"env", "env.pyz", ".ses"}]
        record["installed"] = json.loads(image.run("/work/env/bin/python", "-c", INSTALLED).stdout)
    return record, faults
