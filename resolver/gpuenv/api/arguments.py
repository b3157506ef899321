"""Checks of the arguments that programs give."""

from __future__ import annotations

from ..errors import WrongTypeError
from ..model import Request, Value

# Several texts. Not Sequence[str]: a plain str is one, and type checkers would accept "torch".
Texts = tuple[str, ...] | list[str]

_TEXTS = ("frameworks", "requirements", "constraints", "no_build", "no_binary")


def require_type(value: object, kind: type[Value], name: str) -> None:
    """Raise WrongTypeError if an argument is not a value of a kind."""
    if not isinstance(value, kind):
        message = f"{name} must be a {kind.__name__}, not {_shown(value)}"
        raise WrongTypeError(message, hint=f"make one: {kind.__name__}(...)")


def require_texts(value: object, name: str) -> None:
    """Raise WrongTypeError if an argument is not several texts, such as a single one."""
    if isinstance(value, (tuple, list)) and all(isinstance(item, str) for item in value):
        return
    hint = f"give a tuple: {name}=({value!r},)" if isinstance(value, str) else "give a tuple of str"
    raise WrongTypeError(f"{name} must be several texts, not {_shown(value)}", hint=hint)


def require_request(request: object) -> None:
    """Raise WrongTypeError if an argument is no request, or a request with wrong fields."""
    require_type(request, Request, "request")
    for name in _TEXTS:
        require_texts(getattr(request, name), name)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else type(value).__name__
