"""Run `gpuenv fleet` with Slurm, clush, pdsh, mpirun, kubectl, Dask, promtool and Nagios.

    apt-get install slurm-wlm clustershell pdsh openmpi-bin prometheus nagios4-core \\
        monitoring-plugins-basic kubernetes-client
    python scripts/tools.py prove fleet [--record docs/records/fleet-tools.json] [--only NAME ...]

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
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import ROOT
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

    def fleet(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> tuple[dict[str, Any], float]:
        """Run `gpuenv fleet` and return its document and the seconds that it took."""
        begin = time.monotonic()
        command = [sys.executable, "-m", "gpuenv", "fleet", *arguments]
        done = subprocess.run(
            command,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        return json.loads(done.stdout), round(time.monotonic() - begin, 2)


def require(condition: bool, evidence: object) -> None:
    """End with what was found if it is not as it must be."""
    if not condition:
        raise SystemExit(f"not as it must be: {evidence}")


def summary(document: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return which nodes a document names, and why."""
    return {
        "seconds": seconds,
        "answered": document["answered"],
        "silent": {silence["node"]: silence["reason"] for silence in document["silent"]},
        "failed": sorted({failure["node"] for failure in document.get("failures", ())}),
        "outliers": {
            what: sorted(
                {
                    outlier["node"]
                    for outlier in document.get("outliers", ())
                    if outlier["what"] == what
                }
            )
            for what in ("convolution", "library", "driver")
        },
    }


def check(result: Mapping[str, Any], *, silent: Sequence[str]) -> None:
    """End if a faulty node is not named, or a healthy one is."""
    require(set(result["silent"]) == set(silent), result)
    require(set(result["failed"]) == {"mixed1"}, result)
    require(result["outliers"]["convolution"] == ["bit1"], result)


# ---- launchers without a cluster -----------------------------------------------------------------


def prove_launcher(stage: Stage, launcher: str, *arguments: str) -> dict[str, Any]:
    """Verify stand-in nodes with clush or pdsh; the worker "exec" runs a command for each here."""
    nodes = "n[1-4],mixed1,bit1,hung1,dead1"
    flags = [
        "--launcher",
        launcher,
        "--nodes",
        nodes,
        "--command",
        f"{stage.folder}/node %h",
        "--limit",
        "40",
    ]
    result = summary(*stage.fleet("verify", *flags, "--json", "--", *arguments))
    check(result, silent=["hung1", "dead1"])
    return result


def prove_mpirun(stage: Stage) -> dict[str, Any]:
    """Detect this machine with mpirun."""
    flags = [
        "--launcher",
        "mpirun",
        "--nodes",
        "localhost",
        "--command",
        f"{stage.folder}/node",
        "--limit",
        "40",
    ]
    result = summary(
        *stage.fleet("detect", *flags, "--json", "--", "--allow-run-as-root", env={"NODE": "n1"})
    )
    require((result["answered"], result["silent"]) == (1, {}), result)
    return result


def prove_kubectl(stage: Stage) -> dict[str, Any]:
    """Verify with kubectl in the pods of a stand-in for the API; kubectl reads the manifests."""
    nodes = ("n1", "n2", "n3", "n4", "mixed1", "bit1", "hung1", "dead1")
    pods = {f"gpuenv-{node}": ("Running", node) for node in nodes}
    pods["gpuenv-new1"] = ("Pending", "new1")
    with KubeApi(pods) as api:
        flags = ["--launcher", "kubectl", "--command", f"{stage.folder}/node", "--limit", "40"]
        where = ["--server", api.url, "-n", "gpu", "-l", "app=gpuenv"]
        result = summary(*stage.fleet("verify", *flags, "--json", "--", *where))
        check(result, silent=["hung1", "dead1", "new1"])
        result["manifests"] = []
        for path in manifests():
            dry = ["create", "--dry-run=client", "--validate=false", "--output=name"]
            command = ["kubectl", "--server", api.url, *dry, "--filename", str(path)]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            result["manifests"].append(said.strip())
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
        lines.append(
            f"NodeName={name} NodeHostname=localhost Port={17100 + number} CPUs=2 "
            "RealMemory=4000 State=UNKNOWN"
        )
    lines.append(
        f"PartitionName=all Nodes={','.join(SLURM_NODES)} Default=YES MaxTime=INFINITE State=UP"
    )
    lines.append(f"PartitionName=answering Nodes={','.join(ANSWERING)} State=UP")
    (folder / "state").mkdir()
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
    stage.write("health-check", HEALTH_CHECK)
    env = {"SLURM_CONF": str(folder / "slurm.conf")}
    full = {**os.environ, **env}
    munge = [
        "munged",
        "--foreground",
        "--force",
        f"--socket={folder}/munge.socket",
        "--key-file=/etc/munge/munge.key",
    ]
    munge += [f"--{kind}-file={folder}/munge.{kind}" for kind in ("pid", "log", "seed")]
    commands = [
        munge,
        ["slurmctld", "-D"],
        *(["slurmd", "-D", "-N", name] for name in SLURM_NODES[:-1]),
    ]
    children = []
    try:
        for command in commands:
            children.append(
                subprocess.Popen(
                    command, env=full, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
            time.sleep(1 if len(children) <= 2 else 0.1)
        time.sleep(3)
        yield env
    finally:
        subprocess.run(["scancel", "--full", "--user=root"], env=full, check=False)
        time.sleep(2)  # the steps end
        for child in reversed(children):
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:  # slurmd waits for a step that hangs
                child.kill()
                child.wait(5)


def drained_nodes(stage: Stage, env: Mapping[str, str]) -> str:
    """Enable HealthCheckProgram. Return what Slurm reports about the nodes that it drained."""
    states = ["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"]
    (stage.folder / "health-checks-begin").touch()
    begin, drained = time.monotonic(), ""
    while "mixed1" not in drained and time.monotonic() - begin < 120:
        time.sleep(2)
        listed = subprocess.run(
            states, env={**os.environ, **env}, capture_output=True, text=True, check=True
        )
        lines = dict.fromkeys(line for line in listed.stdout.splitlines() if "gpuenv" in line)
        drained = "\n".join(lines)
    require("mixed1" in drained, drained)
    return drained


def prove_slurm(stage: Stage) -> dict[str, Any]:
    """Detect and verify through srun; HealthCheckProgram drains the node with the mixed cuDNN."""
    flags = ["--launcher", "srun", "--nodes", ",".join(SLURM_NODES)]
    flags += ["--command", f"{stage.folder}/node"]
    with slurm(stage) as env:
        detected = summary(*stage.fleet("detect", *flags, "--limit", "20", "--json", env=env))
        verified = summary(*stage.fleet("verify", *flags, "--limit", "40", "--json", env=env))
        check(verified, silent=["hung1", "off1"])
        drained = drained_nodes(stage, env)
        command = ["squeue", "--noheader"]
        jobs = subprocess.run(
            command, env={**os.environ, **env}, capture_output=True, text=True, check=True
        )
        return {
            "detect": detected,
            "verify": verified,
            "drained": drained,
            "jobs_left": len(jobs.stdout.splitlines()),
        }


def prove_jobqueue(stage: Stage) -> dict[str, Any]:
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
    flags += ["--command", f"{stage.folder}/node", "--limit", "120", "--json"]
    with slurm(stage) as env:
        more = {**env, "DASK_CONFIG": str(stage.folder / "dask")}
        detected = summary(*stage.fleet("detect", *flags, env=more))
        require((detected["answered"], detected["silent"]) == (len(ANSWERING), {}), detected)
        verified = summary(*stage.fleet("verify", *flags, env=more))
        check(verified, silent=[])
        drained = drained_nodes(stage, env)
        return {"detect": detected, "verify": verified, "drained": drained}


# ---- Dask ----------------------------------------------------------------------------------------


def prove_dask(stage: Stage) -> dict[str, Any]:
    """Verify on a cluster of eight workers: one killed, one hung, one mixed, one off by a bit."""
    import distributed

    names = ("n1", "n2", "n3", "n4", "mixed1", "bit1", "hung1", "killed1")
    address = "tcp://127.0.0.1:18786"
    dask = [
        sys.executable,
        "-m",
        "distributed.cli.dask_scheduler",
        "--port",
        "18786",
        "--no-dashboard",
    ]
    children: dict[str, subprocess.Popen[bytes]] = {}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        children["scheduler"] = subprocess.Popen([*dask, "--host", "127.0.0.1"], **quiet)
        time.sleep(3)
        worker = [
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            address,
            "--no-nanny",
            "--nthreads",
            "1",
        ]
        for name in names:
            node = "hung9" if name == "killed1" else name  # it is killed while it works
            env = {**os.environ, "NODE": node}
            children[name] = subprocess.Popen(
                [*worker, "--name", name, "--no-dashboard"], env=env, **quiet
            )
        with distributed.Client(address, timeout=60) as client:
            client.wait_for_workers(len(names), timeout=120)
        killer = subprocess.Popen(["sh", "-c", f"sleep 12; kill -9 {children['killed1'].pid}"])
        flags = ["--launcher", "dask", "--scheduler", address, "--workers", str(len(names))]
        flags += [
            "--command",
            f"{stage.folder}/node",
            "--limit",
            "60",
            "-o",
            str(stage.folder / "dask-docs"),
        ]
        begin = time.time()
        result = summary(*stage.fleet("verify", *flags, "--json"))
        killer.wait()
        written = [
            path.stat().st_mtime - begin for path in (stage.folder / "dask-docs").glob("*.json")
        ]
        result["answers_written_after_s"] = [round(seconds, 1) for seconds in sorted(written)]
        check(result, silent=["hung1", "killed1"])
        return result
    finally:
        for child in children.values():
            child.kill()
            child.wait(10)


# ---- formats -------------------------------------------------------------------------------------


def prove_promtool(stage: Stage) -> dict[str, Any]:
    """Let promtool check the metrics of a healthy and of a mixed node."""
    said = {}
    for node in ("n1", "mixed1"):
        command = [f"{stage.folder}/node", "verify", "--format", "openmetrics"]
        metrics = subprocess.run(
            command, env={**os.environ, "NODE": node}, capture_output=True, text=True, check=False
        )
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=metrics.stdout,
            capture_output=True,
            text=True,
            check=False,
        )
        said[node] = {
            "verify": metrics.returncode,
            "promtool": done.returncode,
            "said": done.stdout + done.stderr,
        }
        require((done.returncode, said[node]["said"]) == (0, ""), said)
    return said


def prove_nagios(stage: Stage) -> dict[str, Any]:
    """Let the plugin runner "negate" read the line and the exit status of the plugin."""
    negate = "/usr/lib/nagios/plugins/negate"
    said = {}
    # The stand-in of n1 has a release to avoid: WARNING. "negate" turns CRITICAL into OK.
    for node, expected in (("n1", 1), ("mixed1", 0)):
        command = [
            negate,
            "--substitute",
            "--timeout=60",
            f"{stage.folder}/node",
            "verify",
            "--format",
            "nagios",
        ]
        done = subprocess.run(
            command, env={**os.environ, "NODE": node}, capture_output=True, text=True, check=False
        )
        said[node] = {"status": done.returncode, "line": done.stdout.strip()}
        require(done.returncode == expected, said)
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


def prove_nagios_core(stage: Stage) -> dict[str, Any]:
    """Let Nagios itself run the plugin, and return what it has read: state, text and figures."""
    nodes = {"n1": 1, "mixed1": 2}  # WARNING: the stand-in of n1 has a release to avoid
    objects = NAGIOS_OBJECTS + "".join(NAGIOS_NODE.replace("NODE", node) for node in nodes)
    for inline, line in (("{ ", "{\n"), (";", "\n"), (" }", "\n}")):
        objects = objects.replace(inline, line)
    stage.write("objects.cfg", objects)
    configuration = stage.write("nagios.cfg", NAGIOS_CFG)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(["nagios4", str(configuration)], **quiet)
    try:
        begin, read = time.monotonic(), {}
        while len(read) < len(nodes) and time.monotonic() - begin < 60:
            time.sleep(1)
            read = checked_services(stage.folder / "status.dat")
    finally:
        child.terminate()
        child.wait(10)
    for node, state in nodes.items():
        require(read.get(node, {}).get("current_state") == str(state), read)
        require(set(figures(read[node])) == {"time", "passed", "failed", "unknown"}, read)
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


def figures(service: Mapping[str, str]) -> list[str]:
    """Return the names of the performance data."""
    return [item.partition("=")[0] for item in service["performance_data"].split()]


def prove_kubernetes(stage: Stage) -> dict[str, Any]:
    """Check the manifests of docs/hooks by the schemas of Kubernetes that the validator has."""
    said = {}
    for path in manifests():
        manifest = stage.folder / path.name
        # The validator requires a name: it does not know generateName.
        manifest.write_text(path.read_text().replace("generateName:", "name:"))
        command = ["kubernetes-validate", "--strict", str(manifest)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said[path.name] = (done.stdout + done.stderr).strip()
        require(done.returncode == 0, said)
    return said


PROOFS = {
    "clush": ("clush", lambda stage: prove_launcher(stage, "clush", "-R", "exec")),
    "pdsh": ("pdsh", lambda stage: prove_launcher(stage, "pdsh", "-R", "exec")),
    "mpirun": ("mpirun", prove_mpirun),
    "kubectl": ("kubectl", prove_kubectl),
    "slurm": ("slurmctld", prove_slurm),
    "dask": (sys.executable, prove_dask),
    "dask-jobqueue": ("slurmctld", prove_jobqueue),
    "promtool": ("promtool", prove_promtool),
    "nagios": ("/usr/lib/nagios/plugins/negate", prove_nagios),
    "nagios core": ("nagios4", prove_nagios_core),
    "kubernetes": ("kubernetes-validate", prove_kubernetes),
}


def main(words: list[str]) -> None:
    """Print a line for each tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--only", nargs="*", choices=PROOFS)
    arguments = parser.parse_args(words)
    record: dict[str, Any] = {}
    if arguments.only and arguments.record and arguments.record.exists():
        record = json.loads(arguments.record.read_text())  # keep the other results
    for name in arguments.only or PROOFS:
        program, prove = PROOFS[name]
        if shutil.which(program) is None:
            record[name] = {"left out": f"{program} is not installed"}
        else:
            with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
                Path(folder).chmod(0o755)
                record[name] = prove(Stage(Path(folder)))
        print(json.dumps({name: record[name]}), flush=True)
    if arguments.record:
        folders = rf"{re.escape(tempfile.gettempdir())}/fleet-\w+"
        text = re.sub(folders, "FOLDER", json.dumps(record, indent=1))
        arguments.record.write_text(text.replace(f"@{platform.node()}:", "@HOST:") + "\n")
