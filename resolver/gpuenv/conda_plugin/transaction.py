"""After a transaction: the check of the environment that it leaves, and what a failure does."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Sequence
from typing import Protocol

from gpuenv_conda_plugin import OFF, SETTING, STRICT, WARN, import_conda, one_line, warn

from . import checks
from .packages import frameworks_of, watched_among, watched_in


class PackageRecord(Protocol):
    """A record of conda, as far as it is read here."""

    @property
    def name(self) -> str:
        """The name of the package."""


class VerificationAction:
    """The check as an action of a transaction; the hook mixes it with conda's class Action.

    conda calls `verify` before it changes anything, `execute` after it, `reverse` if a later
    action fails, and `cleanup` at the end.
    """

    target_prefix: str
    link_precs: Sequence[PackageRecord]
    unlink_precs: Sequence[PackageRecord]
    history: bytes | None = None  # conda-meta/history before the transaction; a new one has none
    messages: Sequence[str] = ()

    def verify(self) -> None:
        """Keep the history of the environment."""
        self._verified = True
        try:
            with open(self._history_path(), "rb") as file:
                self.history = file.read()
        except Exception:
            self.history = None

    def execute(self) -> None:
        """Check the new environment.

        Raises:
            CondaVerificationError: A check failed, and the setting is strict.
            CondaSignalInterrupt: The user ends conda.
        """
        refusal = None
        try:
            self.messages, refusal = self._outcome()
        except (Exception, SystemExit) as error:
            if type(error).__name__ == "CondaSignalInterrupt":
                raise
            self.messages = [f"not checked: {one_line(error)}"]
        if refusal is not None:
            if self.history is not None:
                # conda reverses this action before the one that loses the history.
                atexit.register(_restore, self._history_path(), self.history)
            raise refusal

    def reverse(self) -> None:
        """Do nothing: a check changes nothing."""

    def cleanup(self) -> None:
        """Write the outcome, once the progress of the transaction is off the screen."""
        if self.messages:
            warn("\n".join(self.messages))

    def _history_path(self) -> str:
        return os.path.join(self.target_prefix, "conda-meta", "history")

    def _outcome(self) -> tuple[list[str], Exception | None]:
        """Return the lines to write, and the error that stops the transaction, if one does."""
        prefix, mode = self.target_prefix, _mode()
        if mode == OFF or not touched(self.link_precs or (), self.unlink_precs or (), prefix):
            return [], None
        context = import_conda("base.context").context
        if context.subdir != context._native_subdir():
            return ["not checked: the environment is for another platform"], None
        results = checks.examine(prefix)
        lines = checks.summary(results, prefix)
        if mode != STRICT or not checks.failed(results):
            return lines, None
        text = "\n".join([f"gpuenv: {lines[0]}", *lines[1:]])
        refusal: Exception = import_conda("exceptions").CondaVerificationError(text)
        # For error_hints.py.
        refusal.gpuenv_frameworks = frameworks_of(watched_in(prefix))  # type: ignore[attr-defined]
        return lines, refusal


def _restore(path: str, history: bytes) -> None:
    """Write the history again that conda before 26.7.0 loses in a rollback.

    Without it the folder is no environment to conda.
    """
    if os.path.exists(path):
        return
    try:
        with open(path, "xb") as file:
            file.write(history)
    except OSError as error:
        warn(f"{path} was lost in the rollback and cannot be written again: {one_line(error)}")


def touched(
    linked: Iterable[PackageRecord], unlinked: Iterable[PackageRecord], prefix: str
) -> bool:
    """Return whether a transaction changes a watched package and leaves one in the environment."""
    if watched_among(record.name for record in linked):
        return True
    return bool(watched_among(record.name for record in unlinked) and watched_in(prefix))


def _mode() -> str:
    """Return off, warn or strict, by conda's setting."""
    value = getattr(import_conda("base.context").context.plugins, SETTING, WARN)
    text = str(value).lower()
    if text in {OFF, "false", "no"}:
        return OFF
    if text == STRICT:
        return STRICT
    if text not in {WARN, "true"}:
        warn(f"plugins.{SETTING} is {value!r}: taken as warn (it can be off, warn or strict)")
    return WARN
