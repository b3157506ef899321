"""`gpuenv fleet`: the documents of nodes, read from files or collected by launchers."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuenv.errors import InputError
from gpuenv.render.checks import NPD_CHARACTERS
from gpuenv_fleet import dask_cluster, launchers
from gpuenv_fleet.text import fold
from processes import program
from tables import ROOT, data_file, each, read_data
from test_fleet_verify import write

TABLES = data_file("tables/fleet.json")

FAKES = Path(__file__).parent / "fakes"
DETECT = "fleet detect --json --command node"
LAUNCHERS = ("srun", "clush", "pdsh", "mpirun", "kubectl")
H100 = {"name": "NVIDIA H100", "compute_capability": [9, 0]}
V100 = {"name": "Tesla V100", "compute_capability": [7, 0]}


def host(gpu=H100, driver="580.65.06", cuda=(13, 0), **more):
    facts = {"glibc": [2, 35], "python": {"version": [3, 12]}, "driver": driver}
    # A text longer than the 1024 characters after which srun splits a line.
    sources = [["driver", "x" * 1500]]
    return {
        **facts,
        "gpus": [{**gpu, "uuid": os.urandom(4).hex()}],
        "driver_cuda": [*cuda],
        "sources": sources,
        **more,
    }


NODE = """
echo "Welcome to $NODE"
echo "$NODE $*" >> ../asked
case $NODE in *hung*) sleep 60;; *dead*) exit 9;; esac
exec cat "$NODE"
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Return a folder with the answers of the nodes, and put launchers on PATH.

    The node n answers with the file n, if it exists.
    """
    programs, answers = tmp_path / "bin", tmp_path / "answers"
    programs.mkdir()
    answers.mkdir()
    for name in (*LAUNCHERS, "sinfo"):
        program(programs / name, f'exec {sys.executable} {FAKES}/launcher.py {name} "$@"')
    program(programs / "node", NODE)
    monkeypatch.chdir(answers)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return answers


def put(folder, **hosts):
    for name, document in hosts.items():
        (folder / name).write_text(json.dumps(document, indent=2) + "\n")


# ---- lists of nodes ------------------------------------------------------------------------------


@each("text names", TABLES["lists_of_nodes"])
def test_lists_of_nodes(text, names):
    assert launchers.expand_nodes(text) == names
    assert launchers.expand_nodes(fold(names)) == sorted(names)


@each("text", ["", "a[1-", "a]", "a[x]", "a[3-1]", "a[1-99999999999]", "[1-2]]"])
def test_a_wrong_list_of_nodes_is_refused(text):
    with pytest.raises(InputError):
        launchers.expand_nodes(text)


# ---- documents -----------------------------------------------------------------------------------


def test_a_folder_a_file_and_stdin_give_the_same(call, folder, tmp_path, monkeypatch):
    hosts = {"n1": host(), "n2": host(driver="580.95.05"), "n3": host(V100, "550.54.14", (12, 4))}
    put(folder, **{f"{name}.json": document for name, document in hosts.items()})
    lines = write(tmp_path / "all.ndjson", hosts)

    def detected(source):
        document = call(f"fleet detect --from {source} --json").document
        assert document.pop("time")[:2] == "20"
        return document

    document = detected(folder)
    assert detected(lines) == document
    with open(lines) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert detected("-") == document
    assert document["nodes"] == document["answered"] == 3
    assert [(one["gpus"], one["driver"], one["nodes"]) for one in document["classes"]] == [
        (["NVIDIA H100"], "580.65.06", ["n1", "n2"]),
        (["Tesla V100"], "550.54.14", ["n3"]),
    ]
    text = call(f"fleet detect --from {folder}").stdout
    assert "3 of 3 nodes answered" in text
    assert (
        "2  NVIDIA H100, driver 580.65.06 (CUDA 13.0), linux-x86_64, "
        "glibc 2.35, Python 3.12: n[1-2]" in text
    )


@each("text message", TABLES["wrong_documents"])
def test_a_wrong_document_is_one_line(call, tmp_path, text, message):
    (tmp_path / "f").write_text(text.replace("DEEP", "{" * 100_000))
    call(f"fleet detect --from {tmp_path}/f", status=2).says_in_one_line(message)


# ---- launchers -----------------------------------------------------------------------------------


@each("launcher", LAUNCHERS)
def test_each_launcher_runs_one_process_on_each_node(call, cluster, monkeypatch, launcher):
    put(cluster, n1=host(), n2=host(), n3=host(V100, "550.54.14", (12, 4)))
    monkeypatch.setenv("PODS", "n1,n2,n3,dead1")
    command = f"{DETECT} --launcher {launcher} --nodes n[1-3],dead1"
    document = call(command, status=1).document
    assert (document["nodes"], document["answered"]) == (4, 3)
    assert [one["nodes"] for one in document["classes"]] == [["n1", "n2"], ["n3"]]
    [silent] = document["silent"]
    assert silent["node"] == "dead1"
    assert "9" in silent["reason"] or launcher == "kubectl"
    asked = sorted((cluster.parent / "asked").read_text().splitlines())
    assert asked == [f"{node} detect --json" for node in ("dead1", "n1", "n2", "n3")]


@each("launcher", ["srun", "kubectl"])
def test_a_hung_node_is_not_waited_for(call, cluster, monkeypatch, launcher):
    put(cluster, n1=host())
    monkeypatch.setenv("PODS", "n1,hung1")
    begin = time.monotonic()
    done = call(f"{DETECT} --launcher {launcher} --nodes n1,hung1 --limit 3", status=None)
    assert time.monotonic() - begin < 3 + 2.5
    assert done.document["silent"] == [{"node": "hung1", "reason": "no answer in 3 s"}]
    assert done.document["answered"] == 1
    assert "1 of 2 nodes answered; waiting for hung1" in done.stderr


def test_a_run_is_resumed(call, cluster, tmp_path):
    put(cluster, n1=host(), n2=host())
    folder, asked = tmp_path / "docs", cluster.parent / "asked"
    command = f"{DETECT} --launcher clush -o {folder} --nodes"
    first = call(f"{command} n[1-2],dead1", status=None).document
    assert (first["answered"], [one["node"] for one in first["silent"]]) == (2, ["dead1"])
    assert sorted(path.name for path in folder.iterdir()) == ["n1.json", "n2.json"]
    put(cluster, n3=host())
    asked.unlink()
    for _ in range(2):
        second = call(f"{command} n[1-3] --resume").document
        assert (second["answered"], second["silent"]) == (3, [])
        assert asked.read_text() == "n3 detect --json\n"
    document = call(f"fleet detect --from {folder} --json").document
    assert document["classes"] == second["classes"]


def test_pods_that_do_not_run_are_named(call, cluster, monkeypatch):
    put(cluster, n1=host())
    monkeypatch.setenv("PODS", "n1,n2-pending")
    command = f"{DETECT} --launcher kubectl -- -l app=gpuenv"
    document = call(command, status=None).document
    assert document["answered"] == 1
    assert document["silent"] == [
        {"node": "n2-pending", "reason": "the pod gpu/pod-n2-pending is Pending"}
    ]


def test_kubectl_asks_the_pods_in_the_cluster_that_lists_them(cluster, monkeypatch):
    monkeypatch.setenv("PODS", "n1")
    options = ["--context", "prod", "--user=me", "-s", "https://k8s", "--insecure-skip-tls-verify"]
    arguments = [*options, "-l", "app=gpuenv", "-n", "gpu"]
    launch = launchers.plan_launch("kubectl", None, ["gpuenv", "detect"], arguments)
    pod = ("--namespace", "gpu", "pod-n1", "--", "gpuenv", "detect")
    assert launch.commands == {"n1": ("kubectl", "exec", *options, *pod)}


class Workers:
    """A stand-in for the client of Dask, which the tests do not install: {address: worker}."""

    def __init__(self, workers, variables):
        self.workers, self.variables = workers, variables

    def scheduler_info(self, n_workers):
        assert n_workers == -1  # without this, Dask returns five workers
        return {"workers": self.workers}

    def run(self, function, *arguments):
        if arguments == ("SLURMD_NODENAME",):
            return {address: self.variables.get(address) for address in self.workers}
        return dict.fromkeys(self.workers, "login1")


def test_the_nodes_of_workers():
    workers = {
        "tcp://a:1": {"name": "SLURMCluster-0", "host": "10.0.0.1"},
        "tcp://a:2": {"name": "SLURMCluster-1", "host": "10.0.0.1"},
        "tcp://b:1": {"name": "SLURMCluster-2", "host": "10.0.0.2"},
    }
    client = Workers(workers, {"tcp://a:1": "gpu7", "tcp://a:2": "gpu7"})
    names = dask_cluster.worker_nodes(client, are_jobs=True)
    assert list(names.values()) == ["gpu7", "gpu7-SLURMCluster-1", "login1"]
    named = {"tcp://a:1": {"name": "rack/1", "host": "10.0.0.1"}}
    assert dask_cluster.worker_nodes(Workers(named, {}), are_jobs=False) == {"tcp://a:1": "rack-1"}
    numbered = {"tcp://a:1": {"name": 0, "host": "10.0.0.1"}}
    client = Workers(numbered, {})
    assert dask_cluster.worker_nodes(client, are_jobs=False) == {"tcp://a:1": "10.0.0.1"}


# ---- the examples in docs/hooks ------------------------------------------------------------------

HOOKS = ROOT / "docs" / "hooks"


@each("verified reason expected", TABLES["the_health_check_of_slurm"])
def test_the_health_check_of_slurm(tmp_path, verified, reason, expected):
    said = f" Reason={reason} [root@2026-11-22T10:00:00]" if reason else ""
    programs = {
        "gpuenv": f"echo 'gpuenv: fail: mixed'; exit {0 if verified else 1}",
        "scontrol": f'case $1 in update) echo "$*" >> {tmp_path}/log;; '
        f"*) echo 'NodeName=gpu7 State=IDLE{said}';; esac",
    }
    for name, body in programs.items():
        program(tmp_path / name, body)
    (tmp_path / "log").touch()
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GPUENV": "gpuenv", "SLURMD_NODENAME": "gpu7"}
    subprocess.run([HOOKS / "slurm-health-check.sh"], env=env, check=True)
    assert (tmp_path / "log").read_text().strip() == expected


@each("status content", TABLES["the_textfile_is_replaced_if_something_was_checked"])
def test_the_textfile_is_replaced_if_something_was_checked(tmp_path, status, content):
    gpuenv = program(tmp_path / "gpuenv", f"echo new\nexit {status}")
    (tmp_path / "gpuenv.prom").write_text("old\n")
    env = {"PATH": "/usr/bin:/bin", "GPUENV": str(gpuenv), "TEXTFILE_FOLDER": str(tmp_path)}
    subprocess.run([HOOKS / "textfile.sh"], env=env, check=False)
    assert (tmp_path / "gpuenv.prom").read_text() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpuenv", "gpuenv.prom"]


def test_the_manifests_can_be_read():
    import yaml

    kinds = {
        name: yaml.safe_load((HOOKS / name).read_text())["kind"]
        for name in ("daemonset.yaml", "job.yaml")
    }
    assert kinds == {"daemonset.yaml": "DaemonSet", "job.yaml": "Job"}
    plugin = read_data(HOOKS / "npd.json")
    assert plugin["pluginConfig"]["max_output_length"] == NPD_CHARACTERS
    assert plugin["rules"][0]["condition"] == plugin["conditions"][0]["type"]
