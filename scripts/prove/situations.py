"""Read real messages of failing programs, and ordinary logs, with the doctor.

    python scripts/tools.py prove situations [--record FILE.json] [--ordinary FILE.json]

A situation is a log whose cause is known: those of tests/data/situations (made here, or quoted from
public reports), and those that programs printed on a GPU (tests/data/device_failures). Each is read
as it is, and in the forms of measure_doctor.py: broken at 80 columns, with the prefixes of
containers, schedulers and CI, and inside 3,000 ordinary lines. It is lost in a form if it is right
as it is, but not there. An ordinary log, as make_situations.py writes them, is wrong if it gets any
verdict. The logs are read as on another machine. Wrong answers are printed. With --ordinary,
situations are also read inside lines of the ordinary logs of LINES_OF. --record puts the result of
now beside that of the first reading (docs/records/situations.json).
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import json
import os
import random
import tempfile
import tomllib
from collections.abc import Callable
from typing import Any

from common import ROOT, write_record
from gpuenv.cli import main as gpuenv
from prove.doctor import answer
from prove.pasted import FORMS, NOISE_LINES

DATA = str(ROOT / "tests" / "data")
SITUATIONS = [
    os.path.join(DATA, "situations", name) for name in ("situations.json", "reported.json")
]
DEVICE = os.path.join(DATA, "device_failures")
CHOSEN = (
    "as it is",
    "terminal of 80 columns",
    "torchrun",
    "compose",
    "kubernetes",
    "systemd",
    "slurm",
    "JSON lines",
    "noise",
)
LINES_OF = ("pip-install/", "uv-install/", "gcc/", "import-trace/", "tests-of-a-project/")


def _inside(ordinary: list[dict[str, Any]]) -> Callable[[str], str]:
    """Return the form of a log between 3,000 lines of ordinary logs."""
    texts = [row["log"] for row in ordinary if row["name"].startswith(LINES_OF)]
    lines = [line for text in texts for line in text.splitlines()]
    chosen = random.Random(len(lines)).choices(lines, k=NOISE_LINES)  # noqa: S311  not for secrets
    half = NOISE_LINES // 2
    return lambda text: "\n".join([*chosen[:half], text, *chosen[half:]])


def ci(text: str) -> str:
    """Return the form of a CI job's log: the time before each line."""
    return "\n".join(f"2026-01-02T03:04:05.6789012Z {line}" for line in text.split("\n"))


def situations() -> dict[str, tuple[list[str], str]]:
    """Return the right answers and the log of each situation."""
    found = {}
    for path in SITUATIONS:
        with open(path, encoding="utf-8") as file:
            found |= {row["name"]: (row["causes"], row["log"]) for row in json.load(file)}
    for name in ("programs.toml", "planted.toml"):
        with open(os.path.join(DEVICE, name), "rb") as stream:
            programs = tomllib.load(stream)["program"]
        for program in programs:
            log = os.path.join(DEVICE, program["name"] + ".log")
            if os.path.exists(log):
                with open(log, encoding="utf-8") as file:
                    found["GPU: " + program["name"]] = (program["elsewhere"], file.read())
    return found


def read(log: str) -> dict[str, Any]:
    """Return doctor's answer to a log of another machine."""
    with tempfile.NamedTemporaryFile("w", suffix=".log", encoding="utf-8") as file:
        file.write(log)
        file.flush()
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            gpuenv(["doctor", file.name, "--elsewhere", "--json"])
    document: dict[str, Any] = json.loads(output.getvalue())
    return document


def measure_situations(ordinary: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is right as it is, and what each form loses."""
    forms: dict[str, Callable[[str], str]] = {name: FORMS[name] for name in CHOSEN}
    forms["CI"] = ci
    if ordinary:
        forms["inside ordinary lines"] = _inside(ordinary)
    rows = situations()
    wrong = {}
    for name, (causes, log) in rows.items():
        document = read(log)
        if answer(document) not in causes:
            first = (document.get("verdicts") or [{}])[0]
            wrong[name] = [answer(document), first.get("confidence", ""), causes]
            print(f"WRONG {name}: {' '.join(wrong[name][:2])}; right: {', '.join(causes)}")
    right_rows = [(name, *row) for name, row in rows.items() if name not in wrong]
    lost = {}
    for form, change in list(forms.items())[1:]:
        names = [
            name for name, causes, log in right_rows if answer(read(change(log))) not in causes
        ]
        lost[form] = names
        print(f"{form}: {len(names)} lost {names}")
    right = len(right_rows)
    print(f"{right} of {len(rows)} situations are right as they are")
    proved = [name for name, row in wrong.items() if row[1] == "proved"]
    counts = {form: len(names) for form, names in lost.items()}
    return {
        "situations": len(rows),
        "right": right,
        "wrong proved": proved,
        "lost": counts,
        "wrong": wrong,
    }


def measure_ordinary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return which ordinary logs get a verdict."""
    given = {}
    for row in rows:
        document = read(row["log"])
        if document.get("verdicts") or document.get("outside"):
            given[row["name"]] = answer(document)
            print(f"VERDICT {row['name']}: {given[row['name']]}")
    print(f"{len(given)} of {len(rows)} ordinary logs get a verdict")
    return {"logs": len(rows), "with a verdict": given}


def main(words: list[str]) -> int:
    """Measure and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--record", metavar="FILE")
    parser.add_argument("--ordinary", metavar="FILE")
    arguments = parser.parse_args(words)
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    ordinary = []
    if arguments.ordinary:
        with open(arguments.ordinary, encoding="utf-8") as file:
            rows = {row["log"]: row for row in json.load(file) if row["log"].strip()}
        ordinary = list(rows.values())
    record = {
        "date": date,
        "situations": measure_situations(ordinary),
        "ordinary": measure_ordinary(ordinary),
    }
    if arguments.record:
        kept = {}
        if os.path.exists(arguments.record):
            with open(arguments.record, encoding="utf-8") as file:
                kept = json.load(file)
        write_record({**kept, "now": record}, arguments.record)
    return 0
