"""The text and the JSON document of `gpuenv doctor`: verdict, evidence, and what to do."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable
from typing import Any

import msgspec

from ..doctor.catalog import Cause, causes, tests
from ..doctor.diagnosis import Examination
from ..doctor.judge import UNKNOWN_CAUSE
from ..doctor.model import Diagnosis, Verdict
from ..doctor.origin import Origin
from ..doctor.remedy import Remedy
from ..model import Check
from .checks import check_lines, checks_json, ok, summary_lines
from .text import Line, columns
from .values import choice_text

SHOWN = 6  # lines of evidence, and further causes
# What to look at if a new solve gives what is installed.
_ANOTHER_PLACE = (
    "Something beside these releases is at fault: an extension that was compiled for others, a "
    "cached kernel, or a library of another folder. `gpuenv verify` names files that are not as "
    "recorded, and `gpuenv run` starts the program with the environment's own libraries."
)
CHANGES_SHOWN = 2
SHADOWS_SHOWN = 3
CODE_CAUSES = frozenset({"gpu_too_new_for_build", "gpu_too_old_for_build"})
LOADER_CAUSES = frozenset({"lib_shadowing", "compat_libcuda_misuse", "cudnn_sublibs_mixed"})
CONFIDENCE = {
    "proved": "proved",
    "likely": "likely, not proved",
    "possible": "possible, not proved",
}


# ---- text ---------------------------------------------------------------------------------------


def doctor_lines(
    examination: Examination,
    name: str,
    *,
    verbose: bool = False,
) -> list[str]:
    """Return the verdict, its evidence and its fix, and then everything else.

    That is: other causes, the tests that were run, the checks, and what was not examined. With a
    log, only the first cause, one line of evidence and the fix are shown, unless `verbose`.

    Args:
        examination: what was found.
        name: the name of the log; "" without one.
        verbose: whether everything is shown, also with a log.
    """
    named = _named(examination.diagnosis)
    if named and _has_log(examination) and not (verbose or examination.test_results):
        return _short_lines(named[0], examination)
    lines = _verdict_lines(examination, name)
    checks = _checks_section(examination, verbose=verbose)
    for section in (_test_lines(examination), checks, _gaps(examination)):
        if section:
            lines += ["", *section]
    return lines


def well(examination: Examination) -> bool:
    """Return whether nothing is wrong: no failure in the log, no cause, and no failed check."""
    diagnosis = examination.diagnosis
    if diagnosis.abstained or diagnosis.verdicts:
        return False
    return _has_log(examination) or not examination.checks or ok(examination.checks)


def _named(diagnosis: Diagnosis) -> list[Verdict]:
    """Return the verdicts that name a cause, the best first."""
    return [verdict for verdict in diagnosis.verdicts if verdict.cause != UNKNOWN_CAUSE]


# ---- the verdict --------------------------------------------------------------------------------


def _verdict_lines(examination: Examination, name: str) -> list[str]:
    diagnosis = examination.diagnosis
    if diagnosis.abstained:
        return _abstention_lines(examination, name)
    verdicts = _named(diagnosis)
    if not verdicts:
        return [_no_cause_line(examination, name)]
    lines = _first_cause_lines(verdicts[0], examination)
    if verdicts[1:]:
        lines += ["", "also:"]
        for verdict in verdicts[1:SHOWN]:
            lines += _further_cause_lines(verdict)
    return lines


def _short_lines(first: Verdict, examination: Examination) -> list[str]:
    """Return the first cause, one line of evidence, the fix, and where the log was read."""
    lines = [_headline(first), *_cut(f"  {line}" for line in first.evidence[:1])]
    lines += _wrapped(fix_text(first, examination, first=True))
    origin = examination.origin
    if origin is not None and not origin.is_evidence:
        lines.append(_place_of_log(origin))
    return [*lines, "-v shows all evidence, other causes, and what was not examined."]


def _place_of_log(origin: Origin) -> str:
    if origin.without_gpu:
        return "The log was read on a machine without a GPU. --here uses this machine as evidence."
    return "This machine is not used as evidence. --here uses it."


def _headline(verdict: Verdict) -> str:
    title = verdict.title or causes()[verdict.cause].title
    text = f"{title}  [{verdict.cause}; {CONFIDENCE[verdict.confidence]}]"
    return Line(text, "bad", marked=len(title))


def _first_cause_lines(verdict: Verdict, examination: Examination) -> list[str]:
    lines = [_headline(verdict), "evidence:"]
    lines += _cut(f"  {line}" for line in verdict.evidence[:SHOWN])
    if len(verdict.evidence) > SHOWN:
        lines.append(f"  and {len(verdict.evidence) - SHOWN} more (--json lists all)")
    lines.append("what to do:")
    return lines + _wrapped(fix_text(verdict, examination, first=True))


def _further_cause_lines(verdict: Verdict) -> list[str]:
    confidence = CONFIDENCE[verdict.confidence]
    title = verdict.title or causes()[verdict.cause].title
    line = f"  {title} ({verdict.cause}; {confidence})"
    return [line, *_cut(f"    {line}" for line in verdict.evidence[:1])]


def _abstention_lines(examination: Examination, name: str) -> list[str]:
    diagnosis = examination.diagnosis
    if diagnosis.outside is not None:
        return _outside_lines(diagnosis.outside)
    if not (diagnosis.failures or diagnosis.verdicts):
        return [
            f"Nothing in {name} was printed by a program: paste what the program printed, from its "
            "first error to its end."
        ]
    place = f" in {name}" if name else ""
    lines = [f"There is a failure{place}, but nothing shows its cause."]
    lines += _cut(f"  {line}" for line in diagnosis.failures[:SHOWN])
    if diagnosis.next_tests:
        title = "run these tests next, in this order"
        if not examination.test_results:
            title += " (--probe runs those marked *)"
        lines.append(f"{title}:")
    for number, test in enumerate(diagnosis.next_tests, 1):
        mark = "*" if tests()[test].probe else " "
        lines.append(f"  {number}. {mark} {tests()[test].shows}")
    return lines


def _outside_lines(outside: Verdict) -> list[str]:
    evidence = _cut(f"  {line}" for line in outside.evidence)
    return [outside.title, "evidence:", *evidence, "what to do:", *_wrapped(outside.fix)]


def _no_cause_line(examination: Examination, name: str) -> str:
    if examination.checks and not ok(examination.checks):
        return "A check failed for a reason that gpuenv does not know; see the checks below."
    if name:
        line = f"No fault of a GPU, its driver or its libraries was found in {name}"
        if examination.checks:
            return f"{line}, and the checks found none."
        return f"{line}."
    if examination.checks:
        return "No fault was found."
    return "No fault of the host was found; nothing else was checked."


# ---- the other sections -------------------------------------------------------------------------


def _test_lines(examination: Examination) -> list[str]:
    if not examination.test_results:
        return []
    lines = ["tests that were run:"]
    for result in examination.test_results:
        test = f"{result.test} on GPU {result.device}"
        lines.append(f"  {result.status:<7} {test}: {result.evidence}")
    return lines


def _checks_section(examination: Examination, *, verbose: bool) -> list[str]:
    """Return the checks by parts, or with a log only those that failed."""
    checks = examination.checks
    if checks and verbose:
        return check_lines(checks)
    if not _has_log(examination):
        return summary_lines(checks) if checks else []
    failed = [check for check in checks if check.status == "fail"]
    if not failed:
        return []
    lines = [f"{len(failed)} of {len(checks)} checks of {examination.target} failed:"]
    return lines + _cut(map(_failed_check_line, failed[:SHOWN]))


def _failed_check_line(check: Check) -> str:
    return f"  {check.name} {check.subject}".rstrip() + f": {check.evidence}"


def _has_log(examination: Examination) -> bool:
    return examination.origin is not None


def _origin_lines(origin: Origin) -> list[str]:
    """Return lines that say whether this machine was evidence, and how to change that."""
    lines = []
    if origin.without_gpu:
        lines.append("The log was read on a machine without a GPU.")
    if origin.stated:
        return lines
    if origin.place == "elsewhere":
        lines.append(f"The log is from another machine: {origin.reason}.")
    elif not (origin.is_evidence or origin.without_gpu):
        lines.append(f"The log may be from another machine: {origin.reason}.")
    if not origin.is_evidence:
        lines += [
            "Nothing of this machine was used as evidence.",
            "--here says that the log is from this machine; --gpu and --driver describe another.",
        ]
    return lines


def _gaps(examination: Examination) -> list[str]:
    """Return what was not examined, and how to have it examined."""
    lines = []
    origin = examination.origin
    if origin is not None:
        lines += _origin_lines(origin)
    if examination.other_environment:
        lines.append(f"The active environment was not used: {examination.other_environment}.")
    elif examination.target is None:
        lines.append("No environment was examined: name one with --target DIR.")
    if not (examination.host.gpus or _has_log(examination) or _named(examination.diagnosis)):
        lines.append("No GPU is visible here: no test ran on one. Describe one with --gpu.")
    return lines


def _cut(lines: Iterable[str]) -> list[str]:
    longest = 3 * columns()
    shortened = []
    for line in lines:
        if len(line) > longest:
            shortened.append(line[: longest - 3] + "...")
        else:
            shortened.append(line)
    return shortened


def _wrapped(text: str) -> list[str]:
    """Return lines of a readable width. A line that starts with four spaces is a command."""
    wrapper = textwrap.TextWrapper(columns() - 2, break_on_hyphens=False, break_long_words=False)
    lines = []
    for line in text.split("\n"):
        if line.startswith("    "):
            lines.append(line)
        else:
            lines += wrapper.wrap(line)
    return [f"  {line}" for line in lines]


# ---- what to do ---------------------------------------------------------------------------------


def fix_text(verdict: Verdict, examination: Examination, *, first: bool) -> str:
    """Return what to do about a verdict on this host.

    Args:
        first: it is the best verdict. The new solve was made for that one only.
    """
    if verdict.complete:
        return verdict.fix
    parts = []
    remedy = examination.remedy
    if first and remedy is not None:
        parts.append(_remedy_text(remedy, examination))
    if verdict.cause in CODE_CAUSES:
        parts += _rebuild_texts(examination)
    if verdict.cause in LOADER_CAUSES and examination.shadows:
        parts.append(_loader_text(examination))
    if not parts or verdict.cause == "driver_too_old":
        parts.append(verdict.fix)
    parts = [*verdict.advice, *parts]
    cause = causes()[verdict.cause]
    if cause.root and first and remedy is None:
        parts.append("This needs root on the host; gpuenv changes nothing there.")
    elif cause.scope == "program":
        parts.append("Change the program or how it is started, not the environment.")
    return "\n".join(filter(None, parts))


def _remedy_text(remedy: Remedy, examination: Examination) -> str:
    host = remedy.machine or "this host"
    if not remedy.machine and examination.host.driver:
        host += f" with driver {examination.host.driver}"
    if remedy.choices:
        gives = ", ".join(map(choice_text, remedy.choices))
        command = "    " + shlex.join(remedy.command)
        text = f"Make a new environment (no root needed):\n{command}\nIt gives {gives} on {host}."
        return f"{text}\n{_unsolved_text(remedy)}".strip()
    if remedy.command:
        return f"Look for builds that fit {host}:\n    {shlex.join(remedy.command)}"
    frameworks = ", ".join(remedy.asked)
    if remedy.same:
        return f"A new solve for {frameworks} does not help: {remedy.failure}. {_ANOTHER_PLACE}"
    shown = remedy.changes[:CHANGES_SHOWN]
    changes = "; ".join(f"{change} gives {gives}" for change, gives in shown)
    return f"No environment for {frameworks} fits {host}. What helps: {changes}."


def _unsolved_text(remedy: Remedy) -> str:
    if not remedy.unsolved:
        return ""
    builds = " and ".join(remedy.unsolved)
    command = shlex.join(remedy.unsolved_command)
    return f"To keep the version, with a network: {builds} suits it, too.\n    {command}"


def _rebuild_texts(examination: Examination) -> list[str]:
    """Return what to do about each file that has no code for a device."""
    texts = []
    for check in examination.checks:
        for code, owner, hint in check.marks:
            if code == "rebuild":
                texts.append(f"{owner}: {hint}.")
    return texts


def _loader_text(examination: Examination) -> str:
    shown = examination.shadows[:SHADOWS_SHOWN]
    entries = "; ".join(f"{shadow.entry} from {shadow.variable}" for shadow in shown)
    target = shlex.quote(examination.target or "DIR")
    return (
        f"Remove {entries}, or start the program so that no other library shadows the "
        f"environment's:\n    gpuenv run --target {target} -- COMMAND"
    )


# ---- JSON ---------------------------------------------------------------------------------------


def doctor_json(examination: Examination) -> dict[str, Any]:
    """Return the document of `doctor --json`."""
    diagnosis = examination.diagnosis
    verdicts = []
    for place, verdict in enumerate(diagnosis.verdicts):
        fix = fix_text(verdict, examination, first=place == 0)
        verdicts.append(
            {
                "cause": verdict.cause,
                "title": verdict.title or causes()[verdict.cause].title,
                "confidence": verdict.confidence,
                "evidence": list(verdict.evidence),
                "fix": fix,
                "risk": _risk(causes()[verdict.cause]),
            }
        )
    return {
        "abstained": diagnosis.abstained,
        "verdicts": verdicts,
        "failures": list(diagnosis.failures),
        "facts": list(map(msgspec.structs.asdict, examination.facts)),
        "next_tests": [_next_test_json(test, examination) for test in diagnosis.next_tests],
        "outside": _outside_json(diagnosis.outside),
        "origin": _origin_json(examination.origin),
        "tests": list(map(msgspec.structs.asdict, examination.test_results)),
        "checks": checks_json(examination.checks)["checks"],
        "remedy": _remedy_json(examination.remedy) if examination.remedy else None,
    }


def _risk(cause: Cause) -> str:
    """Return what a fix changes: nothing that exists, the program, or the host."""
    if cause.scope == "host":
        return "changes the host, as root" if cause.root else "changes the host"
    if cause.scope == "program":
        return "changes the program"
    return "makes a new environment beside the present one"


def _next_test_json(test: str, examination: Examination) -> dict[str, str]:
    """Return a test that tells causes apart: its name, what a pass shows, and a command."""
    target = shlex.quote(examination.target or "DIR")
    row = tests()[test]
    command = row.command or f"gpuenv verify --target {target}"
    if row.probe:
        command = f"gpuenv doctor LOG --probe --target {target}"
    return {"test": test, "shows": row.shows, "command": command}


def _origin_json(origin: Origin | None) -> dict[str, object] | None:
    if origin is None:
        return None
    return {"place": origin.place, "reason": origin.reason, "is_evidence": origin.is_evidence}


def _outside_json(outside: Verdict | None) -> dict[str, object] | None:
    if outside is None:
        return None
    return {"area": outside.cause, "evidence": list(outside.evidence), "fix": outside.fix}


def _remedy_json(remedy: Remedy) -> dict[str, object]:
    return {
        "asked": list(remedy.asked),
        "command": list(remedy.command),
        "gives": list(map(choice_text, remedy.choices)),
        "needs_driver": remedy.needs_driver,
        "failure": remedy.failure,
        "risk": "makes a new environment beside the present one",
        "changes": [{"change": change, "gives": gives} for change, gives in remedy.changes],
    }
