"""Run `gpuenv fleet` with Slurm, clush, pdsh, mpirun, kubectl, Dask, promtool and Nagios.

    apt-get install slurm-wlm clustershell pdsh openmpi-bin prometheus nagios4-core \\
        kubernetes-client
    python scripts/tools.py prove fleet [--only NAME ...] [--record FILE]

It needs root, gcc and, for Dask, the extra gpuenv[fleet]. The nodes are stand-ins on this machine:
environments with compiled stand-ins of cuDNN, NVML and the driver. One has a mixed cuDNN, the
convolutions of one are off by a bit, one hangs and one dies. For kubectl a server of this script
stands for the API of Kubernetes. A tool that is not installed is reported and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from common import ROOT, run_gpuenv
from prove.kube_api import KubeApi
from test_host_conditions import variables_of
from test_verification import CUDNN, file_name, install, member_file, place, site_of

NODE = """#!/bin/sh
name=${SLURMD_NODENAME:-${NODE:-$1}}
[ "$name" = "$1" ] && shift
case $name in hung*) exec sleep 600;; dead*) kill -9 $$;; esac
. FOLDER/variables
env=FOLDER/env-good
case $name in mixed*) env=FOLDER/env-mixed;; bit*) export CUDNN_STUB_BIT=1;; esac
command=$1; shift
case $command in
  verify) exec PYTHON -m gpuenv verify --target $env "$@";;
  *) exec PYTHON -m gpuenv $command "$@";;
esac
"""
# Slurm runs this on each node. It drains a node that is not verified, and gives the line as reason.
# All nodes have the host name of this machine, so the name comes from the command line of slurmd.
HEALTH_CHECK = """#!/bin/sh
[ -e FOLDER/health-checks-begin ] || exit 0
node=$(tr '\\0' ' ' < /proc/$PPID/cmdline | sed 's/.* -N //; s/ .*//')
case $node in hung*) exit 0;; esac
export SLURMD_NODENAME=$node SLURM_CONF=FOLDER/slurm.conf
line=$(FOLDER/node verify --hook --timeout 60) && exit 0
scontrol update NodeName=$node State=DRAIN Reason="$line"
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
HealthCheckProgram=FOLDER/health-check
HealthCheckInterval=30
HealthCheckNodeState=ANY
"""
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
Row = dict[str, Any]
ANSWERING = ("n1", "n2", "n3", "mixed1", "bit1")
SLURM_NODES = (*ANSWERING, "hung1", "off1")  # no daemon runs for off1


class Stage:
    """The folder with the environments and programs of the nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        cache = folder / "native"
        cache.mkdir()
        for name in ("env-good", "env-mixed"):
            venv.create(folder / name, symlinks=True)
            install(site_of(folder / name), cache, [])
        wrong = site_of(folder / "env-mixed") / CUDNN / file_name("ops", 92000)
        place(member_file(cache, "ops", 91000), wrong)
        variables = variables_of({"gpus": 2}, cache, folder)
        keep = {key: value for key, value in variables.items() if key not in ("PATH", "HOME")}
        lines = [f"export {key}={shlex.quote(value)}" for key, value in keep.items()]
        (folder / "variables").write_text("\n".join(lines) + "\n")
        self.write("node", NODE)

    def write(self, name: str, text: str) -> Path:
        """Write a program."""
        path = self.folder / name
        path.write_text(text.replace("FOLDER", str(self.folder)).replace("PYTHON", sys.executable))
        path.chmod(0o755)
        return path

    def fleet(self, command: str, *flags: str, limit: int = 40, **variables: str) -> Row:
        """Run `gpuenv fleet` on the nodes. Return which nodes its document names, and why."""
        begin = time.monotonic()
        words = ["--command", f"{self.folder}/node", "--limit", str(limit), "--json"]
        done = run_gpuenv("fleet", command, *words, *flags, **variables)
        if not done.stdout:
            raise FaultError(done.stderr)
        document = json.loads(done.stdout)
        outliers: dict[str, set[str]] = {}
        for outlier in document.get("outliers", ()):
            outliers.setdefault(outlier["what"], set()).add(outlier["node"])
        return {
            "seconds": round(time.monotonic() - begin, 2),
            "answered": document["answered"],
            "silent": {silence["node"]: silence["reason"] for silence in document["silent"]},
            "failed": sorted({failure["node"] for failure in document.get("failures", ())}),
            "outliers": {what: sorted(nodes) for what, nodes in outliers.items()},
        }


class FaultError(Exception):
    """Something is not as it must be."""


def require(condition: bool, evidence: object) -> None:
    """Raise FaultError with what was found if it is not as it must be."""
    if not condition:
        raise FaultError(f"not as it must be: {evidence}")


def check(result: Row, *, silent: Sequence[str]) -> Row:
    """Return a result in which each faulty node is named, and no healthy one."""
    require(set(result["silent"]) == set(silent), result)
    require(set(result["failed"]) == {"mixed1"}, result)
    require(result["outliers"].get("convolution") == ["bit1"], result)
    return result


def output_of(command: Sequence[str], **variables: str) -> str:
    """Return what a command prints."""
    return subprocess.run(
        command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


# ---- launchers without a cluster -----------------------------------------------------------------


def prove_launcher(stage: Stage, launcher: str) -> Row:
    """Verify stand-in nodes with clush or pdsh; the worker "exec" runs a command for each here."""
    flags = ["--launcher", launcher, "--nodes", "n[1-4],mixed1,bit1,hung1,dead1"]
    flags += ["--command", f"{stage.folder}/node %h", "--", "-R", "exec"]
    return check(stage.fleet("verify", *flags), silent=["hung1", "dead1"])


def prove_mpirun(stage: Stage) -> Row:
    """Detect this machine with mpirun."""
    flags = ["--launcher", "mpirun", "--nodes", "localhost", "--", "--allow-run-as-root"]
    result = stage.fleet("detect", *flags, NODE="n1")
    require((result["answered"], result["silent"]) == (1, {}), result)
    return result


def prove_kubectl(stage: Stage) -> Row:
    """Verify with kubectl in the pods of a stand-in for the API; kubectl reads the manifests."""
    nodes = ("n1", "n2", "n3", "n4", "mixed1", "bit1", "hung1", "dead1")
    pods = {f"gpuenv-{node}": ("Running", node) for node in nodes}
    pods["gpuenv-new1"] = ("Pending", "new1")
    with KubeApi(pods) as api:
        where = ["--server", api.url, "-n", "gpu", "-l", "app=gpuenv"]
        result = stage.fleet("verify", "--launcher", "kubectl", "--", *where)
        check(result, silent=["hung1", "dead1", "new1"])
        dry = ["create", "--dry-run=client", "--validate=false", "--output=name"]
        result["manifests"] = [
            output_of(["kubectl", "--server", api.url, *dry, "--filename", str(path)]).strip()
            for path in manifests()
        ]
        return result


def manifests() -> list[Path]:
    """Return the manifests of Kubernetes in docs/hooks; another file is of a CI service."""
    paths = sorted((ROOT / "docs" / "hooks").glob("*.yaml"))
    return [path for path in paths if "apiVersion:" in path.read_text()]


# ---- Slurm ---------------------------------------------------------------------------------------


@contextmanager
def slurm(stage: Stage) -> Iterator[dict[str, str]]:
    """Start munge, slurmctld and one slurmd for each node; end them by their process ids."""
    folder = stage.folder
    lines = [SLURM_CONF.replace("FOLDER", str(folder))]
    for number, name in enumerate(SLURM_NODES):
        (folder / f"spool-{name}").mkdir()
        address = f"NodeName={name} NodeHostname=localhost Port={17100 + number}"
        lines.append(f"{address} CPUs=2 RealMemory=4000 State=UNKNOWN")
    for name, nodes in {"all": SLURM_NODES, "answering": ANSWERING}.items():
        default = "YES" if name == "all" else "NO"
        lines.append(f"PartitionName={name} Nodes={','.join(nodes)} Default={default} State=UP")
    (folder / "state").mkdir()
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
    stage.write("health-check", HEALTH_CHECK)
    variables = {"SLURM_CONF": str(folder / "slurm.conf")}
    munge = f"munged --foreground --force --socket={folder}/munge.socket"
    munge += " --key-file=/etc/munge/munge.key"
    munge += "".join(f" --{kind}-file={folder}/munge.{kind}" for kind in ("pid", "log", "seed"))
    commands = [munge, "slurmctld -D", *(f"slurmd -D -N {name}" for name in SLURM_NODES[:-1])]
    env = {**os.environ, **variables}
    children = []
    try:
        for command in commands:
            children.append(subprocess.Popen(command.split(), env=env, **QUIET))
            time.sleep(1 if len(children) <= 2 else 0.1)
        time.sleep(3)
        yield variables
    finally:
        subprocess.run(["scancel", "--full", "--user=root"], env=env, check=False)
        time.sleep(2)  # the steps end
        for child in reversed(children):
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:  # slurmd waits for a step that hangs
                child.kill()
                child.wait(5)


def drained_nodes(stage: Stage, variables: Mapping[str, str]) -> str:
    """Enable HealthCheckProgram. Return what Slurm reports about the nodes that it drained."""
    states = ["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"]
    (stage.folder / "health-checks-begin").touch()
    begin, drained = time.monotonic(), ""
    while "mixed1" not in drained and time.monotonic() - begin < 120:
        time.sleep(2)
        lines = output_of(states, **variables).splitlines()
        drained = "\n".join(dict.fromkeys(line for line in lines if "gpuenv" in line))
    require("mixed1" in drained, drained)
    return drained


def prove_slurm(stage: Stage) -> Row:
    """Detect and verify through srun; HealthCheckProgram drains the node with the mixed cuDNN."""
    flags = ["--launcher", "srun", "--nodes", ",".join(SLURM_NODES)]
    with slurm(stage) as variables:
        detected = stage.fleet("detect", *flags, limit=20, **variables)
        verified = stage.fleet("verify", *flags, **variables)
        check(verified, silent=["hung1", "off1"])
        drained = drained_nodes(stage, variables)
        jobs = output_of(["squeue", "--noheader"], **variables).splitlines()
        require(not jobs, jobs)
        return {"detect": detected, "verify": verified, "drained": drained}


def prove_jobqueue(stage: Stage) -> Row:
    """Detect and verify through dask-jobqueue, which submits the workers as Slurm jobs.

    Its own settings give each worker a node of the partition that has no hung node.
    HealthCheckProgram drains the node with the mixed cuDNN here, too.
    """
    settings = {
        "cores": 2,
        "memory": "500MB",
        "processes": 1,
        "interface": "lo",
        "python": sys.executable,
        "queue": "answering",
        "job-extra-directives": "['--exclusive']",
        "log-directory": str(stage.folder),
    }
    lines = [f"    {key}: {value}\n" for key, value in settings.items()]
    (stage.folder / "dask").mkdir()
    (stage.folder / "dask" / "jobqueue.yaml").write_text("jobqueue:\n  slurm:\n" + "".join(lines))
    flags = ["--launcher", "dask", "--scheduler", "slurm", "--workers", str(len(ANSWERING))]
    with slurm(stage) as variables:
        more = {**variables, "DASK_CONFIG": str(stage.folder / "dask")}
        detected = stage.fleet("detect", *flags, limit=120, **more)
        require((detected["answered"], detected["silent"]) == (len(ANSWERING), {}), detected)
        verified = check(stage.fleet("verify", *flags, limit=120, **more), silent=[])
        drained = drained_nodes(stage, variables)
        return {"detect": detected, "verify": verified, "drained": drained}


# ---- Dask ----------------------------------------------------------------------------------------


def prove_dask(stage: Stage) -> Row:
    """Verify on a cluster of eight workers: one killed, one hung, one mixed, one off by a bit."""
    import distributed

    names = ("n1", "n2", "n3", "n4", "mixed1", "bit1", "hung1", "killed1")
    address = "tcp://127.0.0.1:18786"
    dask = [sys.executable, "-m"]
    scheduler = "distributed.cli.dask_scheduler --host 127.0.0.1 --port 18786 --no-dashboard"
    worker = f"distributed.cli.dask_worker {address} --no-nanny --nthreads 1 --no-dashboard --name"
    children: dict[str, subprocess.Popen[bytes]] = {}
    try:
        children["scheduler"] = subprocess.Popen([*dask, *scheduler.split()], **QUIET)
        time.sleep(3)
        for name in names:
            node = "hung9" if name == "killed1" else name  # it is killed while it works
            command = [*dask, *worker.split(), name]
            children[name] = subprocess.Popen(command, env={**os.environ, "NODE": node}, **QUIET)
        with distributed.Client(address, timeout=60) as client:
            client.wait_for_workers(len(names), timeout=120)
        killer = subprocess.Popen(["sh", "-c", f"sleep 12; kill -9 {children['killed1'].pid}"])
        flags = ["--launcher", "dask", "--scheduler", address, "--workers", str(len(names))]
        documents = stage.folder / "documents"
        begin = time.time()
        result = stage.fleet("verify", *flags, "-o", str(documents), limit=60)
        killer.wait()
        seconds = sorted(path.stat().st_mtime - begin for path in documents.glob("*.json"))
        result["answers_written_after_s"] = [round(one, 1) for one in seconds]
        return check(result, silent=["hung1", "killed1"])
    finally:
        for child in children.values():
            child.kill()
            child.wait(10)


# ---- formats -------------------------------------------------------------------------------------


def prove_promtool(stage: Stage) -> Row:
    """Let promtool check the metrics of a healthy and of a mixed node."""
    said = {}
    for node in ("n1", "mixed1"):
        command = f"{stage.folder}/node verify --format openmetrics | promtool check metrics 2>&1"
        done = subprocess.run(
            ["sh", "-c", command], env={**os.environ, "NODE": node}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        said[node] = {"promtool": done.returncode, "said": done.stdout}
        require((done.returncode, done.stdout) == (0, ""), said)
    return said


NAGIOS_CFG = """
cfg_file=FOLDER/objects.cfg
log_file=FOLDER/nagios.log
status_file=FOLDER/status.dat
status_update_interval=2
object_cache_file=FOLDER/objects.cache
check_result_path=FOLDER
temp_file=FOLDER/nagios.tmp
temp_path=FOLDER
lock_file=FOLDER/nagios.lock
query_socket=FOLDER/nagios.qh
check_external_commands=0
check_for_updates=0
use_syslog=0
interval_length=1
execute_service_checks=1
service_inter_check_delay_method=n
nagios_user=root
nagios_group=root
"""
NAGIOS_OBJECTS = """
define timeperiod { timeperiod_name always; alias always; monday 00:00-24:00; sunday 00:00-24:00 }
define command { command_name verify
  command_line /usr/bin/env NODE=$HOSTNAME$ FOLDER/node verify --format nagios }
define command { command_name none
  command_line /bin/true }
define contact { contact_name me; host_notification_commands none
  service_notification_commands none }
"""
NAGIOS_NODE = """
define host { host_name NODE; address 127.0.0.1; max_check_attempts 1; contacts me }
define service { service_description gpuenv; host_name NODE; check_command verify; contacts me
  check_period always; max_check_attempts 1; check_interval 3600; retry_interval 3600 }
"""


def prove_nagios(stage: Stage) -> Row:
    """Let Nagios itself run the plugin, and return what it has read: state, text and figures."""
    nodes = {"n1": 1, "mixed1": 2}  # WARNING: the stand-in of n1 has a release to avoid
    objects = NAGIOS_OBJECTS + "".join(NAGIOS_NODE.replace("NODE", node) for node in nodes)
    for inline, line in (("{ ", "{\n"), (";", "\n"), (" }", "\n}")):
        objects = objects.replace(inline, line)
    stage.write("objects.cfg", objects)
    configuration = stage.write("nagios.cfg", NAGIOS_CFG)
    child = subprocess.Popen(["nagios4", str(configuration)], **QUIET)
    try:
        begin, read = time.monotonic(), {}
        while len(read) < len(nodes) and time.monotonic() - begin < 60:
            time.sleep(1)
            read = checked_services(stage.folder / "status.dat")
    finally:
        child.terminate()
        child.wait(10)
    for node, state in nodes.items():
        service = read.get(node, {})
        require(service.get("current_state") == str(state), read)
        items = service["performance_data"].split()
        names = {item.partition("=")[0] for item in items}
        require(names == {"time", "passed", "failed", "unknown"}, read)
    return read


def checked_services(path: Path) -> dict[str, dict[str, str]]:
    """Return what Nagios has read of the services that it has checked, by node."""
    services = {}
    for block in path.read_text().split("servicestatus {")[1:] if path.exists() else ():
        lines = (line.strip().partition("=") for line in block.partition("}")[0].splitlines())
        values = {key: value for key, _, value in lines}
        if values["has_been_checked"] == "1":
            keys = ("current_state", "plugin_output", "performance_data")
            services[values["host_name"]] = {key: values[key] for key in keys}
    return services


PROOFS = {
    "clush": ("clush", partial(prove_launcher, launcher="clush")),
    "pdsh": ("pdsh", partial(prove_launcher, launcher="pdsh")),
    "mpirun": ("mpirun", prove_mpirun),
    "kubectl": ("kubectl", prove_kubectl),
    "slurm": ("slurmctld", prove_slurm),
    "dask": (sys.executable, prove_dask),
    "dask-jobqueue": ("slurmctld", prove_jobqueue),
    "promtool": ("promtool", prove_promtool),
    "nagios": ("nagios4", prove_nagios),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the tools."""
    parser.add_argument("--only", nargs="+", choices=PROOFS, default=list(PROOFS))


def prove(arguments: argparse.Namespace) -> tuple[Row, list[str]]:
    """Run the fleet with each tool that is installed."""
    record: Row = {}
    faults = []
    for name in arguments.only:
        program, prove_tool = PROOFS[name]
        if shutil.which(program) is None:
            faults.append(f"{name}: left out, {program} is not installed")
            continue
        with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
            Path(folder).chmod(0o755)
            try:
                result = json.dumps(prove_tool(Stage(Path(folder)))).replace(folder, "FOLDER")
                record[name] = json.loads(result.replace(f"@{platform.node()}:", "@HOST:"))
            except FaultError as error:
                faults.append(f"{name}: {error}")
    return record, faults
