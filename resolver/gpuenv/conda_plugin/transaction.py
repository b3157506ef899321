"""After a transaction: the check of the environment that it leaves, and what becomes of a failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from . import OFF, SETTING, STRICT, WARN, checks, of_conda, warn, words_of


def ready(action: Any) -> None:
    """Before anything is changed."""
    action._verified = True
    action.history = None
    try:
        with open(_history(action), "rb") as file:
            action.history = file.read()
    except OSError:  # a new environment has none
        pass


def nothing(action: Any) -> None:
    """Checking changes nothing that would have to be reversed."""


def _history(action: Any) -> str:
    return os.path.join(action.target_prefix, "conda-meta", "history")


def _restore(path: str, history: bytes) -> None:
    """Writes the history that conda before 26.7.0 loses in a rollback: without it a folder is no environment to it."""
    if os.path.exists(path):
        return
    try:
        with open(path, "xb") as file:
            file.write(history)
    except OSError as error:
        warn(f"{path} was lost in the rollback and cannot be written again: {words_of(error)}")


def execute(action: Any) -> None:
    """Checks the new environment. Raises only where the user asked for it, or is leaving."""
    refusal = None
    try:
        action.told, refusal = _outcome(action)
    except Exception as error:
        if type(error).__name__ == "CondaSignalInterrupt":
            raise
        action.told = [f"not checked: {words_of(error)}"]
    if refusal is not None:
        if getattr(action, "history", None) is not None:
            import atexit  # conda reverses this action first, and the one that loses the history later

            atexit.register(_restore, _history(action), action.history)
        raise refusal


def _outcome(action: Any) -> tuple[list[str], Exception | None]:
    """The lines to tell once all is done, and the error that is to stop the transaction, if one is."""
    prefix, mode = action.target_prefix, _mode()
    if mode == OFF or not touched(action.link_precs or (), action.unlink_precs or (), prefix):
        return [], None
    if _foreign():
        return ["not checked: the environment is for another platform"], None
    found = checks.examine(prefix, checks.TIMEOUT)
    lines = checks.summary(found, prefix)
    if mode != STRICT or all(one["status"] != "fail" for one in found):
        return lines, None
    refusal: Exception = of_conda("exceptions").CondaVerificationError("\n".join([f"gpuenv: {lines[0]}", *lines[1:]]))
    refusal.gpuenv_frameworks = checks.frameworks(checks.records(prefix))  # type: ignore[attr-defined]  # for the hint
    return lines, refusal


def tell(action: Any) -> None:
    """Says what came out, once the progress of the transaction is off the screen."""
    for number, line in enumerate(getattr(action, "told", ())):
        warn(line) if number == 0 else print(line, file=sys.stderr)


def touched(linked: Iterable[Any], unlinked: Iterable[Any], prefix: str) -> bool:
    """Whether a transaction changes a package that is watched, and leaves one in the environment."""
    if any(one.name in checks.WATCHED for one in linked):
        return True
    gone = any(one.name in checks.WATCHED for one in unlinked)
    return gone and bool(checks.WATCHED.keys() & checks.records(prefix).keys())


def _mode() -> str:
    value = getattr(of_conda("base.context").context.plugins, SETTING, WARN)
    text = str(value).lower()
    if text in {"off", "false", "no"}:
        return OFF
    if text not in {WARN, STRICT, "true"}:
        warn(f"plugins.{SETTING} is {value!r}: taken as warn (it can be off, warn or strict)")
    return STRICT if text == STRICT else WARN


def _foreign() -> bool:
    """Whether conda is told to install for another platform than the one it runs on."""
    context = of_conda("base.context").context
    return bool(context.subdir != context._native_subdir())
