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
from ..doctor.remedy import Remedy
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
    if examination.test_results:
        lines += ["", "tests that were run:"]
        for result in examination.test_results:
            test = f"{result.test} on GPU {result.device}"
            lines.append(f"  {result.status:<7} {test}: {result.evidence}")
    for section in (_checks_section(examination, verbose=verbose), _gaps(examination)):
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
        checks = examination.checks
        if checks and not ok(checks):
            line = "A check failed for a reason that gpuenv does not know; see the checks below."
        elif name:
            line = f"No fault of a GPU, its driver or its libraries was found in {name}"
            line += ", and the checks found none." if checks else "."
        elif checks:
            line = "No fault was found."
        else:
            line = "No fault of the host was found; nothing else was checked."
        return [line]
    first, *others = verdicts
    lines = [_headline(first), "evidence:"]
    lines += _cut(f"  {line}" for line in first.evidence[:SHOWN])
    if len(first.evidence) > SHOWN:
        lines.append(f"  and {len(first.evidence) - SHOWN} more (--json lists all)")
    lines += ["what to do:", *_wrapped(fix_text(first, examination, first=True))]
    if others:
        lines += ["", "also:"]
    for verdict in others[: SHOWN - 1]:
        title = verdict.title or causes()[verdict.cause].title
        lines.append(f"  {title} ({verdict.cause}; {CONFIDENCE[verdict.confidence]})")
        lines += _cut(f"    {line}" for line in verdict.evidence[:1])
    return lines


def _short_lines(first: Verdict, examination: Examination) -> list[str]:
    """Return the first cause, one line of evidence, the fix, and where the log was read."""
    lines = [_headline(first), *_cut(f"  {line}" for line in first.evidence[:1])]
    lines += _wrapped(fix_text(first, examination, first=True))
    origin = examination.origin
    if origin is not None and origin.without_gpu and not origin.is_evidence:
        lines.append(
            "The log was read on a machine without a GPU. --here uses this machine as evidence."
        )
    elif origin is not None and not origin.is_evidence:
        lines.append("This machine is not used as evidence. --here uses it.")
    return [*lines, "-v shows all evidence, other causes, and what was not examined."]


def _headline(verdict: Verdict) -> str:
    title = verdict.title or causes()[verdict.cause].title
    text = f"{title}  [{verdict.cause}; {CONFIDENCE[verdict.confidence]}]"
    return Line(text, "bad", marked=len(title))


def _abstention_lines(examination: Examination, name: str) -> list[str]:
    diagnosis = examination.diagnosis
    if (outside := diagnosis.outside) is not None:
        evidence = _cut(f"  {line}" for line in outside.evidence)
        return [outside.title, "evidence:", *evidence, "what to do:", *_wrapped(outside.fix)]
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


# ---- the other sections -------------------------------------------------------------------------


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
    for check in failed[:SHOWN]:
        lines += _cut([f"  {check.name} {check.subject}".rstrip() + f": {check.evidence}"])
    return lines


def _has_log(examination: Examination) -> bool:
    return examination.origin is not None


def _gaps(examination: Examination) -> list[str]:
    """Return what was not examined, and how to have it examined."""
    lines = []
    origin = examination.origin
    if origin is not None and origin.without_gpu:
        lines.append("The log was read on a machine without a GPU.")
    if origin is not None and not origin.stated:
        if origin.place == "elsewhere":
            lines.append(f"The log is from another machine: {origin.reason}.")
        elif not (origin.is_evidence or origin.without_gpu):
            lines.append(f"The log may be from another machine: {origin.reason}.")
        if not origin.is_evidence:
            lines += [
                "Nothing of this machine was used as evidence.",
                "--here says that the log is from this machine; --gpu and --driver describe "
                "another.",
            ]
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
    if verdict.cause in CODE_CAUSES:  # what to do about each file without code for a device
        for check in examination.checks:
            parts += [f"{owner}: {hint}." for code, owner, hint in check.marks if code == "rebuild"]
    if verdict.cause in LOADER_CAUSES and examination.shadows:
        shown = examination.shadows[:SHADOWS_SHOWN]
        entries = "; ".join(f"{shadow.entry} from {shadow.variable}" for shadow in shown)
        target = shlex.quote(examination.target or "DIR")
        parts.append(
            f"Remove {entries}, or start the program so that no other library shadows the "
            f"environment's:\n    gpuenv run --target {target} -- COMMAND"
        )
    if first and examination.repairs:
        commands = [f"    {shlex.join(command)}" for command in examination.repairs]
        if "uninstall" in examination.repairs[0]:
            commands.append("Then install one of them again.")
        parts.insert(0, "\n".join(["Repair the environment:", *commands]))
    if not parts or verdict.cause in ("driver_too_old", "companion_binary_mismatch"):
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
        if remedy.unsolved:
            builds = " and ".join(remedy.unsolved)
            text += f"\nTo keep the version, with a network: {builds} suits it, too."
            text += f"\n    {shlex.join(remedy.unsolved_command)}"
        return text
    if remedy.command:
        return f"Look for builds that fit {host}:\n    {shlex.join(remedy.command)}"
    frameworks = ", ".join(remedy.asked)
    if remedy.same:
        return f"A new solve for {frameworks} does not help: {remedy.failure}. {_ANOTHER_PLACE}"
    shown = remedy.changes[:CHANGES_SHOWN]
    changes = "; ".join(f"{change} gives {gives}" for change, gives in shown)
    return f"No environment for {frameworks} fits {host}. What helps: {changes}."


# ---- JSON ---------------------------------------------------------------------------------------


def doctor_json(examination: Examination) -> dict[str, Any]:
    """Return the document of `doctor --json`."""
    diagnosis, origin, remedy = examination.diagnosis, examination.origin, examination.remedy
    outside = diagnosis.outside
    verdicts = [
        {
            "cause": verdict.cause,
            "title": verdict.title or causes()[verdict.cause].title,
            "confidence": verdict.confidence,
            "evidence": list(verdict.evidence),
            "fix": fix_text(verdict, examination, first=place == 0),
            "risk": _risk(causes()[verdict.cause]),
        }
        for place, verdict in enumerate(diagnosis.verdicts)
    ]
    target = shlex.quote(examination.target or "DIR")
    next_tests = []  # each tells causes apart: what a pass shows, and a command
    for name in diagnosis.next_tests:
        test = tests()[name]
        command = test.command or f"gpuenv verify --target {target}"
        if test.probe:
            command = f"gpuenv doctor LOG --probe --target {target}"
        next_tests.append({"test": name, "shows": test.shows, "command": command})
    return {
        "abstained": diagnosis.abstained,
        "verdicts": verdicts,
        "failures": list(diagnosis.failures),
        "facts": list(map(msgspec.structs.asdict, examination.facts)),
        "next_tests": next_tests,
        "outside": outside
        and {"area": outside.cause, "evidence": list(outside.evidence), "fix": outside.fix},
        "origin": origin
        and {"place": origin.place, "reason": origin.reason, "is_evidence": origin.is_evidence},
        "tests": list(map(msgspec.structs.asdict, examination.test_results)),
        "checks": checks_json(examination.checks)["checks"],
        "remedy": remedy
        and {
            "asked": list(remedy.asked),
            "command": list(remedy.command),
            "gives": list(map(choice_text, remedy.choices)),
            "needs_driver": remedy.needs_driver,
            "failure": remedy.failure,
            "risk": "makes a new environment beside the present one",
            "changes": [{"change": change, "gives": gives} for change, gives in remedy.changes],
        },
    }


def _risk(cause: Cause) -> str:
    """Return what a fix changes: nothing that exists, the program, or the host."""
    if cause.scope == "host":
        return "changes the host, as root" if cause.root else "changes the host"
    if cause.scope == "program":
        return "changes the program"
    return "makes a new environment beside the present one"
