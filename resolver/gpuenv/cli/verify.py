"""`gpuenv verify`: the checks of an environment, for people, programs, hooks or bug trackers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from glob import glob
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

from .. import api
from ..atomic_write import write_whole
from ..errors import GpuEnvError, InputError
from ..model import Check, Host, Lock
from ..prefix import find_interpreter, is_conda, prefix_of
from ..render import checks as render_checks
from ..render import plans, redact
from ..render.checks import Format, Outcome, Report
from ..resolve.conda import virtual_packages
from ..serialize import to_plain
from ..verify import probe_tests
from ..version import __version__
from .environments import (
    exit_on_signals,
    on_end_signals,
    print_checks,
)
from .flags import EXISTING_TARGET, OF_PROJECT, TIMEOUT
from .output import print_json, set_json
from .parser import Argument, Command, Group, output_file, seconds
from .state import PYLOCK, environment

HOOK_TIMEOUT = 60.0  # seconds for all checks
# Seconds beyond the limit in which the child ends its own children and reports what it saw.
GRACE = 1.2
KILLED = 0.3  # seconds to wait for the end of a child that was killed
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
SURVEY_SECONDS = 30.0
# Environment variables that may hold the name of the user or of the host.
_USER_VARIABLES = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER", "NB_USER")
_HOST_VARIABLES = (
    "HOSTNAME",
    "HOST",
    "COMPUTERNAME",
    "SLURMD_NODENAME",
    "SLURM_SUBMIT_HOST",
    "SLURM_LAUNCH_NODE_IPADDR",
)


class Verify(Command):
    """`gpuenv verify`: make the checks of an environment and print them in some form."""

    HELP = "Prove that an environment works on this host"
    DESCRIPTION = (
        "Check the packages, load the libraries, and run convolutions with cuDNN and with "
        "each framework on every GPU. Each check runs in a process of its own. No file is "
        "changed."
    )
    EXAMPLES = (
        ("gpuenv verify --target .venv", "Verify an environment"),
        ("gpuenv verify --no-device --target .venv", "Verify what needs no GPU"),
        ("gpuenv verify --hook --target .venv", "Print one line for an image, a pod or a job"),
    )
    ARGUMENTS = (
        Argument(
            "[LOCK]",
            "The lock of the wheels or of the conda environment (default: the one that gpuenv"
            " recorded in the environment; pylock.toml, if there is none and no environment is"
            " named)."
            " It may be a lock of another tool",
        ),
        Group("", EXISTING_TARGET, Argument("--python EXE", "The environment's interpreter")),
        OF_PROJECT,
        Argument("--framework NAME ...", "Check only this framework. Repeat for several"),
        Argument("--no-device", "Check only what needs no GPU"),
        Argument("--fast", "Compare the sizes of files, not their hashes"),
        Argument(
            "--timeout S",
            "End all checks after S seconds (default: 300, with --hook 60)",
            type=seconds,
        ),
        Argument(
            "--bundle FILE",
            "Write a report for a bug tracker, without names and tokens",
            type=output_file,
        ),
        Argument("--hook", "Print one line, and end within the timeout even if the driver hangs"),
        Argument("--strict", "With --hook: fail if something could not be proved"),
        Argument(
            "--format",
            "Print this format. The formats of monitoring tools end within the timeout, as --hook"
            " does",
            choices=("text", "json", *render_checks.FORMATS),
            default="text",
        ),
    )

    def run(self, arguments: Namespace) -> int:
        """Verify an environment. Return 0 if nothing failed, 1 if something did."""
        _check_format(arguments)
        if arguments.format == "json":
            arguments.json = True
            set_json(True)
        if not (arguments.python or arguments.target):
            is_text = arguments.format == "text" and not (arguments.quiet or arguments.hook)
            hint = "name one: --target DIR or --python EXE"
            arguments.target = environment(hint, announced=is_text)
            is_unnamed = not arguments.lock and os.path.isfile(PYLOCK)
            if is_unnamed and api.recorded_lock(arguments.target) is None:
                arguments.lock = PYLOCK
        if arguments.hook or arguments.format in render_checks.FORMATS:
            make_report = render_checks.FORMATS.get(arguments.format, render_checks.hook)
            report = verify_in_time(arguments, arguments.timeout or HOOK_TIMEOUT, make_report)
            print(report.text, file=sys.stderr if report.is_error else sys.stdout)
            return report.status
        exit_on_signals()
        checks, host = verify_environment(arguments, arguments.timeout or TIMEOUT, lambda _: None)
        if arguments.json:
            print_json(render_checks.verification_json(checks, host))
            return 0 if render_checks.ok(checks) else 1
        return print_checks(arguments, checks, arguments.python or arguments.target)


def _check_format(arguments: Namespace) -> None:
    """Raise InputError if the flags ask for two kinds of output."""
    if arguments.strict and not arguments.hook:
        raise InputError("--strict is for --hook")
    if arguments.hook and arguments.json:
        raise InputError("--hook is one line of text: leave --json out")
    if arguments.format != "text" and (arguments.hook or arguments.json):
        flag = "--hook" if arguments.hook else "--json"
        raise InputError(f"--format {arguments.format}: leave {flag} out")


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
    of_tool = path is not None and api.is_tool_lock(path)
    lock = None
    if not of_tool:
        lock = api.recorded_lock(target) if path is None else api.read_lock(path)
    announce("looking at the GPUs and the driver")
    host = api.detect(conda=is_conda(prefix_of(target)))
    # No device of this host can prove what is meant for another one.
    device = not (arguments.no_device or virtual_packages.gpu_variables(host))
    if of_tool:
        host = api.describe(host, python=find_interpreter(prefix_of(target)))
        lock = api.read_tool_lock(path, host, None, arguments.extra, arguments.group)
    elif arguments.extra or arguments.group:
        raise InputError("--extra and --group are for locks of other tools")
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


# ---- an end in time ------------------------------------------------------------------------------

# A driver may hang inside the kernel, where no signal reaches a process. So a child process
# verifies, and this process only waits for it: at the limit it kills the child and all processes
# that the child started, and waits for none of them any longer.


class _EndSignal(BaseException):
    """A signal asks this process to end. The argument is its number."""


def verify_in_time(arguments: Namespace, timeout: float, make_report: Format) -> Report:
    """Verify in a child process.

    Args:
        arguments: the parsed flags of `gpuenv verify`.
        timeout: seconds for all of it.
        make_report: returns the report of an outcome.
    """
    begin = time.monotonic()
    deadline = begin + timeout + GRACE
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(arguments, begin, timeout, writer, make_report))
    child.start()
    writer.close()

    def raise_end(number: int, _frame: object) -> None:
        raise _EndSignal(number)

    on_end_signals(raise_end)
    step, is_late = "starting", True
    try:
        while reader.poll(max(0.0, deadline - time.monotonic())):
            message = reader.recv()
            if isinstance(message, Report):
                child.join(KILLED)
                return message
            step = message
    except EOFError:  # the child ended
        is_late = False
    except KeyboardInterrupt:
        _kill_tree(child)
        raise
    except _EndSignal as ended:
        _kill_tree(child)
        # End by the signal, so that its sender sees that the signal was obeyed.
        signal.signal(ended.args[0], signal.SIG_DFL)
        os.kill(os.getpid(), ended.args[0])
        raise
    if is_late:
        _kill_tree(child)
        failure = f"time limit: no result in {timeout:g} s"
    else:
        child.join(KILLED)
        code = child.exitcode
        end = f"ended by signal {-code}" if code and code < 0 else f"ended with {code}"
        failure = f"verification: no result, {end}"
    problem = f"{failure}; it was at: {step}"
    return make_report(Outcome(problem=problem, seconds=time.monotonic() - begin))


def _work(
    arguments: Namespace, begin: float, timeout: float, writer: Connection, make_report: Format
) -> NoReturn:
    """Verify in the child. Send the name of each step, and then the report."""
    try:
        os.setsid()  # an interrupt from the terminal must reach the parent only
        # Nothing but the report must reach the user: libraries print, too.
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1) if arguments.debug else (0, 1, 2):
            os.dup2(null, stream)
        remaining = timeout - (time.monotonic() - begin)
        checks, host = verify_environment(arguments, remaining, writer.send)
        outcome = Outcome(
            checks=tuple(checks),
            host=host,
            seconds=time.monotonic() - begin,
            device=not arguments.no_device,
            strict=arguments.strict,
        )
        writer.send(make_report(outcome))
    except BaseException as error:
        if arguments.debug:
            traceback.print_exc()
        problem = f"internal error: {type(error).__name__}: {error} (--debug shows where)"
        status = INTERNAL_ERROR
        if isinstance(error, GpuEnvError):
            hint = f"; {error.hint}" if error.hint else ""
            problem, status = f"{error.message}{hint}", error.exit_status
        if isinstance(error, Exception):
            writer.send(make_report(Outcome(problem=problem, error_status=status)))
        os._exit(INTERNAL_ERROR)
    os._exit(0)


def _kill_tree(child: BaseProcess) -> None:
    """Kill the child and all processes that it started, each of which has its own process group."""
    root = child.pid or 0
    _kill(root, signal.SIGSTOP)  # it must start no more of them meanwhile
    children: dict[int, list[int]] = {}
    for path in glob("/proc/[0-9]*/stat"):
        with suppress(OSError), open(path, "rb") as file:
            parent = int(file.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.split("/")[2]))
    started = children.get(root, [])
    for number in started:  # grows on the way
        started += children.get(number, [])
    for number in started:
        _kill(-number, signal.SIGKILL)
        _kill(number, signal.SIGKILL)
    _kill(root, signal.SIGKILL)
    child.join(KILLED)


def _kill(number: int, sign: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(number, sign)


# ---- a report for a bug tracker ------------------------------------------------------------------


def write_bundle(
    path: str, checks: Sequence[Check], host: Host, target: str, lock: Lock | None
) -> None:
    """Write the report, and replace what is at the path. InputError if it cannot be written."""
    packages: Mapping[str, str] = {}
    with suppress(GpuEnvError):
        packages = probe_tests.survey(target, SURVEY_SECONDS).versions
    variables = redact.variables(os.environ)
    package_lines = [f"{name} {version}" for name, version in packages.items()]
    data: dict[str, Any] = {
        "gpuenv": __version__,
        "data": api.data_version(),
        "python": sys.version.split()[0],
        "target": target,
        "host": host,
        **render_checks.checks_json(checks),
        "lock": None,
        "packages": package_lines,
        "variables": variables,
    }
    if lock is not None:
        data["lock"] = {
            "frameworks": lock.frameworks,
            "choices": lock.choices,
            "needs": lock.needs,
            "data": lock.data,
            "pins": [f"{name} {version}" for name, version in lock.versions.items()],
        }
    verdict = "verified" if render_checks.ok(checks) else "NOT verified"
    sections = [
        ("Checks", render_checks.check_lines(checks)),
        ("Host", plans.host_lines(host)),
        ("Variables", [f"{name}={value}" for name, value in variables.items()]),
        ("Packages", package_lines),
    ]
    names = _private_names(packages, lock)
    text = redact.report(f"gpuenv {__version__}: {verdict}", sections, to_plain(data), names)
    try:
        write_whole(path, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise InputError(f"--bundle {path}: cannot be written: {error.strerror}") from None


def _private_names(packages: Mapping[str, str], lock: Lock | None) -> redact.Names:
    """Find the names of this user and of this host, which the report must not have.

    No network is used.

    Args:
        packages: the versions of the installed packages. An account that is called like a package
            keeps its name: otherwise the package would vanish from every check.
        lock: the lock; its versions are not taken for addresses.
    """
    users = {os.environ.get(name, "") for name in _USER_VARIABLES}
    homes = {os.path.expanduser("~")}
    try:
        import pwd  # POSIX

        account = pwd.getpwuid(os.getuid())
        full = account.pw_gecos.partition(",")[0].strip()  # whole and in its parts
        users |= {account.pw_name, full, *(word for word in full.split() if len(word) > 2)}
        homes.add(account.pw_dir)
    except (ImportError, KeyError):
        pass
    homes |= {os.path.realpath(home) for home in homes if home}
    hosts = {os.environ.get(name, "") for name in _HOST_VARIABLES}
    if hasattr(os, "uname"):
        hosts.add(os.uname().nodename)
    for name in tuple(hosts):  # whole, without the domain, and the domain alone
        host, dot, domain = name.partition(".")
        if dot:
            hosts |= {host, domain}
    versions = {*packages.values()}
    if lock is not None:
        versions |= {*lock.versions.values()}

    def usable(names: Iterable[str]) -> tuple[str, ...]:
        # One character would be removed everywhere.
        return tuple(sorted(name for name in names if len(name) > 1))

    return redact.Names(
        users=usable(users - packages.keys()),
        hosts=usable(hosts),
        homes=usable(homes),
        versions=frozenset(versions),
    )
