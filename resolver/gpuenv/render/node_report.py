"""What one node reports: the document of `verify --json`, and the formats of monitoring tools.

Each format is a function of an outcome. It returns the text for stdout and the exit status that the
tool expects:

    node-verdict  0 PASS or WARNING, 1 CRITICAL or UNKNOWN, 2 no verdict
                  (NVIDIA Health Validation, "What does the process exit code mean?")
    openmetrics   0 verified, 1 not verified, 2 nothing was checked
    nagios        0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (Monitoring Plugins, guidelines)
    npd           0 no problem, 1 problem, 2 unknown (node-problem-detector, custom plugin monitor)
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..model import Check, Host, Value
from ..serialize import to_plain
from ..version import __version__
from .checks import checks_json, ok
from .hook import hook_line, one_line
from .values import quantity_text

NPD_CHARACTERS = 80  # max_output_length of node-problem-detector: it cuts a longer text
_IDENTIFIER_PARTS = re.compile(r"[a-z0-9]+")
_SUBJECTS_OF_DEVICES = ("device", "cudnn handle", "cudnn convolution")


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


class Report(Value):
    """What is printed. `is_error` sends the text to stderr."""

    text: str
    status: int
    is_error: bool = False


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
        "host": to_plain(host),
        "libraries": libraries,
        "bits": bits,
    }


def severity(outcome: Outcome) -> str:
    """Return PASS, WARNING (a check is unknown), CRITICAL or UNKNOWN (nothing was proved)."""
    statuses = {check.status for check in outcome.checks}
    if "fail" in statuses or (outcome.problem and outcome.error_status is None):
        return "CRITICAL"
    if outcome.problem or not ok(outcome.checks):
        return "UNKNOWN"
    return "WARNING" if "unknown" in statuses else "PASS"


def _bad(outcome: Outcome) -> list[Check]:
    """Return the checks that did not pass, the failed ones first."""
    bad = [check for check in outcome.checks if check.status != "pass"]
    return sorted(bad, key=lambda check: check.status)


def _name(check: Check) -> str:
    return f"{check.name} {check.subject}".strip()


def _summary(outcome: Outcome) -> str:
    """Return what is wrong in one line; the number of checks if nothing is."""
    if outcome.problem:
        return outcome.problem
    bad = _bad(outcome)
    if not bad:
        return f"{quantity_text(len(outcome.checks), 'check')} passed"
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return f"{_name(bad[0])}: {bad[0].evidence}{more}"


def _no_verdict(outcome: Outcome) -> Report:
    return Report(text=one_line(f"gpuenv: {outcome.problem}"), status=2, is_error=True)


# ---- formats -------------------------------------------------------------------------------------


def hook(outcome: Outcome) -> Report:
    """Return the line of `verify --hook`."""
    if outcome.error_status is not None:
        text = one_line(f"gpuenv: {outcome.problem}")
        return Report(text=text, status=outcome.error_status, is_error=True)
    if outcome.problem or outcome.host is None:
        return Report(text=one_line(f"gpuenv: fail: {outcome.problem}"), status=1)
    unproved = outcome.strict and any(check.status != "pass" for check in outcome.checks)
    text = hook_line(outcome.checks, outcome.host, outcome.seconds, device=outcome.device)
    return Report(text=text, status=0 if ok(outcome.checks) and not unproved else 1)


def node_verdict(outcome: Outcome) -> Report:
    """Return a NodeVerdict of NVIDIA's health validation."""
    if outcome.error_status is not None:
        return _no_verdict(outcome)
    overall = severity(outcome)
    verdicts = [_check_verdict(check) for check in outcome.checks]
    if outcome.problem:
        verdicts.append(_check_verdict(_problem_check(outcome)))
    document = {
        "overall_severity": overall,
        "affected_components": _affected_components(verdicts),
        "check_verdicts": verdicts,
        "tool": {"name": "gpuenv", "version": __version__},
    }
    status = 0 if overall in ("PASS", "WARNING") else 1
    return Report(text=json.dumps(document, indent=2), status=status)


def _problem_check(outcome: Outcome) -> Check:
    return Check(name="verification", subject="", status="fail", evidence=outcome.problem)


_SEVERITIES: Mapping[str, str] = {"pass": "PASS", "unknown": "WARNING", "fail": "CRITICAL"}


def _check_verdict(check: Check) -> dict[str, str]:
    category = "gpu" if check.name in _SUBJECTS_OF_DEVICES else "node"
    return {
        "check_id": "_".join(["gpuenv", *_IDENTIFIER_PARTS.findall(check.name.lower())]),
        "category": category,
        "entity": check.subject,
        "severity": _SEVERITIES[check.status],
        "message": one_line(check.evidence),
    }


def _affected_components(verdicts: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return for each category the checks that did not pass."""
    components = []
    for category in dict.fromkeys(verdict["category"] for verdict in verdicts):
        bad = [
            verdict
            for verdict in verdicts
            if verdict["category"] == category and verdict["severity"] != "PASS"
        ]
        severities = {verdict["severity"] for verdict in bad}
        if bad:
            components.append(
                {
                    "category": category,
                    "max_severity": "CRITICAL" if "CRITICAL" in severities else "WARNING",
                    "check_ids": list(dict.fromkeys(verdict["check_id"] for verdict in bad)),
                    "entities": sorted({verdict["entity"] for verdict in bad} - {""}),
                }
            )
    return components


def nagios(outcome: Outcome) -> Report:
    """Return the line of a Nagios plugin, with performance data."""
    states = {"PASS": ("OK", 0), "WARNING": ("WARNING", 1), "CRITICAL": ("CRITICAL", 2)}
    state, status = states.get(severity(outcome), ("UNKNOWN", 3))
    # "|" separates the text from the performance data.
    text = one_line(_summary(outcome)).replace("|", "/")
    counts = Counter(check.status for check in outcome.checks)
    data = (
        f"time={outcome.seconds:.3f}s;;;0 passed={counts['pass']};;;0"
        f" failed={counts['fail']};;;0 unknown={counts['unknown']};;;0"
    )
    return Report(text=f"GPUENV {state} - {text} | {data}", status=status)


def npd(outcome: Outcome) -> Report:
    """Return the line of a node-problem-detector plugin."""
    statuses = {"PASS": 0, "WARNING": 0, "CRITICAL": 1}
    text = one_line(_summary(outcome)).encode("ascii", "replace").decode()
    if len(text) > NPD_CHARACTERS:
        text = text[: NPD_CHARACTERS - 3] + "..."
    return Report(text=text, status=statuses.get(severity(outcome), 2))


# ---- metrics -------------------------------------------------------------------------------------

Sample = tuple[Mapping[str, str], float]


def openmetrics(outcome: Outcome) -> Report:
    """Return metrics for the textfile collector: OpenMetrics that Prometheus' text parser reads."""
    if outcome.error_status is not None:
        return _no_verdict(outcome)
    is_ok = severity(outcome) in ("PASS", "WARNING")
    states: list[Sample] = []
    durations: list[Sample] = []
    for check in _with_distinct_names(outcome.checks):
        labels = {"check": check.name, "subject": check.subject}
        states += [
            ({**labels, "status": status}, float(check.status == status)) for status in _SEVERITIES
        ]
        durations.append((labels, check.seconds))
    driver = outcome.host.driver if outcome.host is not None else None
    lines = [
        *_metric("success", "Whether the environment is verified.", [({}, float(is_ok))]),
        *_metric("duration_seconds", "How long the verification took.", [({}, outcome.seconds)]),
        *_metric("check_status", "Whether a check has a status.", states),
        *_metric("check_duration_seconds", "How long a check took.", durations),
        *_metric(
            "build_info",
            "The version of gpuenv, and the driver release.",
            [({"version": __version__, "driver": driver or ""}, 1.0)],
        ),
        "# EOF",
    ]
    return Report(text="\n".join(lines), status=0 if is_ok else 1)


def _with_distinct_names(checks: Sequence[Check]) -> list[Check]:
    """Return one check of each name and subject, the worst: labels must be distinct."""
    worst: dict[str, Check] = {}
    for check in checks:
        known = worst.get(_name(check))
        if known is None or known.status == "pass" or check.status == "fail":
            worst[_name(check)] = check
    return list(worst.values())


def _metric(name: str, help_text: str, samples: Sequence[Sample]) -> list[str]:
    full = f"gpuenv_verify_{name}"
    lines = [f"# HELP {full} {help_text}", f"# TYPE {full} gauge"]
    for labels, value in samples:
        inner = ",".join(f'{label}="{_label_value(text)}"' for label, text in labels.items())
        lines.append(f"{full}{{{inner}}} {value:g}" if inner else f"{full} {value:g}")
    return lines


def _label_value(text: str) -> str:
    return one_line(text).replace("\\", "\\\\").replace('"', '\\"')


Format = Callable[[Outcome], Report]
FORMATS: Mapping[str, Format] = {
    "node-verdict": node_verdict,
    "openmetrics": openmetrics,
    "nagios": nagios,
    "npd": npd,
}
