"""The checks of an environment: their text, the document of `verify --json`, and other formats.

`hook_line` is the line of `gpuenv verify --hook`. FORMATS are those of monitoring tools: each is a
function of an outcome, and returns the text for stdout and the exit status that the tool expects:

    node-verdict  0 PASS or WARNING, 1 CRITICAL or UNKNOWN, 2 no verdict
                  (NVIDIA Health Validation, "What does the process exit code mean?")
    openmetrics   0 verified, 1 not verified, 2 nothing was checked
    nagios        0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (Monitoring Plugins, guidelines)
    npd           0 no problem, 1 problem, 2 unknown (node-problem-detector, custom plugin monitor)
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..model import Check, Host, Value, quantity_text
from ..version import __version__
from .text import Line, Meaning

MARKS = {"pass": "ok  ", "fail": "FAIL", "unknown": "?   "}
MEANINGS: Mapping[str, Meaning] = {"pass": "good", "fail": "bad", "unknown": "doubt"}
CHECK_FIELDS = ("name", "subject", "status", "evidence", "seconds")
# The checks of one part, by their names. Any other name is a part of its own, such as torch.
PARTS = {
    "interpreter": "packages",
    "versions": "packages",
    "glibc": "packages",
    "rules": "packages",
    "build": "packages",
    "owners": "packages",
    "files": "packages",
    "closure": "libraries",
    "loader": "libraries",
    "cudnn": "libraries",
}
# Characters of a line: a container's termination message and a scheduler's log keep that much.
LONGEST = 1200
NPD_CHARACTERS = 80  # max_output_length of node-problem-detector: it cuts a longer text
_TERMINAL_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_SUBJECTS_OF_DEVICES = ("device", "cudnn handle", "cudnn convolution")
_SEVERITIES: Mapping[str, str] = {"pass": "PASS", "unknown": "WARNING", "fail": "CRITICAL"}


# ---- for people ----------------------------------------------------------------------------------


def summary_lines(checks: Sequence[Check]) -> list[str]:
    """Return the verdict, then a line for each part, and every check that did not pass."""
    parts: dict[str, list[Check]] = {}
    for check in checks:
        parts.setdefault(PARTS.get(check.name, check.name), []).append(check)
    rows: list[tuple[str, str, str]] = []  # (status, name, text)
    for part, members in parts.items():
        if len(members) == 1:
            rows.append((members[0].status, part, members[0].evidence))
            continue
        # The name of a check within its part.
        names = [
            _name(check) if check.name in PARTS or not check.subject else check.subject
            for check in members
        ]
        counts = Counter(check.status for check in members)
        status = next(status for status in ("fail", "unknown", "pass") if counts[status])
        if status == "pass":
            rows.append((status, part, f"{len(members)} checks passed: {', '.join(names)}"))
        else:
            passed = f"{counts['pass']} of {len(members)} checks passed"
            rows.append((status, part, passed))
        for check, name in zip(members, names, strict=True):
            if check.status != "pass":
                rows.append((check.status, f"  {name}", check.evidence))
    return [_verdict_line(checks), *_row_lines(rows)]


def check_lines(checks: Sequence[Check]) -> list[str]:
    """Return a line for each check with its evidence, and then the verdict."""
    rows = [(check.status, _name(check), check.evidence) for check in checks]
    return [*_row_lines(rows), _verdict_line(checks)]


def _row_lines(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    width = max((len(name) for _, name, _ in rows), default=0)
    for status, name, text in rows:
        mark = MARKS[status]
        first, *rest = text.split(os.linesep)
        line = f"{mark} {name:<{width}} {first}".rstrip()
        yield Line(line, MEANINGS[status], marked=len(mark), hang=width + 6)
        for more in rest:
            yield Line(f"{'':{width + 5}} {more}", hang=width + 6)


def _verdict_line(checks: Sequence[Check]) -> Line:
    """Return the line that says whether the environment is verified, with the totals."""
    counts = Counter(check.status for check in checks)
    verdict = "verified" if ok(checks) else "NOT verified"
    meaning: Meaning = "good" if ok(checks) else "bad"
    totals = f"{counts['pass']} passed, {counts['fail']} failed, {counts['unknown']} unknown"
    return Line(f"{verdict}: {totals}", meaning, marked=len(verdict))


def _name(check: Check) -> str:
    return f"{check.name} {check.subject}".strip()


def ok(checks: Sequence[Check]) -> bool:
    """Return whether there are checks, none failed, and every visible GPU was proved to work.

    An unknown result is neither proof nor failure. But a device that is full or busy shows nothing
    about the environment, so that an unknown result of a device is not enough.
    """
    for check in checks:
        unproved_device = check.name == "device" and check.subject and check.status == "unknown"
        if check.status == "fail" or unproved_device:
            return False
    return bool(checks)


# ---- JSON ----------------------------------------------------------------------------------------


def checks_json(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the verdict and the checks, as documents have them."""
    rows = [{field: getattr(check, field) for field in CHECK_FIELDS} for check in checks]
    return {"ok": ok(checks), "checks": rows}


def verification_json(checks: Sequence[Check], host: Host) -> dict[str, Any]:
    """Return the document of `verify --json`, with what `gpuenv fleet verify` compares.

    "libraries" are the hashes of NVIDIA's libraries, by their path in the environment. "bits" are
    the hashes of the convolutions' results.
    """
    libraries = {}
    bits = []
    for check in checks:
        for code, subject, value in check.marks:
            if code == "library":
                libraries[subject] = value
            elif code == "bits":
                bits.append({"device": check.subject, "what": subject, "sha256": value})
    return {
        **checks_json(checks),
        "host": host,
        "libraries": libraries,
        "bits": bits,
    }


# ---- one line ------------------------------------------------------------------------------------


def one_line(text: str) -> str:
    """Return a text as one line of printable characters without terminal codes.

    The end of a text longer than LONGEST is left out.
    """
    text = " ".join(_TERMINAL_CODE.sub("", text).split())
    text = "".join(character if character.isprintable() else "?" for character in text)
    if len(text) > LONGEST:
        return text[: LONGEST - 3] + "..."
    return text


def hook_line(checks: Sequence[Check], host: Host, seconds: float, *, device: bool) -> str:
    """Return the verdict in one line.

    A success names the frameworks, the GPUs and the number of checks. Anything else names the
    first check and its evidence.

    Args:
        checks: the checks.
        host: the host.
        seconds: how long the checks took.
        device: whether the checks were meant to use the GPUs.
    """
    if not checks:
        return "gpuenv: fail: no check was made"
    failed = [check for check in checks if check.status == "fail"]
    # A GPU that could not be used matters more than any other unknown.
    unknown = [check for check in checks if check.status == "unknown"]
    unknown.sort(key=lambda check: check.name != "device")
    bad = failed or unknown
    if bad:
        # Shortened here, so that "(and N more)" is never cut off.
        first = f"{_name(bad[0])}: {one_line(bad[0].evidence)[: LONGEST - 200]}"
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        if failed:
            return one_line(f"gpuenv: fail: {first}{more}")
        known = f"{len(checks) - len(bad)} of {len(checks)} checks passed"
        return one_line(f"gpuenv: unknown: {first}{more}; {known}, {seconds:.1f} s")
    parts = [check.evidence.partition(";")[0] for check in checks if check.subject == "import"]
    if device:
        gpus = Counter(gpu.name for gpu in host.gpus)
        parts += [f"{count} x {name}" for name, count in gpus.items()]
    else:
        parts.append("no GPU used")
    parts += [quantity_text(len(checks), "check"), f"{seconds:.1f} s"]
    return one_line(f"gpuenv: ok: {', '.join(parts)}")


# ---- other formats -------------------------------------------------------------------------------


class Outcome(Value):
    """How a verification ended: with checks, or with a problem.

    `error_status` is the exit status of a problem with the input; None is the time limit or a
    crash, which speaks against the node.
    """

    checks: tuple[Check, ...] = ()
    host: Host | None = None
    seconds: float = 0.0
    device: bool = True
    strict: bool = False
    problem: str = ""
    error_status: int | None = None

    @property
    def severity(self) -> str:
        """PASS, WARNING (a check is unknown), CRITICAL or UNKNOWN (nothing was proved)."""
        statuses = {check.status for check in self.checks}
        if "fail" in statuses or (self.problem and self.error_status is None):
            return "CRITICAL"
        if self.problem or not ok(self.checks):
            return "UNKNOWN"
        return "WARNING" if "unknown" in statuses else "PASS"

    @property
    def summary(self) -> str:
        """What is wrong in one line; the number of checks if nothing is."""
        if self.problem:
            return one_line(self.problem)
        bad = [check for check in self.checks if check.status != "pass"]
        if not bad:
            return f"{quantity_text(len(self.checks), 'check')} passed"
        first = min(bad, key=lambda check: check.status)  # a failed one
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        return one_line(f"{_name(first)}: {first.evidence}{more}")


class Report(Value):
    """What is printed. `is_error` sends the text to stderr."""

    text: str
    status: int
    is_error: bool = False


def _no_verdict(outcome: Outcome, status: int = 2) -> Report:
    return Report(text=one_line(f"gpuenv: {outcome.problem}"), status=status, is_error=True)


def hook(outcome: Outcome) -> Report:
    """Return the line of `verify --hook`."""
    if outcome.error_status is not None:
        return _no_verdict(outcome, outcome.error_status)
    if outcome.problem or outcome.host is None:
        return Report(text=one_line(f"gpuenv: fail: {outcome.problem}"), status=1)
    unproved = outcome.strict and any(check.status != "pass" for check in outcome.checks)
    text = hook_line(outcome.checks, outcome.host, outcome.seconds, device=outcome.device)
    return Report(text=text, status=0 if ok(outcome.checks) and not unproved else 1)


def node_verdict(outcome: Outcome) -> Report:
    """Return a NodeVerdict of NVIDIA's health validation."""
    if outcome.error_status is not None:
        return _no_verdict(outcome)
    checks = list(outcome.checks)
    if outcome.problem:
        problem = Check(name="verification", subject="", status="fail", evidence=outcome.problem)
        checks.append(problem)
    verdicts = [
        {
            "check_id": "_".join(["gpuenv", *re.findall(r"[a-z0-9]+", check.name.lower())]),
            "category": "gpu" if check.name in _SUBJECTS_OF_DEVICES else "node",
            "entity": check.subject,
            "severity": _SEVERITIES[check.status],
            "message": one_line(check.evidence),
        }
        for check in checks
    ]
    components = []
    for category in dict.fromkeys(verdict["category"] for verdict in verdicts):
        rows = [row for row in verdicts if row["category"] == category]
        rows = [row for row in rows if row["severity"] != "PASS"]
        if rows:
            components.append(
                {
                    "category": category,
                    "max_severity": min(row["severity"] for row in rows),  # CRITICAL, then WARNING
                    "check_ids": list(dict.fromkeys(row["check_id"] for row in rows)),
                    "entities": sorted({row["entity"] for row in rows} - {""}),
                }
            )
    document = {
        "overall_severity": outcome.severity,
        "affected_components": components,
        "check_verdicts": verdicts,
        "tool": {"name": "gpuenv", "version": __version__},
    }
    status = 0 if outcome.severity in ("PASS", "WARNING") else 1
    return Report(text=json.dumps(document, indent=2), status=status)


def nagios(outcome: Outcome) -> Report:
    """Return the line of a Nagios plugin, with performance data."""
    states = {"PASS": ("OK", 0), "WARNING": ("WARNING", 1), "CRITICAL": ("CRITICAL", 2)}
    state, status = states.get(outcome.severity, ("UNKNOWN", 3))
    text = outcome.summary.replace("|", "/")  # "|" separates it from the performance data
    counts = Counter(check.status for check in outcome.checks)
    data = (
        f"time={outcome.seconds:.3f}s;;;0 passed={counts['pass']};;;0"
        f" failed={counts['fail']};;;0 unknown={counts['unknown']};;;0"
    )
    return Report(text=f"GPUENV {state} - {text} | {data}", status=status)


def npd(outcome: Outcome) -> Report:
    """Return the line of a node-problem-detector plugin."""
    statuses = {"PASS": 0, "WARNING": 0, "CRITICAL": 1}
    text = outcome.summary.encode("ascii", "replace").decode()
    if len(text) > NPD_CHARACTERS:
        text = text[: NPD_CHARACTERS - 3] + "..."
    return Report(text=text, status=statuses.get(outcome.severity, 2))


def openmetrics(outcome: Outcome) -> Report:
    """Return metrics for the textfile collector: OpenMetrics that Prometheus' text parser reads."""
    if outcome.error_status is not None:
        return _no_verdict(outcome)
    # The worst check of each name and subject: labels must be distinct as they are written.
    worst: dict[str, Check] = {}
    for check in outcome.checks:
        name = one_line(_name(check))
        known = worst.get(name)
        if known is None or known.status == "pass" or check.status == "fail":
            worst[name] = check
    is_ok = outcome.severity in ("PASS", "WARNING")
    driver = outcome.host.driver if outcome.host is not None else None
    build = {"version": __version__, "driver": driver or ""}
    states: list[tuple[dict[str, str], float]] = []
    durations = []
    for check in worst.values():
        labels = {"check": check.name, "subject": check.subject}
        states += [
            ({**labels, "status": status}, float(check.status == status)) for status in _SEVERITIES
        ]
        durations.append((labels, check.seconds))
    metrics: tuple[tuple[str, str, Sequence[tuple[dict[str, str], float]]], ...] = (
        ("success", "Whether the environment is verified.", [({}, float(is_ok))]),
        ("duration_seconds", "How long the verification took.", [({}, outcome.seconds)]),
        ("check_status", "Whether a check has a status.", states),
        ("check_duration_seconds", "How long a check took.", durations),
        ("build_info", "The version of gpuenv, and the driver release.", [(build, 1.0)]),
    )
    lines = []
    for name, meaning, samples in metrics:
        full = f"gpuenv_verify_{name}"
        lines += [f"# HELP {full} {meaning}", f"# TYPE {full} gauge"]
        for labels, value in samples:
            escaped = {
                label: one_line(text).replace("\\", "\\\\").replace('"', '\\"')
                for label, text in labels.items()
            }
            inner = ",".join(f'{label}="{text}"' for label, text in escaped.items())
            lines.append(f"{full}{{{inner}}} {value:g}" if inner else f"{full} {value:g}")
    return Report(text="\n".join([*lines, "# EOF"]), status=0 if is_ok else 1)


Format = Callable[[Outcome], Report]
FORMATS: Mapping[str, Format] = {
    "node-verdict": node_verdict,
    "openmetrics": openmetrics,
    "nagios": nagios,
    "npd": npd,
}
