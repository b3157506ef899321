"""The launchers that clusters have: how each runs one command on many nodes, and labels its output.

A launcher gets the user's own arguments. Every command that it runs is one process of gpuenv on
each node. The label of a line of output names the node, or the rank of the process; a process with
a rank says the name of its node in its first line.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuenv import InputError

from .documents import Silence

# The first line of a process that is labelled by its rank. Slurm's name of a node may differ from
# the name that the node has for itself.
GREETING = "gpuenv-node "
_GREET = f'echo "{GREETING}${{SLURMD_NODENAME:-$(uname -n)}}"; exec "$@"'
_GREETED = ("sh", "-c", _GREET, "sh")  # before a command
_NODE_LABEL = re.compile(r"^(?P<label>[^\s:]+): ?")
# Slurm's states of nodes that start no process; a "*" means that the node does not respond.
_SLURM_UNUSABLE = ("down", "drain", "fail", "unk", "power", "maint", "reboot", "future")
_ASK_LIMIT = 30.0  # seconds for a question to the launcher's own tools
# The options of kubectl that choose the cluster and the user; each has a value.
_CLUSTER_OPTION = re.compile(
    r"-s|--(?:as(?:-group|-uid)?|certificate-authority|client-(?:certificate|key)|cluster|context"
    r"|kubeconfig|password|server|tls-server-name|token|user(?:name)?)"
)
_MOST_NODES = 1_000_000
_ITEM = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"\[([^\[\]]*)\]")
_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process of a launcher. `node` is the node of all its output; "" if lines are labelled."""

    command: tuple[str, ...]
    node: str = ""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What to start, and how to read the output.

    `nodes` are those that are expected to answer. `label` matches the label of a piece of output;
    its group "label" is the node or the rank. `ranked` says which of the two. `silent` are nodes
    on which nothing is started.
    """

    processes: tuple[Process, ...]
    nodes: tuple[str, ...]
    label: re.Pattern[str] | None = None
    ranked: bool = False
    silent: tuple[Silence, ...] = ()


Plan = Callable[[Sequence[str], Sequence[str], Sequence[str]], Launch]


def plan_launch(
    launcher: str,
    nodes: str | None,
    command: Sequence[str],
    arguments: Sequence[str],
    *,
    without: frozenset[str] = frozenset(),
) -> Launch:
    """Return what to start for a launcher.

    Args:
        launcher: the name of a launcher in LAUNCHERS.
        nodes: the list of nodes; None takes those of the job, or of kubectl's arguments.
        command: the command of each node.
        arguments: the user's arguments for the launcher.
        without: nodes that have answered in an earlier run.

    Raises:
        InputError: there is no such launcher here, or no node is named.
    """
    if nodes is None and launcher in ("srun", "mpirun"):
        nodes = os.environ.get("SLURM_JOB_NODELIST")
    if not nodes and launcher != "kubectl":
        hint = "--nodes gpu[01-16], so that one without an answer is known"
        raise InputError("the nodes are not named", hint=hint)
    names = [] if nodes is None else expand_nodes(nodes)
    remaining = [name for name in names if name not in without]
    if names and not remaining:
        return Launch(processes=(), nodes=())
    launch = LAUNCHERS[launcher](remaining, command, arguments)
    # kubectl may have found further nodes.
    processes = [process for process in launch.processes if process.node not in without]
    wanted = [name for name in launch.nodes if name not in without]
    return replace(launch, processes=tuple(processes), nodes=tuple(wanted))


def _srun(nodes: Sequence[str], command: Sequence[str], arguments: Sequence[str]) -> Launch:
    silent = {}
    if "SLURM_JOB_ID" not in os.environ:
        # srun would wait for the nodes that Slurm starts no job on.
        ask = ["sinfo", "--noheader", "--Node", "--format=%N %T", f"--nodes={','.join(nodes)}"]
        for line in _ask(ask).splitlines():
            name, _, state = line.strip().partition(" ")
            if state.endswith("*") or state.lower().startswith(_SLURM_UNUSABLE):
                silent[name] = Silence(node=name, reason=f"Slurm's state of the node is {state}")
    usable = [name for name in nodes if name not in silent]
    if not usable:
        return Launch(processes=(), nodes=tuple(nodes), silent=tuple(silent.values()))
    # A node that fails must not end the processes of the others.
    flags = ["--label", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--ntasks-per-node=1"]
    where = [f"--nodes={len(usable)}", f"--ntasks={len(usable)}", f"--nodelist={','.join(usable)}"]
    full = ("srun", *flags, *where, *arguments, *_GREETED, *command)
    return Launch(
        processes=(Process(command=full),),
        nodes=tuple(nodes),
        label=re.compile(r"^ *(?P<label>\d+): ?"),
        ranked=True,
        silent=tuple(silent.values()),
    )


def _clush(nodes: Sequence[str], command: Sequence[str], arguments: Sequence[str]) -> Launch:
    flags = ("clush", "--nostdin", "--color=never", "-w", ",".join(nodes))
    process = Process(command=(*flags, *arguments, shlex.join(command)))
    return Launch(processes=(process,), nodes=tuple(nodes), label=_NODE_LABEL)


def _pdsh(nodes: Sequence[str], command: Sequence[str], arguments: Sequence[str]) -> Launch:
    # pdsh joins the words for ssh, and passes them as they are with -R exec.
    flags = ("pdsh", "-w", ",".join(nodes))
    process = Process(command=(*flags, *arguments, *map(shlex.quote, command)))
    return Launch(processes=(process,), nodes=tuple(nodes), label=_NODE_LABEL)


def _mpirun(nodes: Sequence[str], command: Sequence[str], arguments: Sequence[str]) -> Launch:
    flags = ("mpirun", "--tag-output", "--host", ",".join(nodes), "--map-by", "ppr:1:node")
    process = Process(command=(*flags, *arguments, *_GREETED, *command))
    # The output of several ranks may share a line.
    label = re.compile(r"\[\d+,(?P<label>\d+)\]<std(?:out|err)>: ?")
    return Launch(processes=(process,), nodes=tuple(nodes), label=label, ranked=True)


def _kubectl(nodes: Sequence[str], command: Sequence[str], arguments: Sequence[str]) -> Launch:
    """Run the command in the pods that `kubectl get pods ARGUMENTS` lists, one on each node."""
    form = (
        "{range .items[*]}{.metadata.namespace} {.metadata.name} {.spec.nodeName}"
        ' {.status.phase}{"\\n"}{end}'
    )
    listed = _ask(["kubectl", "get", "pods", *arguments, "-o", f"jsonpath={form}"], check=True)
    same_cluster: list[str] = []  # the options that choose the cluster and the user
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if name == "--insecure-skip-tls-verify" or (equals and _CLUSTER_OPTION.fullmatch(name)):
            same_cluster.append(word)
        elif _CLUSTER_OPTION.fullmatch(name):
            same_cluster += [word, next(words, "")]
    processes: dict[str, Process] = {}
    silent: dict[str, Silence] = {}
    for line in listed.splitlines():
        namespace, pod, node, phase = line.split()
        if nodes and node not in nodes:
            continue
        if phase != "Running":
            reason = f"the pod {namespace}/{pod} is {phase}"
            silent[node] = Silence(node=node, reason=reason)
            continue
        execute = ("kubectl", "exec", *same_cluster, "--namespace", namespace, pod, "--", *command)
        processes[node] = Process(command=execute, node=node)
    known = {**processes, **silent}
    for name in nodes:
        if name not in known:
            silent[name] = Silence(node=name, reason="no pod runs on the node")
    if not known:
        raise InputError(
            f"kubectl get pods {shlex.join(arguments)}: lists no pod",
            hint="select the pods of a DaemonSet: -- -n NAMESPACE -l app=gpuenv",
        )
    return Launch(
        processes=tuple(processes.values()),
        nodes=tuple(nodes or known),
        silent=tuple(silence for silence in silent.values() if silence.node not in processes),
    )


def _ask(command: Sequence[str], *, check: bool = False) -> str:
    """Return the output of a tool of the launcher; with `check` InputError if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ASK_LIMIT, check=False
        )
    except FileNotFoundError:
        raise InputError(f"{command[0]}: is not installed") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"{command[0]}: no answer in {_ASK_LIMIT:g} s") from None
    if check and done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise InputError(f"{command[0]}: failed: {last}")
    return done.stdout


LAUNCHERS: Mapping[str, Plan] = {
    "srun": _srun,
    "clush": _clush,
    "pdsh": _pdsh,
    "kubectl": _kubectl,
    "mpirun": _mpirun,
}


# ---- lists of nodes, as clusters write them; render/fleet.py folds them --------------------------


def expand_nodes(text: str) -> list[str]:
    """Return the names of a list such as "gpu[01-03],login1", each once, in their order.

    Raises:
        InputError: the text is not such a list.
    """
    names: dict[str, None] = {}
    compact = "".join(text.split())
    items = _ITEM.findall(compact)
    if ",".join(items) != compact.strip(","):
        raise InputError(f"{text}: is not a list of nodes such as gpu[01-16,20],login1")
    for item in items:
        names.update(dict.fromkeys(_expand_item(item, text)))
        if len(names) > _MOST_NODES:
            raise InputError(f"{text}: names more than {_MOST_NODES} nodes")
    if not names:
        raise InputError("the list of nodes is empty", hint="name some: --nodes gpu[01-16]")
    return list(names)


def _expand_item(item: str, text: str) -> Iterator[str]:
    """Yield the names of one item, which may have several ranges."""
    match = _RANGE.search(item)
    if match is None:
        yield item
        return
    before, after = item[: match.start()], item[match.end() :]
    for part in match[1].split(","):
        numbers = _NUMBERS.fullmatch(part)
        first, last = (numbers[1], numbers[2] or numbers[1]) if numbers else ("1", "0")
        if not int(first) <= int(last) < int(first) + _MOST_NODES:
            raise InputError(f"{text}: {part!r} is not a range of numbers such as 01-16")
        for number in range(int(first), int(last) + 1):
            # The width of the first number is that of all.
            yield from _expand_item(f"{before}{number:0{len(first)}}{after}", text)
