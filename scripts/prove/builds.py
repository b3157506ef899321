"""Prove that source distributions of each common kind are solved, locked and installed.

    python scripts/tools.py prove builds [--kind NAME ...] [--record FILE]

Each kind of tests/data/source_kinds.toml is a small project without static metadata, served on
loopback; its build requirements come from the default index. gpuenv solves and syncs it, then
`pip install -r pylock.toml` and `uv pip sync pylock.toml` install the same lock, and the module is
imported each time. tests/test_source_builds.py has the failures, and kills of a build.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common import ROOT, read_toml
from index_server import IndexServer, packed
from processes import run_program

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
LIMIT = 1800  # seconds of an installation with its build
# What each installer does, and the import of the module from the environment that it makes.
INSTALLERS = {
    "gpuenv": """
PYTHONPATH="$RESOLVER" python -P -m gpuenv solve demo $FLAGS
PYTHONPATH="$RESOLVER" python -P -m gpuenv sync pylock.toml --target gpuenv $FLAGS
""",
    "pip": """
python -m venv pip
pip/bin/python -m pip install --quiet --upgrade pip
pip/bin/python -m pip install --no-deps -r pylock.toml
""",
    "uv": """
uv venv --quiet uv
uv pip sync --preview-features pylock --python uv/bin/python pylock.toml
""",
}
IMPORT = "import demo; assert demo.answer in (42, None) or callable(demo.answer)"


def build(files: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Return how each installer ended: "imported", or the end of its output."""
    with IndexServer() as server:
        server.add_file("demo", "demo-1.0.tar.gz", packed("demo-1.0", files))
        variables = {
            **os.environ,
            "FLAGS": f"--extra-index-url {server.url} --gpu none --python {PYTHON}",
            "GPUENV_CACHE_DIR": str(folder / "cache"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RESOLVER": str(ROOT / "resolver"),
        }
        row: dict[str, Any] = {}
        begin = time.monotonic()
        for name, script in INSTALLERS.items():
            command = ["sh", "-ec", f"{script}\n{name}/bin/python -c '{IMPORT}'"]
            done = run_program(command, LIMIT, status=None, cwd=folder, env=variables)
            row[name] = done.output[-2000:] if done.returncode else "imported"
        return {**row, "seconds": round(time.monotonic() - begin, 1)}


ARGUMENTS = {
    "--kind": {"nargs": "+", "metavar": "NAME"},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Build each kind."""
    rows, faults = {}, []
    for kind in read_toml("tests/data/source_kinds.toml")["kind"]:
        name = kind["name"]
        if name in (arguments.kind or [name]):
            with tempfile.TemporaryDirectory() as folder:
                rows[name] = build(kind["files"], Path(folder))
            print(name, rows[name], flush=True)
            faults += [f"{name}: {one}" for one in INSTALLERS if rows[name][one] != "imported"]
    return {"kinds": rows}, faults
