"""Installation into an environment that has packages already, as `pip install` does it."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypedDict, cast

from ..errors import Explanation, InputError, InstallError, NoSolutionError, NotVerifiedError
from ..install import inplace_install
from ..install.inplace_install import Installed, Step
from ..model import Check, Host, IndexOptions, Lock, Needs, Plan, Request, Value
from ..requirements.target import TargetEnvironment, parse_requirement
from . import environments, wheels
from .backend import Progress, Prove
from .data import compatibility_data
from .explanations import split_frameworks
from .hosts import require_gpu

ROUNDS = 5  # solves until the packages that change and the limits of the others agree
SURVEY_SECONDS = 60.0
SHOWN = 6  # packages that a hint names


class InplaceInstallation(Value):
    """What an installation into the environment of `python` would do.

    `lock` pins only what changes; `steps` are all changes; `remove` are the packages that must be
    removed first.
    """

    python: str
    prefix: str
    plan: Plan
    lock: Lock
    remove: tuple[str, ...]
    steps: tuple[Step, ...]


class _Survey(TypedDict):
    """The answer of the probe `needs`.

    `managed` is the path of EXTERNALLY-MANAGED, "" without one.
    """

    managed: str
    prefix: str
    distributions: Sequence[Mapping[str, object]]


def installable_python(python: str | None) -> str:
    """Return the interpreter of the environment to install into.

    Args:
        python: the interpreter or the folder; None is the active environment.

    Raises:
        InputError: there is no such environment, or `python` is a version.
    """
    if python is None:
        python = environments.active_environment()
        if python is None:
            hint = "activate one, or name its interpreter: --python EXE"
            raise InputError("no environment is active to install into", hint=hint)
    elif python.replace(".", "").removesuffix("t").isdigit():
        hint = "name the environment's interpreter"
        raise InputError(f"--python {python}: is a version", hint=hint)
    if not os.path.exists(python):
        raise InputError(f"{python}: does not exist", hint="name an interpreter: --python EXE")
    return os.path.abspath(environments.interpreter_of(python))


class InplaceTarget:
    """An environment that has packages already.

    Raises:
        InputError: the packages of the environment belong to the system.
        InstallError: the interpreter gives no answer.
    """

    def __init__(self, python: str) -> None:
        survey = _survey(python)
        if survey["managed"]:
            message = f"{python}: its system manages its packages ({survey['managed']})"
            raise InputError(message, hint="make an environment")
        self.python = python
        self.prefix = survey["prefix"]
        self.installed = inplace_install.read_installed(survey["distributions"])

    def plan(
        self,
        request: Request,
        host: Host,
        options: IndexOptions,
        *,
        subject: str = "it",
        upgrade: bool = False,
        eager: bool = False,
    ) -> InplaceInstallation:
        """Choose what to install; nothing is written.

        Args:
            request: what must be there afterwards.
            host: the host.
            options: where packages may come from.
            subject: what an explanation says is impossible.
            upgrade: whether to take the newest releases of the named packages.
            eager: with `upgrade`, whether to take those of their dependencies, too.

        Raises:
            NoSolutionError: there is no solution, or a package would share a folder with one that
            must stay.
        """
        frameworks, requirements = split_frameworks((), request.requirements)
        request = request.replace(frameworks=tuple(frameworks), requirements=tuple(requirements))
        solver = _Solver(request, host, options, self.installed, upgrade=upgrade, eager=eager)
        plan = solver.plan()
        environment = TargetEnvironment(plan.host)
        data = compatibility_data()
        remove, reasons = inplace_install.folder_conflicts(
            plan.pins, self.installed, environment, data
        )
        if reasons:
            raise NoSolutionError(Explanation(subject=subject, reasons=tuple(reasons)))
        changed = inplace_install.changed_pins(plan.pins, self.installed)
        return InplaceInstallation(
            python=self.python,
            prefix=self.prefix,
            plan=plan,
            lock=environments.lock(plan).replace(pins=tuple(changed)),
            remove=tuple(remove),
            steps=tuple(inplace_install.steps(plan.pins, remove, self.installed)),
        )


def install_inplace(
    installation: InplaceInstallation,
    *,
    installer: str = "auto",
    prove: Prove | None = None,
    progress: Progress | None = None,
    builds: IndexOptions | None = None,
) -> None:
    """Change the environment as planned.

    A virtual environment is replaced in one step, as by `environments.sync`. Other environments
    (of conda, of the system, at a mount point, in a lower layer of an image) are changed in place.

    Args:
        installation: the plan.
        installer: "auto", "uv" or "pip".
        prove: is called with the interpreter of the changed environment; it returns whether it
            works. A virtual environment is replaced only if it does.
        progress: is called with a line for each step.
        builds: where the build requirements of source distributions come from.

    Raises:
        InstallError: the installer or a build failed.
        NotVerifiedError: `prove` returned false.
        TargetBusyError: another run changed the environment all the time.
    """
    from ..install import transaction
    from ..install import wheels as wheel_installer

    lock, prefix, remove = installation.lock, installation.prefix, installation.remove
    if installation.steps and wheel_installer.can_be_replaced(prefix):
        with suppress(transaction.ImmovableError):
            wheel_installer.sync(
                lock,
                prefix,
                installer=installer,
                remove=remove,
                prove=prove,
                progress=progress,
                builds=builds,
            )
            return
    wheel_installer.add(
        lock,
        installation.python,
        remove=remove,
        installer=installer,
        progress=progress,
        builds=builds,
    )
    if installation.steps:
        _forget_lock(prefix)
    if prove is not None and not prove(installation.python):
        raise NotVerifiedError(f"{prefix} was not verified")


def _forget_lock(prefix: str) -> None:
    """Remove the lock from the record of an environment that no longer holds it."""
    from ..install import build_record, conda_history

    build = build_record.read_build(prefix)
    if build is not None:
        build_record.write_build(prefix, build.replace(lock=""))
    conda_history.record_lock(prefix, {})


def verify_inplace(
    installation: InplaceInstallation, python: str, *, device: bool, timeout: float
) -> tuple[Check, ...]:
    """Verify an installation with its interpreter.

    The new environment may be beside the old one, or in its place already.

    `device` uses the GPUs, if there are some or if the plan has a framework.
    """
    plan = installation.plan
    device = device and bool(plan.host.gpus or plan.choices)
    return environments.verify(
        None, python, plan.host, device=device, timeout=timeout, shown_as=installation.prefix
    )


def _survey(python: str) -> _Survey:
    """Ask an interpreter what is installed."""
    from ..verify.runner import Children

    with Children(python, os.environ, time.monotonic() + SURVEY_SECONDS) as children:
        outcome = children.run("needs", {})
    if outcome.answer is None:
        message = f"{python}: cannot be asked what is installed: {outcome.failure}"
        raise InstallError(message)
    return cast(_Survey, outcome.answer)


class _Solver:
    """Solves a request for an environment that has packages already.

    A first solve keeps all installed packages at their versions. If that is impossible, a second
    one prefers them. A plan that changes a package which runs on a GPU must also be right for the
    installed frameworks.
    """

    def __init__(
        self,
        request: Request,
        host: Host,
        options: IndexOptions,
        installed: Mapping[str, Installed],
        *,
        upgrade: bool,
        eager: bool,
    ) -> None:
        self.host, self.options, self.installed = host, options, installed
        self.upgrade, self.eager = upgrade, upgrade and eager
        self.environment = TargetEnvironment(host)
        requirements = inplace_install.expand_direct(
            request.requirements, installed, self.environment, upgrade=upgrade
        )
        self.request = request.replace(requirements=tuple(requirements))
        self.framework_of = _frameworks_by_distribution()

    def plan(self) -> Plan:
        """Solve until the frameworks of the request are those that the plan is about."""
        if self.request.frameworks:
            self._add_frameworks(self._installed_frameworks(self.request.frameworks))
        if not (self.request.frameworks or self.request.requirements):
            # All is installed already, and needs nothing more.
            return Plan(request=self.request, host=self.host, pins=(), choices=(), needs=Needs())
        for _ in range(ROUNDS):
            plan = self._solve_once()
            missing = self._missing_frameworks(plan)
            if not missing:
                return plan
            self._add_frameworks(missing)
        return plan

    def _add_frameworks(self, names: Sequence[str]) -> None:
        """Add frameworks. The host must have a GPU, or be described as one without a GPU."""
        require_gpu(self.host)
        frameworks = (*self.request.frameworks, *names)
        self.request = self.request.replace(frameworks=frameworks)

    def _installed_frameworks(self, named: Sequence[str]) -> list[str]:
        """Return the installed frameworks that are not among the named ones."""
        names = {parse_requirement(text).name for text in named}
        installed = {
            self.framework_of[name] for name in self.installed if name in self.framework_of
        }
        return sorted(installed - names)

    def _missing_frameworks(self, plan: Plan) -> list[str]:
        """Return the frameworks that a plan brings or disturbs, but the request does not name."""
        data = compatibility_data()
        changed = inplace_install.changed_pins(plan.pins, self.installed)
        names = {pin.wheel.name for pin in changed}
        if not any(
            name in self.framework_of or data.is_library(name) or data.slots(name) for name in names
        ):
            return []
        requested = {parse_requirement(text).name for text in self.request.frameworks}
        brought = {self.framework_of[name] for name in names if name in self.framework_of}
        missing = sorted(brought - requested)
        return [*missing, *self._installed_frameworks((*self.request.frameworks, *missing))]

    def _solve_once(self) -> Plan:
        kept = self._kept_pins()
        constraints = [f"{name}=={version}" for name, version in kept]
        changing = set(self.installed) - {name for name, _ in kept}
        constraints += [constraint for constraint, _ in self._limits(without=changing)]
        try:
            return self._solve(constraints, preferences=(), changes=False)
        except NoSolutionError:
            return self._solve_with_preferences(kept)

    def _kept_pins(self) -> list[tuple[str, str]]:
        """Return (name, version) of the installed packages that should stay."""
        texts = [*self.request.frameworks, *self.request.requirements]
        if not self.upgrade:
            # A framework that was added by its name alone has no say in what changes.
            added = set(self.framework_of.values())
            texts = [text for text in texts if text not in added]
        kept = inplace_install.kept_pins(
            texts, self.installed, self.environment, upgrade=self.upgrade
        )
        if self.eager:
            return [pin for pin in kept if pin[0] in self.framework_of]
        return kept

    def _solve_with_preferences(self, preferences: Sequence[tuple[str, str]]) -> Plan:
        """Solve with the installed versions as preferences, within the limits of other packages."""
        changing = set(self.installed)
        for _ in range(ROUNDS):
            limits = self._limits(without=changing)
            try:
                plan = self._solve([text for text, _ in limits], preferences, changes=True)
            except NoSolutionError as error:
                if limits:
                    error.hint = _limits_hint(limits)
                raise
            names = {pin.wheel.name for pin in plan.pins}
            if names == changing:
                break
            changing = names & set(self.installed)
            if not set(self._limits(without=changing)) - set(limits):
                break
        return plan

    def _limits(self, without: Collection[str]) -> list[tuple[str, str]]:
        """Return (constraint, who requires it) of the installed packages but those in `without`."""
        return inplace_install.constraints_of_installed(self.installed, self.environment, without)

    def _solve(
        self,
        constraints: Sequence[str],
        preferences: Sequence[tuple[str, str]],
        *,
        changes: bool,
    ) -> Plan:
        request = self.request.replace(
            constraints=(*self.request.constraints, *dict.fromkeys(constraints)),
            preferences=tuple(preferences),
        )
        return environments.solve(request, self.host, self.options, changes=changes)


def _limits_hint(limits: Sequence[tuple[str, str]]) -> str:
    owners = sorted({owner for _, owner in limits})
    return f"what is installed limits it, too: {', '.join(owners[:SHOWN])}"


def _frameworks_by_distribution() -> dict[str, str]:
    """Return {distribution: the name of its framework}."""
    names = {}
    for framework in wheels.known_frameworks():
        for way in framework.ways:
            names[parse_requirement(way.requires[0]).name] = framework.name
    return names
