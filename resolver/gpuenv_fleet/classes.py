"""Group hosts into classes: hosts of one class need the same of a lock.

The facts that count are the platform, the glibc, the Python, the compute capabilities, and what the
driver allows. Two driver releases count as one if no build tells them apart
(`CompatibilityData.driver_steps`). The number of devices and their memory do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
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

from .documents import Answer, Document, Silence

Key = tuple[object, ...]


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


class _Group:
    """A class while it grows."""

    def __init__(self, host: Host) -> None:
        self.host, self.nodes = host, list[str]()

    def add(self, node: str, driver: str | None) -> None:
        self.nodes.append(node)
        known = self.host.driver
        if driver and known and parse_release(driver) < parse_release(known):
            self.host = self.host.replace(driver=driver)


def classify(answers: Iterable[Answer]) -> Classes:
    """Group the hosts of documents.

    A host is read once for each set of facts, so that a large fleet takes little more time than
    its documents.

    Raises:
        InputError: a document has no host, or two documents are of one node.
    """
    groups: dict[Key, _Group] = {}
    known: dict[Key, tuple[_Group | str, str | None]] = {}
    unknown: list[Silence] = []
    seen: set[str] = set()
    for answer in answers:
        if answer.node in seen:
            raise InputError(f"{answer.node}: has two documents", hint="keep the newer one")
        seen.add(answer.node)
        data = host_data(answer)
        facts = _facts(data)
        if facts not in known:
            known[facts] = _group_of(read_host(answer.node, data), groups)
        group, driver = known[facts]
        if isinstance(group, str):
            unknown.append(Silence(node=answer.node, reason=group))
        else:
            group.add(answer.node, driver)
    classes = [
        HostClass(host=group.host, nodes=tuple(sorted(group.nodes))) for group in groups.values()
    ]
    classes.sort(key=lambda host_class: (-len(host_class.nodes), host_class.nodes))
    return Classes(classes=tuple(classes), unknown=tuple(unknown))


def host_data(answer: Answer) -> Document:
    """Return the plain data of the host in a document of `detect --json` or `verify --json`.

    Raises:
        InputError: it has none.
    """
    data = answer.document.get("host", answer.document)
    if not isinstance(data, dict) or "python" not in data:
        hint = "it must be a document of gpuenv detect --json or of gpuenv verify --json"
        raise InputError(f"{answer.node}: the document has no host", hint=hint)
    return data


def read_host(node: str, data: Document) -> Host:
    """Return the host of plain data. InputError if a field is wrong."""
    try:
        return host_from_plain(dict(data))
    except (ValueError, TypeError) as error:
        raise InputError(f"{node}: {error}") from None


def _facts(data: Document) -> Key:
    """Return the facts of a host that decide its class, as they stand in the document."""
    python, gpus = data["python"], data.get("gpus")
    if not isinstance(python, dict) or not isinstance(gpus or [], list):
        return (repr(data),)
    return (
        str(data.get("os")),
        str(data.get("machine")),
        str(data.get("glibc")),
        str(python.get("version")),
        str(python.get("free_threaded")),
        str(data.get("driver")),
        str(data.get("driver_cuda")),
        frozenset(map(_gpu_facts, gpus)) if gpus else str(data.get("problems")),
    )


def _gpu_facts(gpu: Any) -> str:
    if not isinstance(gpu, dict):
        return repr(gpu)
    return f"{gpu.get('name')!r} {gpu.get('compute_capability')!r}"


def _group_of(host: Host, groups: dict[Key, _Group]) -> tuple[_Group | str, str | None]:
    """Return the group of a host, made if it is the first; or which fact is not known."""
    doubt = _doubt(host)
    if doubt:
        return doubt, None
    key = _key(host)
    if key not in groups:
        groups[key] = _Group(_representative(host))
    return groups[key], host.driver


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


def _key(host: Host) -> Key:
    capabilities = {gpu.compute_capability for gpu in host.gpus}
    return (
        host.platform,
        host.glibc,
        host.python.version,
        host.python.free_threaded,
        host.driver_cuda if host.gpus else None,
        driver_step(host) if host.gpus else "",
        frozenset(capabilities),
    )


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
    by_capability: dict[object, Gpu] = {}
    for gpu in sorted(gpus, key=_gpu_order):
        plain = Gpu(name=gpu.name, compute_capability=gpu.compute_capability)
        by_capability.setdefault(gpu.compute_capability, plain)
    return tuple(by_capability.values())


def _gpu_order(gpu: Gpu) -> tuple[object, ...]:
    return (gpu.compute_capability or (0, 0), gpu.name)


def gpu_names(gpus: Sequence[Gpu]) -> list[str]:
    """Return the names of devices, each once."""
    return list(dict.fromkeys(gpu.name for gpu in gpus))
