"""`gpuenv pip install`: install with pip's arguments and gpuenv's rules, and verify.

pip has no interface for plugins, so this command replaces `pip install`. Arguments that gpuenv
cannot follow (a build from a folder, another target) are refused, with what to do instead.
"""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from collections.abc import Sequence

from .. import api
from ..api import inplace
from ..errors import InputError, NotVerifiedError
from ..model import Check
from ..render import changes as render
from ..render import checks as render_checks
from .environments import exit_on_signals, print_checks, report_not_verified
from .flags import BUILDS, HOST, INSTALLER, OFFLINE
from .output import print_json, print_report, print_step
from .parser import Argument, Command, Group, Parser
from .requests import check_names, is_described, read_host, read_request
from .state import environment

# Flags of pip that change nothing: gpuenv asks no questions.
WITHOUT_EFFECT = (
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
    "--root-user-action ACTION",
    "--progress-bar TYPE",
    "--retries N",
    "--cache-dir DIR",
    "--exists-action ACTION",
)
_EDITABLE = "give an editable folder in a file: write -e FOLDER there, and name it with -r FILE"
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


class Install(Command):
    """`gpuenv pip install`."""

    HELP = "Install into the active environment, with pip's arguments"
    DESCRIPTION = (
        "Install packages by gpuenv's rules into an environment that has packages already, "
        "and verify them."
    )
    EXAMPLES = (
        ("gpuenv pip install torch pandas", "Install packages"),
        ("gpuenv pip install -r requirements.txt --dry-run", "Show what would change"),
    )
    ARGUMENTS = (
        Argument("[REQUIREMENT ...]", "The packages, as pip takes them"),
        Group(
            "As in pip",
            Argument(
                "-r --requirement FILE ...", "Read requirements from a file", dest="requirements"
            ),
            Argument(
                "-c --constraint FILE ...",
                "Read version constraints from a file",
                dest="constraints",
            ),
            Argument("-U --upgrade", "Take the newest releases of the named packages"),
            Argument(
                "--upgrade-strategy",
                "With --upgrade: eager takes the newest releases of dependencies, too",
                choices=("only-if-needed", "eager"),
                default="only-if-needed",
            ),
            Argument("--pre", "Allow pre-releases"),
            Argument("--dry-run", "Print the changes; make none"),
            Argument("-i --index-url --pypi-url URL", "Use this index for every package"),
            Argument("--extra-index-url URL ...", "Use this index before the default one"),
            Argument("-f --find-links DIR ...", "Use a folder of wheels"),
            Argument("--no-index", "Use only the files of --find-links"),
            *(Argument(form, SUPPRESS) for form in WITHOUT_EFFECT),
        ),
        BUILDS,
        Argument("--default-index-only", "Use no index of a framework or of a companion"),
        Argument(
            "--exclude-newer DATE", "Use only files uploaded up to this date, by the live index"
        ),
        OFFLINE,
        *INSTALLER,
        HOST,
    )

    def add_arguments(self, parser: Parser) -> None:
        """Add the flags, and values for what `read_request` reads and pip has no flags for."""
        super().add_arguments(parser)
        parser.allow_abbrev = False
        parser.set_defaults(
            reports_unknown=True,
            framework=[],
            cuda=None,
            overrides=[],
            project=None,
            extra=[],
            group=[],
            refresh=False,
        )

    def run(self, arguments: Namespace) -> int:
        """Install and verify.

        Return 1 if a check failed. Nothing is installed if there is no solution.
        """
        for word in arguments.unknown:
            if word.startswith("-"):
                flag = word.partition("=")[0]
                if flag not in REFUSED and not word.startswith("--"):
                    flag = word[:2]
                hint = REFUSED.get(flag, "leave it out, or run pip itself and then gpuenv verify")
                raise InputError(f"pip install {flag}: is not taken here", hint=hint)
        # argparse does not take names after a flag as requirements.
        texts = arguments.requirement = [*arguments.requirement, *arguments.unknown]
        if not texts and not arguments.requirements:
            raise InputError("nothing to install: give a REQUIREMENT, or -r FILE")
        python = arguments.python
        if python is None:
            hint = "activate one, or name its interpreter: --python EXE"
            python = environment(hint, announced=False)
        arguments.python = inplace.installable_python(python)
        target = inplace.InplaceTarget(arguments.python)
        check_names(texts)
        request, options, host = read_request(arguments, lambda: read_host(arguments))
        installation = target.plan(
            request,
            host,
            options,
            subject=", ".join(dict.fromkeys(texts)) or "it",
            upgrade=arguments.upgrade,
            eager=arguments.upgrade_strategy == "eager",
        )
        plan, steps, prefix = installation.plan, installation.steps, installation.prefix
        print_report(render.step_lines(plan, steps, dry=arguments.dry_run))
        if arguments.dry_run:
            print_json(render.pip_json(prefix, plan, steps, None, dry=True))
            return 0
        exit_on_signals()
        checks: Sequence[Check] = ()

        def prove(python: str) -> bool:
            nonlocal checks
            checks = api.verify(
                None,
                python,
                plan.host,
                device=bool(plan.host.gpus or plan.choices) and not is_described(arguments),
                timeout=arguments.timeout,
                shown_as=prefix,
            )
            return render_checks.ok(checks)

        failure = None
        try:
            inplace.install_inplace(
                installation,
                installer=arguments.installer,
                prove=None if arguments.no_verify else prove,
                progress=print_step,
                builds=options,
            )
        except NotVerifiedError as error:
            failure = error
        if arguments.json:
            made = None if arguments.no_verify else checks
            print_json(render.pip_json(prefix, plan, steps, made, dry=False))
        elif not arguments.no_verify:
            print_checks(arguments, checks, prefix)
        if failure is not None:
            return report_not_verified(failure)
        return 0 if arguments.no_verify or render_checks.ok(checks) else 1


class Pip(Command):
    """`gpuenv pip`, which has one command."""

    HELP, DESCRIPTION, EXAMPLES = Install.HELP, Install.DESCRIPTION, Install.EXAMPLES

    def add_arguments(self, parser: Parser) -> None:
        """Add `gpuenv pip install`."""
        parser.add_commands({"install": Install()})
