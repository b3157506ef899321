"""Looks up the facts of one diagnosis by kind. Facts of the host outrank facts of a log."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from ..model import Value
from .catalog import cuda_of_driver, highest_capability, tests
from .model import Fact, version_tuple

_TEST_ORDER = {"fail": 0, "pass": 1, "unknown": 2}  # a failure on one device outweighs any pass
# Kinds of facts that show NVIDIA's driver or one of its GPUs.
NVIDIA_KINDS = ("driver", "driver-cuda", "gpu", "smi-memory", "xid")
# Since CUDA 11.0, a driver supports the later minor versions of its own major version.
MINOR_VERSION_COMPATIBILITY = (11, 0)
_LEAST_FREE_BYTES = 600 << 20  # with less free memory, cuDNN's first allocations may fail
# CUDA libraries: a failure to load one of these is a fault. TensorRT and others are optional.
_CUDA_LIBRARY = re.compile(r"(?:lib)?(?:cu(?!rl|ps|nit)|nv(?!infer|onnx)|nccl)")
_STATED = ("says", "hints", "maybe")
# Symptoms by which something failed. The others are conditions, which may explain a failure.
_FAILURES = (
    "cudnn-start", "cudnn-call", "load", "launch", "nccl", "invalid-image", "no-device",
    "cuda-unavailable", "failed", "crashed", "exception",
)  # fmt: skip
_FAULT_KINDS = (
    *_STATED,
    "status",
    "library-missing",
    "symbol-missing",
    "architecture-missing",
    "out-of-memory",
    "libc-wanted",
    "xid",
    "cudnn-reason",
    "handle",
)
# Facts of the host about something that is not there: results of tests, and other facts.
_TESTS_OF_PRESENCE = (
    "nvml", "libcuda", "cuda-build", "cudnn-present", "cudnn-complete", "libraries-resolve",
    "environment",
)  # fmt: skip
_ABSENCES = (
    ("pci-gpu", "0"),
    ("module", "absent"),
    ("module", "missing"),
    ("device-node", "missing"),
    ("cuda-built", "none"),
    ("maybe", "requirements"),  # that are not met: most environments run all the same
)


def is_absence(fact: Fact) -> bool:
    """Whether a fact of the host says that something is not there: a driver, a GPU, a library."""
    if fact.kind == "test":
        return fact.value == "fail" and fact.subject in _TESTS_OF_PRESENCE
    return fact.kind == "library-missing" or (fact.kind, fact.value) in _ABSENCES


class Memory(Value):
    """The free and total memory of one GPU in bytes, and the fact that states it."""

    free: int
    total: int
    fact: Fact

    @property
    def is_mostly_free(self) -> bool:
        """Whether more than a quarter of the memory is free."""
        return self.free * 4 > self.total

    @property
    def is_nearly_full(self) -> bool:
        """Whether less than 600 MiB, or less than a tenth, of the memory is free."""
        return self.free < _LEAST_FREE_BYTES or self.free * 10 < self.total


class Case:
    """All facts of one diagnosis: `log` and `host` hold them by origin."""

    def __init__(self, log: Iterable[Fact], host: Iterable[Fact] = ()) -> None:
        observed = tuple(host)
        results = [fact for fact in observed if fact.kind == "test"]
        results.sort(key=lambda fact: _TEST_ORDER[fact.value])
        # Of each test, the first of its worst results counts, which is set last here.
        worst = {fact.subject: fact for fact in reversed(results)}
        self.log = tuple(log)
        self.host = tuple(
            fact for fact in observed if fact.kind != "test" or worst[fact.subject] is fact
        )
        self._by_kind: dict[str, list[Fact]] = {}
        for fact in (*self.host, *self.log):
            self._by_kind.setdefault(fact.kind, []).append(fact)

    def of_kind(self, *kinds: str) -> list[Fact]:
        """Return all facts of the kinds; for each kind, the host's first."""
        return [fact for kind in kinds for fact in self._by_kind.get(kind, ())]

    def preferred(self, kind: str) -> list[Fact]:
        """Return the host's facts of a kind, or the log's if the host has none."""
        facts = self.of_kind(kind)
        of_host = [fact for fact in facts if not fact.from_log]
        return of_host or facts

    def first(self, kind: str, *, value: str | None = None, subject: str = "") -> Fact | None:
        """Return the first preferred fact with the value and the subject, if these are given."""
        for fact in self.preferred(kind):
            if value in (None, fact.value) and subject in ("", fact.subject):
                return fact
        return None

    def about(self, kind: str, *subjects: str) -> list[Fact]:
        """Return the facts of a kind that have one of the subjects."""
        return [fact for fact in self.of_kind(kind) if fact.subject in subjects]

    def stated(self, cause: str, *messages: str) -> list[Fact]:
        """Return what messages say of a cause: of all messages, or of those with these names."""
        facts = [fact for fact in self.of_kind(*_STATED) if fact.subject == cause]
        return [fact for fact in facts if not messages or fact.value in messages]

    def symptoms(self, *names: str) -> list[Fact]:
        """Return the symptoms with these names."""
        return self.about("symptom", *names)

    def newest(self, kind: str, subject: str = "") -> Fact | None:
        """Return the fact of a kind with the highest version, or None."""
        facts = [fact for fact in self.of_kind(kind) if subject in ("", fact.subject)]
        return max(facts, key=lambda fact: fact.version, default=None)

    def passed(self, test: str) -> Fact | None:
        """Return the host's fact that a test passed, or None."""
        return self.first("test", value="pass", subject=test)

    def failed(self, test: str) -> Fact | None:
        """Return the host's fact that a test failed, or None."""
        return self.first("test", value="fail", subject=test)

    def untested(self, names: Collection[str]) -> tuple[str, ...]:
        """Return those of the tests that neither passed nor failed, in their order."""
        settled = [fact.subject for fact in self.of_kind("test") if fact.value != "unknown"]
        return tuple(name for name in tests() if name in names and name not in settled)

    def faults(self) -> list[Fact]:
        """Return the facts which show that something failed, whatever the cause."""
        faults = []
        for fact in self.of_kind(*_FAULT_KINDS, "symptom"):
            is_condition = fact.kind == "symptom" and fact.subject not in _FAILURES
            of_library = fact.kind == "library-missing"
            is_optional = of_library and not _CUDA_LIBRARY.match(fact.subject)
            if fact.from_log and not (is_condition or is_optional):
                faults.append(fact)
        failed = [fact for fact in self.host if (fact.kind, fact.value) == ("test", "fail")]
        return faults + failed

    def memory(self) -> list[Memory]:
        """Return the memory at the time of the failure (from the log), or else of the host now."""
        return _memory(self.log) or _memory(self.host)

    def newest_driver(self, *, of_log: bool = False) -> tuple[tuple[int, ...], Fact] | None:
        """Return the highest CUDA version that a driver supports, and its fact."""
        facts = self.of_kind("driver-cuda", "driver")
        drivers = {driver_cuda(fact): fact for fact in facts if fact.from_log or not of_log}
        drivers.pop((), None)
        return (max(drivers), drivers[max(drivers)]) if drivers else None

    def gpu_capabilities(self) -> Iterator[tuple[tuple[int, int], Fact]]:
        """Yield the compute capabilities that facts state, then those of GPUs known by name."""
        for fact in self.of_kind("capability"):
            version = fact.version
            if len(version) > 1:
                yield (version[0], version[1]), fact
        for fact in self.of_kind("gpu"):
            capability = highest_capability(fact.value)
            if capability:
                yield capability, fact

    def newest_releases(self) -> dict[str, Fact]:
        """Return the newest release of each framework that the facts name."""
        newest: dict[str, Fact] = {}
        for fact in self.of_kind("version"):
            if fact.version > newest.setdefault(fact.subject, fact).version:
                newest[fact.subject] = fact
        return newest


def driver_cuda(fact: Fact) -> tuple[int, ...]:
    """Return the CUDA version that a driver supports, by that version or by its release."""
    return version_tuple(cuda_of_driver(fact.value)) if fact.kind == "driver" else fact.version


def _memory(facts: Sequence[Fact]) -> list[Memory]:
    """Return the memory that facts state, or else the memory that nvidia-smi's table shows."""
    # One message states both sizes, so they have the same line; on the host, they name the GPU.
    totals = {
        (fact.where, fact.subject): int(fact.value) for fact in facts if fact.kind == "total-bytes"
    }
    rows = []
    for fact in facts:
        total = totals.get((fact.where, fact.subject))
        if fact.kind == "free-bytes" and total:
            rows.append(Memory(free=int(fact.value), total=total, fact=fact))
    if rows:
        return rows
    for fact in facts:
        if fact.kind == "smi-memory":
            used, total = (int(part) << 20 for part in fact.value.split(" "))
            if total:
                rows.append(Memory(free=max(0, total - used), total=total, fact=fact))
    return rows


def first_of(facts: Sequence[Fact]) -> Fact | None:
    """Return the first fact, or None."""
    return facts[0] if facts else None
