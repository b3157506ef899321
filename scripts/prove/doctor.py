"""Let the doctor read what programs printed, as it is and in the forms in which people paste it.

    python scripts/tools.py prove doctor [SET.json|SET.toml ...] [--record FILE]

Without a set, it reads the situations: logs whose cause is known, printed by programs or quoted
from public reports (tests/data/situations), or printed on a GPU (tests/data/device_failures).
A set is a JSON list of rows: name (or id), log (or output), causes (or want: the answers that are
right; none for the log of a program that runs) and decides ("no": the log does not show its cause,
so that a likely or proved verdict is an overclaim). A TOML file of `[[case]]` has the doctor's own
cases: log and first. Every log is read as on a machine without a GPU.

Counted in each form are the answers that are right, wrong, abstained, all-clear ("no fault") and
overclaims, the wrong verdicts that are proved, and the logs that are right as they are, but lost in
that form. Wrong answers to a log as it is are faults.
"""

from __future__ import annotations

import contextlib
import html
import io
import json
import random
import tempfile
import textwrap
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common import ROOT, read_json, read_toml
from gpuenv.cli import main as gpuenv
from gpuenv.doctor.judge import UNKNOWN_CAUSE
from prove.device import CASES, answer

DATA = ROOT / "tests" / "data"
RESULTS = ("right", "wrong", "abstained", "all-clear", "overclaim")
RANKS = 8
# Ordinary lines, with a number. None names a GPU, a driver or a version.
NOISE = (
    "2026-03-04 05:06:07,890 epoch 3 step {} loss 0.125 lr 1e-4 mem 12.3GiB device=cuda:0",
    "node-a1-7:{}:811 [7] NCCL INFO Channel 2/0 : 7[7] -> 6[6] [send] via NET/IB/0/GDRDMA",
    "node-a1-7:{}:811 [7] NCCL INFO Setting affinity for GPU 7 to ff,ffff0000,ffffffff",
)
NOISE_LINES = 1500  # before a log, and behind it


class Report(NamedTuple):
    """A log, the answers that are right, and whether it shows its cause."""

    name: str
    log: str
    causes: Sequence[str]
    decides: bool = True


# ---- forms in which people paste logs -----------------------------------------------------------


def prefixed(prefix: str) -> Callable[[str], str]:
    """Return a form with the prefix of a launcher, a container or a quotation."""
    return lambda text: "\n".join(prefix + line for line in text.split("\n"))


def broken(width: int, *, at_words: bool = False) -> Callable[[str], str]:
    """Return a form with lines broken as terminals do, or at spaces, as mail programs do."""
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)

    def lines(line: str) -> list[str]:
        if at_words:
            return wrapper.wrap(line) or [""]
        return [line[start : start + width] for start in range(0, max(len(line), 1), width)]

    return lambda text: "\n".join(part for line in text.split("\n") for part in lines(line))


def smart_quotes(text: str) -> str:
    """Return a text as word processors change it."""
    opened = text.replace(" '", " \u2018").replace(' "', " \u201c")
    return opened.replace("'", "\u2019").replace('"', "\u201d")


def json_lines(text: str) -> str:
    """Return the form of Docker's log files."""
    records = [{"log": line + "\n", "stream": "stderr"} for line in text.split("\n")]
    return "\n".join(map(json.dumps, records))


def interleaved(text: str) -> str:
    """Return the lines of all ranks, each rank's in its order."""
    chance = random.Random(len(text))  # noqa: S311  not for secrets
    waiting = [[f"[rank{rank}]: {line}" for line in text.split("\n")] for rank in range(RANKS)]
    lines = []
    while waiting:
        rank = chance.choice(waiting)
        lines.append(rank.pop(0))
        waiting = [rank for rank in waiting if rank]
    return "\n".join(lines)


def in_noise(text: str) -> str:
    """Return a text between ordinary lines."""
    noise = [NOISE[number % len(NOISE)].format(number) for number in range(NOISE_LINES)]
    return "\n".join([*noise, text, *noise])


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "terminal of 80 columns": broken(80),
    "terminal of 100 columns": broken(100),
    "words at 80 columns": broken(80, at_words=True),
    "words at 100 columns": broken(100, at_words=True),
    "quoted": prefixed("> "),
    "HTML entities": html.escape,
    "smart quotes": smart_quotes,
    "one line": lambda text: " ".join(text.split("\n")),
    "JSON lines": json_lines,
    "torchrun": prefixed("[rank3]: "),
    "compose": prefixed("worker-0  | "),
    "kubernetes": prefixed("2026-01-02T03:04:05.678901234Z stderr F "),
    "systemd": prefixed("Jan 02 03:04:05 node7 python3[1234]: "),
    "mpirun": prefixed("[1,3]<stderr>:"),
    "ray": prefixed("(Trainer pid=1234, ip=10.0.0.3) "),
    "slurm": prefixed("3: "),
    "8 ranks": interleaved,
    "noise": in_noise,
}


# ---- sets of reports ----------------------------------------------------------------------------


def read_set(path: Path) -> list[Report]:
    """Return the reports of a file."""
    if path.suffix == ".toml":
        return [
            Report(str(number), row["log"], [row["first"]])
            for number, row in enumerate(read_toml(path.resolve())["case"])
            if row["first"] and not row.get("host")
        ]
    reports = []
    for row in read_json(path):
        log, causes = row.get("log", row.get("output")), row.get("causes", row.get("want"))
        if log:
            name = row.get("name", row.get("id"))
            reports.append(Report(name, log, causes, row.get("decides") != "no"))
    return reports


def situations() -> list[Report]:
    """Return the logs of this checkout whose cause is known."""
    reports = []
    for name in ("situations.json", "reported.json"):
        reports += read_set(DATA / "situations" / name)
    for name in ("programs.toml", "planted.toml"):
        for program in read_toml(CASES / name)["program"]:
            log = CASES / f"{program['name']}.log"
            if log.exists():
                text = log.read_text(encoding="utf-8")
                reports.append(Report(f"GPU: {program['name']}", text, program["elsewhere"]))
    return reports


# ---- answers ------------------------------------------------------------------------------------


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


def judge(report: Report, form: str = "as it is") -> tuple[str, str, str]:
    """Return (result, answer, confidence) of a report in a form. RESULTS has the results."""
    document = read(FORMS[form](report.log))
    said = answer(document)
    confidence = document["verdicts"][0]["confidence"] if document["verdicts"] else ""
    is_silent = said in ("not settled", "no failure", UNKNOWN_CAUSE) or said.startswith("outside")
    result = "wrong"
    if not report.decides:
        result = "overclaim" if confidence in ("likely", "proved") else "right"
    elif said in report.causes or (is_silent and UNKNOWN_CAUSE in report.causes):
        result = "right"
    elif said == "no failure":
        result = "all-clear" if report.causes else "right"
    elif is_silent:
        result = "abstained" if report.causes or said != "not settled" else "right"
    return result, said, confidence


def measure(reports: Sequence[Report]) -> dict[str, Any]:
    """Return the counts of a set in each form, and the answers that are not right as they are."""
    was_right: set[str] = set()
    forms, wrong = {}, {}
    for form in FORMS:
        answers = {report.name: judge(report, form) for report in reports}
        right = {name for name, (result, _, _) in answers.items() if result == "right"}
        if form == "as it is":
            was_right = right
            wrong = {name: [*answers[name]] for name in answers if name not in right}
        counts = Counter(result for result, _, _ in answers.values())
        proved = sum(row[0] == "wrong" and row[2] == "proved" for row in answers.values())
        forms[form] = {result: counts[result] for result in RESULTS}
        forms[form] |= {"wrong proved": proved, "lost": len(was_right - right)}
    return {"reports": len(reports), "forms": forms, "wrong": wrong}


ARGUMENTS = {
    "sets": {"nargs": "*", "metavar": "SET", "type": Path},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Measure the sets."""
    sets = {path.stem: read_set(path) for path in arguments.sets} or {"situations": situations()}
    record = {name: measure(reports) for name, reports in sets.items()}
    faults = [
        f"{name}: {report}: {row}"
        for name, measured in record.items()
        for report, row in measured["wrong"].items()
    ]
    return record, faults
