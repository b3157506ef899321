"""The JSON documents of `gpuenv fleet`. render/fleet.py and render/html.py show them to people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..model import Host, show_pair
from .classes import Classes, HostClass, gpu_names
from .documents import Collection, Silence


def detect_json(collection: Collection, classes: Classes) -> dict[str, Any]:
    """Return the document of `fleet detect --json`."""
    return {
        "kind": "fleet-detect",
        "nodes": len(collection.answers) + len(collection.silent),
        "answered": len(collection.answers),
        "seconds": collection.seconds,
        "classes": classes_json(classes.classes),
        "silent": silence_json(collection.silent),
        "unknown": silence_json(classes.unknown),
    }


def classes_json(classes: Sequence[HostClass]) -> list[dict[str, Any]]:
    """Return the classes with their hosts and nodes."""
    return [{**host_json(one.host), "nodes": list(one.nodes)} for one in classes]


def host_json(host: Host) -> dict[str, Any]:
    """Return the facts of a host that decide its class."""
    python = show_pair(host.python.version)
    if host.python.free_threaded:
        python += "t"
    return {
        "gpus": gpu_names(host.gpus),
        "driver": host.driver,
        "driver_cuda": None if host.driver_cuda is None else show_pair(host.driver_cuda),
        "platform": host.platform,
        "glibc": None if host.glibc is None else show_pair(host.glibc),
        "python": python,
    }


def silence_json(silent: Iterable[Silence]) -> list[dict[str, str]]:
    """Return the nodes without an answer."""
    return [{"node": silence.node, "reason": silence.reason} for silence in silent]
