"""Verify stand-ins of nodes with real launchers: clush, pdsh, mpirun, Slurm and Dask.

    apt-get install slurm-wlm clustershell pdsh openmpi-bin
    python scripts/tools.py prove fleet [--only NAME ...] [--record FILE]

It needs root, gcc and, for Dask, the extra gpuenv[fleet]. The nodes are environments on this
machine with compiled stand-ins of cuDNN, NVML and the driver. One has a mixed cuDNN, the
convolutions of one are off by a bit, one hangs and one dies. These must be named, and no other.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from common import run_gpuenv
from test_host_conditions import variables_of
from test_verification import CUDNN, file_name, install, member_file, place, site_of

NODE = """#!/bin/sh
name=${SLURMD_NODENAME:-${NODE:-$1}}
[ "$name" = "$1" ] && shift
case $name in hung*) exec sleep 600;; dead*) kill -9 $$;; esac
. FOLDER/variables
env=FOLDER/env-good
case $name in mixed*) env=FOLDER/env-mixed;; bit*) export CUDNN_STUB_BIT=1;; esac
shift
exec PYTHON -m gpuenv verify --target $env "$@"
"""
SLURM_CONF = """
ClusterName=here
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=FOLDER/munge.socket
SlurmctldPort=16817
StateSaveLocation=FOLDER/state
SlurmdSpoolDir=FOLDER/spool-%n
SlurmctldPidFile=FOLDER/slurmctld.pid
SlurmdPidFile=FOLDER/%n.pid
SlurmctldLogFile=FOLDER/slurmctld.log
SlurmdLogFile=FOLDER/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
PartitionName=all Nodes=ALL Default=YES State=UP
"""
SLURM_NODES = ("n1", "n2", "n3", "mixed1", "bit1", "hung1", "off1")  # no daemon runs for off1
DASK_NODES = ("n1", "n2", "n3", "mixed1", "bit1", "hung1")
DASK_PORT = "18786"


def make_nodes(folder: Path) -> None:
    """Write the environments of the nodes, and FOLDER/node, which stands for gpuenv on each."""
    cache = folder / "native"
    cache.mkdir()
    for name in ("env-good", "env-mixed"):
        venv.create(folder / name, symlinks=True)
        install(site_of(folder / name), cache, [])
    wrong = site_of(folder / "env-mixed") / CUDNN / file_name("ops", 92000)
    place(member_file(cache, "ops", 91000), wrong)
    variables = variables_of({"gpus": 2}, cache, folder)
    lines = [
        f"export {name}={shlex.quote(value)}\n"
        for name, value in variables.items()
        if name not in ("PATH", "HOME")
    ]
    (folder / "variables").write_text("".join(lines))
    text = NODE.replace("FOLDER", str(folder)).replace("PYTHON", sys.executable)
    (folder / "node").write_text(text)
    (folder / "node").chmod(0o755)


@contextmanager
def running(folder: Path, commands: Sequence[str], **variables: str) -> Iterator[None]:
    """Run daemons. They end by their process ids."""
    children = []
    with (folder / "daemons.log").open("wb") as log:
        try:
            for command in commands:
                env = {**os.environ, **variables}
                children.append(subprocess.Popen(command.split(), env=env, stdout=log, stderr=log))
                time.sleep(1)
            time.sleep(5)
            yield
        finally:
            for child in reversed(children):
                child.terminate()
                try:
                    child.wait(5)
                except subprocess.TimeoutExpired:  # slurmd waits for a step that hangs
                    child.kill()
                    child.wait(5)


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Start munge, slurmctld and one slurmd for each node."""
    nodes = []
    for number, name in enumerate(SLURM_NODES):
        (folder / f"spool-{name}").mkdir()
        address = f"NodeName={name} NodeHostname=localhost Port={17100 + number}"
        nodes.append(f"{address} CPUs=2 RealMemory=1000 State=UNKNOWN\n")
    (folder / "state").mkdir()
    conf = folder / "slurm.conf"
    conf.write_text("".join(nodes) + SLURM_CONF.replace("FOLDER", str(folder)))
    munge = f"munged --foreground --force --socket={folder}/munge.socket"
    munge += " --key-file=/etc/munge/munge.key"
    munge += "".join(f" --{kind}-file={folder}/munge.{kind}" for kind in ("pid", "log", "seed"))
    variables = {"SLURM_CONF": str(conf)}
    daemons = [munge, "slurmctld -D", *(f"slurmd -D -N {name}" for name in SLURM_NODES[:-1])]
    with running(folder, daemons, **variables):
        yield variables
        cancel = ["scancel", "--full", "--user=root"]
        subprocess.run(cancel, env={**os.environ, **variables}, check=False)
        time.sleep(2)  # the steps end


@contextmanager
def dask(folder: Path) -> Iterator[dict[str, str]]:
    """Start a scheduler and a worker for each node."""
    start = f"{sys.executable} -m distributed.cli.dask_"
    daemons = [f"{start}scheduler --host 127.0.0.1 --port {DASK_PORT} --no-dashboard"]
    for name in DASK_NODES:
        flags = "--no-nanny --nthreads 1 --no-dashboard"
        daemons.append(f"env NODE={name} {start}worker 127.0.0.1:{DASK_PORT} {flags} --name {name}")
    with running(folder, daemons):
        yield {}


class Launch(NamedTuple):
    """What a launcher runs on, its flags, and the nodes that must not answer, fail or differ."""

    cluster: Callable[[Path], AbstractContextManager[dict[str, str]]]
    flags: list[str]
    silent: Sequence[str] = ()
    failed: Sequence[str] = ("mixed1",)
    outliers: Sequence[str] = ("bit1",)


HERE = ["--nodes", "n[1-4],mixed1,bit1,hung1,dead1", "--command", "FOLDER/node %h", "--"]
EXEC = Launch(lambda _: nullcontext({}), [*HERE, "-R", "exec"], silent=("dead1", "hung1"))
LAUNCHES = {
    "clush": EXEC,
    "pdsh": EXEC,
    "mpirun": Launch(
        lambda _: nullcontext({"NODE": "n1"}),
        ["--nodes", "localhost", "--", "--allow-run-as-root"],
        failed=(),
        outliers=(),
    ),
    "srun": Launch(slurm, ["--nodes", ",".join(SLURM_NODES)], silent=("hung1", "off1")),
    "dask": Launch(
        dask,
        ["--scheduler", f"tcp://127.0.0.1:{DASK_PORT}", "--workers", str(len(DASK_NODES))],
        silent=("hung1",),
    ),
}
ARGUMENTS = {"--only": {"nargs": "+", "choices": LAUNCHES, "default": list(LAUNCHES)}}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Verify the nodes with each launcher."""
    record, faults = {}, []
    for name in arguments.only:
        launch = LAUNCHES[name]
        with tempfile.TemporaryDirectory(prefix="fleet-") as place_of_nodes:
            folder = Path(place_of_nodes)
            folder.chmod(0o755)
            make_nodes(folder)
            flags = [flag.replace("FOLDER", str(folder)) for flag in launch.flags]
            words = ["fleet", "verify", "--launcher", name, "--limit", "40", "--json"]
            with launch.cluster(folder) as variables:
                begin = time.monotonic()
                command = ["--command", f"{folder}/node", *flags]
                done = run_gpuenv(*words, *command, **variables)
                seconds = round(time.monotonic() - begin, 1)
            document = json.loads(done.stdout or "{}")
            outliers = document.get("outliers", ())
            found = (
                sorted(silence["node"] for silence in document.get("silent", ())),
                sorted({failure["node"] for failure in document.get("failures", ())}),
                sorted({row["node"] for row in outliers if row["what"] == "convolution"}),
            )
            expected = tuple(map(sorted, (launch.silent, launch.failed, launch.outliers)))
            if not document or found != expected:
                faults.append(f"{name}: {found} instead of {expected} {done.stderr}")
            reasons = {silence["node"]: silence["reason"] for silence in document.get("silent", ())}
            row = {"seconds": seconds, "answered": document.get("answered"), "silent": reasons}
            text = json.dumps(row).replace(str(folder), "FOLDER")
            record[name] = json.loads(text.replace(f"@{platform.node()}:", "@HOST:"))
    return record, faults
