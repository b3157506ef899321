"""Names that people write for frameworks and packages, and what they mean by them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches

from ..errors import InputError
from .data import CompatibilityData

# What people call frameworks. No package has such a name, or nobody means the one that does.
_SHORTEST_SLIP = 4  # letters
NICKNAMES = {"pytorch": "torch", "tf": "tensorflow", "ort": "onnxruntime"}


def meant_framework(name: str, known: Collection[str]) -> str | None:
    """Return the framework that a nickname or a misspelled name means: PyTorch, troch.

    A misspelled name has the letters of the framework in another order, or one of them is missing.

    Args:
        name: the name.
        known: the names of the frameworks.
    """
    name = name.lower()
    if name in NICKNAMES or name in known:
        return NICKNAMES.get(name)
    for framework in known:
        missing = {framework[:place] + framework[place + 1 :] for place in range(len(framework))}
        if len(name) >= _SHORTEST_SLIP and (name in missing or sorted(name) == sorted(framework)):
            return framework
    return None


def close_name(name: str, known: Collection[str]) -> str | None:
    """Return the known name that a misspelled name stands for: jxa, cuppy, torchvison.

    Two neighbors are in the other order, or a letter is missing or doubled. None if there is none.
    """

    def slips(right: str) -> Iterator[str]:
        for at in range(len(right)):
            before, letter, after = right[:at], right[at], right[at + 1 :]
            yield before + after[:1] + letter + after[1:]
            yield before + letter + letter + after
            if len(name) >= _SHORTEST_SLIP:
                yield before + after

    if name in known:
        return None
    return next((right for right in known if name in slips(right)), None)


def unknown_framework(text: str, name: str, data: CompatibilityData) -> InputError:
    """Return the error for a text of --framework whose name is not that of a framework."""
    known = sorted(data.frameworks())
    hint = f"known are {', '.join(known)}"
    words = {word: word for word in known} | NICKNAMES | {"onnx": "onnxruntime"}
    close = get_close_matches(name, words, n=1, cutoff=0.6)
    if close:
        hint = f"did you mean {words[close[0]]}? {hint[0].upper()}{hint[1:]}"
    return InputError(f"--framework {text}: no framework has that name", hint=hint)
