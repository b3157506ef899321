"""`gpuenv fleet`: detect, solve and verify on many nodes."""

from __future__ import annotations

import asyncio
import os
import shlex
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuenv import InputError, NoSolutionError, parse_release
from gpuenv.commands import (
    REQUEST,
    TIMEOUT,
    Argument,
    Command,
    Group,
    Parser,
    positive_count,
    print_errors,
    print_result,
    read_request,
    require_place,
    seconds,
)

from . import (
    classes,
    collect,
    dask_cluster,
    documents,
    launchers,
    solve,
    text,
    verify,
)
from .documents import Collection, Document

DASK = "dask"
LIMIT = 600.0  # seconds to wait for all nodes
_SHOWN = 8  # nodes that a line of progress names

# Where the documents of the nodes come from.
NODES = Group(
    "Nodes (arguments after -- are for the launcher)",
    Group(
        "",
        Argument(
            "--from DIR|FILE|-",
            "Read documents: a folder of NODE.json, a file of NDJSON, or stdin",
            dest="source",
        ),
        Argument(
            "--launcher",
            "Run gpuenv on the nodes, one process on each",
            choices=[*launchers.LAUNCHERS, DASK],
        ),
        required=True,
    ),
    Argument("--nodes LIST", "The nodes, such as gpu[01-16],gpu20 (default: those of the job)"),
    Argument(
        "--scheduler ADDRESS",
        "With dask: tcp://HOST:PORT, local, or slurm, pbs, lsf by dask-jobqueue's own settings"
        " (default: local)",
    ),
    Argument(
        "--workers N",
        "With dask: start N workers, or wait for N workers of the scheduler (default: 1)",
        type=positive_count,
    ),
    Argument(
        "--command TEXT",
        "The command of gpuenv on the nodes (default: gpuenv)",
        default="gpuenv",
    ),
    Argument(
        "--limit S",
        f"Wait at most S seconds for all nodes (default: {LIMIT:g})",
        type=seconds,
        default=LIMIT,
    ),
    Argument("-o --output DIR", "Write each document to DIR/NODE.json as it comes"),
    Argument("--resume", "Do not ask the nodes again whose documents are in the folder of -o"),
)


class Detect(Command):
    """`gpuenv fleet detect`."""

    HELP = "Describe the nodes, grouped into classes"
    DESCRIPTION = f"{HELP}."
    ARGUMENTS = (NODES,)

    def run(self, arguments: Namespace) -> int:
        """Describe the nodes. Return 1 if a node gave no answer."""
        grouped = _classify(arguments, ["detect", "--json"])
        document = classes.fleet_json("fleet-detect", grouped)
        _print(document, text.detect_lines)
        return 1 if grouped.collection.silent else 0


class Solve(Command):
    """`gpuenv fleet solve`."""

    HELP = "Find the fewest locks that serve all nodes, and what more locks would give"
    DESCRIPTION = f"{HELP}."
    ARGUMENTS = (
        NODES,
        *REQUEST,
        Argument(
            "--what-if DRIVER ...",
            "Say what this driver release would change (default: the floors of CUDA toolkits)",
        ),
        Argument(
            "--write-profiles DIR",
            "Add a profile for each lock to the pyproject.toml of a folder",
        ),
        Argument(
            "--locks N",
            "With --write-profiles: use the plan with N locks (default: the fewest)",
            type=positive_count,
        ),
    )

    def run(self, arguments: Namespace) -> int:
        """Find the locks. Return 1 if a node gave no answer, 3 if there is no lock for one."""
        if arguments.locks is not None and arguments.write_profiles is None:
            raise InputError("--locks: is for --write-profiles")
        if arguments.write_profiles is not None:
            require_place(os.path.join(arguments.write_profiles, "pyproject.toml"))
        for release in arguments.what_if:
            try:
                parse_release(release)
            except ValueError as error:
                raise InputError(f"--what-if: {error}") from None
        grouped = _classify(arguments, ["detect", "--json"])
        if not grouped.classes:
            raise InputError("no node can be assessed", hint="gpuenv fleet detect says why")
        request, options, _ = read_request(arguments, lambda: grouped.classes[0].host)
        solver = solve.Solver(request, options)
        plans, solution = solve.solve_fleet(grouped.classes, solver, arguments.what_if or None)
        document = {**classes.fleet_json("fleet-solve", grouped), **solution}
        if arguments.write_profiles is not None:
            by_count = {len(plan.groups): plan for plan in plans if plan.groups}
            if not by_count:
                raise InputError("--write-profiles: no lock serves any node; nothing was written")
            count = arguments.locks or min(by_count)
            if count not in by_count:
                offered = ", ".join(map(str, by_count))
                problem = f"--locks {count}: the plans have {offered} locks"
                raise InputError(f"{problem}; nothing was written")
            path, names = solve.write_profiles(by_count[count], request, arguments.write_profiles)
            document["profiles"] = {"path": path, "names": list(names)}
        _print(document, text.solve_lines)
        if document["unsolved"]:
            return NoSolutionError.exit_status
        return 1 if grouped.collection.silent else 0


class Verify(Command):
    """`gpuenv fleet verify`."""

    HELP = "Verify the nodes, and name those that differ from their class"
    DESCRIPTION = f"{HELP}."
    ARGUMENTS = (
        NODES,
        Argument("[LOCK]", "The path of the lock on the nodes"),
        Argument("--target DIR", "The environment on the nodes"),
        Argument("--no-device", "Check only what needs no GPU"),
        Argument(
            "--timeout S",
            f"End the checks of a node after S seconds (default: {TIMEOUT:g})",
            type=seconds,
            default=TIMEOUT,
        ),
        Argument(
            "--since DIR|FILE",
            "Say what changed since an earlier run: its documents, as for --from",
        ),
    )

    def run(self, arguments: Namespace) -> int:
        """Verify the nodes. Return 1 if one failed, differs or gave no answer."""
        command = ["verify", "--json", "--timeout", f"{arguments.timeout:g}"]
        if arguments.lock:
            command.append(arguments.lock)
        if arguments.target:
            command += ["--target", arguments.target]
        if arguments.no_device:
            command.append("--no-device")
        earlier = dict(documents.read_documents(arguments.since)) if arguments.since else {}
        grouped = _classify(arguments, command, keep=True)
        document = classes.fleet_json("fleet-verify", grouped)
        document |= verify.verify_fleet(grouped, earlier)
        _print(document, text.verify_lines)
        return 0 if document["ok"] else 1


class Fleet(Command):
    """`gpuenv fleet`."""

    HELP = "Detect, solve and verify on the nodes of a cluster"
    DESCRIPTION = (
        "Run gpuenv on the nodes of a cluster, or read what it printed there. Find the locks that "
        "the nodes need, and the nodes that differ from the others."
    )
    EXAMPLES = (
        ("gpuenv fleet detect --launcher srun --nodes gpu[01-16] -o hosts", "Describe the nodes"),
        ("gpuenv fleet solve --from hosts --framework torch", "Find the fewest locks"),
        ("gpuenv fleet verify --launcher clush --nodes gpu[01-16] --target /opt/env", "Verify"),
    )

    def add_arguments(self, parser: Parser) -> None:
        """Add the commands of `gpuenv fleet`."""
        parser.add_commands({"detect": Detect(), "solve": Solve(), "verify": Verify()})


fleet = Fleet()


def _print(document: Document, lines: Callable[[Document], Sequence[str]]) -> None:
    # A text of a node makes no line of its own.
    print_result(document, [line.replace("\n", "\\n") for line in lines(document)])


# ---- the documents of the nodes ------------------------------------------------------------------


def _classify(
    arguments: Namespace, command: Sequence[str], *, keep: bool = False
) -> classes.Classes:
    """Read or collect the documents of the nodes, and group their hosts.

    Documents of files are read one after another, so that a large fleet does not fill the memory.

    Args:
        arguments: the parsed flags.
        command: the arguments of gpuenv on the nodes.
        keep: whether to keep documents of files.
    """
    for name, value in (("--scheduler", arguments.scheduler), ("--workers", arguments.workers)):
        if value and arguments.launcher != DASK:
            raise InputError(f"{name}: is for --launcher dask")
    if arguments.resume and not arguments.output:
        raise InputError("--resume: needs the folder of the earlier run", hint="name it: -o DIR")
    if not arguments.source:
        return classes.classify(_collect(arguments, command))
    flags = {"--nodes": arguments.nodes, "--output": arguments.output}
    flags["arguments after --"] = arguments.command_line
    for name, value in flags.items():
        if value:
            raise InputError(f"{name}: is for --launcher, and --from starts nothing")
    answers = documents.read_documents(arguments.source)
    grouped = classes.classify(Collection(answers=list(answers) if keep else answers))
    if not (grouped.classes or grouped.unknown):
        raise InputError(f"--from {arguments.source}: has no document of a node")
    return grouped


def _collect(arguments: Namespace, command: Sequence[str]) -> Collection:
    """Run gpuenv with a command on the nodes, and return what they answered."""
    output, earlier = arguments.output, {}
    if output:
        try:
            os.makedirs(output, exist_ok=True)
        except OSError as error:
            raise InputError(f"--output {output}: {error.strerror}") from None
        if not os.access(output, os.W_OK | os.X_OK):
            raise InputError(f"--output {output}: cannot be written")
        if arguments.resume:
            earlier = dict(documents.read_documents(output))

    def keep(node: str, document: Document) -> None:
        if output:
            documents.write_answer(output, node, document)

    last = ""

    def show(answered: int, expected: int, waiting: Sequence[str]) -> None:
        """Print who has not answered, whenever that changes."""
        nonlocal last
        line = f"gpuenv: {answered} of {expected} nodes answered"
        if len(waiting) <= _SHOWN:
            line += f"; waiting for {text.nodes_text(waiting)}"
        if line != last and not arguments.quiet:
            print_errors(line)
        last = line

    command = [*shlex.split(arguments.command), *command]
    if arguments.launcher == DASK:
        collection = dask_cluster.collect_with_dask(
            arguments.scheduler or "local",
            command,
            arguments.limit,
            keep,
            show,
            workers=arguments.workers or 1,
            without=earlier,
        )
    else:
        launch = launchers.plan_launch(
            arguments.launcher, arguments.nodes, command, arguments.command_line, without=earlier
        )
        for name in launch.nodes:
            if name != os.path.basename(name) or name in ("", ".", ".."):
                raise InputError(f"{name!r} is not the name of a node")  # nor of its file
        collection = asyncio.run(collect.collect(launch, arguments.limit, keep, show))
    return replace(collection, answers=sorted({**earlier, **dict(collection.answers)}.items()))
