"""Run detect, solve, sync and verify on this host, also with faults, and record the results.

    python scripts/prove_host.py --find-links wheels --date 2026-11-21 --record docs/hosts/h200.json --framework torch

Every step is a process of the command line, timed as a whole. Nothing is asked of a network. The record holds the
commands, their exit statuses, times and JSON documents; GPU UUIDs are left out of it.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any


def step(name: str, args: list[str], folder: str, **environment: str) -> dict[str, Any]:
    """Run one command in the work folder. Return its document and its time."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "gpuenv", *args, "--json"]
    variables = {**os.environ, **environment}
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    seconds = round(time.perf_counter() - start, 2)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = None
    print(f"{name}: exit {done.returncode}, {seconds} s {done.stderr.strip()[-600:]}", flush=True)
    row = {"step": name, "command": ["gpuenv", *args], "exit": done.returncode, "seconds": seconds}
    if environment:
        row["environment"] = environment
    if done.returncode not in (0, 1):
        row["stderr"] = done.stderr[-2000:]
    return {**row, "document": document}


def without_uuids(value: Any) -> Any:
    """Return the data without the names of devices and machines."""
    if isinstance(value, dict):
        return {
            key: without_uuids(item)
            for key, item in value.items()
            if key not in ("uuid", "pci_bus_id")
        }
    return [without_uuids(item) for item in value] if isinstance(value, list) else value


def planted(folder: str) -> list[dict[str, Any]]:
    """Add, verify and remove each fault."""
    rows = []
    if not os.path.isdir(os.path.join(folder, "env")):
        return rows
    libraries = glob.glob(
        os.path.join(folder, "env", "lib", "python*", "site-packages", "nvidia", "cudnn", "lib")
    )[0]
    verify = ["verify", "pylock.toml", "--target", "env"]
    victim = os.path.join(libraries, "libcudnn_cnn.so.9")
    os.rename(victim, victim + ".away")
    rows.append(step("a sub-library removed", verify, folder))
    os.rename(victim + ".away", victim)
    rows.append(step("a device that is not there", verify, folder, CUDA_VISIBLE_DEVICES="7"))
    return rows


def main() -> None:
    """Run the steps and writes the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--find-links", required=True)
    parser.add_argument("--framework", action="append", required=True)
    parser.add_argument("--date", required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument(
        "--shadow", action="append", default=[], help="a folder with another cuDNN, put in front"
    )
    arguments = parser.parse_args()
    links = os.path.abspath(arguments.find_links)
    frameworks = [text for name in arguments.framework for text in ("--framework", name)]
    folder = tempfile.mkdtemp()
    rows = [step("detect", ["detect"], folder)]
    rows.append(step("solve", ["solve", *frameworks, "--find-links", links, "--offline"], folder))
    rows.append(step("sync", ["sync", "pylock.toml", "--target", "env", "--no-verify"], folder))
    verify = ["verify", "pylock.toml", "--target", "env"]
    rows.append(step("verify", verify, folder))
    rows.append(step("verify again", verify, folder))
    for shadow in arguments.shadow:
        path = f"{shadow}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        rows.append(step("another cuDNN in front", verify, folder, LD_LIBRARY_PATH=path))
    rows += planted(folder)
    with open(os.path.join(folder, "pylock.toml"), encoding="utf-8") as file:
        locked = re.findall(r'^name = "([^"]+)"\nversion = "([^"]+)"', file.read(), re.MULTILINE)
    shutil.rmtree(folder, ignore_errors=True)
    record = {
        "date": arguments.date,
        "host": rows[0]["document"],
        "versions": dict(locked),
        "steps": rows,
    }
    text = json.dumps(without_uuids(record), indent=1)
    text = text.replace(folder, "WORK").replace(links, "WHEELS").replace(os.getcwd(), "CHECKOUT")
    os.makedirs(os.path.dirname(os.path.abspath(arguments.record)), exist_ok=True)
    with open(arguments.record, "w", encoding="utf-8") as file:
        file.write(text + "\n")


if __name__ == "__main__":
    main()
