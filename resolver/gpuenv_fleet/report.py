"""The JSON documents of `gpuenv fleet`. text.py and the explorer's pages show them to people."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from gpuenv import Host, to_plain

from .classes import Classes
from .documents import Collection, Silence
from .solve import FleetSolution, Group


def detect_json(collection: Collection, classes: Classes) -> dict[str, Any]:
    """Return the document of `fleet detect --json`."""
    return {
        "kind": "fleet-detect",
        "time": now(),
        "nodes": classes.answered + len(collection.silent),
        "answered": classes.answered,
        "seconds": collection.seconds,
        "classes": classes_json(classes),
        "silent": silence_json(collection.silent),
        "unknown": silence_json(classes.unknown),
    }


def now() -> str:
    """Return the time of a run, as its document has it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def classes_json(classes: Classes) -> list[dict[str, Any]]:
    """Return the classes with their hosts and nodes."""
    return [
        {**_host_json(host_class.host), "nodes": list(host_class.nodes)}
        for host_class in classes.classes
    ]


def _host_json(host: Host) -> dict[str, Any]:
    """Return the facts of a host that decide its class."""

    def text(pair: tuple[int, int] | None) -> str | None:
        return None if pair is None else f"{pair[0]}.{pair[1]}"

    return {
        "gpus": list(dict.fromkeys(gpu.name for gpu in host.gpus)),
        "driver": host.driver,
        "driver_cuda": text(host.driver_cuda),
        "platform": host.platform,
        "glibc": text(host.glibc),
        "python": f"{text(host.python.version)}{'t' * host.python.free_threaded}",
    }


def silence_json(silent: Iterable[Silence]) -> list[dict[str, str]]:
    """Return the nodes without an answer."""
    return list(map(asdict, silent))


def solve_json(
    collection: Collection, classes: Classes, solution: FleetSolution, *, solves: int
) -> dict[str, Any]:
    """Return the document of `fleet solve --json`. Groups name their classes by number."""
    return {
        "kind": "fleet-solve",
        "time": now(),
        "nodes": classes.answered + len(collection.silent),
        "locks": len(solution.plans[0].groups) if solution.plans else 0,
        "proved": solution.proved,
        "classes": classes_json(classes),
        "plans": [
            {
                "locks": len(plan.groups),
                "cost": plan.cost,
                "groups": [_group_json(group, solution) for group in plan.groups],
            }
            for plan in solution.plans
        ],
        "what_if": [
            {
                "driver": what_if.driver,
                "classes": list(what_if.items),
                "nodes": solution.count(what_if.items),
                "locks": what_if.locks,
                "solved": what_if.solved,
                "gains": list(map(asdict, what_if.gains)),
            }
            for what_if in solution.what_if
        ],
        "unsolved": [
            {"class": unsolved.item, "reasons": to_plain(unsolved.reasons)}
            for unsolved in solution.unsolved
        ],
        "silent": silence_json(collection.silent),
        "unknown": silence_json(classes.unknown),
        "solves": solves,
    }


def _group_json(group: Group, solution: FleetSolution) -> dict[str, Any]:
    older: dict[tuple[str, str], int] = {}
    versions = dict(group.lock.versions)
    for item in group.items:
        for name, newest in (solution.newest[item] or {}).items():
            if versions.get(name, newest) != newest:
                older[name, newest] = older.get((name, newest), 0) + solution.count([item])
    return {
        "classes": list(group.items),
        "nodes": solution.count(group.items),
        "versions": versions,
        "older": [
            {"name": name, "newest": newest, "nodes": count}
            for (name, newest), count in older.items()
        ],
        "needs": to_plain(group.lock.lock.needs),
        "host": _host_json(group.lock.host),
    }
