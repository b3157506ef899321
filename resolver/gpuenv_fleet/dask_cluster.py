"""Run one process on each worker of a Dask cluster. It needs the extra gpuenv[fleet]."""

from __future__ import annotations

import json
import os
import platform
import queue
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
    with _client(scheduler, workers) as client:
        missing = _wait_for_workers(client, workers, limit / 2)
        nodes = _nodes_of_jobs(client) if scheduler in JOB_QUEUES else {}
        names = _names(client, nodes)
        names = {address: name for address, name in names.items() if name not in without}
        run = _Run(client, names, command, limit, on_answer)
        try:
            run.wait(begin + limit, on_progress)
        finally:
            client.cancel(list(run.futures.values()), force=True)
    return Collection(
        answers=tuple(sorted(run.answers, key=lambda answer: answer.node)),
        silent=(*run.silent, *missing),
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
            n_workers=max(workers, 1), threads_per_worker=1, dashboard_address=None
        )
        return distributed.Client(cluster, set_as_default=False)
    if scheduler not in JOB_QUEUES:
        known = ", ".join(("tcp://HOST:PORT", "local", *JOB_QUEUES))
        raise InputError(f"--scheduler {scheduler}: is none of {known}")
    import dask_jobqueue

    job_queue = vars(dask_jobqueue)[JOB_QUEUES[scheduler]]()
    job_queue.scale(jobs=max(workers, 1))
    return distributed.Client(job_queue, set_as_default=False)


def _wait_for_workers(client: Any, workers: int, limit: float) -> list[Silence]:
    """Wait until the workers have joined the cluster, and return those that have not in time."""
    try:
        client.wait_for_workers(workers, timeout=limit)
    except TimeoutError:
        joined = len(client.scheduler_info(n_workers=-1)["workers"])
        reason = f"did not join the cluster in {limit:g} s"
        return [
            Silence(node=f"worker-{number}", reason=reason)
            for number in range(joined + 1, workers + 1)
        ]
    return []


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


class _Run:
    """The processes on the workers, and what they answered."""

    def __init__(
        self,
        client: Any,
        names: Mapping[str, str],
        command: Sequence[str],
        limit: float,
        on_answer: OnAnswer,
    ) -> None:
        self.client, self.names, self.limit, self.on_answer = client, names, limit, on_answer
        self.answers: list[Answer] = []
        self.silent: list[Silence] = []
        self.waiting = dict(names)
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.futures = {}
        for address in names:
            future = client.submit(
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
            future.add_done_callback(lambda _, address=address: self._done.put(address))
            self.futures[address] = future

    def wait(self, deadline: float, on_progress: OnProgress | None) -> None:
        """Wait for the workers until the deadline."""
        next_report = time.monotonic() + 1.0
        while self.waiting and time.monotonic() < deadline:
            try:
                self._read(self._done.get(timeout=_STEP))
            except queue.Empty:
                self._name_those_that_left()
            if on_progress is not None and self.waiting and time.monotonic() >= next_report:
                next_report = time.monotonic() + 1.0
                waiting = sorted(self.waiting.values())
                on_progress(len(self.answers), len(self.names), waiting)
        for address in list(self.waiting):
            self._give_up(address, f"no answer in {self.limit:g} s")

    def _read(self, address: str) -> None:
        """Read the result of a worker."""
        if address not in self.waiting:
            return
        error = self.futures[address].exception()
        if error is not None:
            self._give_up(address, f"{type(error).__name__}: {error}".partition("\n")[0])
            return
        done = self.futures[address].result()
        try:
            document = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError:
            last = done.stderr.strip().rpartition("\n")[2]
            self._give_up(address, last or f"its process ended with {done.returncode}")
            return
        answer = Answer(node=self.waiting.pop(address), document=document)
        self.answers.append(answer)
        self.on_answer(answer)

    def _name_those_that_left(self) -> None:
        """Give up on workers that the scheduler has lost."""
        alive = self.client.scheduler_info(n_workers=-1)["workers"]
        for address in set(self.waiting) - set(alive):
            if not self.futures[address].done():
                self._give_up(address, "the worker has left the cluster")

    def _give_up(self, address: str, reason: str) -> None:
        self.silent.append(Silence(node=self.waiting.pop(address), reason=reason))
