"""What a message's groups become in a fact: versions, sizes and names in one form each. See messages.toml's head."""

from __future__ import annotations

import re
from collections.abc import Callable

from .status_codes import cuda_of, cudnn_of

_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "b": 1}
_FIELD = re.compile(r"\{(\d)(?:\|(\w+))?\}")


def filled(template: str, found: re.Match[str]) -> str:
    """A template with the groups of a match in it; "" for a group that is not of its form."""
    if "{" not in template:
        return template
    return _FIELD.sub(lambda field: _form(field[2], (found[int(field[1])] or "").strip()), template)


def _bytes_of(text: str) -> str:
    number, _, unit = text.partition(" ")
    try:
        return str(int(float(number) * _SIZES.get(unit[:1], 1)))
    except ValueError:
        return ""


_FORMS: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "cudnn": cudnn_of,
    "cuda": cuda_of,
    "name": lambda text: text.rpartition("/")[2],
    "distribution": lambda text: text.lower().replace("_", "-"),
    "bytes": _bytes_of,
}


def _form(form: str | None, text: str) -> str:
    if not text or form is None:
        return text
    if form in _FORMS:
        return _FORMS[form](text)
    digits = re.findall(r"\d{2,3}", text)  # capability, capabilities
    return " ".join(f"{one[:-1]}.{one[-1]}" for one in digits)
