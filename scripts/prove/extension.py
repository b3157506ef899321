"""Build an extension of torch from its source distribution on a GPU, use it, and record the steps.

    python scripts/tools.py prove extension --wheels DIR ... --record docs/hosts/h200-extension.json

`--wheels` are folders with the wheels of torch and of the build requirements (`tools.py prove
rewheel` makes those of torch), and with the source distribution of torchsort. No network is asked.
Every step is a process of the command line in a new folder: solve, a sync without nvcc, which must
change nothing, a sync, a verification, ranks that torch computes, too, and a second sync.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from common import ROOT, write_record
from prove.host import without_uuids

HERE = str(ROOT)
USE = """
import torch, torchsort
generator = torch.Generator().manual_seed(1)
source = torch.stack([torch.randperm(4096, generator=generator) for _ in range(64)]).double()
ours = torchsort.soft_rank(source.cuda(), regularization_strength=0.1).cpu()
print(torch.cuda.get_device_name(), "right" if torch.allclose(ours, source + 1) else "wrong")
"""


def main(words: list[str]) -> int:
    """Return 0 if every step ends as it must."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--wheels", nargs="+", required=True)
    parser.add_argument("--record")
    arguments = parser.parse_args(words)
    links = [
        word for folder in arguments.wheels for word in ("--find-links", os.path.abspath(folder))
    ]
    places = [*links, "--no-index"]
    shown = dict.fromkeys(links[1::2], "FOLDER")
    cache = tempfile.mkdtemp()
    path = os.pathsep.join([os.path.join(HERE, "resolver"), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, "PYTHONPATH": path, "GPUENV_CACHE_DIR": cache}
    rows: list[dict[str, Any]] = []

    def step(name: str, *words: str, status: int = 0, **environment: str) -> str:
        start = time.perf_counter()
        command = [sys.executable, "-m", "gpuenv", *words] if words[0] != "python" else [*words]
        command[0] = "env/bin/python" if words[0] == "python" else command[0]
        done = subprocess.run(
            command, cwd=folder, env={**variables, **environment}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        seconds = round(time.perf_counter() - start, 1)
        said = done.stderr + done.stdout
        for place, label in {folder: ".", **shown}.items():
            said = said.replace(place, label)
        text = said.splitlines()
        rows.append({"step": name, "exit": done.returncode, "wanted": status, "seconds": seconds})
        rows[-1]["output"] = [line for line in text if "UUID" not in line][-12:]
        if name != "detect":
            print(name, done.returncode, seconds, *text[-12:], sep="\n  ", flush=True)
        return done.stdout

    with tempfile.TemporaryDirectory() as folder:
        sync = ("sync", "--target", "env", *places)
        host = json.loads(step("detect", "detect", "--json"))
        step("solve", "solve", "torch", "torchsort", *places)
        step("no compiler", *sync, status=4, CXX="no-such-compiler")
        is_unchanged = not os.path.exists(os.path.join(folder, "env"))
        step("sync", *sync)
        if rows[-1]["exit"]:
            return 1
        step("verify", "verify", "--target", "env")
        said = step("use", "python", "-c", USE)
        step("sync again", *sync)
        step("scan", "matrix", "scan", "env")
    is_right = all(row["exit"] == row["wanted"] for row in rows) and is_unchanged
    is_right = is_right and said.endswith("right\n")
    rows = [row for row in rows if row["step"] != "detect"]
    facts = {"date": time.strftime("%Y-%m-%d"), "host": without_uuids(host), "right": is_right}
    record = {**facts, "steps": rows}
    write_record(record, arguments.record)
    return 0 if is_right else 1
