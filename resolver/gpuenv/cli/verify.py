"""`gpuenv verify`: the checks of an environment, for people, programs, hooks or bug trackers."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Callable, Sequence

from .. import api
from ..errors import InputError
from ..model import Check, Host
from ..prefix import is_conda, prefix_of
from ..render import checks as render_checks
from ..resolve.conda import virtual_packages
from .bundle import write_bundle
from .environments import active_environment, doctor_step, exit_on_signals, print_checks
from .flags import TIMEOUT, add_common_flags, add_existing_target_flag, add_list, add_switch
from .hook import run_hook
from .output import print_json
from .parser import Examples, Parser, seconds
from .requests import require_folder

HELP = "Prove that an environment works on this host"
DESCRIPTION = (
    "Check the packages, load the libraries, and run convolutions with cuDNN and with "
    "each framework on every GPU. Each check runs in a process of its own. No file is "
    "changed."
)
EXAMPLES: Examples = (
    ("gpuenv verify --target .venv", "Verify an environment"),
    ("gpuenv verify --no-device --target .venv", "Verify what needs no GPU"),
    ("gpuenv verify --hook --target .venv", "Print one line for an image, a pod or a job"),
)
HOOK_TIMEOUT = 60.0  # seconds for all checks


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv verify`."""
    parser.add_argument(
        "lock",
        metavar="LOCK",
        nargs="?",
        help="The lock of the wheels or of the conda environment"
        " (default: the one that gpuenv recorded in the environment; pylock.toml, if it exists"
        " and no environment is named)",
    )
    where = parser.add_mutually_exclusive_group()
    add_existing_target_flag(where)
    where.add_argument("--python", metavar="EXE", help="The environment's interpreter")
    add_list(
        parser,
        "--framework",
        metavar="NAME",
        help="Check only this framework. Repeat for several",
    )
    add_switch(parser, "--no-device", help="Check only what needs no GPU")
    add_switch(parser, "--fast", help="Compare the sizes of files, not their hashes")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        help="End all checks after S seconds (default: 300, with --hook 60)",
    )
    parser.add_argument(
        "--bundle",
        metavar="FILE",
        help="Write a report for a bug tracker, without names and tokens",
    )
    add_switch(
        parser,
        "--hook",
        help="Print one line, and end within the timeout even if the driver hangs",
    )
    add_switch(parser, "--strict", help="With --hook: fail if something could not be proved")
    parser.add_argument(
        "--format",
        choices=("text", "json", *render_checks.FORMATS),
        default="text",
        help="Print this format. The formats of monitoring tools end within the timeout, as --hook"
        " does",
    )
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Verify an environment. Return 0 if nothing failed, 1 if something did."""
    if arguments.strict and not arguments.hook:
        raise InputError("--strict is for --hook")
    if arguments.hook and arguments.json:
        raise InputError("--hook is one line of text: leave --json out")
    if arguments.format != "text" and (arguments.hook or arguments.json):
        flag = "--hook" if arguments.hook else "--json"
        raise InputError(f"--format {arguments.format}: leave {flag} out")
    if arguments.format == "json":
        arguments.json = True
    if arguments.bundle:
        if os.path.isdir(arguments.bundle):
            raise InputError(f"--bundle {arguments.bundle}: is a folder")
        require_folder(arguments.bundle, "give another path", flag="--bundle ")
    if arguments.hook or arguments.format in render_checks.FORMATS:
        timeout = arguments.timeout or HOOK_TIMEOUT
        make_report = render_checks.FORMATS.get(arguments.format, render_checks.hook)
        return run_hook(arguments, timeout, verify_environment, make_report)
    exit_on_signals()
    checks, host = verify_environment(arguments, arguments.timeout or TIMEOUT, _ignore)
    if arguments.json:
        print_json(render_checks.verification_json(checks, host))
        return 0 if render_checks.ok(checks) else 1
    target = arguments.python or arguments.target or active_environment("")
    return print_checks(arguments, checks, doctor_step(target))


def verify_environment(
    arguments: Namespace, timeout: float, announce: Callable[[str], None]
) -> tuple[Sequence[Check], Host]:
    """Make the checks that the flags ask for, and write the report of --bundle.

    Args:
        arguments: the parsed flags.
        timeout: seconds for all checks.
        announce: is called with the name of each step before it begins.

    Returns:
        (the checks, the host).
    """
    begin = time.monotonic()
    path, target = arguments.lock, arguments.python or arguments.target
    if target is None:
        if path is None and os.path.isfile("pylock.toml"):
            path = "pylock.toml"
        target = active_environment("name one: --target DIR or --python EXE")
    lock = api.recorded_lock(target) if path is None else api.read_lock(path)
    announce("looking at the GPUs and the driver")
    host, device = api.detect(), not arguments.no_device
    if is_conda(prefix_of(target)):
        described = virtual_packages.overridden(host, os.environ)
        # No device of this host can prove what is meant for another one.
        device = device and described == host
        host = described
    if lock is not None:
        host = api.with_python_of(host, lock)
    announce("the checks")
    checks = api.verify(
        lock,
        target,
        host,
        device=device,
        timeout=max(0.1, timeout - (time.monotonic() - begin)),
        only=tuple(arguments.framework),
        verbose=arguments.verbose > 0,
        fast=arguments.fast,
    )
    if arguments.bundle:
        announce("writing the report")
        write_bundle(arguments.bundle, checks, host, target, lock)
    return checks, host


def _ignore(step: str) -> None:
    """Announce nothing."""
