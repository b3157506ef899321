"""What `api.wheels` and `api.conda` have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..model import Check, EnvironmentChanges, Host, IndexOptions, Lock, Plan, Request, Value

Progress = Callable[[str], None]
Approve = Callable[[EnvironmentChanges], None]
Prove = Callable[[str], bool]


class Installation(Value):
    """How a lock is installed: the arguments of `environments.sync` with these names."""

    files: Lock | None
    python: str | None
    installer: str
    exact: bool | None
    wait: float
    approve: Approve | None
    prove: Prove | None
    progress: Progress | None
    builds: IndexOptions


class Verification(Value):
    """How an environment is verified: the arguments of `environments.verify` with these names."""

    device: bool
    timeout: float
    only: Sequence[str]
    verbose: bool
    fast: bool


class Backend(Protocol):
    """What `api.wheels` and `api.conda` provide.

    The functions of `api.environments` document the arguments.
    """

    def solve(
        self,
        request: Request,
        host: Host,
        options: IndexOptions,
        *,
        prefix: str | None,
        keep: bool,
        changes: bool,
    ) -> Plan: ...

    def lock(self, plan: Plan, *, variants_json: bool = False) -> Lock: ...

    def lock_text(self, lock: Lock, form: str) -> str: ...

    def lock_texts(self, lock: Lock, path: str, form: str) -> dict[str, str]: ...

    def read_lock(self, path: str) -> Lock: ...

    def check_target(
        self, lock: Lock, target: str, *, python: str | None, installer: str
    ) -> None: ...

    def sync(self, lock: Lock, target: str, host: Host, options: Installation) -> str: ...

    def changes(
        self, lock: Lock, target: str, host: Host, *, exact: bool | None
    ) -> EnvironmentChanges: ...

    def verify(
        self, lock: Lock, target: str, host: Host, options: Verification
    ) -> tuple[Check, ...]: ...

    def recorded_lock(self, prefix: str) -> Lock | None: ...
