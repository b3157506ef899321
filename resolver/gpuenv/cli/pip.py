"""`gpuenv pip install`: pip's arguments, gpuenv's rules, an installation by uv or pip, and its verification.

pip has no interface for plug-ins, so this stands in its place. What the arguments of pip say is read here; whatever of
them gpuenv cannot keep its promise with (a build from a folder, another target) is refused, with what to do instead.
"""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import Any

from .. import api
from ..errors import Explanation, InputError, InstallError, NoSolutionError
from ..install import inplace_install
from ..loader_env import active_environment, interpreter
from ..model import Host, IndexOptions, Needs, Plan, Request
from ..render import pip as texts
from ..requirements.target import TargetEnvironment, parse_requirement
from .host_args import host_flags, host_of
from .output import note, print_json, print_lines

ROUNDS = 5  # solves until what changes and what limits it agree
SECONDS = 60.0  # for the list of what is installed
# pip's flags that change nothing here: nothing is asked, and wheels are all that is taken.
WITHOUT_EFFECT = (
    "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--no-warn-script-location", "--prefer-binary",
    "--no-warn-conflicts", "--require-virtualenv", "--no-color", "--no-python-version-warning", "--no-compile",
)  # fmt: skip
VALUES_WITHOUT_EFFECT = (
    "--only-binary", "--root-user-action", "--progress-bar", "--retries", "--cache-dir", "--exists-action"
)  # fmt: skip
REFUSED = {
    "-e": "an editable install has no file to lock: run pip for it after this, with --no-deps",
    "--editable": "an editable install has no file to lock: run pip for it after this, with --no-deps",
    "-t": "an environment is written whole: make one with gpuenv sync --target DIR",
    "--target": "an environment is written whole: make one with gpuenv sync --target DIR",
    "--user": "packages of the user are seen by every environment: make one, and install into it",
    "--root": "name the interpreter of the environment: --python EXE",
    "--prefix": "name the interpreter of the environment: --python EXE",
    "--src": "nothing is built here: install it with pip after this, with --no-deps",
    "--no-deps": "without its dependencies nothing can be said of a package: run pip for it after this",
    "-I": "the files of what is there would stay: uninstall it first",
    "--ignore-installed": "the files of what is there would stay: uninstall it first",
    "--force-reinstall": "uninstall what is to be installed anew, then run this",
    "--no-build-isolation": "nothing is built here: install it with pip after this, with --no-deps",
    "--config-settings": "nothing is built here: install it with pip after this, with --no-deps",
    "-C": "nothing is built here: install it with pip after this, with --no-deps",
    "--no-binary": "--allow-sdist NAME takes a source distribution where there is no wheel",
    "--require-hashes": "a file with hashes turns it on by itself; what is installed is checked by its hash anyway",
    "--trusted-host": "give the CA certificate of the index in REQUESTS_CA_BUNDLE",
    "--platform": "what is installed here runs here: gpuenv solve --platform makes a lock for another machine",
    "--python-version": "name the interpreter: --python EXE",
    "--report": "--dry-run --json says what would be installed",
    "--ignore-requires-python": "take it out",
    "--group": "give the folder of the project: gpuenv solve --project DIR --group NAME makes a lock of it",
    "--break-system-packages": "make an environment, and install into it",
}


def install_flags(parser: ArgumentParser) -> None:
    """Flags of `gpuenv pip install`."""
    parser.allow_abbrev = False
    parser.set_defaults(leftover=_leftover, framework=[], project=None, extra=[], group=[], refresh=False)
    parser.add_argument("requirement", metavar="REQUIREMENT", nargs="*", help="as pip takes them")
    group = parser.add_argument_group("as pip's")
    group.add_argument("-r", "--requirement", dest="requirements", metavar="FILE", action="append", default=[])
    group.add_argument("-c", "--constraint", dest="constraints", metavar="FILE", action="append", default=[])
    group.add_argument("-U", "--upgrade", action="store_true", help="take the newest of what is named")
    group.add_argument("--upgrade-strategy", choices=("only-if-needed", "eager"), default="only-if-needed")
    group.add_argument("--pre", action="store_true")
    group.add_argument("--dry-run", action="store_true", help="say what would be done")
    group.add_argument("-q", "--quiet", action="count", default=0)
    group.add_argument("-v", "--verbose", action="count", default=0, help=SUPPRESS)
    group.add_argument("-i", "--index-url", "--pypi-url", metavar="URL")
    group.add_argument("--extra-index-url", metavar="URL", action="append", default=[])
    group.add_argument("-f", "--find-links", metavar="DIR", action="append", default=[])
    group.add_argument("--no-index", action="store_true", help="take files of --find-links only")
    for flag in WITHOUT_EFFECT:
        group.add_argument(flag, action="store_true", help=SUPPRESS)
    for flag in VALUES_WITHOUT_EFFECT:
        group.add_argument(flag, help=SUPPRESS)
    _own_flags(parser)
    host_flags(parser)


def _own_flags(parser: ArgumentParser) -> None:
    from .verify import seconds

    parser.add_argument("--allow-sdist", metavar="NAME", action="append", default=[])
    parser.add_argument("--default-index-only", action="store_true", help="leave out the frameworks' own indexes")
    parser.add_argument("--exclude-newer", metavar="DATE")
    parser.add_argument("--offline", action="store_true", help="ask no index")
    parser.add_argument("--installer", choices=("auto", "uv", "pip"), default="auto")
    parser.add_argument("--no-verify", action="store_true")
    parser.add_argument("--timeout", metavar="S", type=seconds, default=300.0, help="of the verification")


def _leftover(arguments: Namespace, left: Sequence[str]) -> None:
    """What argparse does not place: names after a flag are requirements, flags are none of ours."""
    for word in left:
        flag = word.partition("=")[0]
        flag = flag if flag in REFUSED or word.startswith("--") else word[:2]
        if word.startswith("-"):
            hint = REFUSED.get(flag, "take it out, or run pip itself and then gpuenv verify")
            raise InputError(f"pip install {flag}: is not taken here", hint=hint)
    arguments.requirement = [*arguments.requirement, *left]


# ---- the command --------------------------------------------------------------------------------------------------


def install(arguments: Namespace) -> int:
    """0 if all was done and verified, 1 if a check failed; nothing is installed where there is no solution."""
    from ..install import wheels
    from .request_args import asked, frameworks_first

    if not arguments.requirement and not arguments.requirements:
        raise InputError("nothing to install: give a REQUIREMENT, or -r FILE")
    python = _python(arguments)
    arguments.python = python
    answer = _survey(python)
    if answer["managed"]:
        raise InputError(f"{python}: its system manages its packages ({answer['managed']})", hint="make an environment")
    _no_index(arguments)
    have = inplace_install.read_installed(answer["distributions"])
    request, options, host = asked(arguments, lambda: host_of(arguments, solving=False))
    frameworks, others = frameworks_first((), request.requirements)
    request = request.replace(frameworks=tuple(frameworks), requirements=tuple(others))
    plan = _Solving(arguments, request, options, host, have).plan()
    environment = TargetEnvironment(plan.host)
    gone, against = inplace_install.folder_conflicts(plan.pins, have, environment, api.compatibility_data())
    if against:
        raise NoSolutionError(Explanation(subject=", ".join(arguments.requirement) or "it", reasons=tuple(against)))
    lock = api.lock(plan).replace(pins=tuple(inplace_install.changed_pins(plan.pins, have)))
    done = inplace_install.steps(plan.pins, gone, have)
    if not (arguments.json or arguments.quiet):
        print_lines(texts.step_lines(plan, done, dry=arguments.dry_run))
    if arguments.dry_run:
        if arguments.json:
            print_json(texts.pip_json(answer["prefix"], plan, done, None, dry=True))
        return 0
    wheels.add(lock, python, remove=gone, installer=arguments.installer, progress=_progress(arguments))
    return _verified(arguments, answer["prefix"], plan, done)


def _progress(arguments: Namespace) -> Callable[[str], None] | None:
    return None if arguments.quiet else note(arguments)


def _verified(arguments: Namespace, prefix: str, plan: Plan, done: Sequence[inplace_install.Step]) -> int:
    from ..render import plans
    from .verify import end_by_exit

    checks = None
    if not arguments.no_verify:
        end_by_exit()
        described = bool(arguments.gpu or arguments.host)
        device = not described and bool(plan.host.gpus or plan.choices)
        checks = api.verify(None, arguments.python, plan.host, device=device, timeout=arguments.timeout)
    good = checks is None or plans.ok(checks)
    if arguments.json:
        print_json(texts.pip_json(prefix, plan, done, checks, dry=False))
    elif checks is not None and not (arguments.quiet and good):
        print_lines(plans.check_lines(checks))
    return 0 if good else 1


def _python(arguments: Namespace) -> str:
    """The interpreter whose environment is installed into."""
    if arguments.python is not None:
        if arguments.python.replace(".", "").removesuffix("t").isdigit():
            raise InputError(f"--python {arguments.python}: is a version", hint="name the environment's interpreter")
        target: str | None = arguments.python
    else:
        target = active_environment(os.environ)
    if target is None:
        hint = "activate one, or name its interpreter: --python EXE"
        raise InputError("no environment is active to install into", hint=hint)
    if not os.path.exists(target):
        raise InputError(f"{target}: does not exist")
    return os.path.abspath(interpreter(target))


def _survey(python: str) -> dict[str, Any]:
    """What is installed, as the probe `needs` answers."""
    import time

    from ..verify.runner import Children

    with Children(python, os.environ, time.monotonic() + SECONDS) as children:
        outcome = children.run("needs", {})
    if outcome.answer is None:
        raise InstallError(f"{python}: cannot be asked what is installed: {outcome.failure}")
    answer: dict[str, Any] = outcome.answer
    return answer


def _no_index(arguments: Namespace) -> None:
    """--no-index: the first folder of --find-links stands for the index, too, so that no other is asked."""
    if not arguments.no_index:
        return
    folders = [one for one in arguments.find_links if "://" not in one]
    if not folders:
        raise InputError("--no-index: without a folder in --find-links nothing can be found")
    if not os.path.isdir(os.path.expanduser(folders[0])):
        raise InputError(f"--find-links {folders[0]} does not exist")
    from urllib.parse import quote

    folder = os.path.abspath(os.path.expanduser(folders[0]))
    arguments.index_url, arguments.extra_index_url = f"file://{quote(folder)}", []
    arguments.offline = arguments.default_index_only = True


class _Solving:
    """A request into an environment that holds things already."""

    def __init__(
        self,
        arguments: Namespace,
        request: Request,
        options: IndexOptions,
        host: Host,
        have: dict[str, inplace_install.Installed],
    ) -> None:
        self.arguments, self.options, self.host, self.have = arguments, options, host, have
        self.environment = TargetEnvironment(host)
        self.eager = arguments.upgrade and arguments.upgrade_strategy == "eager"
        requirements = inplace_install.expand_direct(request.requirements, have, self.environment, upgrade=arguments.upgrade)
        self.request = request.replace(requirements=tuple(requirements))
        matrix = api.compatibility_data()
        named = [matrix.framework(name) for name in matrix.frameworks()]
        # distribution -> its framework
        self.owners = {
            parse_requirement(way.requires[0]).name: one.name for one in named if one is not None for way in one.ways
        }

    def plan(self) -> Plan:
        """The plan for the request and, where it touches what runs on a GPU, for the frameworks that are there, too."""
        if self.request.frameworks:
            self._need_device()
            self.request = self._with_installed()
        if not (self.request.frameworks or self.request.requirements):
            # All of it is there, and asks for nothing.
            return Plan(request=self.request, host=self.host, pins=(), choices=(), needs=Needs())
        for _ in range(ROUNDS):
            plan = self._solved()
            wanted = self._frameworks_of(plan)
            if wanted == self.request.frameworks:
                return plan
            self._need_device()
            self.request = self.request.replace(frameworks=wanted)
        return plan

    def _need_device(self) -> None:
        """What runs on a GPU is chosen for one: InputError, as `gpuenv solve` says it, where none is known."""
        self.host = host_of(self.arguments, solving=True)

    def _with_installed(self) -> Request:
        named = {parse_requirement(text).name for text in self.request.frameworks}
        more = {self.owners[name] for name in self.have if name in self.owners} - named
        return self.request.replace(frameworks=(*self.request.frameworks, *sorted(more)))

    def _frameworks_of(self, plan: Plan) -> tuple[str, ...]:
        """The frameworks that a plan is about: those asked for, those it brings, and those it would disturb."""
        matrix = api.compatibility_data()
        names = {pin.wheel.name for pin in inplace_install.changed_pins(plan.pins, self.have)}
        if not any(name in self.owners or matrix.is_library(name) or matrix.slots(name) for name in names):
            return self.request.frameworks
        asked = {parse_requirement(text).name for text in self.request.frameworks}
        brought = {self.owners[name] for name in names if name in self.owners} - asked
        request = self.request.replace(frameworks=(*self.request.frameworks, *sorted(brought)))
        self.request, before = request, self.request
        found, self.request = self._with_installed().frameworks, before
        return found

    def _solved(self) -> Plan:
        """First with all that is installed at its version; where that cannot be, with as much of it as can be."""
        pins = self._pins()
        firm = [f"{name}=={version}" for name, version in pins] + [
            text for text, _ in inplace_install.constraints_of_installed(self.have, self.environment, self._moving(pins))
        ]
        try:
            return self._solve(firm, (), changes=False)
        except NoSolutionError:
            return self._loosely(pins)

    def _loosely(self, pins: Sequence[tuple[str, str]]) -> Plan:
        without = set(self.have)
        for _ in range(ROUNDS):
            bounds = inplace_install.constraints_of_installed(self.have, self.environment, without)
            try:
                plan = self._solve([text for text, _ in bounds], pins, changes=True)
            except NoSolutionError as error:
                if bounds:
                    asked = sorted({who for text, who in bounds})
                    error.hint = f"what is installed limits it, too: {', '.join(asked[:6])}"
                raise
            names = {pin.wheel.name for pin in plan.pins}
            if names == without:
                break
            without = names & set(self.have)
            if not set(inplace_install.constraints_of_installed(self.have, self.environment, without)) - set(bounds):
                break
        return plan

    def _pins(self) -> list[tuple[str, str]]:
        asked = [*self.request.frameworks, *self.request.requirements]
        texts_ = [text for text in asked if text not in self.owners.values() or self.arguments.upgrade]
        found = inplace_install.kept_pins(texts_, self.have, self.environment, upgrade=self.arguments.upgrade)
        if not self.eager:
            return found
        frameworks = {name for name in self.have if name in self.owners}
        return [pair for pair in found if pair[0] in frameworks]

    def _moving(self, pins: Sequence[tuple[str, str]]) -> set[str]:
        return set(self.have) - {name for name, _ in pins}

    def _solve(self, constraints: Sequence[str], preferences: Sequence[tuple[str, str]], *, changes: bool) -> Plan:
        request = self.request.replace(
            constraints=(*self.request.constraints, *dict.fromkeys(constraints)), preferences=tuple(preferences)
        )
        return api.solve(request, self.host, self.options, changes=changes)


COMMANDS = {
    "install": ("install as pip does, by gpuenv's rules, and verify it", install_flags, install),
}
