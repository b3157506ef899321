"""What gpuenv can say about an error of conda."""

from __future__ import annotations

import re

from ..resolve.conda.solvers import REFUSALS
from .packages import frameworks_of, watched_among

_EXPLAIN = "See which builds this host's driver and GPUs can run: conda gpuenv explain"
_LENIENT = "to keep such an environment: conda config --set plugins.gpuenv_verify warn"


def hints(error: BaseException) -> list[tuple[str, str]]:
    """Return (text, code) of each hint at an error of conda."""
    refused: list[str] | None = getattr(error, "gpuenv_frameworks", None)
    if refused is not None:  # transaction.py refused the environment
        return [(f"{_EXPLAIN} {_names(refused)}; {_LENIENT}", "gpuenv_strict")]
    if not REFUSALS & {cls.__name__ for cls in type(error).__mro__}:
        return []
    words = set(re.findall(r"[a-z][a-z0-9-]*", str(error).lower()))
    if "cuda" not in words and not watched_among(words):
        return []
    return [(f"{_EXPLAIN} {_names(frameworks_of(words))}", "gpuenv_explain")]


def _names(frameworks: list[str]) -> str:
    return " ".join(frameworks or ["FRAMEWORK"])
