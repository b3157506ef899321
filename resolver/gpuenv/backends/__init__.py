"""Who installs a lock. A backend is the only writer of environments; each is one module of this package."""

from __future__ import annotations

from collections.abc import Callable

from ..model import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from typing import Protocol
else:
    Protocol = object

Progress = Callable[[str], None]


class Backend(Protocol):
    """Installs what a lock names, and nothing else, into an environment."""

    def sync(
        self,
        lock: Lock,
        target: str,
        *,
        installer: str = "auto",
        python: str | None = None,
        progress: Progress | None = None,
    ) -> str:
        """Makes the environment at the folder `target` hold the lock, and returns the path of its interpreter.

        `installer` picks among what the backend can drive; `python` is a version or an executable for an environment
        that is yet to be made. A new environment that fails half way is removed again. Raises errors.InputError for a
        target or an interpreter that cannot be used, errors.InstallError when the installer fails.
        """


def backend(name: str) -> Backend:
    """The backend of that name: "wheels"."""
    from importlib import import_module

    module: Backend = import_module(f".{name}", __name__)
    return module
