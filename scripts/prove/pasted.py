"""Read what programs printed with the doctor, as it is and in the forms in which people paste it.

    python scripts/tools.py prove pasted [--record FILE.json] [--wrong] SET.json|SET.toml ...

A set is a JSON list of rows: id, output (what a program printed, with has_output), decides (yes:
the output shows the cause; class: it leaves a few causes; no: it does not show it) and want (the
causes that are right). A TOML file of `[[case]]` has the doctor's own cases: log and first.
Every output is read without facts of a host, as on a machine without a GPU.

The first verdict is right if it is one of `want`. Of an output that does not decide, a verdict that
is likely or proved is an overclaim. For each set and each form, the counts are right, wrong,
abstained, all-clear ("no fault"), overclaims and wrong verdicts that are proved. `lost` counts the
outputs that are right as they are, but not in that form.
"""

from __future__ import annotations

import argparse
import datetime
import html
import json
import os
import random
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from bench.doctor import line_of
from gpuenv.doctor import read_log
from gpuenv.doctor.judge import UNKNOWN_CAUSE, diagnose
from gpuenv.doctor.model import Diagnosis
from gpuenv.model import Value

RESULTS = ("right", "wrong", "abstained", "all-clear", "overclaim")
DECIDES = ("yes", "class", "no")
RANKS = 8
NOISE_LINES = 3000
NOISE_KINDS = ("training", "nccl")  # no line names a GPU, a driver or a version


class Report(Value):
    """An output, the causes that are right, and whether it decides (a value of DECIDES)."""

    id: str
    text: str
    causes: tuple[str, ...]
    decides: str = "yes"


class Answer(Value):
    """What the doctor answers.

    Attributes:
        cause: of the first verdict that names one, or "".
        confidence: of that verdict, or "".
        result: right, wrong, abstained, all-clear or overclaim.
    """

    cause: str
    confidence: str
    result: str


# ---- forms in which people paste logs -----------------------------------------------------------


def _each_line(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(change(line) for line in text.split("\n"))


def _prefixed(prefix: str) -> Callable[[str], str]:
    return _each_line(lambda line: prefix + line)


def _terminal(width: int) -> Callable[[str], str]:
    """Break lines as a terminal does: after `width` characters."""

    def broken(line: str) -> str:
        starts = range(0, max(len(line), 1), width)
        return "\n".join(line[start : start + width] for start in starts)

    return _each_line(broken)


def _at_words(width: int) -> Callable[[str], str]:
    """Break lines at spaces, as mail programs and editors do."""
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    return _each_line(lambda line: "\n".join(wrapper.wrap(line)))


def _smart_quotes(text: str) -> str:
    opened = text.replace(" '", " \u2018").replace(' "', " \u201c")
    return opened.replace("'", "\u2019").replace('"', "\u201d")


def _json_lines(text: str) -> str:
    """Return the form of Docker's log files."""
    records = [{"log": line + "\n", "stream": "stderr"} for line in text.split("\n")]
    return "\n".join(map(json.dumps, records))


def _interleaved(text: str) -> str:
    """Return the lines of all ranks, each rank's in its order."""
    chance = random.Random(len(text))  # noqa: S311  not for secrets
    waiting = [[f"[rank{rank}]: {line}" for line in text.split("\n")] for rank in range(RANKS)]
    lines = []
    while waiting:
        rank = chance.choice(waiting)
        lines.append(rank.pop(0))
        waiting = [rank for rank in waiting if rank]
    return "\n".join(lines)


@cache
def _noise() -> list[str]:
    chance = random.Random(NOISE_LINES)  # noqa: S311  not for secrets
    return [line_of(chance.choice(NOISE_KINDS), chance).rstrip("\n") for _ in range(NOISE_LINES)]


def _in_noise(text: str) -> str:
    lines = _noise()
    return "\n".join([*lines[: NOISE_LINES // 2], text, *lines[NOISE_LINES // 2 :]])


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "terminal of 80 columns": _terminal(80),
    "terminal of 100 columns": _terminal(100),
    "words at 80 columns": _at_words(80),
    "words at 100 columns": _at_words(100),
    "quoted": _prefixed("> "),
    "HTML entities": html.escape,
    "smart quotes": _smart_quotes,
    "one line": lambda text: " ".join(text.split("\n")),
    "JSON lines": _json_lines,
    "torchrun": _prefixed("[rank3]: "),
    "compose": _prefixed("worker-0  | "),
    "kubernetes": _prefixed("2026-01-02T03:04:05.678901234Z stderr F "),
    "systemd": _prefixed("Jan 02 03:04:05 node7 python3[1234]: "),
    "mpirun": _prefixed("[1,3]<stderr>:"),
    "ray": _prefixed("(Trainer pid=1234, ip=10.0.0.3) "),
    "slurm": _prefixed("3: "),
    "8 ranks": _interleaved,
    "noise": _in_noise,
}


# ---- sets of reports ----------------------------------------------------------------------------


def read_set(path: str) -> list[Report]:
    """Return the outputs of a file."""
    if path.endswith(".toml"):
        with open(path, "rb") as stream:
            rows = tomllib.load(stream)["case"]
        return [
            Report(id=str(number), text=row["log"], causes=(row["first"],))
            for number, row in enumerate(rows)
            if row["first"] and not row.get("host")
        ]
    with open(path, encoding="utf-8") as stream:
        rows = json.load(stream)
    return [
        Report(id=row["id"], text=row["output"], causes=tuple(row["want"]), decides=row["decides"])
        for row in rows
        if row["has_output"]
    ]


# ---- answers ------------------------------------------------------------------------------------


def answer(report: Report, text: str) -> Answer:
    """Return the doctor's answer to a form of an output."""
    diagnosis = diagnose(read_log([text]), ())
    named = [verdict for verdict in diagnosis.verdicts if verdict.cause != UNKNOWN_CAUSE]
    first = named[0] if named else None
    cause, confidence = (first.cause, first.confidence) if first else ("", "")
    return Answer(
        cause=cause, confidence=confidence, result=_result(report, diagnosis, cause, confidence)
    )


def _result(report: Report, diagnosis: Diagnosis, cause: str, confidence: str) -> str:
    if report.decides == "no":
        return "overclaim" if confidence in ("likely", "proved") else "right"
    if cause:
        return "right" if cause in report.causes else "wrong"
    if UNKNOWN_CAUSE in report.causes and diagnosis.abstained:
        return "right"
    return "abstained" if diagnosis.abstained else "all-clear"


def measure(reports: Sequence[Report]) -> dict[str, Any]:
    """Return the counts of a set."""
    answers = {
        form: [answer(report, change(report.text)) for report in reports]
        for form, change in FORMS.items()
    }
    plain = list(zip(reports, answers["as it is"], strict=True))
    right = [given.result == "right" for given in answers["as it is"]]
    return {
        "reports": len(reports),
        "by what it decides": _by(plain, lambda report, _given: report.decides),
        "by confidence": _by(plain, lambda _report, given: given.confidence or "none"),
        "forms": {
            form: {**_counts(given), "lost": _lost(right, given)} for form, given in answers.items()
        },
    }


def _counts(answers: Iterable[Answer]) -> dict[str, int]:
    given = list(answers)
    results = Counter(judged.result for judged in given)
    counts = {result: results[result] for result in RESULTS}
    wrong_proved = [
        judged for judged in given if (judged.result, judged.confidence) == ("wrong", "proved")
    ]
    return {**counts, "wrong proved": len(wrong_proved)}


def _by(
    rows: Iterable[tuple[Report, Answer]], key: Callable[[Report, Answer], str]
) -> dict[str, dict[str, int]]:
    groups: dict[str, list[Answer]] = {}
    for report, given in rows:
        groups.setdefault(key(report, given), []).append(given)
    return {name: _counts(groups[name]) for name in sorted(groups)}


def _lost(was_right: Iterable[bool], answers: Iterable[Answer]) -> int:
    pairs = zip(was_right, answers, strict=True)
    return sum(right and given.result != "right" for right, given in pairs)


# ---- output -------------------------------------------------------------------------------------


def _print_counts(title: str, counts: Mapping[str, int]) -> None:
    words = "  ".join(f"{name} {count:4}" for name, count in counts.items())
    print(f"  {title:<34} {words}")


def show(name: str, measured: Mapping[str, Any]) -> None:
    """Print the counts of a set."""
    print(f"{name}: {measured['reports']} reports")
    for title in ("by what it decides", "by confidence", "forms"):
        print(f" {title}")
        for key, counts in measured[title].items():
            _print_counts(key, counts)


def _is_lost(report: Report, form: str) -> bool:
    return answer(report, FORMS[form](report.text)).result != "right"


def show_wrong(reports: Sequence[Report]) -> None:
    """Print the reports that are not right as they are, and the forms that lose a report."""
    for report in reports:
        plain = answer(report, report.text)
        lost = [form for form in FORMS if _is_lost(report, form)]
        if lost:
            given = f"{plain.cause or '-'} {plain.confidence} ({plain.result})"
            print(f"  {report.id}: {given}; right: {', '.join(report.causes)}; lost in {lost}")


def main(words: list[str]) -> int:
    """Measure the named sets."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="+", metavar="SET")
    parser.add_argument("--record", metavar="FILE", help="write the counts to a JSON file")
    parser.add_argument("--wrong", action="store_true", help="name the reports that are not right")
    given = parser.parse_args(words)
    measured = {}
    for path in given.sets:
        reports = read_set(path)
        name = os.path.splitext(os.path.basename(path))[0]
        measured[name] = measure(reports)
        show(name, measured[name])
        if given.wrong:
            show_wrong(reports)
    if given.record:
        date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        document = {"conditions": {"date": date}, "sets": measured}
        with open(given.record, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(document, indent=1) + "\n")
    return 0
