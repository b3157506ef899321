"""A stand-in for srun, clush, pdsh, mpirun and kubectl: it labels and splits output as they do.

Usage: launcher.py NAME ARGUMENTS. It runs the command once for each node, with the node's name in
NODE. Like the real ones, srun splits lines after 1024 characters, and mpirun writes the output of
several ranks into one line.
"""

import os
import subprocess
import sys
import threading

LOCK = threading.Lock()
LISTS = {"srun": "--nodelist", "clush": "-w", "pdsh": "-w", "mpirun": "--host"}
COMMANDS = {"srun": "sh", "mpirun": "sh"}


def main(name, arguments):
    if name == "sinfo":
        return 0
    if name == "kubectl":
        return kubectl(arguments)
    nodes, command = nodes_of(LISTS[name], arguments), command_of(name, arguments)
    threads = [
        threading.Thread(target=run, args=(name, node, rank, command))
        for rank, node in enumerate(nodes)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


def nodes_of(flag, arguments):
    for index, argument in enumerate(arguments):
        if argument == flag:
            return arguments[index + 1].split(",")
        if argument.startswith(flag + "="):
            return argument.partition("=")[2].split(",")
    raise SystemExit(f"no {flag}")


def command_of(name, arguments):
    """Return what comes after the flags: a text for clush and pdsh."""
    if name in COMMANDS:
        return arguments[arguments.index(COMMANDS[name]) :]
    at = arguments.index("-w") + 2
    while arguments[at].startswith("-"):
        at += 2
    return ["sh", "-c", " ".join(arguments[at:])]


def run(name, node, rank, command):
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "NODE": node, "SLURMD_NODENAME": node}
    )
    if name == "mpirun":
        while data := os.read(child.stdout.fileno(), 700):
            tag = f"[1,{rank}]<stdout>:".encode()
            write(tag + data.replace(b"\n", b"\n" + tag))
    else:
        label = f"{rank}: " if name == "srun" else f"{node}: "
        size = 1024 if name == "srun" else 1 << 30
        for line in child.stdout:
            text = line.rstrip(b"\n")
            for start in range(0, max(len(text), 1), size):
                write(label.encode() + text[start : start + size] + b"\n")
    if child.wait():
        with LOCK:
            print(f"{name}: {node}: exited with exit code {child.returncode}", file=sys.stderr)


def write(data):
    with LOCK:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def kubectl(arguments):
    if arguments[:2] == ["get", "pods"]:
        for node in os.environ["PODS"].split(","):
            phase = "Pending" if node.endswith("-pending") else "Running"
            print(f"gpu pod-{node} {node} {phase}")
        return 0
    pod = arguments[arguments.index("--namespace") + 2]
    command = arguments[arguments.index("--") + 1 :]
    environment = {**os.environ, "NODE": pod.removeprefix("pod-")}
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
