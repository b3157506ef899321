"""Words for values that several kinds of text share."""

from __future__ import annotations

from collections.abc import Iterable

from ..compat.evaluate import is_doubt
from ..errors import Reason
from ..model import Choice, Lock, Plan, show_pair

__all__ = ["choice_text", "download_bytes", "fact_text", "is_doubt", "reason_text", "reasons_json", "size"]


def size(count: int | None) -> str:
    """2100000000 -> "2.1 GB"; None -> "unknown"."""
    if count is None:
        return "unknown"
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit in ("B", "kB") else f"{value:.1f} {unit}"


def download_bytes(plan: Plan | Lock) -> int:
    """The sizes of all files that are known, added up."""
    return sum(pin.wheel.size or 0 for pin in plan.pins)


def choice_text(choice: Choice) -> str:
    """torch 2.15.0 (cu132, CUDA 13.2, cuDNN 9.26.0.51)."""
    parts = [choice.variant]
    if choice.cuda is not None:
        parts.append(f"CUDA {show_pair(choice.cuda)}")
    if choice.cudnn is not None and choice.cuda is not None:
        parts.append(f"cuDNN {choice.cudnn}")
    if choice.evidence != "scanned" and choice.cuda is not None:
        parts.append("architectures as documented")
    return f"{choice.framework} {choice.version} ({', '.join(parts)})"


def fact_text(reason: Reason) -> str:
    """needs driver 580.65.06 or newer for CUDA 13.2; this host has driver 550.54.14."""
    return f"needs {reason.need}; have {reason.have}"


def reason_text(reason: Reason) -> str:
    """As fact_text, with the subject in front."""
    return f"{reason.subject} {fact_text(reason)}"


def reasons_json(reasons: Iterable[Reason]) -> list[dict[str, str]]:
    """[{"code", "subject", "need", "have", "source"}]."""
    fields = ("code", "subject", "need", "have", "source")
    return [{field: getattr(reason, field) for field in fields} for reason in reasons]
