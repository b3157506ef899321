"""Resolve the cases of tests/data/resolution with pip and uv, which must choose the same pins.

    python scripts/tools.py prove resolvers [--cases N] [--record FILE]

The tests compare the pins of the cases with gpuenv's. Each universe is served by a loopback index.
Where a tool differs, the case says why under "pip" or "uv"; it must differ then. pip has no target,
so cases with a target are for uv only.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import tomllib
from argparse import Namespace
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from uv import find_uv_bin

from common import read_json
from index_server import IndexServer
from processes import run_program
from test_resolution import CASES, FOLDER, packages_at
from universe import rows, serve

Case = dict[str, Any]
Pins = dict[str, str] | None  # None: no solution

PIP = (
    "install --isolated --dry-run --ignore-installed --no-cache-dir --quiet --quiet --quiet "
    "--disable-pip-version-check --no-input"
)
UV = (
    "pip compile --no-header --no-cache --no-config --quiet --format pylock.toml "
    "--no-python-downloads --resolution highest"
)
UV_PLATFORMS = {
    "linux-x86_64": "x86_64-manylinux_{}",
    "linux-aarch64": "aarch64-manylinux_{}",
    "win-amd64": "x86_64-pc-windows-msvc",
}


def digest_of_cases() -> str:
    """Return a digest of the files of tests/data/resolution."""
    files = b"".join(path.read_bytes() for path in sorted(FOLDER.glob("*.json")))
    return hashlib.sha256(files).hexdigest()


def put(case: Case, server: IndexServer, folder: Path) -> list[str]:
    """Write the requirements and constraints of a case. Return -r FILE -c FILE."""
    base = f"{server.base}/files/"
    made = [row.made() for row in rows(packages_at(case, base))] if "hashes" in case else []
    digests = {file.filename: hashlib.sha256(file.data).hexdigest() for file in made}
    lines = []
    for text in case["requires"]:
        name = text.partition("=")[0]
        hashes = [f"--hash=sha256:{digests[one]}" for one in case.get("hashes", {}).get(name, ())]
        lines.append(" ".join([text.replace("{base}", base), *hashes]))
    folder.mkdir(parents=True)
    (folder / "r.txt").write_text("\n".join(lines))
    constraints = [text.replace("{base}", base) for text in case.get("constraints", ())]
    (folder / "c.txt").write_text("\n".join(constraints))
    return ["-r", str(folder / "r.txt"), "-c", str(folder / "c.txt")]


def pins_of_pip(case: Case, server: IndexServer, folder: Path) -> Pins:
    """Return the pins of `pip install --dry-run`."""
    report = folder / "report.json"
    arguments = [*PIP.split(), "--index-url", server.url, *put(case, server, folder)]
    for name in case.get("no_build", ()):
        arguments += ["--only-binary", name]
    arguments += ["--pre"] if case.get("pre") else []
    command = [sys.executable, "-W", "ignore", "-m", "pip", *arguments, "--report", str(report)]
    if run_program(command, status=None).returncode:
        return None
    packages = [row["metadata"] for row in read_json(report)["install"]]
    return {canonicalize_name(row["name"]): row["version"] for row in packages}


def pins_of_uv(case: Case, server: IndexServer, folder: Path) -> Pins:
    """Return the pins of `uv pip compile`."""
    target = case.get("target", {})
    arguments = [*UV.split(), "--python", sys.executable, "--index-url", server.url]
    arguments += put(case, server, folder)[1:]
    if target:
        platform = UV_PLATFORMS[target.get("platform", "linux-x86_64")]
        glibc = target.get("glibc", "2.28").replace(".", "_")
        arguments += ["--python-version", target["python"]]
        arguments += ["--python-platform", platform.format(glibc)]
    for name in case.get("no_build", ()):
        arguments += ["--only-binary", name]
    arguments += ["--prerelease", "allow" if case.get("pre") else "if-necessary-or-explicit"]
    done = run_program([find_uv_bin(), *arguments], status=None)
    if done.returncode:
        return None
    packages = tomllib.loads(done.stdout).get("packages", ())
    return {row["name"]: row["version"] for row in packages}


def differing(cases: Sequence[Case], tool: str, root: Path) -> list[str]:
    """Return the cases for which a tool gives other pins than it should."""
    pins_of = {"pip": pins_of_pip, "uv": pins_of_uv}[tool]
    found = []
    for number, case in enumerate(cases):
        with IndexServer() as server:
            serve(server, packages_at(case, f"{server.base}/files/"))
            pins = pins_of(case, server, root / tool / str(number))
        if (pins == case.get("pins")) == (tool in case):
            found.append(case["id"])
    return found


def compare(count: int) -> dict[str, Any]:
    """Compare with pip and uv. `count` says how many cases each tool resolves; 0: all."""
    of_tool = {"pip": [case for case in CASES if "target" not in case], "uv": CASES}
    if count:  # some of each file, whose cases stand together
        of_tool = {tool: some[:: len(some) // count] for tool, some in of_tool.items()}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        return {
            "versions": {name: version(name) for name in ("pip", "uv")},
            "digest of the cases": digest_of_cases(),
            "cases": {tool: len(some) for tool, some in of_tool.items()},
            "differences": {tool: differing(some, tool, root) for tool, some in of_tool.items()},
        }


ARGUMENTS = {
    "--cases": {"type": int, "default": 0, "help": "compare as many cases; 0: all"},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Compare, and name the cases that differ."""
    record = compare(arguments.cases)
    pairs = record["differences"].items()
    return record, [f"{tool}: {case}" for tool, cases in pairs for case in cases]
