"""What the doctor found: first what is wrong, then how it is known, then the one thing to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..doctor.catalog import Cause
from ..doctor.diagnosis import Examination
from ..doctor.model import PROBE_TESTS, Verdict
from ..doctor.remedy import Remedy
from ..model import Check
from .plans import check_lines, checks_json, ok
from .values import choice_text

Causes = Mapping[str, Cause]

WIDTH = 110
SHOWN = 6  # lines of evidence, and further causes
LOADER = frozenset({"lib_shadowing", "compat_libcuda_misuse", "cudnn_sublibs_mixed"})
SURE = {"proved": "proved", "likely": "likely, not proved", "possible": "possible, not proved"}


# ---- for people -----------------------------------------------------------------------------------------------------


def doctor_lines(found: Examination, causes: Causes, tests: Mapping[str, str], name: str) -> list[str]:
    """One screen: the verdict, its evidence and its fix; then what else may be, the tests made, and the checks.

    `causes` is what the data knows of each (`title`, `scope`, `root`), `tests` says a test in words; `name` is what the
    log is called, "" without one.
    """
    lines = [*_verdict_lines(found, causes, tests, name)]
    if found.test_results:
        lines += ["", "tests made:"]
        lines += [f"  {one.status:<7} {one.test} on GPU {one.device}: {one.evidence}" for one in found.test_results]
    if found.checks and not found.has_log:
        lines += ["", *check_lines(found.checks)]
    elif any(one.status == "fail" for one in found.checks):
        bad = [one for one in found.checks if one.status == "fail"]
        lines += ["", f"{len(bad)} of {len(found.checks)} checks of {found.target} failed:"]
        lines += [_cut(f"  {one.name} {one.subject}".rstrip() + f": {one.evidence}") for one in bad[:SHOWN]]
    if found.target is None:
        lines += ["", "No environment was looked at: --target DIR names it."]
    if found.from_other_host:
        lines += ["", "This machine has no GPU and the log is of one that has: nothing was concluded from its driver.",
                  "--gpu and --driver describe the other."]  # fmt: skip
    elif not found.host.gpus and not found.has_log and not diagnosis_names(found):
        lines += ["", "No GPU is visible here: nothing was tried on one."]
    return lines


def diagnosis_names(found: Examination) -> bool:
    """Whether a cause is named."""
    return any(not unsettled(one) for one in found.diagnosis.verdicts)


def _verdict_lines(
    found: Examination, causes: Causes, tests: Mapping[str, str], name: str
) -> Iterator[str]:
    diagnosis = found.diagnosis
    named = [one for one in diagnosis.verdicts if not unsettled(one)]
    if named and not diagnosis.abstained:
        yield from _first_lines(named[0], found, causes)
        if named[1:]:
            yield ""
            yield "also:"
        for one in named[1:SHOWN]:
            yield f"  {_title(one.cause, causes)} ({one.cause}; {SURE[one.confidence]})"
            yield from (_cut(f"    {line}") for line in one.evidence[:1])
        return
    if diagnosis.abstained:
        what = f"{name} shows a failure" if name else "something fails"
        yield f"Not settled: {what}, and nothing that is known tells its cause."
        for verdict in diagnosis.verdicts[:1]:
            yield from (_cut(f"  {line}") for line in verdict.evidence[:SHOWN])
        if diagnosis.next_tests:
            yield "what would tell, in this order" + (
                "" if found.test_results else " (--probe makes those marked *)"
            ) + ":"
        for number, test in enumerate(diagnosis.next_tests, 1):
            mark = "*" if test in PROBE_TESTS else " "
            yield f"  {number}. {mark} {tests[test]}"
        return
    if found.checks and not ok(found.checks):
        yield "Something failed that is not known by name; the checks below say what was seen."
    elif name:
        yield f"No fault of a GPU, of its driver or of its libraries is in {name}" + (
            ", and the checks found none." if found.checks else "."
        )
    elif found.checks:
        yield "Nothing is wrong that could be seen."
    else:
        yield "Nothing was checked but the host, and nothing is wrong with it that could be seen."


def _first_lines(verdict: Verdict, found: Examination, causes: Causes) -> Iterator[str]:
    yield f"{_title(verdict.cause, causes)}  [{verdict.cause}; {SURE[verdict.confidence]}]"
    yield "how it is known:"
    yield from (_cut(f"  {line}") for line in verdict.evidence[:SHOWN])
    if len(verdict.evidence) > SHOWN:
        yield f"  and {len(verdict.evidence) - SHOWN} more (--json has all)"
    yield "what to do:"
    yield from _wrapped(fix_text(verdict, found, causes, first=True))


def _title(cause: str, causes: Causes) -> str:
    return causes[cause].title


def _cut(line: str) -> str:
    return line if len(line) <= 2 * WIDTH else line[: 2 * WIDTH - 3] + "..."


def _wrapped(text: str) -> list[str]:
    """Lines of a readable width; a command stays on one line."""
    import textwrap

    lines = []
    for part in text.split("\n"):
        command = part.startswith("    ")
        wrapped = [part] if command else textwrap.wrap(part, WIDTH - 2, break_on_hyphens=False, break_long_words=False)
        lines += [f"  {line}" for line in wrapped]
    return lines


# ---- what to do -----------------------------------------------------------------------------------------------------


def unsettled(verdict: Verdict) -> bool:
    """Whether it names no cause."""
    return verdict.cause == "cudnn_init_failed_unknown"


def fix_text(verdict: Verdict, found: Examination, causes: Causes, *, first: bool) -> str:
    """What to do about a verdict on this host; a new solve is told of the first one only, for which it was made."""
    parts = []
    if first and found.remedy is not None:
        parts.append(_remedy_text(found.remedy, found))
    if verdict.cause in LOADER and found.shadows:
        parts.append(_loader_text(found))
    if not parts or verdict.cause == "driver_too_old":
        parts.append(verdict.fix)
    about = causes[verdict.cause]
    if about.root and first and found.remedy is None:
        parts.append("It needs root on the host; gpuenv changes nothing there.")
    elif about.scope == "program":
        parts.append("It is the program or how it is started, not the environment.")
    return "\n".join(part for part in parts if part)


def _remedy_text(remedy: Remedy, found: Examination) -> str:
    driver = f" with driver {found.host.driver}" if found.host.driver else ""
    if remedy.choices:
        gives = ", ".join(map(choice_text, remedy.choices))
        command = "    " + shlex.join(remedy.command)
        return f"Make a new environment (no root needed):\n{command}\nIt gives {gives} on this host{driver}."
    asked = ", ".join(remedy.asked)
    if not remedy.changes:
        return f"A new solve for {asked} does not help: {remedy.failure}."
    help_ = "; ".join(f"{change} gives {gives}" for change, gives in remedy.changes[:2])
    return f"No environment for {asked} fits this host{driver}. What would help: {help_}."


def _loader_text(found: Examination) -> str:
    entries = "; ".join(f"{one.entry} out of {one.variable}" for one in found.shadows[:3])
    target = shlex.quote(found.target or "DIR")
    return f"Take {entries}, or start the program so that nothing stands before the environment's own libraries:\n" + (
        f"    gpuenv run --target {target} -- COMMAND"
    )


# ---- JSON -----------------------------------------------------------------------------------------------------------


def doctor_json(found: Examination, causes: Causes) -> dict[str, Any]:
    """The document of `doctor --json`."""
    diagnosis = found.diagnosis
    return {
        "abstained": diagnosis.abstained,
        "verdicts": [
            {
                "cause": one.cause,
                "confidence": one.confidence,
                "evidence": list(one.evidence),
                "fix": fix_text(one, found, causes, first=place == 0),
            }
            for place, one in enumerate(diagnosis.verdicts)
        ],
        "next_tests": list(diagnosis.next_tests),
        "tests": [
            {"test": one.test, "device": one.device, "status": one.status, "evidence": one.evidence}
            for one in found.test_results
        ],
        "checks": _rows(found.checks),
        "remedy": None if found.remedy is None else _remedy_json(found.remedy),
    }


def _rows(checks: Sequence[Check]) -> Any:
    return checks_json(checks)["checks"]


def _remedy_json(remedy: Remedy) -> dict[str, Any]:
    return {
        "asked": list(remedy.asked),
        "command": list(remedy.command),
        "gives": [choice_text(one) for one in remedy.choices],
        "needs_driver": remedy.needs_driver,
        "failure": remedy.failure,
        "changes": [{"change": change, "gives": gives} for change, gives in remedy.changes],
    }


def well(found: Examination) -> bool:
    """Whether no fault was found: none in the log, no cause, and no check that failed."""
    diagnosis = found.diagnosis
    checked = found.has_log or ok(found.checks) or not found.checks
    return not diagnosis.abstained and not diagnosis.verdicts and checked
