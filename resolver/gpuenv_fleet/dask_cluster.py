"""Run one process on each worker of a Dask cluster. It needs the extra gpuenv[fleet]."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gpuenv import InputError

from .collect import OnAnswer, OnProgress
from .documents import Answer, Collection, Silence

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
    on_progress: OnProgress | None = None,
    *,
    workers: int = 1,
    without: frozenset[str] = frozenset(),
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
    answers: list[Answer] = []
    silent: list[Silence] = []
    missing: list[Silence] = []
    with _client(scheduler, workers) as client:
        try:
            client.wait_for_workers(workers, timeout=limit / 2)
        except TimeoutError:
            joined = len(client.scheduler_info(n_workers=-1)["workers"])
            reason = f"did not join the cluster in {limit / 2:g} s"
            names = [f"worker-{number}" for number in range(joined + 1, workers + 1)]
            missing += [Silence(node=name, reason=reason) for name in names]
        nodes = _nodes_of_jobs(client) if scheduler in JOB_QUEUES else {}
        waiting = {
            address: name for address, name in _names(client, nodes).items() if name not in without
        }
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
            ended = [address for address in waiting if futures[address].done()]
            for address in ended:
                node = waiting.pop(address)
                answer = _answer(node, futures[address])
                if isinstance(answer, Silence):
                    silent.append(answer)
                else:
                    answers.append(answer)
                    on_answer(answer)
            if ended:
                continue
            time.sleep(_STEP)
            alive = client.scheduler_info(n_workers=-1)["workers"]
            for address in set(waiting) - set(alive):  # the scheduler has lost them
                if not futures[address].done():
                    reason = "the worker has left the cluster"
                    silent.append(Silence(node=waiting.pop(address), reason=reason))
            if on_progress is not None and waiting and time.monotonic() >= next_report:
                next_report = time.monotonic() + 1.0
                on_progress(len(answers), len(futures), sorted(waiting.values()))
        late = f"no answer in {limit:g} s"
        silent += [Silence(node=node, reason=late) for node in waiting.values()]
        client.cancel(list(futures.values()), force=True)
    return Collection(
        answers=tuple(sorted(answers, key=lambda answer: answer.node)),
        silent=(*silent, *missing),
        seconds=round(time.monotonic() - begin, 3),
    )


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


def _nodes_of_jobs(client: Any) -> dict[str, str]:
    """Return the name of the node of each job, by the address of its worker.

    dask-jobqueue names its workers by number. A number does not say which node it is.
    """
    slurm = client.run(os.getenv, "SLURMD_NODENAME")
    hosts = client.run(platform.node)
    return {address: slurm.get(address) or host for address, host in hosts.items()}


def _names(client: Any, nodes: Mapping[str, str]) -> dict[str, str]:
    """Return the name of the node of each worker, by its address.

    This is the node of the worker's job, otherwise the name that the user gave the worker,
    otherwise its host. If two workers are on one node, the own name of the second is appended.
    """
    names: dict[str, str] = {}
    workers: Mapping[str, Mapping[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    for address, worker in workers.items():
        own = str(worker["name"])
        name = nodes.get(address, own)
        if name == address or name.isdecimal():
            name = str(worker["host"])
        name = name.replace("/", "-")
        names[address] = name if name not in names.values() else f"{name}-{own}"
    return names


def _answer(node: str, future: Any) -> Answer | Silence:
    """Return what a node answered, or why its process gave no document."""
    error = future.exception()
    if error is not None:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        return Silence(node=node, reason=reason)
    done = future.result()
    try:
        return Answer(node=node, document=json.loads(done.stdout[done.stdout.index("{") :]))
    except ValueError:
        last = done.stderr.strip().rpartition("\n")[2]
        return Silence(node=node, reason=last or f"its process ended with {done.returncode}")
