"""The one line that `gpuenv verify --hook` prints, whatever the checks found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ..model import Check, Host
from .values import quantity_text

# Characters of a line: a container's termination message and a scheduler's log keep that much.
LONGEST = 1200
_TERMINAL_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def one_line(text: str) -> str:
    """Return a text as one line of printable characters without terminal codes.

    The end of a text longer than LONGEST is left out.
    """
    text = " ".join(_TERMINAL_CODE.sub("", text).split())
    text = "".join(map(_printable, text))
    if len(text) > LONGEST:
        return text[: LONGEST - 3] + "..."
    return text


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return "?"


def hook_line(checks: Sequence[Check], host: Host, seconds: float, *, device: bool) -> str:
    """Return the verdict in one line.

    A success names the frameworks, the GPUs and the number of checks. Anything else names the
    first check and its evidence.

    Args:
        device: whether the checks were meant to use the GPUs.
    """
    failed = [check for check in checks if check.status == "fail"]
    unknown = [check for check in checks if check.status == "unknown"]
    if failed or not checks:
        return one_line(f"gpuenv: fail: {_first(failed)}")
    if unknown:
        # A GPU that could not be used matters more than any other unknown.
        unknown.sort(key=lambda check: check.name != "device")
        known = f"{len(checks) - len(unknown)} of {len(checks)} checks passed"
        return one_line(f"gpuenv: unknown: {_first(unknown)}; {known}, {seconds:.1f} s")
    parts = [check.evidence.partition(";")[0] for check in checks if check.subject == "import"]
    if device:
        parts += _devices(host)
    else:
        parts.append("no GPU used")
    parts += [quantity_text(len(checks), "check"), f"{seconds:.1f} s"]
    return one_line(f"gpuenv: ok: {', '.join(parts)}")


def _first(checks: Sequence[Check]) -> str:
    if not checks:
        return "no check was made"
    first = checks[0]
    # Shortened here, so that "(and N more)" is never cut off.
    evidence = one_line(first.evidence)[: LONGEST - 200]
    text = f"{_check_name(first)}: {evidence}"
    if len(checks) > 1:
        text += f" (and {len(checks) - 1} more)"
    return text


def _check_name(check: Check) -> str:
    return f"{check.name} {check.subject}".strip()


def _devices(host: Host) -> list[str]:
    counts = Counter(gpu.name for gpu in host.gpus)
    return [f"{count} x {name}" for name, count in counts.items()]
