"""What `gpuenv verify --hook` says: one line, whatever was seen."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model import Check, Host

LONGEST = 1200  # characters of a line: a container's termination message and a scheduler's log keep that much
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def one_line(text: str) -> str:
    """A text in one line of printable characters, without terminal codes, its end left out where it is very long."""
    text = " ".join(_TERMINAL.sub("", text).split())
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def hook_line(checks: Sequence[Check], host: Host, seconds: float, *, device: bool) -> str:
    """The verdict of checks in one line; `device` is whether the GPUs were to be used.

    What is well names the frameworks, the GPUs and the number of checks; what is not, the first check and its evidence.
    """
    failed = [check for check in checks if check.status == "fail"]
    # A GPU that could not be used says more than anything else that could not be seen.
    unknown = sorted((check for check in checks if check.status == "unknown"), key=lambda check: check.name != "device")
    if failed or not checks:
        return one_line(f"gpuenv: fail: {_first(failed)}")
    if unknown:
        known = f"{len(checks) - len(unknown)} of {len(checks)} checks passed"
        return one_line(f"gpuenv: unknown: {_first(unknown)}; {known}, {seconds:.1f} s")
    told = [check.evidence.partition(";")[0] for check in checks if check.subject == "import"]
    told += _devices(host) if device else ["no GPU used"]
    return one_line(f"gpuenv: ok: {', '.join([*told, f'{len(checks)} checks', f'{seconds:.1f} s'])}")


def _first(checks: Sequence[Check]) -> str:
    if not checks:
        return "no check was made"
    first = checks[0]
    more = f" (and {len(checks) - 1} more)" if len(checks) > 1 else ""
    # Cut here already, so that how many more there are is never what is left out.
    evidence = one_line(first.evidence)[: LONGEST - 200]
    return f"{first.name} {first.subject}".strip() + f": {evidence}{more}"


def _devices(host: Host) -> list[str]:
    counts: dict[str, int] = {}
    for gpu in host.gpus:
        counts[gpu.name] = counts.get(gpu.name, 0) + 1
    return [f"{count} x {name}" for name, count in counts.items()]
