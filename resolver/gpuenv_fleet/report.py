"""The JSON documents of `gpuenv fleet`. render/fleet.py and render/html.py show them to people."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from gpuenv import Host, to_plain

from .classes import Classes, HostClass, gpu_names
from .documents import Answer, Collection, Silence
from .solve import FleetSolution, Group, LockPlan, WhatIf
from .verify import Verification, checks_of


def detect_json(collection: Collection, classes: Classes) -> dict[str, Any]:
    """Return the document of `fleet detect --json`."""
    return {
        "kind": "fleet-detect",
        "time": now(),
        "nodes": len(collection.answers) + len(collection.silent),
        "answered": len(collection.answers),
        "seconds": collection.seconds,
        "classes": classes_json(classes.classes),
        "silent": silence_json(collection.silent),
        "unknown": silence_json(classes.unknown),
    }


def now() -> str:
    """Return the time of a run, as its document has it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def classes_json(classes: Sequence[HostClass]) -> list[dict[str, Any]]:
    """Return the classes with their hosts and nodes."""
    return [
        {**host_json(host_class.host), "nodes": list(host_class.nodes)} for host_class in classes
    ]


def host_json(host: Host) -> dict[str, Any]:
    """Return the facts of a host that decide its class."""
    python = _pair_text(host.python.version) or ""
    if host.python.free_threaded:
        python += "t"
    return {
        "gpus": gpu_names(host.gpus),
        "driver": host.driver,
        "driver_cuda": _pair_text(host.driver_cuda),
        "platform": host.platform,
        "glibc": _pair_text(host.glibc),
        "python": python,
    }


def _pair_text(pair: tuple[int, int] | None) -> str | None:
    return None if pair is None else f"{pair[0]}.{pair[1]}"


def silence_json(silent: Iterable[Silence]) -> list[dict[str, str]]:
    """Return the nodes without an answer."""
    return [{"node": silence.node, "reason": silence.reason} for silence in silent]


def solve_json(
    collection: Collection, classes: Classes, solution: FleetSolution, *, solves: int
) -> dict[str, Any]:
    """Return the document of `fleet solve --json`. Groups name their classes by number."""
    return {
        "kind": "fleet-solve",
        "time": now(),
        "nodes": len(collection.answers) + len(collection.silent),
        "locks": len(solution.plans[0].groups) if solution.plans else 0,
        "proved": solution.proved,
        "classes": classes_json(classes.classes),
        "plans": [_plan_json(plan, solution) for plan in solution.plans],
        "what_if": [_what_if_json(what_if, solution) for what_if in solution.what_if],
        "unsolved": [
            {"class": unsolved.item, "reasons": to_plain(unsolved.reasons)}
            for unsolved in solution.unsolved
        ],
        "silent": silence_json(collection.silent),
        "unknown": silence_json(classes.unknown),
        "solves": solves,
    }


def _plan_json(plan: LockPlan, solution: FleetSolution) -> dict[str, Any]:
    return {
        "locks": len(plan.groups),
        "cost": plan.cost,
        "groups": [_group_json(group, solution) for group in plan.groups],
    }


def _group_json(group: Group, solution: FleetSolution) -> dict[str, Any]:
    older: dict[tuple[str, str], int] = {}
    versions = dict(group.lock.versions)
    for item in group.items:
        for name, newest in (solution.newest[item] or {}).items():
            if versions.get(name, newest) != newest:
                count = len(solution.classes[item].nodes)
                older[name, newest] = older.get((name, newest), 0) + count
    return {
        "classes": list(group.items),
        "nodes": sum(len(solution.classes[item].nodes) for item in group.items),
        "versions": versions,
        "older": [
            {"name": name, "newest": newest, "nodes": count}
            for (name, newest), count in older.items()
        ],
        "needs": to_plain(group.lock.lock.needs),
        "host": host_json(group.lock.host),
    }


def _what_if_json(what_if: WhatIf, solution: FleetSolution) -> dict[str, Any]:
    return {
        "driver": what_if.driver,
        "classes": list(what_if.items),
        "nodes": sum(len(solution.classes[item].nodes) for item in what_if.items),
        "locks": what_if.locks,
        "solved": what_if.solved,
        "gains": list(map(asdict, what_if.gains)),
    }


def verify_json(
    collection: Collection, classes: Classes, verification: Verification
) -> dict[str, Any]:
    """Return the document of `fleet verify --json`. Outliers name their class by number."""
    ok = not (verification.failures or verification.differing or collection.silent)
    outliers = []
    for outlier in verification.outliers:
        plain = asdict(outlier)
        plain["class"] = plain.pop("item")
        outliers.append(plain)
    return {
        "kind": "fleet-verify",
        "time": now(),
        "ok": ok,
        "nodes": len(collection.answers) + len(collection.silent),
        "answered": len(collection.answers),
        "passed": len(verification.passed),
        "seconds": collection.seconds,
        "failures": list(map(asdict, verification.failures)),
        "outliers": outliers,
        "changes": list(map(asdict, verification.changes)),
        "classes": classes_json(classes.classes),
        "silent": silence_json(collection.silent),
        "unknown": silence_json(classes.unknown),
        "results": [_result_json(answer) for answer in collection.answers],
    }


def _result_json(answer: Answer) -> dict[str, Any]:
    """Return the checks of a node."""
    checks = list(checks_of(answer))
    return {"node": answer.node, "ok": answer.document.get("ok") is True, "checks": checks}
