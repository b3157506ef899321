"""`gpuenv doctor`: diagnose an error log or this host, and suggest a fix.

Exit status: 0 no fault was found; 1 a fault was found, with or without its cause; 2 bad usage or
input.
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from argparse import Namespace
from contextlib import ExitStack
from typing import Any, BinaryIO

from .. import api
from ..errors import GpuEnvError, InputError
from ..model import Host
from ..prefix import active_environment, interpreter_of, is_conda, is_venv, prefix_of
from ..render import doctor as render
from ..render.refusals import lock_json, lock_lines
from ..resolve.conda import virtual_packages
from .environments import exit_on_signals
from .flags import EXISTING_TARGET, HOST, TIMED
from .output import print_result
from .parser import Argument, Command, Group
from .requests import is_about_conda, is_described, read_host

LOCK_ENDINGS = (".lock", ".toml", ".yml", ".yaml")
# What an environment has even if its interpreter is lost, which is evidence then.
_PARTS = frozenset({"bin", "lib", "Scripts", "Lib", "conda-meta", "pyvenv.cfg"})
SILENCE = 1.0  # seconds without input on a pipe, after which a message says that it is read


class Doctor(Command):
    """`gpuenv doctor`: diagnose an error log or this host, and suggest a fix."""

    HELP = "Diagnose an error log or this host, and suggest a fix"
    DESCRIPTION = (
        "Find the cause of a failure in what a program printed, in the environment and on the "
        "host. Without a log, check the host and the environment."
    )
    EXAMPLES = (
        ("gpuenv doctor train.log", "Diagnose a log"),
        ("python train.py 2>&1 | gpuenv doctor -", "Diagnose what a program prints"),
        ("gpuenv doctor --target .venv", "Check an environment and the host"),
    )
    ARGUMENTS = (
        Argument(
            "[LOG]",
            "What the program printed: a file, or - for standard input; or a lock of any tool",
        ),
        EXISTING_TARGET,
        Group(
            "",
            Argument(
                "--here",
                "The log is from this machine: use the machine as evidence",
                dest="origin",
                action="store_const",
                const="here",
                default="",
            ),
            Argument(
                "--elsewhere",
                "The log is from another machine: do not use this one as evidence",
                dest="origin",
                action="store_const",
                const="elsewhere",
            ),
        ),
        Argument("--probe", "Run tests that tell causes apart, each in its own process"),
        Argument("--timeout S", "End all checks after S seconds (default: 300)", **TIMED),
        HOST,
    )

    def run(self, arguments: Namespace) -> int:
        """Diagnose and print the verdicts. Return 0 if no fault was found, 1 if one was."""
        target = _environment(arguments)
        described = is_described(arguments) or bool(arguments.driver)
        uses = _use_of_machine(arguments)
        if uses and described:
            raise InputError(f"{uses}: leave --gpu, --driver and --host out")
        name = arguments.log or ""
        if name.endswith(LOCK_ENDINGS) and (api.is_tool_lock(name) or api.is_conda_lock(name)):
            host = read_host(arguments, conda=is_about_conda(name))
            report = api.explain_lock(name, host)
            lines = lock_lines(report, with_changes=True)
            return print_result(lock_json(report), lines, ok=report.works)
        with ExitStack() as stack:
            log = _open_log(arguments.log, stack)
            if arguments.origin and log is None:
                raise InputError(f"--{arguments.origin} says where a log is from: name the log")
            host = _host(arguments, target)
            variables = virtual_packages.gpu_variables(host)
            if uses and variables:
                raise InputError(f"{uses}, and {variables} describes another")
            exit_on_signals()
            examination = api.examine(
                log,
                host,
                target=target,
                target_is_named=target in (arguments.target, arguments.python),
                described=described or bool(variables),
                stated_origin=arguments.origin,
                probe=arguments.probe,
                timeout=arguments.timeout,
                flags=_flags_of_host(arguments),
            )
        name = ""
        if log is not None:
            name = "the log" if arguments.log in (None, "-") else arguments.log
        lines = render.doctor_lines(examination, name, verbose=arguments.verbose > 0)
        document, is_well = render.doctor_json(examination), render.well(examination)
        return print_result(document, lines, ok=is_well)


def _use_of_machine(arguments: Namespace) -> str:
    """Return which flag uses this machine, and how, or ""."""
    if arguments.probe:
        if arguments.origin == "elsewhere":
            raise InputError("--probe makes tests on this machine: leave --elsewhere out")
        return "--probe makes tests on this machine"
    return "--here uses this machine" if arguments.origin == "here" else ""


def _flags_of_host(arguments: Namespace) -> list[str]:
    """Return the flags that describe the host, for the command that is proposed."""
    flags = [word for gpu in arguments.gpu for word in ("--gpu", gpu)]
    for flag in ("host", "driver", "platform", "glibc"):
        if getattr(arguments, flag):
            flags += [f"--{flag}", getattr(arguments, flag)]
    return flags


def _host(arguments: Namespace, target: str | None) -> Host:
    """Return the host. An environment whose Python does not answer is evidence, no bad input."""
    named, conda = arguments.python, target is not None and is_conda(prefix_of(target))
    if target is not None:
        try:
            arguments.python = interpreter_of(target)
            return read_host(arguments, conda=conda)
        except GpuEnvError:
            arguments.python = None if named == target else named
    return read_host(arguments, conda=conda)


def _environment(arguments: Namespace) -> str | None:
    """Return the environment: of --target, of --python, or the active one, if any."""
    target: str | None = arguments.target
    python: str | None = arguments.python
    if target is not None:
        if not os.path.exists(target):
            hint = "name the folder of an environment, or leave it out"
            raise InputError(f"--target {target}: does not exist", hint=hint)
        if os.path.isdir(target) and not _PARTS.intersection(os.listdir(target)):
            interpreter_of(target)  # InputError: it never was an environment
        return target
    if python is not None and (os.sep in python or os.path.isfile(python)):
        if not os.access(python, os.X_OK) or os.path.isdir(python):
            prefix = prefix_of(python)
            if is_venv(prefix) or is_conda(prefix):
                arguments.target, arguments.python = prefix, None  # it has lost its interpreter
                return prefix
            hint = "for a folder: --target DIR"
            raise InputError(f"--python {python}: is no interpreter", hint=hint)
        return python
    return active_environment()


# ---- the log -------------------------------------------------------------------------------------


def _open_log(name: str | None, stack: ExitStack) -> BinaryIO | None:
    """Open the log as bytes; None if there is none. InputError if it cannot be read."""
    if name is None:
        return _piped_log()
    if name == "-":
        if sys.stdin is None:
            raise InputError("-: there is no standard input")
        log = _buffered(sys.stdin.buffer)
    elif os.path.isdir(name):
        raise InputError(f"{name}: is a folder, not a log")
    else:
        try:
            log = stack.enter_context(open(name, "rb"))  # noqa: SIM115  the stack closes it
        except OSError as error:
            hint = "give the path of a log, or - for standard input"
            raise InputError(f"{name}: cannot be read: {error.strerror}", hint=hint) from None
    if not log.peek(1):  # the answer is then that it shows no fault
        hint = "errors go to standard error: PROGRAM 2>&1 | gpuenv doctor -"
        print(f"gpuenv: {name}: the log is empty; {hint}", file=sys.stderr)
    return log


def _piped_log() -> io.BufferedReader | None:
    """Return standard input if it is a pipe or a file with content; otherwise there is no log."""
    if sys.stdin is None:
        return None
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return None
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return None
    stream = _buffered(sys.stdin.buffer)
    if not select.select([stream], [], [], SILENCE)[0]:
        print("gpuenv: waiting for a log on standard input", file=sys.stderr)
    return stream if stream.peek(1) else None


def _buffered(stream: Any) -> io.BufferedReader:
    """Return the stream with a buffer, whose first bytes can be seen before they are read."""
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)
