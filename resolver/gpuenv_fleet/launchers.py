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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuenv import InputError

# The first line of a process that is labelled by its rank. Slurm's name of a node may differ from
# the name that the node has for itself.
GREETING = "gpuenv-node "
_GREET = f'echo "{GREETING}${{SLURMD_NODENAME:-$(uname -n)}}"; exec "$@"'
_GREETED = ("sh", "-c", _GREET, "sh")  # before a command
LAUNCHERS = ("clush", "kubectl", "mpirun", "pdsh", "srun")
_NODE_LABEL = re.compile(r"^(?P<label>[^\s:]+): ?")
# The labels of launchers that name the rank. With mpirun, several ranks may share a line.
_LABELS = {
    "mpirun": re.compile(r"\[\d+,(?P<label>\d+)\]<std(?:out|err)>: ?"),
    "srun": re.compile(r"^ *(?P<label>\d+): ?"),
}
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
class Launch:
    """What to start, and how to read the output.

    `commands` has a command for each node, or one for all under the name "". `nodes` are those
    that are expected to answer. `label` matches the label of a piece of output; its group "label"
    is the node or the rank. `ranked` says which of the two. `silent` has the reason for each node
    on which nothing is started.
    """

    commands: Mapping[str, Sequence[str]]
    nodes: Sequence[str]
    label: re.Pattern[str] | None = None
    ranked: bool = False
    silent: Mapping[str, str] = field(default_factory=dict)


def plan_launch(
    launcher: str,
    nodes: str | None,
    command: Sequence[str],
    arguments: Sequence[str],
    *,
    without: Collection[str] = (),
) -> Launch:
    """Return what to start for a launcher.

    Args:
        launcher: one of LAUNCHERS.
        nodes: the list of nodes; None takes those of the job, or of kubectl's arguments.
        command: the command of each node.
        arguments: the user's arguments for the launcher.
        without: nodes that have answered in an earlier run.

    Raises:
        InputError: the launcher is not installed, or no node is named.
    """
    if nodes is None and launcher in ("srun", "mpirun"):
        nodes = os.environ.get("SLURM_JOB_NODELIST")
    if not nodes and launcher != "kubectl":
        hint = "--nodes gpu[01-16], so that one without an answer is known"
        raise InputError("the nodes are not named", hint=hint)
    known = [] if nodes is None else expand_nodes(nodes)
    names = [name for name in known if name not in without]
    if known and not names:
        return Launch(commands={}, nodes=())
    if launcher == "kubectl":
        return _kubectl(names, command, arguments, without)
    silent = _unusable(names) if launcher == "srun" else {}
    usable = [name for name in names if name not in silent]
    listed, count = ",".join(usable), len(usable)
    if launcher == "clush":
        flags = ["clush", "--nostdin", "--color=never", "-w", listed]
        full = [*flags, *arguments, shlex.join(command)]
    elif launcher == "pdsh":
        # pdsh joins the words for ssh, and passes them as they are with -R exec.
        full = ["pdsh", "-w", listed, *arguments, *map(shlex.quote, command)]
    elif launcher == "mpirun":
        flags = ["mpirun", "--tag-output", "--host", listed, "--map-by", "ppr:1:node"]
        full = [*flags, *arguments, *_GREETED, *command]
    else:
        # A node that fails must not end the processes of the others.
        flags = ["srun", "--label", "--no-kill", "--kill-on-bad-exit=0", "--wait=0"]
        flags += ["--ntasks-per-node=1", f"--nodes={count}", f"--ntasks={count}"]
        full = [*flags, f"--nodelist={listed}", *arguments, *_GREETED, *command]
    return Launch(
        commands={"": full} if usable else {},
        nodes=names,
        label=_LABELS.get(launcher, _NODE_LABEL),
        ranked=launcher in _LABELS,
        silent=silent,
    )


def _unusable(nodes: Sequence[str]) -> dict[str, str]:
    """Return the nodes that Slurm starts no job on, and why: srun would wait for them."""
    if "SLURM_JOB_ID" in os.environ:
        return {}
    silent = {}
    ask = ["sinfo", "--noheader", "--Node", "--format=%N %T", f"--nodes={','.join(nodes)}"]
    for line in _ask(ask).splitlines():
        name, _, state = line.strip().partition(" ")
        if state.endswith("*") or state.lower().startswith(_SLURM_UNUSABLE):
            silent[name] = f"Slurm's state of the node is {state}"
    return silent


def _kubectl(
    nodes: Sequence[str],
    command: Sequence[str],
    arguments: Sequence[str],
    without: Collection[str],
) -> Launch:
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
    if not listed.split():
        raise InputError(
            f"kubectl get pods {shlex.join(arguments)}: lists no pod",
            hint="select the pods of a DaemonSet: -- -n NAMESPACE -l app=gpuenv",
        )
    commands: dict[str, Sequence[str]] = {}
    silent = dict.fromkeys(nodes, "no pod runs on the node")
    for line in listed.splitlines():
        namespace, pod, node, phase = line.split(" ")
        if not node or node in without or (nodes and node not in nodes):
            continue  # a pod without a node waits for one
        if phase == "Running":
            options = (*same_cluster, "--namespace", namespace)
            commands[node] = ("kubectl", "exec", *options, pod, "--", *command)
        else:
            silent[node] = f"the pod {namespace}/{pod} is {phase}"
    for node in commands:
        silent.pop(node, None)
    return Launch(commands=commands, nodes=nodes or [*commands, *silent], silent=silent)


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


# ---- lists of nodes, as clusters write them; text.py folds them --------------------------


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
