"""`gpuenv pip install`: install with pip's arguments and gpuenv's rules, and verify.

pip has no interface for plugins, so this command replaces `pip install`. Arguments that gpuenv
cannot follow (a build from a folder, another target) are refused, with what to do instead.
"""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import api
from ..errors import InputError, NotVerifiedError
from ..model import Check, IndexOptions
from ..render import changes as render
from ..render import checks as render_checks
from .environment_args import (
    add_installer_flags,
    doctor_step,
    exit_on_signals,
    print_checks,
    report_not_verified,
)
from .host_args import add_host_flags, is_described, read_host_flags
from .output import print_json, print_report, progress_printer
from .parser import Parser, add_common_flags
from .request_args import add_build_flags, read_request, refuse_nicknames

if TYPE_CHECKING:  # the stages of an installation are imported when it begins
    from ..api.inplace import InplaceInstallation

HELP = "Install into the active environment, with pip's arguments"
DESCRIPTION = (
    "Install packages by gpuenv's rules into an environment that has packages already, "
    "and verify them."
)
EXAMPLES = (
    ("gpuenv pip install torch pandas", "Install packages"),
    ("gpuenv pip install -r requirements.txt --dry-run", "Show what would change"),
)
# Flags of pip that change nothing: gpuenv asks no questions.
FLAGS_WITHOUT_EFFECT = (
    "--no-input",
    "--disable-pip-version-check",
    "--no-cache-dir",
    "--no-warn-script-location",
    "--prefer-binary",
    "--no-warn-conflicts",
    "--require-virtualenv",
    "--no-color",
    "--no-python-version-warning",
    "--no-compile",
)
OPTIONS_WITHOUT_EFFECT = (
    "--root-user-action",
    "--progress-bar",
    "--retries",
    "--cache-dir",
    "--exists-action",
)
_EDITABLE = "an editable install has no file to lock: run pip for it after this, with --no-deps"
_TARGET = "an environment is written whole: make one with gpuenv sync --target DIR"
_INTERPRETER = "name the interpreter of the environment: --python EXE"
_BUILD = "builds are isolated here: install it with pip after this, with --no-deps"
_INSTALLED_FILES = "the files of the installed package would stay: uninstall it first"
# Flags of pip that are refused, with what to do instead.
REFUSED = {
    "-e": _EDITABLE,
    "--editable": _EDITABLE,
    "-t": _TARGET,
    "--target": _TARGET,
    "--user": "every environment sees packages of the user: make one, and install into it",
    "--root": _INTERPRETER,
    "--prefix": _INTERPRETER,
    "--src": _BUILD,
    "--no-deps": "a package cannot be checked without its dependencies: run pip for it after this",
    "-I": _INSTALLED_FILES,
    "--ignore-installed": _INSTALLED_FILES,
    "--force-reinstall": "uninstall the packages first, then run this",
    "--no-build-isolation": _BUILD,
    "--config-settings": _BUILD,
    "-C": _BUILD,
    "--require-hashes": "a file with hashes turns it on; gpuenv checks every hash anyway",
    "--trusted-host": "give the CA certificate of the index in REQUESTS_CA_BUNDLE",
    "--platform": "what is installed here runs here:"
    " gpuenv solve --platform makes a lock for another machine",
    "--python-version": "name the interpreter: --python EXE",
    "--report": "--dry-run --json shows what would be installed",
    "--ignore-requires-python": "leave it out",
    "--group": "gpuenv solve --project DIR --group NAME makes a lock of a dependency group",
    "--break-system-packages": "make an environment, and install into it",
}


# ---- flags ---------------------------------------------------------------------------------------


def add_arguments(parser: Parser) -> None:
    """Add the command `gpuenv pip install` and its flags."""
    commands = parser.add_commands()
    install = commands.add_parser("install", help=HELP, description=DESCRIPTION, examples=EXAMPLES)
    install.allow_abbrev = False
    # What `read_request` reads and pip has no flags for.
    install.set_defaults(
        reports_unknown=True,
        framework=[],
        cuda=None,
        project=None,
        extra=[],
        group=[],
        refresh=False,
    )
    install.add_argument(
        "requirement", metavar="REQUIREMENT", nargs="*", help="The packages, as pip takes them"
    )
    _add_pip_flags(install)
    _add_own_flags(install)
    add_host_flags(install)
    add_common_flags(install)


def _add_pip_flags(parser: Parser) -> None:
    group = parser.add_argument_group("As in pip")
    group.add_argument(
        "-r",
        "--requirement",
        dest="requirements",
        metavar="FILE",
        action="append",
        default=[],
        help="Read requirements from a file",
    )
    group.add_argument(
        "-c",
        "--constraint",
        dest="constraints",
        metavar="FILE",
        action="append",
        default=[],
        help="Read version constraints from a file",
    )
    group.add_argument(
        "-U",
        "--upgrade",
        action="store_true",
        help="Take the newest releases of the named packages",
    )
    group.add_argument(
        "--upgrade-strategy",
        choices=("only-if-needed", "eager"),
        default="only-if-needed",
        help="With --upgrade: eager takes the newest releases of dependencies, too",
    )
    group.add_argument("--pre", action="store_true", help="Allow pre-releases")
    group.add_argument("--dry-run", action="store_true", help="Print the changes; make none")
    group.add_argument(
        "-i", "--index-url", "--pypi-url", metavar="URL", help="Use this index for every package"
    )
    group.add_argument(
        "--extra-index-url",
        metavar="URL",
        action="append",
        default=[],
        help="Use this index before the default one",
    )
    group.add_argument(
        "-f",
        "--find-links",
        metavar="DIR",
        action="append",
        default=[],
        help="Use a folder of wheels",
    )
    group.add_argument("--no-index", action="store_true", help="Use only the files of --find-links")
    for flag in FLAGS_WITHOUT_EFFECT:
        group.add_argument(flag, action="store_true", help=SUPPRESS)
    for flag in OPTIONS_WITHOUT_EFFECT:
        group.add_argument(flag, help=SUPPRESS)


def _add_own_flags(parser: Parser) -> None:
    add_build_flags(parser)
    parser.add_argument(
        "--default-index-only",
        action="store_true",
        help="Use no index that belongs to a framework",
    )
    parser.add_argument(
        "--exclude-newer",
        metavar="DATE",
        help="Use only files uploaded up to this date, by the live index",
    )
    parser.add_argument("--offline", action="store_true", help="Use no network")
    add_installer_flags(parser)


def _read_unknown(arguments: Namespace) -> None:
    """Take names after a flag as requirements, which argparse does not.

    InputError for an unknown flag.
    """
    for word in arguments.unknown:
        if not word.startswith("-"):
            continue
        flag = word.partition("=")[0]
        if flag not in REFUSED and not word.startswith("--"):
            flag = word[:2]
        hint = REFUSED.get(flag, "leave it out, or run pip itself and then gpuenv verify")
        raise InputError(f"pip install {flag}: is not taken here", hint=hint)
    arguments.requirement = [*arguments.requirement, *arguments.unknown]


# ---- the command ---------------------------------------------------------------------------------


def run(arguments: Namespace) -> int:
    """Install and verify.

    Return 1 if a check failed. Nothing is installed if there is no solution.
    """
    _read_unknown(arguments)
    if not arguments.requirement and not arguments.requirements:
        raise InputError("nothing to install: give a REQUIREMENT, or -r FILE")
    from ..api import inplace

    arguments.python = inplace.installable_python(arguments.python)
    target = inplace.InplaceTarget(arguments.python)
    refuse_nicknames(arguments.requirement)
    request, options, host = read_request(
        arguments, lambda: read_host_flags(arguments, need_gpu=False)
    )
    installation = target.plan(
        request,
        host,
        options,
        subject=", ".join(arguments.requirement) or "it",
        upgrade=arguments.upgrade,
        eager=arguments.upgrade_strategy == "eager",
    )
    if not arguments.json:
        lines = render.step_lines(installation.plan, installation.steps, dry=arguments.dry_run)
        print_report(lines)
    if arguments.dry_run:
        if arguments.json:
            _print_document(installation, None, dry_run=True)
        return 0
    exit_on_signals()
    return _install(arguments, installation, options)


def _install(arguments: Namespace, installation: InplaceInstallation, builds: IndexOptions) -> int:
    from ..api import inplace

    checks: Sequence[Check] = ()

    def prove(python: str) -> bool:
        nonlocal checks
        host = installation.plan.host
        uses_gpu = bool(host.gpus or installation.plan.choices)
        checks = api.verify(
            None,
            python,
            host,
            device=uses_gpu and not is_described(arguments),
            timeout=arguments.timeout,
            shown_as=installation.prefix,
        )
        return render_checks.ok(checks)

    failure = None
    try:
        inplace.install_inplace(
            installation,
            installer=arguments.installer,
            prove=None if arguments.no_verify else prove,
            progress=progress_printer(arguments),
            builds=builds,
        )
    except NotVerifiedError as error:
        failure = error
    status = _print_result(arguments, installation, None if arguments.no_verify else checks)
    return status if failure is None else report_not_verified(failure)


def _print_result(
    arguments: Namespace, installation: InplaceInstallation, checks: Sequence[Check] | None
) -> int:
    if arguments.json:
        _print_document(installation, checks, dry_run=False)
        return 0 if checks is None or render_checks.ok(checks) else 1
    if checks is None:
        return 0
    return print_checks(arguments, checks, doctor_step(installation.prefix))


def _print_document(
    installation: InplaceInstallation, checks: Sequence[Check] | None, *, dry_run: bool
) -> None:
    plan, steps = installation.plan, installation.steps
    print_json(render.pip_json(installation.prefix, plan, steps, checks, dry=dry_run))
