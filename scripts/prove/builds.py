"""Prove that source distributions of each common kind are solved, locked and installed.

    python scripts/tools.py prove builds [--kind NAME ...] [--record FILE]

Each kind of tests/data/source_kinds.toml is a small project without static metadata, served on
loopback; its build requirements come from the default index. gpuenv solves and syncs it, then
`pip install -r pylock.toml` and `uv pip sync pylock.toml` install the same lock, and the module is
imported each time. tests/test_source_builds.py has the failures, and kills of a build.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from common import GPUENV, ROOT, own_code
from index_server import IndexServer

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
KINDS = ROOT / "tests" / "data" / "source_kinds.toml"
IMPORT = "import demo; assert demo.answer in (42, None) or callable(demo.answer)"


def archive(files: Mapping[str, str]) -> bytes:
    """Return demo-1.0.tar.gz with some files, and without PKG-INFO."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for name, text in files.items():
            member = tarfile.TarInfo(f"demo-1.0/{name}")
            member.size, member.mtime = len(text.encode()), 500_000_000  # a zip begins in 1980
            packed.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def build(files: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Return how each installer ended: "imported", or the end of its output."""
    with IndexServer() as server:
        server.add_file("demo", "demo-1.0.tar.gz", archive(files))
        flags = ["--extra-index-url", server.url, "--gpu", "none", "--python", PYTHON]
        uv = find_uv_bin()
        sync = ["pip", "sync", "--preview-features", "pylock", "--python", "uv/bin/python"]
        installers = {
            "gpuenv": [
                [*GPUENV, "solve", "demo", *flags],
                [*GPUENV, "sync", "pylock.toml", "--target", "gpuenv", *flags],
            ],
            "pip": [
                [sys.executable, "-m", "venv", "pip"],
                ["pip/bin/python", "-m", "pip", "install", "--quiet", "--upgrade", "pip"],
                ["pip/bin/python", "-m", "pip", "install", "--no-deps", "-r", "pylock.toml"],
            ],
            "uv": [[uv, "venv", "--quiet", "uv"], [uv, *sync, "pylock.toml"]],
        }
        row: dict[str, Any] = {}
        begin = time.monotonic()
        for name, commands in installers.items():
            row[name] = "imported"
            for command in [*commands, [f"{name}/bin/python", "-c", IMPORT]]:
                variables = dict(os.environ)
                if command[: len(GPUENV)] == GPUENV:
                    variables = own_code(GPUENV_CACHE_DIR=str(folder / "cache"))
                done = subprocess.run(
                    command, cwd=folder, env=variables, capture_output=True, text=True, check=False
                )
                if done.returncode:
                    row[name] = (done.stdout + done.stderr)[-2000:]
                    break
        return {**row, "seconds": round(time.monotonic() - begin, 1)}


ARGUMENTS = {
    "--kind": {"nargs": "+", "metavar": "NAME"},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Build each kind."""
    rows, faults = {}, []
    for kind in tomllib.loads(KINDS.read_text(encoding="utf-8"))["kind"]:
        name = kind["name"]
        if name in (arguments.kind or [name]):
            with tempfile.TemporaryDirectory() as folder:
                rows[name] = build(kind["files"], Path(folder))
            print(name, rows[name], flush=True)
            tools = ("gpuenv", "pip", "uv")
            faults += [f"{name}: {tool}" for tool in tools if rows[name][tool] != "imported"]
    return {"kinds": rows}, faults
