"""`gpuenv doctor`: what is wrong, by a log and by what is seen on the host; without a log a check of all of it.

Exit status: 0 no fault was found; 1 one was found, whether or not its cause is settled; 2 bad usage or input.
"""

from __future__ import annotations

import os
import stat
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from ..errors import InputError
from ..loader_env import active_environment, interpreter
from .host_args import host_flags, host_of
from .output import print_json, print_lines
from .verify import end_by_exit, seconds

PATIENCE = 1.0  # s without a word on a pipe after which it is said that one is read


def doctor_flags(parser: ArgumentParser) -> None:
    """Flags of `gpuenv doctor`."""
    parser.add_argument("log", metavar="LOG", nargs="?", help="what the program printed: a file, or - for a pipe")
    parser.add_argument("--target", metavar="DIR", help="the environment (default: the active one, else ./.venv)")
    parser.add_argument("--probe", action="store_true", help="make the tests that tell, each in a process of its own")
    parser.add_argument("--timeout", metavar="S", type=seconds, default=300.0, help="of all checks (default: 300)")
    host_flags(parser)


def doctor(arguments: Namespace) -> int:
    """0 if no fault was found, 1 if one was."""
    from .. import api
    from .. import doctor as stage
    from ..render import doctor as explanation

    target = _target(arguments)
    described = bool(arguments.gpu or arguments.host or arguments.driver)
    if arguments.probe and described:
        raise InputError("--probe makes tests on this machine: leave --gpu, --driver and --host out")
    with _opened(arguments.log) as log:
        if target is not None:
            arguments.python = interpreter(target)
        host = host_of(arguments, solving=False)
        end_by_exit()
        found = api.examine(
            log,
            host,
            target=target,
            described=described,
            probe=arguments.probe,
            timeout=arguments.timeout,
            flags=_host_words(arguments),
        )
    causes = stage.causes()
    if arguments.json:
        print_json(explanation.doctor_json(found, causes))
    else:
        name = "" if log is None else "the log" if arguments.log in (None, "-") else str(arguments.log)
        print_lines(explanation.doctor_lines(found, causes, stage.TESTS, name))
    return 0 if explanation.well(found) else 1


def _target(arguments: Namespace) -> str | None:
    """The environment: that of --target, the interpreter of --python, or the active one; None if there is none."""
    if arguments.target is not None:
        if not os.path.exists(arguments.target):
            raise InputError(f"--target {arguments.target}: does not exist")
        return str(arguments.target)
    python = arguments.python
    if python is not None and (os.sep in python or os.path.isfile(python)):
        if not os.access(python, os.X_OK) or os.path.isdir(python):
            raise InputError(f"--python {python}: is no interpreter", hint="for a folder: --target DIR")
        return str(python)
    return active_environment(os.environ)


def _host_words(arguments: Namespace) -> tuple[str, ...]:
    """The flags that describe the host, as they are repeated in a proposed command."""
    words = [word for gpu in arguments.gpu for word in ("--gpu", gpu)]
    for name in ("host", "driver", "platform", "glibc"):
        value = getattr(arguments, name)
        words += [f"--{name}", value] if value else []
    return tuple(words)


# ---- the log ------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(name: str | None) -> Iterator[BinaryIO | None]:
    """The log as bytes; None if there is none. InputError for what cannot be read."""
    if name is None or name == "-":
        stream = _standard_input(asked=name == "-")
        yield stream
        return
    if os.path.isdir(name):
        raise InputError(f"{name}: is a folder, not a log")
    try:
        file = open(name, "rb")  # noqa: SIM115  closed below
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from None
    with file:
        yield file


def _standard_input(*, asked: bool) -> BinaryIO | None:
    """What is piped in; without "-" only a pipe or a file that has something in it counts as a log."""
    import io

    if sys.stdin is None:
        if asked:
            raise InputError("-: there is no standard input")
        return None
    stream = sys.stdin.buffer
    if asked:
        return stream
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return None
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return None
    _say_if_silent(stream)
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)  # type: ignore[type-var]
    return buffered if buffered.peek(1) else None


def _say_if_silent(stream: BinaryIO) -> None:
    import select

    if not select.select([stream], [], [], PATIENCE)[0]:
        print("gpuenv: waiting for a log on standard input", file=sys.stderr)
