"""Group hosts into classes: hosts of one class need the same of a lock.

The facts that count are the platform, the glibc, the Python, the compute capabilities, and what the
driver allows. Two driver releases count as one if no build tells them apart
(`CompatibilityData.driver_steps`). The number of devices and their memory do not count.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuenv import (
    Gpu,
    Host,
    InputError,
    Python,
    compatibility_data,
    host_from_plain,
    parse_release,
    reaches_release,
)
from gpuenv.commands import show_pair

from .documents import Collection, Document


@dataclass(frozen=True, kw_only=True)
class HostClass:
    """Hosts that need the same of a lock.

    `host` stands for all of them: one device of each compute capability, and the oldest driver
    release of the class.
    """

    host: Host
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Classes:
    """The classes of a fleet, the largest first, and what is not known of the other hosts."""

    collection: Collection
    classes: tuple[HostClass, ...]
    unknown: Mapping[str, str]


def classify(collection: Collection) -> Classes:
    """Group the hosts of documents.

    Raises:
        InputError: a document has no host, or two documents are of one node.
    """
    groups: dict[tuple[object, ...], tuple[Host, list[str]]] = {}
    unknown: dict[str, str] = {}
    seen: set[str] = set()
    for node, document in collection.answers:
        if node in seen:
            raise InputError(f"{node}: has two documents", hint="keep the newer one")
        seen.add(node)
        host = _read_host(node, document)
        doubt = _doubt(host)
        if doubt:
            unknown[node] = doubt
            continue
        key = (
            host.platform,
            host.glibc,
            host.python.version,
            host.python.free_threaded,
            host.driver_cuda if host.gpus else None,
            driver_step(host.driver, host.os) if host.gpus else "",
            frozenset(host.capabilities),
        )
        known, nodes = groups.setdefault(key, (host, []))
        nodes.append(node)
        if parse_release(host.driver or "0") < parse_release(known.driver or "0"):
            groups[key] = (known.replace(driver=host.driver), nodes)
    classes = []
    for host, nodes in groups.values():
        # No fact of one machine.
        representative = Host(
            os=host.os,
            machine=host.machine,
            glibc=host.glibc,
            python=Python(version=host.python.version, free_threaded=host.python.free_threaded),
            gpus=distinct_gpus(host.gpus),
            driver=host.driver if host.gpus else None,
            driver_cuda=host.driver_cuda if host.gpus else None,
        )
        classes.append(HostClass(host=representative, nodes=tuple(sorted(nodes))))
    classes.sort(key=lambda host_class: (-len(host_class.nodes), host_class.nodes))
    return Classes(collection=collection, classes=tuple(classes), unknown=unknown)


def _read_host(node: str, document: Document) -> Host:
    """Return the host in a document of `detect --json` or `verify --json`."""
    data = document.get("host", document)
    if not isinstance(data, dict) or "python" not in data:
        hint = "it must be a document of gpuenv detect --json or of gpuenv verify --json"
        raise InputError(f"{node}: the document has no host", hint=hint)
    try:
        return host_from_plain(data)
    except (ValueError, TypeError) as error:
        raise InputError(f"{node}: {error}") from None


def _doubt(host: Host) -> str:
    """Return which fact is missing that a lock depends on; "" if there is none."""
    if not host.gpus and host.problems:
        return f"no usable GPU: {host.problems[0].detail}"
    if host.os == "linux" and host.glibc is None:
        return "the glibc version is not known"
    if host.gpus and host.driver is None:
        return "the driver release is not known"
    for gpu in host.gpus:
        if gpu.compute_capability is None:
            return f"the compute capability of {gpu.name} is not known"
    return ""


def driver_step(driver: str | None, os: str) -> str:
    """Return the newest driver release from which on more runs that a driver reaches."""
    steps = compatibility_data().driver_steps(os) if driver is not None else ()
    reached = [step for step in steps if reaches_release(driver or "", step)]
    return max(reached, key=parse_release, default="")


def distinct_gpus(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return one device of each compute capability, in the order of the capabilities."""
    distinct: dict[object, Gpu] = {}
    for gpu in sorted(gpus, key=lambda gpu: (gpu.compute_capability or (0, 0), gpu.name)):
        plain = Gpu(name=gpu.name, compute_capability=gpu.compute_capability)
        distinct.setdefault(gpu.compute_capability, plain)
    return tuple(distinct.values())


# ---- documents -----------------------------------------------------------------------------------


def fleet_json(kind: str, classes: Classes) -> dict[str, Any]:
    """Return what the JSON documents of all commands have."""
    collection = classes.collection
    answered = sum(len(host_class.nodes) for host_class in classes.classes) + len(classes.unknown)
    return {
        "kind": kind,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "nodes": answered + len(collection.silent),
        "answered": answered,
        "seconds": collection.seconds,
        "classes": [
            {**host_json(host_class.host), "nodes": list(host_class.nodes)}
            for host_class in classes.classes
        ],
        "silent": _reasons_json(collection.silent),
        "unknown": _reasons_json(classes.unknown),
    }


def host_json(host: Host) -> dict[str, Any]:
    """Return the facts of a host that decide its class."""
    return {
        "gpus": list(dict.fromkeys(gpu.name for gpu in host.gpus)),
        "driver": host.driver,
        "driver_cuda": host.driver_cuda and show_pair(host.driver_cuda),
        "platform": host.platform,
        "glibc": host.glibc and show_pair(host.glibc),
        "python": host.python.release,
    }


def _reasons_json(reasons: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"node": node, "reason": reason} for node, reason in reasons.items()]
