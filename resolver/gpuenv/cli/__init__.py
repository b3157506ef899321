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
from ..model import Host, Lock, Plan
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
FORMATS = ("pylock", "requirements", "conda-explicit", "conda-lock")


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


def _request_flags(parser: ArgumentParser) -> None:
    from .asking import request_flags

    request_flags(parser)


def _solve_flags(parser: ArgumentParser) -> None:
    _request_flags(parser)
    parser.add_argument("--format", choices=FORMATS, default="pylock", help="requirements go to stdout without -o")
    conda = "conda; auto is conda where a conda environment is active"
    parser.add_argument("--backend", choices=("pip", "conda", "auto"), help=f"pip (default) or {conda}")
    parser.add_argument("--channel", metavar="URL", action="append", default=[], help="conda: its name, URL or folder")
    host_flags(parser)


def _install_flags(parser: ArgumentParser) -> None:
    _request_flags(parser)
    host_flags(parser)
    _sync_flags_only(parser)


def _sync_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "lock", metavar="LOCK", nargs="?", help="default: that of the fitting profile of pyproject.toml, or pylock.toml"
    )
    host_flags(parser)
    _sync_flags_only(parser)


def _sync_flags_only(parser: ArgumentParser) -> None:
    from .verifying import seconds

    parser.add_argument("--target", metavar="DIR", required=True, help="the environment: a new or an existing one")
    parser.add_argument("--installer", choices=("auto", "uv", "pip"), default="auto")
    parser.add_argument("--no-verify", action="store_true")
    parser.add_argument("--timeout", metavar="S", type=seconds, default=300.0, help="of the verification")


def _verify_flags(parser: ArgumentParser) -> None:
    from .verifying import verify_flags

    verify_flags(parser)


def _detect_flags(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help="write the host to a file for --host")
    host_flags(parser)


def _init_flags(parser: ArgumentParser) -> None:
    from .project import init_flags

    init_flags(parser)


def _lock_flags(parser: ArgumentParser) -> None:
    from .project import lock_flags

    lock_flags(parser)


def _explain_flags(parser: ArgumentParser) -> None:
    from .asking import request_flags

    request_flags(parser, output=False)
    host_flags(parser)


def _pip_flags(parser: ArgumentParser) -> None:
    from .pip import COMMANDS

    _add_commands(parser, COMMANDS)


def _run_flags(parser: ArgumentParser) -> None:
    from .run import run_flags

    run_flags(parser)


def _doctor_flags(parser: ArgumentParser) -> None:
    from .doctor import doctor_flags

    doctor_flags(parser)


def _matrix_flags(parser: ArgumentParser) -> None:
    from .matrix import COMMANDS

    _add_commands(parser, COMMANDS)


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


def _solve(arguments: Namespace) -> int:
    from .. import explanation, lockfile

    if arguments.backend is not None or arguments.format.startswith("conda"):
        from . import conda

        if conda.is_wanted(arguments):
            return conda.solve(arguments)
    path = _lock_path(arguments)
    plan = _planned(arguments)
    lock = gpuenv.lock(plan)
    text = lockfile.dumps(lock) if arguments.format == "pylock" else lockfile.requirements_text(lock)
    if path is not None:
        lockfile.write(path, text)
    if arguments.json:
        print_json(explanation.plan_json(plan, path))
    elif path is None:
        sys.stdout.write(text)
    else:
        lines = explanation.plan_lines(plan, path)
        print_lines(lines)
        sys.stdout.flush()
        from ..memo import remember

        remember(arguments.argv, "\n".join(lines) + "\n", path, text)
    return 0


def _install(arguments: Namespace) -> int:
    from .. import explanation, lockfile
    from ..backends import wheels

    arguments.format = "pylock"
    path = _lock_path(arguments)
    plan = _planned(arguments)
    lock = gpuenv.lock(plan)
    # A target that cannot be used is bad input: not even the lock is written then.
    wheels.check(lock, arguments.target, installer=arguments.installer, python=arguments.python)
    lockfile.write(path or "pylock.toml", lockfile.dumps(lock))
    if not arguments.json:
        print_lines(explanation.plan_lines(plan, path or "pylock.toml"))
    return _sync_and_verify(arguments, lock, plan)


def _init(arguments: Namespace) -> int:
    from .project import init

    return init(arguments)


def _lock(arguments: Namespace) -> int:
    from .project import lock

    return lock(arguments)


def _explain(arguments: Namespace) -> int:
    from .explain import explain

    return explain(arguments)


def _run(arguments: Namespace) -> int:
    from .run import run

    return run(arguments)


def _doctor(arguments: Namespace) -> int:
    from .doctor import doctor

    return doctor(arguments)


def _sync(arguments: Namespace) -> int:
    if arguments.lock is None:
        from .project import fitting_lock, has_profiles

        if has_profiles(""):
            host = host_of(arguments, solving=False, python=False)
            arguments.lock, lock, said = fitting_lock("", host)
            note(arguments)("\n".join(said))
            return _sync_and_verify(arguments, lock, None, host)
    elif not arguments.lock.endswith(".toml"):
        from . import conda

        if conda.is_lock(arguments.lock):
            return conda.sync(arguments)
    return _sync_and_verify(arguments, gpuenv.read_lock(arguments.lock or "pylock.toml"), None)


def _sync_and_verify(arguments: Namespace, lock: Lock, plan: Plan | None, host: Host | None = None) -> int:
    from .verifying import end_by_exit, show

    described = bool(arguments.gpu or arguments.host)
    if host is None:
        host = plan.host if plan is not None else host_of(arguments, solving=False, python=False)
    if plan is None and lock.needs.python is not None and arguments.python is None:
        # The target's interpreter is the lock's: what starts gpuenv says nothing about it.
        host = host.replace(python=lock.host.python)
    try:
        python = gpuenv.sync(
            lock,
            arguments.target,
            host=host,
            python=arguments.python,
            installer=arguments.installer,
            progress=note(arguments),
        )
    except gpuenv.HostMismatchError as error:
        if not described and not host.gpus:
            error.hint = "to install for another host (an image, a login node) name it: --gpu and --driver, or --host"
        raise
    if arguments.no_verify:
        if arguments.json:
            print_json({"target": arguments.target, "packages": len(lock.pins), "verified": False})
        return 0
    # A host that was described is elsewhere: only what needs no device can be proved here.
    end_by_exit()
    return show(arguments, gpuenv.verify(lock, python, host, device=not described, timeout=arguments.timeout))


def _verify(arguments: Namespace) -> int:
    from .verifying import verify

    return verify(arguments)


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


def _planned(arguments: Namespace) -> Plan:
    from .asking import asked

    request, options, host = asked(arguments, lambda: host_of(arguments, solving=True))
    return gpuenv.solve(request, host, options)


def _lock_path(arguments: Namespace) -> str | None:
    """Where the lock goes, checked before anything is solved; None is stdout (requirements without -o)."""
    path: str | None = arguments.output
    if arguments.format == "requirements":
        return path
    path = path or "pylock.toml"
    name = os.path.basename(path)
    middle = name.removeprefix("pylock.").removesuffix(".toml")
    if name != "pylock.toml" and not (name == f"pylock.{middle}.toml" and middle and "." not in middle):
        raise InputError(f"{path}: pip and uv take a lock only as pylock.toml or pylock.NAME.toml")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise InputError(f"{path}: the folder {folder} does not exist", hint="make it, or give another -o")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: the folder {folder} cannot be written", hint="give another -o")
    return path


def _say(line: str) -> None:
    print_lines([line])


def note(arguments: Namespace) -> Callable[[str], None]:
    """Where progress goes: under --json not to stdout."""
    return (lambda line: print(line, file=sys.stderr)) if arguments.json else _say


_COMMANDS: Commands = {
    "init": ("write a first [tool.gpuenv] into pyproject.toml", _init_flags, _init),
    "lock": ("lock the profiles of pyproject.toml, or check their locks", _lock_flags, _lock),
    "detect": ("what this host is: GPUs, driver, platform", _detect_flags, _detect),
    "solve": ("choose an environment for this host and lock it", _solve_flags, _solve),
    "install": ("solve, sync and verify in one step", _install_flags, _install),
    "sync": ("install a lock into an environment, and verify it", _sync_flags, _sync),
    "verify": ("prove that an environment works on this host", _verify_flags, _verify),
    "doctor": ("what is wrong, by a log and by what is seen here, and the one thing to do", _doctor_flags, _doctor),
    "pip": ("pip install, by gpuenv's rules, and verified", _pip_flags, None),
    "run": ("start a command in an environment, nothing standing before its libraries", _run_flags, _run),
    "explain": ("why not here, and what would help; or what a lock says to another host", _explain_flags, _explain),
    "matrix": ("what is known about releases and the GPUs that they run on", _matrix_flags, None),
}
