"""Group hosts into classes: hosts of one class need the same of a lock.

The facts that count are the platform, the glibc, the Python, the compute capabilities, and what the
driver allows. Two driver releases count as one if no build tells them apart
(`CompatibilityData.driver_steps`). The number of devices and their memory do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

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

from .documents import Answer, Silence


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
    """The classes of a fleet, the largest first, and the hosts of which a fact is not known."""

    classes: tuple[HostClass, ...]
    unknown: tuple[Silence, ...] = ()

    @property
    def answered(self) -> int:
        """The number of hosts."""
        return sum(len(host_class.nodes) for host_class in self.classes) + len(self.unknown)


def classify(answers: Iterable[Answer]) -> Classes:
    """Group the hosts of documents.

    Raises:
        InputError: a document has no host, or two documents are of one node.
    """
    groups: dict[tuple[object, ...], tuple[Host, list[str]]] = {}
    unknown: list[Silence] = []
    seen: set[str] = set()
    for answer in answers:
        if answer.node in seen:
            raise InputError(f"{answer.node}: has two documents", hint="keep the newer one")
        seen.add(answer.node)
        host = _read_host(answer)
        doubt = _doubt(host)
        if doubt:
            unknown.append(Silence(node=answer.node, reason=doubt))
            continue
        key = (
            host.platform,
            host.glibc,
            host.python.version,
            host.python.free_threaded,
            host.driver_cuda if host.gpus else None,
            driver_step(host) if host.gpus else "",
            frozenset(gpu.compute_capability for gpu in host.gpus),
        )
        known, nodes = groups.setdefault(key, (host, []))
        nodes.append(answer.node)
        if parse_release(host.driver or "0") < parse_release(known.driver or "0"):
            groups[key] = (known.replace(driver=host.driver), nodes)
    classes = [
        HostClass(host=_representative(host), nodes=tuple(sorted(nodes)))
        for host, nodes in groups.values()
    ]
    classes.sort(key=lambda host_class: (-len(host_class.nodes), host_class.nodes))
    return Classes(classes=tuple(classes), unknown=tuple(unknown))


def _read_host(answer: Answer) -> Host:
    """Return the host in a document of `detect --json` or `verify --json`."""
    data = answer.document.get("host", answer.document)
    if not isinstance(data, dict) or "python" not in data:
        hint = "it must be a document of gpuenv detect --json or of gpuenv verify --json"
        raise InputError(f"{answer.node}: the document has no host", hint=hint)
    try:
        return host_from_plain(data)
    except (ValueError, TypeError) as error:
        raise InputError(f"{answer.node}: {error}") from None


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


def driver_step(host: Host) -> str:
    """Return the newest driver release from which on more runs that the host's driver reaches."""
    return "" if host.driver is None else _step_of(host.driver, host.os)


@cache
def _step_of(driver: str, os: str) -> str:
    steps = compatibility_data().driver_steps(os)
    reached = [step for step in steps if reaches_release(driver, step)]
    return max(reached, key=parse_release, default="")


def _representative(host: Host) -> Host:
    """Return a host with one device of each compute capability and no fact of one machine."""
    return Host(
        os=host.os,
        machine=host.machine,
        glibc=host.glibc,
        python=Python(version=host.python.version, free_threaded=host.python.free_threaded),
        gpus=distinct_gpus(host.gpus),
        driver=host.driver if host.gpus else None,
        driver_cuda=host.driver_cuda if host.gpus else None,
    )


def distinct_gpus(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return one device of each compute capability, in the order of the capabilities."""
    distinct: dict[object, Gpu] = {}
    for gpu in sorted(gpus, key=lambda gpu: (gpu.compute_capability or (0, 0), gpu.name)):
        plain = Gpu(name=gpu.name, compute_capability=gpu.compute_capability)
        distinct.setdefault(gpu.compute_capability, plain)
    return tuple(distinct.values())
