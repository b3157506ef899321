"""The machine and the frameworks that a log names, for a new solve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..model import Value
from .catalog import capability_of, plain_gpu_name, toolkit_driver
from .model import Fact
from .origin import stated_gpus

_KINDS_WITH_VERSION = ("framework", "version", "package")
_FRAMEWORKS = ("torch", "tensorflow", "jax", "cupy", "onnxruntime")


class LogMachine(Value):
    """What a log says about its machine and about the frameworks that are installed on it.

    Attributes:
        gpus: names of GPUs, or compute capabilities.
        driver: a driver release, or "".
        python: a version of Python, or "".
        frameworks: (name, version) pairs; the version may be shortened, or "".
    """

    gpus: tuple[str, ...]
    driver: str
    python: str
    frameworks: tuple[tuple[str, str], ...]

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that describe the machine."""
        words: list[str] = []
        for gpu in self.gpus:
            words += ["--gpu", gpu]
        if self.driver:
            words += ["--driver", self.driver]
        if self.python:
            words += ["--python", self.python]
        return tuple(words)


def machine_of(log_facts: Sequence[Fact]) -> LogMachine | None:
    """Return the machine of a log, or None if the log names no GPU or no framework."""
    gpus = _gpus(log_facts)
    frameworks = _frameworks(log_facts)
    if not gpus or not frameworks:
        return None
    return LogMachine(
        gpus=gpus,
        driver=_driver(log_facts),
        python=next(_values(log_facts, "python"), ""),
        frameworks=frameworks,
    )


def _gpus(log_facts: Sequence[Fact]) -> tuple[str, ...]:
    named = {
        plain_gpu_name(fact.value): fact.value
        for fact in stated_gpus(log_facts)
        if capability_of(fact.value) is not None
    }
    if named:
        return tuple(named.values())
    capabilities = [
        fact.value
        for fact in log_facts
        if fact.kind == "capability" and fact.subject != "compiler"
    ]
    return tuple(dict.fromkeys(capabilities))


def _driver(log_facts: Sequence[Fact]) -> str:
    """Return the driver release, or the first one that supports the stated CUDA version."""
    releases = [fact for fact in log_facts if fact.kind == "driver" and "." in fact.value]
    for fact in sorted(releases, key=lambda fact: fact.subject == "userspace"):
        return fact.value
    return next(map(toolkit_driver, _values(log_facts, "driver-cuda")), "")


def _frameworks(log_facts: Sequence[Fact]) -> tuple[tuple[str, str], ...]:
    """Return the named frameworks, each with the most exact version that the log states."""
    versions: dict[str, str] = {}
    for fact in log_facts:
        if fact.subject not in _FRAMEWORKS:
            continue
        if fact.kind in _KINDS_WITH_VERSION:
            known = versions.get(fact.subject, "")
            versions[fact.subject] = max(known, fact.value, key=_parts)
        elif fact.kind == "cuda-built":
            versions.setdefault(fact.subject, "")
    return tuple(versions.items())


def _parts(version: str) -> int:
    return len(version.split(".")) if version else 0


def _values(log_facts: Iterable[Fact], kind: str) -> Iterator[str]:
    return (fact.value for fact in log_facts if fact.kind == kind)
