"""Installation into an environment that has packages already, as `pip install` does it."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress

from ..compat import evaluate
from ..compat.data import compatibility_data
from ..distributions import Distribution, read_distributions
from ..errors import (
    Explanation,
    InputError,
    InstallError,
    NoSolutionError,
    NotVerifiedError,
    Reason,
)
from ..install import conda_history, environment_files, inplace_install, transaction
from ..install import wheels as wheel_installer
from ..install.wheels import Progress, Prove
from ..model import Host, IndexOptions, Lock, Needs, PackageChange, Pin, Plan, Request, Value
from ..prefix import interpreter_of, is_conda, is_venv, prefix_of
from ..probes.answers import Interpreter
from ..requirements.overrides import Overrides
from ..requirements.target import TargetEnvironment, parse_requirement
from ..verify.runner import Children
from . import environments
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
    steps: tuple[PackageChange, ...]


def installable_python(python: str) -> str:
    """Return the interpreter of the environment to install into.

    Args:
        python: the interpreter or the folder.

    Raises:
        InputError: there is no such environment, or `python` is a version.
    """
    if python.replace(".", "").removesuffix("t").isdigit():
        hint = "name the environment's interpreter"
        raise InputError(f"--python {python}: is a version", hint=hint)
    if not os.path.exists(python):
        raise InputError(f"{python}: does not exist", hint="name an interpreter: --python EXE")
    return os.path.abspath(interpreter_of(python))


class InplaceTarget:
    """An environment that has packages already.

    Raises:
        InputError: the packages of the environment belong to the system, or the interpreter is
            that of another environment.
        InstallError: the interpreter gives no answer.
    """

    def __init__(self, python: str) -> None:
        with Children(python, os.environ, time.monotonic() + SURVEY_SECONDS) as children:
            outcome = children.run("interpreter", {"imports": []})
        if outcome.answer is None:
            message = f"{python}: cannot be asked what is installed: {outcome.failure}"
            raise InstallError(message)
        interpreter: Interpreter = outcome.answer
        if interpreter["managed"]:
            message = f"{python}: its system manages its packages ({interpreter['managed']})"
            raise InputError(message, hint="make an environment")
        self.python = python
        self.prefix = interpreter["prefix"]
        named = prefix_of(python)
        is_environment = is_venv(named) or is_conda(named)
        if is_environment and os.path.realpath(named) != os.path.realpath(self.prefix):
            message = f"{python}: is a link to the Python of {self.prefix}, not one of {named}"
            raise InputError(message, hint="name the environment that is meant: --python EXE")
        self.installed: dict[str, Distribution] = {}
        for distribution in read_distributions(interpreter["path"]):
            self.installed.setdefault(distribution.name, distribution)  # an import finds the first
        self.framework_of = {  # by distribution
            way.distribution: framework.name
            for framework in compatibility_data().all_frameworks()
            for way in framework.ways
        }

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
        environment = TargetEnvironment(host)
        frameworks = compatibility_data().frameworks()
        others = {name: row for name, row in self.installed.items() if name not in frameworks}
        requirements = inplace_install.expand_direct(
            request.requirements, others, environment, upgrade=upgrade
        )
        request = request.replace(requirements=tuple(requirements))
        plan = self._solve_for_frameworks(request, host, options, upgrade, upgrade and eager)
        changed = inplace_install.changed_pins(plan.pins, self.installed)
        remove, reasons = inplace_install.owner_conflicts(
            plan.versions.keys(),
            changed,
            self.installed,
            TargetEnvironment(plan.host),
            compatibility_data(),
        )
        if reasons:
            raise NoSolutionError(Explanation(subject=subject, reasons=tuple(reasons)))
        # The plan does not know what else is installed, nor in which order.
        warnings = [warning for warning in plan.warnings if warning.code != "shared-paths"]
        return InplaceInstallation(
            python=self.python,
            prefix=self.prefix,
            plan=plan.replace(warnings=(*warnings, *self._shared_paths(changed, remove))),
            lock=environments.lock(plan).replace(pins=tuple(changed)),
            remove=tuple(remove),
            steps=tuple(inplace_install.steps(changed, remove, self.installed)),
        )

    def _shared_paths(self, changed: Sequence[Pin], remove: Collection[str]) -> tuple[Reason, ...]:
        """Return what new distributions share with others that are there afterwards (R5)."""
        data, new = compatibility_data(), {pin.wheel.name: pin.wheel.version for pin in changed}
        touched = {data.family(name) for name in new} - {None}
        installed = {row.name: row.version for row in self.installed.values()}
        stay = {name: installed[name] for name in installed.keys() - {*remove, *new}}
        members = [item for item in (stay | new).items() if data.family(item[0]) in touched]
        return evaluate.shared_path_reasons(members, data, before=stay)

    def _solve_for_frameworks(
        self, request: Request, host: Host, options: IndexOptions, upgrade: bool, eager: bool
    ) -> Plan:
        """Solve until the request names the frameworks that the plan brings or disturbs.

        A plan that changes a package which runs on a GPU must also be right for the installed
        frameworks.
        """
        data = compatibility_data()
        frameworks = {self.framework_of[name] for name in self.installed.keys() & self.framework_of}
        needs = map(parse_requirement, request.requirements)
        named = {need.name for need in needs if not (need.marker or need.url)}
        named &= {*data.frameworks()}
        missing = sorted(frameworks - named) if named else []
        if not request.requirements:
            # All is installed already, and needs nothing more.
            return Plan(request=request, host=host, pins=(), choices=(), needs=Needs())
        for _ in range(ROUNDS):
            named.update(missing)
            if named:
                require_gpu(host)
            request = request.replace(requirements=(*request.requirements, *missing))
            plan = self._solve_once(request, host, options, upgrade, eager)
            texts = request.requirements
            owners = inplace_install.kept_owners(plan.pins, self.installed, texts, data)
            if owners:
                requirements = (*texts, *owners)
                request, missing = request.replace(requirements=requirements), []
                continue
            changed = inplace_install.changed_pins(plan.pins, self.installed)
            names = {pin.wheel.name for pin in changed}
            brought = {self.framework_of[name] for name in names & self.framework_of.keys()}
            libraries = [name for name in names if name.startswith("nvidia-") and data.family(name)]
            if not (brought or libraries or any(map(data.is_library, names))):
                break
            missing = [*sorted(brought - named), *sorted(frameworks - brought - named)]
            if not missing:
                break
        return plan

    def _solve_once(
        self, request: Request, host: Host, options: IndexOptions, upgrade: bool, eager: bool
    ) -> Plan:
        """Solve for a request.

        A first solve keeps all installed packages at their versions. If that is impossible, others
        prefer them, within the limits of the packages that do not change.
        """
        environment = TargetEnvironment(host)
        texts: Sequence[str] = request.requirements
        if not upgrade:
            # A framework that was added by its name alone has no say in what changes.
            texts = [text for text in texts if text not in self.framework_of.values()]
        kept = inplace_install.kept_pins(texts, self.installed, upgrade=upgrade)
        if eager:
            kept = [pin for pin in kept if pin[0] in self.framework_of]

        def limits(changing: Collection[str]) -> list[tuple[str, str]]:
            """Return (constraint, who requires it) of the installed packages that stay."""
            return inplace_install.constraints_of_installed(
                self.installed, environment, changing, Overrides(request.overrides)
            )

        def within(constraints: Sequence[str], wishes: Sequence[tuple[str, str]] = ()) -> Request:
            every = (*request.constraints, *dict.fromkeys(constraints))
            return request.replace(constraints=every, preferences=tuple(wishes))

        changing = set(self.installed) - {name for name, _ in kept}
        constraints = [f"{name}=={version}" for name, version in kept]
        constraints += [text for text, _ in limits(changing)]
        with suppress(NoSolutionError):
            return environments.solve(within(constraints), host, options, changes=False)
        changing = set(self.installed)
        for _ in range(ROUNDS):
            limiting = limits(changing)
            try:
                wanted = within([text for text, _ in limiting], kept)
                plan = environments.solve(wanted, host, options)
            except NoSolutionError as error:
                if limiting:
                    owners = ", ".join(sorted({owner for _, owner in limiting})[:SHOWN])
                    error.hint = f"what is installed limits it, too: {owners}"
                raise
            changing = plan.versions.keys() & set(self.installed)
            if not set(limits(changing)) - set(limiting):
                break
        return plan


def install_inplace(
    installation: InplaceInstallation,
    *,
    installer: str,
    prove: Prove | None,
    progress: Progress | None,
    builds: IndexOptions | None,
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
        # The environment no longer holds the lock that is recorded in it.
        environment_files.write_recorded_lock(prefix, "")
        conda_history.record_lock(prefix, {})
    if prove is not None and not prove(installation.python):
        raise NotVerifiedError(f"{prefix} was not verified")
