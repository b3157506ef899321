"""The command line: flags in, one exit status out; this package is the only place that prints.

Exit status: 0 done; 1 a check failed or a lock does not fit; 2 bad usage or input; 3 no solution; 4 the network, an
index or an installer failed; 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import sys

import gpuenv

from ..errors import GpuEnvError, InputError
from ..model import Host
from ..plain import to_plain
from .glance import Flags
from .output import print_json, print_lines

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    # name -> (what it does, adds its flags, runs it)
    Commands = Mapping[str, tuple[str, Callable[[ArgumentParser], None], Callable[[Namespace], int] | None]]

INTERRUPTED = 130
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h: a bug of ours, none of the contract's cases


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status; no traceback without --debug."""
    gc.disable()  # a command lives for milliseconds: collecting costs a twentieth of a solve and frees nothing
    arguments = _parser(sys.argv[1:] if argv is None else argv)
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
    from .. import explanation

    if getattr(arguments, "json", False):
        print_json(explanation.error_json(error))
    print("\n".join(explanation.error_lines(error)), file=sys.stderr)
    return error.exit_status


# ---- flags --------------------------------------------------------------------------------------------------------


def _parser(argv: Sequence[str]) -> Namespace:
    _, flags, run = _COMMANDS.get(argv[0], ("", None, None)) if argv else ("", None, None)
    if flags is not None and run is not None:
        simple: Any = Flags()
        _fill(simple, flags, run)
        found: Any = simple.parsed(argv[1:])
        if found is not None:
            found.left, found.argv, found.command = [], list(argv), []
            return found  # type: ignore[no-any-return]
    return _parsed(argv)


def _parsed(argv: Sequence[str]) -> Namespace:
    from .parsing import Parser

    parser = Parser(prog="gpuenv", description="GPU environments that are known to work.")
    parser.add_argument("--version", action="version", version=f"gpuenv {gpuenv.__version__}")
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


def host_flags(parser: ArgumentParser) -> None:
    """The flags of `host_of`."""
    group = parser.add_argument_group("host (what is left out is detected)")
    group.add_argument("--host", metavar="FILE", help="a host that `gpuenv detect -o FILE` wrote")
    group.add_argument("--gpu", metavar="GPU", action="append", default=[], help="H100, sm_90, 9.0 or none; may repeat")
    group.add_argument("--driver", metavar="RELEASE", help="driver release, such as 580.65.06")
    group.add_argument("--python", metavar="X.Y|EXE", help="target interpreter: a version, or the path of one")
    group.add_argument("--platform", metavar="NAME", help="linux-x86_64, linux-aarch64 or win-amd64")
    group.add_argument("--glibc", metavar="X.Y", help="glibc of the target, such as 2.28")


def _detect_flags(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help="write the host to a file for --host")
    host_flags(parser)


# ---- commands -----------------------------------------------------------------------------------------------------


def _detect(arguments: Namespace) -> int:
    from .. import detection, explanation

    host = host_of(arguments, solving=False)
    if arguments.output:
        detection.write_host(host, arguments.output)
    if arguments.json:
        print_json(to_plain(host))
    else:
        print_lines(explanation.host_lines(host))
        if arguments.output:
            print_lines([f"wrote {arguments.output}"])
    return 0


# ---- what commands share ------------------------------------------------------------------------------------------


def host_of(arguments: Namespace, *, solving: bool, python: bool = True) -> Host:
    """The host of the flags; what they leave out is detected."""
    wanted = arguments.python if python else None
    base = gpuenv.read_host(arguments.host) if arguments.host else None
    if base is None and not arguments.gpu:
        base = gpuenv.detect(python=wanted)
        wanted = None
    host = gpuenv.describe(
        base,
        gpus=arguments.gpu,
        driver=arguments.driver,
        python=wanted,
        platform=arguments.platform,
        glibc=arguments.glibc,
    )
    if solving and not host.gpus and host.problems:
        first = host.problems[0]
        raise InputError(
            f"no usable GPU on this host ({first.code}: {first.detail})",
            hint="describe the host: --gpu H100 --driver 580.65.06, --host FILE, or --gpu none for the CPU",
        )
    return host


def _say(line: str) -> None:
    print_lines([line])


def note(arguments: Namespace) -> Callable[[str], None]:
    """Where progress goes: under --json not to stdout."""
    return (lambda line: print(line, file=sys.stderr)) if arguments.json else _say


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
        "write a first [tool.gpuenv] into pyproject.toml", _late("project", "init_flags"), _late("project", "init")
    ),
    "lock": (
        "lock the profiles of pyproject.toml, or check their locks", _late("project", "lock_flags"),
        _late("project", "lock"),
    ),
    "detect": ("what this host is: GPUs, driver, platform", _detect_flags, _detect),
    "solve": (
        "choose an environment for this host and lock it", _late("solving", "solve_flags"), _late("solving", "solve")
    ),
    "install": (
        "solve, sync and verify in one step", _late("solving", "install_flags"), _late("solving", "install")
    ),
    "sync": (
        "install a lock into an environment, and verify it", _late("solving", "sync_flags"), _late("solving", "sync")
    ),
    "verify": (
        "prove that an environment works on this host", _late("verifying", "verify_flags"),
        _late("verifying", "verify"),
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
