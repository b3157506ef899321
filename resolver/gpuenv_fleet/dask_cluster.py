"""Run one process on each worker of a Dask cluster. It needs the extra gpuenv[fleet]."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from typing import Any

from gpuenv import InputError

from .collect import OnAnswer, OnProgress
from .documents import Collection, Document

# The queue systems of dask-jobqueue. Its own configuration file says how it submits jobs.
JOB_QUEUES = {
    "slurm": "SLURMCluster",
    "pbs": "PBSCluster",
    "lsf": "LSFCluster",
    "sge": "SGECluster",
    "htcondor": "HTCondorCluster",
}
_CONNECT_LIMIT = 30.0  # seconds
_STEP = 0.2  # seconds between two looks at the workers


def collect_with_dask(
    scheduler: str,
    command: Sequence[str],
    limit: float,
    on_answer: OnAnswer,
    on_progress: OnProgress,
    *,
    workers: int = 1,
    without: Names[str] = (),
) -> Collection:
    """Run a command once on each worker, and return what the workers answered.

    Args:
        scheduler: tcp://HOST:PORT, "local", or the name of a queue system in JOB_QUEUES.
        command: the command of each worker.
        limit: seconds to wait for all workers.
        on_answer: is called with each answer as soon as it is there.
        on_progress: as for `collect.collect`.
        workers: how many workers to start, and to wait for.
        without: workers that have answered in an earlier run.

    Raises:
        InputError: Dask is not installed, or there is no such scheduler.
    """
    begin = time.monotonic()
    answers: dict[str, Document] = {}
    silent: dict[str, str] = {}
    with _client(scheduler, workers) as client:
        try:
            client.wait_for_workers(workers, timeout=limit / 2)
        except TimeoutError:
            joined = len(client.scheduler_info(n_workers=-1)["workers"])
            for number in range(joined + 1, workers + 1):
                silent[f"worker-{number}"] = f"did not join the cluster in {limit / 2:g} s"
        names = worker_nodes(client, are_jobs=scheduler in JOB_QUEUES)
        waiting = {address: name for address, name in names.items() if name not in without}
        futures = {
            address: client.submit(
                subprocess.run,
                list(command),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=limit,
                workers=[address],
                pure=False,
                retries=0,
            )
            for address in waiting
        }
        next_report = time.monotonic() + 1.0
        while waiting and time.monotonic() < begin + limit:
            time.sleep(_STEP)
            alive = client.scheduler_info(n_workers=-1)["workers"]
            for address, node in list(waiting.items()):
                if futures[address].done():
                    answer = _answer(futures[address])
                    if isinstance(answer, str):
                        silent[node] = answer
                    else:
                        answers[node] = answer
                        on_answer(node, answer)
                elif address in alive:
                    continue
                else:  # the scheduler has lost it
                    silent[node] = "the worker has left the cluster"
                del waiting[address]
            if waiting and time.monotonic() >= next_report:
                next_report = time.monotonic() + 1.0
                on_progress(len(answers), len(futures), sorted(waiting.values()))
        silent |= dict.fromkeys(waiting.values(), f"no answer in {limit:g} s")
        client.cancel(list(futures.values()), force=True)
    seconds = round(time.monotonic() - begin, 3)
    return Collection(answers=sorted(answers.items()), silent=silent, seconds=seconds)


def _client(scheduler: str, workers: int) -> Any:
    """Return a client of the cluster; closing it ends a cluster that it started."""
    try:
        import distributed
    except ImportError:
        hint = "pip install 'gpuenv[fleet]'"
        raise InputError("--launcher dask: needs Dask", hint=hint) from None
    if "://" in scheduler:
        try:
            return distributed.Client(scheduler, timeout=_CONNECT_LIMIT, set_as_default=False)
        except OSError as error:
            raise InputError(f"--scheduler {scheduler}: no answer: {error}") from None
    if scheduler == "local":
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None
        )
    elif scheduler in JOB_QUEUES:
        import dask_jobqueue

        cluster = getattr(dask_jobqueue, JOB_QUEUES[scheduler])()
        cluster.scale(jobs=workers)
    else:
        known = ", ".join(("tcp://HOST:PORT", "local", *JOB_QUEUES))
        raise InputError(f"--scheduler {scheduler}: is none of {known}")
    return distributed.Client(cluster, set_as_default=False)


def worker_nodes(client: Any, *, are_jobs: bool) -> dict[str, str]:
    """Return the name of the node of each worker, by its address.

    This is the node of the worker's job, otherwise the name that the user gave the worker,
    otherwise its host. dask-jobqueue names its workers by number, which does not say which node
    they are on. If two workers are on one node, the own name of the second is appended.
    """
    workers: Mapping[str, Mapping[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    slurm = client.run(os.getenv, "SLURMD_NODENAME") if are_jobs else {}
    hosts = client.run(platform.node) if are_jobs else {}
    names: dict[str, str] = {}
    for address, worker in workers.items():
        own = str(worker["name"])
        name = slurm.get(address) or hosts.get(address) or own
        if name == address or name.isdecimal():
            name = str(worker["host"])
        name = name.replace("/", "-")
        names[address] = name if name not in names.values() else f"{name}-{own}"
    return names


def _answer(future: Any) -> Document | str:
    """Return what a node answered, or why its process gave no document."""
    error = future.exception()
    if error is not None:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    done = future.result()
    try:
        document: Document = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        last: str = done.stderr.strip().rpartition("\n")[2]
        return last or f"its process ended with {done.returncode}"
    return document
