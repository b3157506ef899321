"""Versions in the forms that libraries print (cudnn_version.h)."""

from __future__ import annotations

import re


def cudnn_version(text: str) -> str:
    """Return a cuDNN version with dots, or "" for any other text.

    Known forms: "9.1.0", "(8, 3, 2)", and the number of cudnnGetVersion: "7605", "8907", "90100".
    """
    parts = [part for part in re.sub("[() ]", "", text).replace(",", ".").split(".") if part]
    if not parts or not all(_is_number(part, 6) for part in parts):
        return ""
    if len(parts) > 1:
        return ".".join(str(int(part)) for part in parts[:3])
    number = int(parts[0])
    if number >= 90000:
        return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
    if number >= 1000:
        return f"{number // 1000}.{number % 1000 // 100}.{number % 100}"
    return ""


def _is_number(text: str, max_digits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= max_digits


def cuda_version(text: str) -> str:
    """Return the version of cudaDriverGetVersion's number: "12040" -> "12.4"; "" for other text."""
    if not (text.isascii() and text.isdigit()):
        return ""
    return f"{int(text) // 1000}.{int(text) % 1000 // 10}"


def version_tuple(text: str) -> tuple[int, ...]:
    """Return the numbers of a dotted version, for comparison: "12.4" -> (12, 4); () for none."""
    return tuple(int(part) for part in text.split(".") if _is_number(part, 9))
