"""What the programs share: the checkout, its gpuenv, and the records of docs/records."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
import tomllib
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "scripts" / "tools.py"
GPUENV = [sys.executable, "-P", "-m", "gpuenv"]  # with the variables of `own_code`


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the content of a TOML file. A path that is not absolute is below the checkout."""
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


def read_json(path: Path, missing: Any = None) -> Any:
    """Return the content of a JSON file. Without the file, it is `missing` if that is given."""
    if missing is not None and not path.exists():
        return missing
    return json.loads(path.read_text(encoding="utf-8"))


def own_code(**more: str) -> dict[str, str]:
    """Return the environment variables of a process that imports gpuenv from this checkout."""
    path = [str(ROOT / "resolver"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **more}


def run_gpuenv(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this checkout's gpuenv, with more environment variables."""
    return subprocess.run(
        [*GPUENV, *words], env=own_code(**variables), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def run_check(program: ModuleType, arguments: Namespace) -> int:
    """Run a program of the group prove. The exit status is 1 if something is not as it must be.

    With --record, the parts of the record that are in the file already are replaced, and others are
    kept.
    """
    begin = time.monotonic()
    parts, faults = program.prove(arguments)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {python}",
        "seconds": round(time.monotonic() - begin),
        **parts,
    }
    if arguments.record:
        record = {**read_json(arguments.record, {}), **record}
    text = json.dumps(record, indent=1, ensure_ascii=False)
    print(text, flush=True)
    if arguments.record:
        arguments.record.write_text(f"{text}\n", encoding="utf-8")
    for fault in faults:
        print(f"FAULT: {fault}", file=sys.stderr)
    return int(bool(faults))
