"""`gpuenv init`: write a first [tool.gpuenv] into pyproject.toml, or add profiles to it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from .. import api
from ..errors import InputError
from ..model import Host
from ..render import locks as render
from .host_args import add_host_flags, read_host_flags, used_flags
from .output import print_json, print_report
from .parser import Parser, add_common_flags

HELP = "Write a first [tool.gpuenv] into pyproject.toml"
DESCRIPTION = (
    "Write the frameworks of the project and a profile for each host into pyproject.toml. "
    "If the table exists, add profiles to it. Nothing else in the file changes."
)
EXAMPLES = (
    ("gpuenv init", "Make a profile of this host"),
    ("gpuenv init --framework torch --gpu H100 --driver 580.65.06", "Make one of another host"),
)


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv init`."""
    parser.add_argument(
        "host_files",
        metavar="HOST.json",
        nargs="*",
        help="Make a profile of each of these hosts, which `gpuenv detect -o` wrote"
        " (default: this host, or the one of the flags)",
    )
    add_project_flag(parser)
    parser.add_argument(
        "--name", metavar="NAME", default="", help="The name of the profile (default: by its GPUs)"
    )
    parser.add_argument(
        "--framework",
        metavar="NAME[SPEC]",
        action="append",
        default=[],
        help="Use this framework instead of those found in the project. Repeat for several",
    )
    parser.add_argument(
        "--no-ci",
        action="store_true",
        help="Write no profile without a GPU, which CI would use",
    )
    add_host_flags(parser)
    add_common_flags(parser)


def add_project_flag(parser: ArgumentParser) -> None:
    """Add the flag that names the folder of a project."""
    parser.add_argument(
        "--project",
        metavar="DIR",
        default="",
        help="The folder of pyproject.toml (default: the working folder)",
    )


def run(arguments: Namespace) -> int:
    """Write the table or the profiles, and print what was written."""
    if _asks(arguments):
        _ask(arguments)
    hosts = _hosts(arguments)
    begun = api.begin_project(
        arguments.project,
        hosts,
        arguments.framework,
        name=arguments.name,
        ci=not arguments.no_ci,
    )
    if arguments.json:
        print_json(
            {
                "path": begun.path,
                "frameworks": list(begun.frameworks),
                "profiles": list(begun.profiles),
                "covered": list(begun.covered),
                "python": begun.python,
            }
        )
    else:
        print_report(render.beginning_lines(begun, hosts))
    return 0


# ---- questions -----------------------------------------------------------------------------------


def _asks(arguments: Namespace) -> bool:
    """Return whether to ask: on a terminal, if no flag says what to write."""
    flag_values = (
        arguments.host_files,
        used_flags(arguments),
        arguments.framework,
        arguments.name,
        arguments.no_ci,
        arguments.json,
        arguments.quiet,
    )
    return sys.stdin.isatty() and sys.stdout.isatty() and not any(flag_values)


def _ask(arguments: Namespace) -> None:
    """Ask for what flags would say, with what was found as the default answers."""
    host = read_host_flags(arguments, need_gpu=False)
    names = ", ".join(gpu.name for gpu in host.gpus)
    gpus = _answer("GPUs to lock for, such as H100 or H100, A100", names or "none")
    if gpus != names:
        arguments.gpu = [gpus]
    if gpus != "none":
        arguments.driver = _answer("Oldest driver release of these hosts", host.driver or "")
    if api.has_profiles(arguments.project):
        return
    default_frameworks = _found_frameworks(arguments, host)
    frameworks = _answer("Frameworks", ", ".join(default_frameworks))
    arguments.framework = [text.strip() for text in frameworks.split(",") if text.strip()]
    if gpus != "none":
        answer = _answer("A profile without a GPU, for CI (yes or no)", "yes")
        arguments.no_ci = answer.lower() in ("n", "no")


def _found_frameworks(arguments: Namespace, host: Host) -> Sequence[str]:
    try:
        return api.begin_project(arguments.project, [host], write=False).frameworks
    except InputError:
        return ()


def _answer(question: str, default: str) -> str:
    """Return the answer to a question. InputError without one."""
    shown = f" [{default}]" if default else ""
    try:
        text = input(f"{question}{shown}: ").strip()
    except EOFError:
        text = ""
    if not text and not default:
        raise InputError(f"{question}: no answer", hint="gpuenv init --help shows the flags")
    return text or default


# ---- hosts ---------------------------------------------------------------------------------------


def _hosts(arguments: Namespace) -> list[Host]:
    """Return the hosts of the files, or the one of the flags."""
    if not arguments.host_files:
        return [read_host_flags(arguments, need_gpu=False)]
    flags = used_flags(arguments)
    if flags:
        message = f"{flags[0]}: a host file describes its host alone"
        raise InputError(message, hint="give host files or host flags")
    return [api.read_host(path) for path in arguments.host_files]
