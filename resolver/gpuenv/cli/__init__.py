"""The command line: flags in, one exit status out; this package is the only place that prints.

Exit status: 0 done; 1 a check failed or a lock does not fit; 2 bad usage or input; 3 no solution; 4 the network, an
index or an installer failed; 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import GpuEnvError
from ..serialize import to_plain
from ..version import __version__
from .host_args import host_flags, host_of
from .output import print_json, print_lines

# name -> (what it does, adds its flags, runs it)
Commands = Mapping[str, tuple[str, Callable[[ArgumentParser], None], Callable[[Namespace], int] | None]]

INTERRUPTED = 130
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h: a bug of ours, none of the contract's cases


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status; no traceback without --debug."""
    gc.disable()  # a command lives for milliseconds: collecting costs a twentieth of a solve and frees nothing
    arguments = _parsed(sys.argv[1:] if argv is None else argv)
    try:
        if arguments.left:
            arguments.leftover(arguments, arguments.left)
        status = arguments.run(arguments)
        sys.stdout.flush()
    except GpuEnvError as error:
        if arguments.debug:
            raise
        return _report(error, arguments)
    except KeyboardInterrupt:
        print("gpuenv: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Who reads our output has left; writing more of it, at exit too, would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if arguments.debug:
            raise
        print(f"gpuenv: internal error: {type(error).__name__}: {error} (--debug shows where)", file=sys.stderr)
        return INTERNAL_ERROR
    return int(status)


def _report(error: GpuEnvError, arguments: Namespace) -> int:
    from ..render import plans

    if getattr(arguments, "json", False):
        print_json(plans.error_json(error))
    print("\n".join(plans.error_lines(error)), file=sys.stderr)
    return error.exit_status


# ---- flags --------------------------------------------------------------------------------------------------------


def _parsed(argv: Sequence[str]) -> Namespace:
    from .parser import Parser

    parser = Parser(prog="gpuenv", description="GPU environments that are known to work.")
    parser.add_argument("--version", action="version", version=f"gpuenv {__version__}")
    _add_commands(parser, _COMMANDS, argv[0] if argv and argv[0] in _COMMANDS else None)
    own, command = list(argv), list[str]()
    if own[:1] == ["run"]:
        from .run import cut

        own, command = cut(own)
    arguments, left = parser.parse_known_args(own)
    arguments.left = left
    if left and not hasattr(arguments, "leftover"):
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    arguments.argv, arguments.command = list(argv), command
    return arguments


def _add_commands(parser: ArgumentParser, table: Commands, asked: str | None = None) -> None:
    """The commands of a table; without `run` a command only holds further ones."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=type(parser))
    for name, (text, flags, run) in table.items():
        if asked not in (None, name):  # the flags of the other commands cost a millisecond
            continue
        command = commands.add_parser(name, help=text, description=text)
        if run is None:
            flags(command)
        else:
            _fill(command, flags, run)


def _fill(
    parser: ArgumentParser, flags: Callable[[ArgumentParser], None], run: Callable[[Namespace], int]
) -> None:
    """The flags of a command, with those that all have."""
    flags(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout and nothing else")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(run=run)


def _detect_flags(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help="write the host to a file for --host")
    host_flags(parser)


# ---- commands -----------------------------------------------------------------------------------------------------


def _detect(arguments: Namespace) -> int:
    from ..detect import host as detection
    from ..render import plans

    host = host_of(arguments, solving=False)
    if arguments.output:
        detection.write_host(host, arguments.output)
    if arguments.json:
        print_json(to_plain(host))
    else:
        print_lines(plans.host_lines(host))
        if arguments.output:
            print_lines([f"wrote {arguments.output}"])
    return 0


# ---- what commands share ------------------------------------------------------------------------------------------


def _late(module: str, name: str) -> Callable[[Any], Any]:
    """A function of a module of this package, which is imported when the function is called."""

    def call(argument: Any) -> Any:
        return getattr(__import__(f"{__name__}.{module}", fromlist=[name]), name)(argument)

    return call


def _parts(module: str) -> Callable[[ArgumentParser], None]:
    """The flags of a command that only holds further ones: COMMANDS of a module."""

    def add(parser: ArgumentParser) -> None:
        _add_commands(parser, __import__(f"{__name__}.{module}", fromlist=["COMMANDS"]).COMMANDS)

    return add


_COMMANDS: Commands = {
    "init": (
        "write a first [tool.gpuenv] into pyproject.toml", _late("lock", "init_flags"), _late("lock", "init")
    ),
    "lock": (
        "lock the profiles of pyproject.toml, or check their locks", _late("lock", "lock_flags"),
        _late("lock", "lock"),
    ),
    "detect": ("what this host is: GPUs, driver, platform", _detect_flags, _detect),
    "solve": (
        "choose an environment for this host and lock it", _late("solve", "solve_flags"), _late("solve", "solve")
    ),
    "install": (
        "solve, sync and verify in one step", _late("solve", "install_flags"), _late("solve", "install")
    ),
    "sync": (
        "install a lock into an environment, and verify it", _late("solve", "sync_flags"), _late("solve", "sync")
    ),
    "verify": (
        "prove that an environment works on this host", _late("verify", "verify_flags"),
        _late("verify", "verify"),
    ),
    "doctor": (
        "what is wrong, by a log and by what is seen here, and the one thing to do", _late("doctor", "doctor_flags"),
        _late("doctor", "doctor"),
    ),
    "pip": ("pip install, by gpuenv's rules, and verified", _parts("pip"), None),
    "run": (
        "start a command in an environment, nothing standing before its libraries", _late("run", "run_flags"),
        _late("run", "run"),
    ),
    "explain": (
        "why not here, and what would help; or what a lock says to another host", _late("explain", "explain_flags"),
        _late("explain", "explain"),
    ),
    "matrix": ("what is known about releases and the GPUs that they run on", _parts("matrix"), None),
}  # fmt: skip
