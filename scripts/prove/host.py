"""Run detect, solve, sync and verify on this host, also with faults, and record the results.

    python scripts/tools.py prove host --find-links wheels --framework torch --date 2026-11-21
        --record docs/hosts/h200.json
    python scripts/tools.py prove host --target env --framework tensorflow --date 2026-11-22
        --record docs/hosts/h200-tensorflow.json --remove nvidia/cufft/lib/libcufft.so.11
    python scripts/tools.py prove host --find-links wheels --lock pylock.toml --date 2026-11-22
        --record docs/hosts/h200-download.json

Every step is a process of the command line, timed as a whole. No step uses a network. The record
holds the commands, their exit statuses, times and JSON documents, without the UUIDs of the GPUs.
With --target, the environment already holds the releases of the lock: nothing is synced, and the
solve reads the snapshot. With --lock, another machine made the lock and downloaded its wheels:
nothing is solved, and sync reads only the folder of wheels. --absent records a file that the
environment lacks.
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


def site_packages(target: str) -> str:
    """Return the folder of the packages of an environment."""
    return glob.glob(os.path.join(target, "lib", "python*", "site-packages"))[0]


def planted(folder: str, target: str, removed: list[str]) -> list[dict[str, Any]]:
    """Add, verify and remove each fault."""
    rows: list[dict[str, Any]] = []
    if not os.path.isdir(os.path.join(folder, target)):
        return rows
    verify = ["verify", "pylock.toml", "--target", target]
    victims = {"a sub-library removed": "nvidia/cudnn/lib/libcudnn_cnn.so.9"}
    victims.update({f"{os.path.basename(path)} removed": path for path in removed})
    for name, path in victims.items():
        victim = os.path.join(site_packages(os.path.join(folder, target)), path)
        os.rename(victim, victim + ".away")
        rows.append(step(name, verify, folder))
        os.rename(victim + ".away", victim)
    rows.append(step("a device that is not there", verify, folder, CUDA_VISIBLE_DEVICES="7"))
    return rows


def read_arguments(words: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--find-links")
    source.add_argument("--target", help="an environment that holds the releases already")
    parser.add_argument("--framework", action="append", default=[])
    parser.add_argument("--lock", help="a lock that was made on another machine")
    parser.add_argument("--date", required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument(
        "--shadow", action="append", default=[], help="a folder with another cuDNN, put in front"
    )
    parser.add_argument(
        "--remove", action="append", default=[], help="one more file that a fault takes away"
    )
    parser.add_argument(
        "--absent", action="append", default=[], help="a file that the environment lacks"
    )
    return parser.parse_args(words)


def prepared(arguments: argparse.Namespace, folder: str, target: str) -> list[dict[str, Any]]:
    """Solve and sync. Leave out what was done before: --target has both, --lock has the solve."""
    frameworks = [text for name in arguments.framework for text in ("--framework", name)]
    solve = ["solve", *frameworks, "--offline"]
    if arguments.target:
        python = os.path.join(target, "bin", "python")
        return [step("solve", [*solve, "--python", python], folder)]
    links = ["--find-links", os.path.abspath(arguments.find_links)]
    sync = ["sync", "pylock.toml", "--target", target]
    if arguments.lock:
        shutil.copy(arguments.lock, os.path.join(folder, "pylock.toml"))
        return [step("sync", [*sync, *links, "--no-index"], folder)]
    solved = step("solve", [*solve, *links], folder)
    return [solved, step("sync", [*sync, "--no-verify"], folder)]


def main(words: list[str]) -> None:
    """Run the steps and write the record."""
    arguments = read_arguments(words)
    folder = tempfile.mkdtemp()
    names = {folder: "WORK", os.getcwd(): "CHECKOUT"}
    target = "env"
    if arguments.target:
        target = os.path.abspath(arguments.target)
        names = {target: "ENVIRONMENT", **names}
    else:
        names[os.path.abspath(arguments.find_links)] = "WHEELS"
    rows = [step("detect", ["detect"], folder), *prepared(arguments, folder, target)]
    verify = ["verify", "pylock.toml", "--target", target]
    rows.append(step("verify", verify, folder))
    rows.append(step("verify again", verify, folder))
    for shadow in arguments.shadow:
        path = f"{shadow}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        rows.append(step("another cuDNN in front", verify, folder, LD_LIBRARY_PATH=path))
    rows += planted(folder, target, arguments.remove)
    with open(os.path.join(folder, "pylock.toml"), encoding="utf-8") as file:
        locked = re.findall(r'^name = "([^"]+)"\nversion = "([^"]+)"', file.read(), re.MULTILINE)
    shutil.rmtree(folder, ignore_errors=True)
    record = {
        "date": arguments.date,
        "host": rows[0]["document"],
        "versions": dict(locked),
        "steps": rows,
    }
    if arguments.absent:
        record["absent"] = arguments.absent
    text = json.dumps(without_uuids(record), indent=1)
    for path, name in names.items():
        text = text.replace(path, name)
    os.makedirs(os.path.dirname(os.path.abspath(arguments.record)), exist_ok=True)
    with open(arguments.record, "w", encoding="utf-8") as file:
        file.write(text + "\n")
