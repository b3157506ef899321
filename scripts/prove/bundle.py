"""Install a bundle in a root that has nothing but Python, and record what happened.

    tools.py prove bundle LOCK [--python EXE] [--gpu NAME --driver RELEASE] [--record FILE]

The root has an interpreter, its standard library and the system's shared libraries: no pip, no uv,
no shell, no network (`unshare --net`). The bundle is written twice, and the bytes must be equal. It
is carried there, installed, verified without a device, installed again (nothing changes), and the
packages of the lock are looked up by the new environment's interpreter. Linux only.

Exit status: 0 if all of it works, 1 otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ROOT

# What an interpreter says about itself: where its standard library and its site-packages are.
QUESTION = """
import json, os, sys, sysconfig
print(json.dumps({
    "executable": os.path.realpath(sys.executable),
    "version": sys.version.split()[0],
    "stdlib": sysconfig.get_path("stdlib"),
    "site": os.path.join(sysconfig.get_path("stdlib"), "site-packages"),
}))
"""
# What is there besides the bundle.
IMAGE = """
import importlib.util, json, os, shutil, socket
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


def ask(command: list[str]) -> Any:
    """Run a program that prints JSON."""
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def gpuenv(*words: str) -> None:
    """Run a command of this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "resolver")}
    subprocess.run([sys.executable, "-m", "gpuenv", *words], env=environment, check=True)


def write_twice(lock: str, path: Path, flags: list[str]) -> dict[str, object]:
    """Write a bundle two times. Return its size, and whether both are equal."""
    digests, begin = [], time.monotonic()
    for _ in range(2):
        wheels = str(path.with_suffix(".wheels"))
        gpuenv("download", lock, "-d", wheels, "--bundle", str(path), *flags)
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    shutil.rmtree(wheels)
    return {
        "bytes": path.stat().st_size,
        "equal bytes": digests[0] == digests[1],
        "seconds": round(time.monotonic() - begin, 1),
    }


class Image:
    """A root folder with an interpreter. Commands run in it without a network."""

    def __init__(self, folder: Path, python: dict[str, str]) -> None:
        self.root, self.python = folder / "root", python
        self._mounts: list[str] = []
        for name in ("work", "tmp", "dev", "home"):
            (self.root / name).mkdir(parents=True)
        executable = python["executable"]
        for path in ("/lib64", "/usr/lib/x86_64-linux-gnu", "/proc", python["stdlib"], executable):
            self._bind(path)
        for path in ("/dev/null", "/dev/urandom"):
            self._bind(path)
        if not (self.root / "lib").exists():
            (self.root / "lib").symlink_to("usr/lib")
        if os.path.isdir(python["site"]):
            self._mounts.append(
                f"mount -t tmpfs none {shlex.quote(str(self._inside(python['site'])))}"
            )

    def _inside(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _bind(self, path: str) -> None:
        inside = self._inside(path)
        if os.path.isdir(path):
            inside.mkdir(parents=True, exist_ok=True)
        else:
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.touch()
        self._mounts.append(f"mount --rbind {shlex.quote(path)} {shlex.quote(str(inside))}")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the image in its folder /work."""
        variables = ["PATH=/usr/bin:/bin", "HOME=/home", "TMPDIR=/tmp"]
        inside = ["/usr/sbin/chroot", str(self.root), *words]
        script = " && ".join([*self._mounts, f"exec env -i {shlex.join([*variables, *inside])}"])
        isolate = ["unshare", "--map-root-user", "--net", "--mount", "sh", "-ec", script]
        return subprocess.run(isolate, capture_output=True, text=True, check=False)

    def python_code(self, executable: str, code: str) -> Any:
        """Run code that prints JSON."""
        done = self.run(executable, "-c", code)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)


def prove(image: Image, host: list[str]) -> dict[str, Any]:
    """Install for a described host, verify, and install again."""
    python = image.python["executable"]
    change = f"import os; os.chdir('/work'); os.execv({python!r}, [{python!r}, 'env.pyz'] + {{}})"
    row: dict[str, Any] = {"image": image.python_code(python, IMAGE), "runs": {}}
    for name, words in {
        "install": ["--target", "env", *host, "--json"],
        "verify": ["verify", "--target", "env", "--no-device", "--json"],
        "install again": ["--target", "env", *host, "--json"],
    }.items():
        begin = time.monotonic()
        done = image.run(python, "-c", change.format(words))
        seconds = round(time.monotonic() - begin, 1)
        checks = json.loads(done.stdout or "{}").get("checks", [])
        row["runs"][name] = {
            "status": done.returncode,
            "seconds": seconds,
            "passed": sum(check["status"] == "pass" for check in checks),
            "not passed": [check["name"] for check in checks if check["status"] != "pass"],
        }
        if done.returncode:
            print(done.stderr, file=sys.stderr)
    names = os.listdir(image.root / "work") + os.listdir(image.root / "tmp")
    row["left"] = sorted(set(names) - {".ses"})  # ONNX Runtime writes it when it is imported
    row["installed"] = image.python_code("/work/env/bin/python", INSTALLED)
    return row


def main(words: list[str]) -> int:
    """Prove a bundle. Return 1 if something is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lock")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--gpu", default="none")
    parser.add_argument("--driver")
    parser.add_argument("--record", metavar="FILE", type=Path)
    arguments, flags = parser.parse_known_args(words)
    host = ["--gpu", arguments.gpu]
    if arguments.driver:
        host += ["--driver", arguments.driver]
    python = ask([arguments.python, "-I", "-c", QUESTION])
    with tempfile.TemporaryDirectory(dir=".", prefix=".prove-bundle-") as name:
        folder = Path(name).resolve()
        bundle = write_twice(arguments.lock, folder / "env.pyz", flags)
        image = Image(folder, python)
        (folder / "env.pyz").rename(image.root / "work" / "env.pyz")
        row = {"python": python["version"], "bundle": bundle, **prove(image, host)}
    good = (
        bundle["equal bytes"]
        and row["image"] == {"modules": [], "programs": [], "interfaces": ["lo"]}
        and row["left"] == ["env", "env.pyz"]
        and all(run["status"] == 0 and not run["not passed"] for run in row["runs"].values())
    )
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "host": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        **row,
        "good": bool(good),
    }
    text = json.dumps(record, indent=2)
    print(text)
    if arguments.record:
        records = json.loads(arguments.record.read_text()) if arguments.record.exists() else []
        arguments.record.write_text(json.dumps([*records, record], indent=2) + "\n")
    return int(not good)
