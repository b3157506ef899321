"""The facts of one case, asked by kind: those of the host outrank those of a log."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .model import TESTS, Fact

Finding = tuple[str, str, list[Fact]]  # a cause, how sure it is (proved, likely, possible), and what it rests on

MEASURED_FREE = 4  # memory is not what is short where more than one part in so many is free
SHORT = 600 << 20  # bytes below which cuDNN's first allocations fail
_OURS = re.compile(r"(?:lib)?(?:cu(?!rl|ps|nit)|nv(?!infer|onnx)|nccl)")  # libraries whose absence is a fault here
# Told to explain a failure; these alone are none.
SETTING = frozenset(
    {"cuda-unavailable", "compat-path", "uvm-reloaded", "suspended", "growth", "cuda-asked", "took-cpu"}
)


class Case:
    """What is known: `log` and `host` facts, asked by kind and subject."""

    def __init__(self, log: Iterable[Fact], host: Iterable[Fact]) -> None:
        self.log, self.host = tuple(log), tuple(host)
        self._by_kind: dict[str, list[Fact]] = {}
        for each in (*self.host, *self.log):
            self._by_kind.setdefault(each.kind, []).append(each)
        self._tests: dict[str, Fact] = {}
        order = {"fail": 0, "pass": 1, "unknown": 2}
        for each in self.host:
            if each.kind == "test":
                at = self._tests.get(each.subject)
                if at is None or order.get(each.value, 3) < order.get(at.value, 3):
                    self._tests[each.subject] = each

    def every(self, *kinds: str) -> list[Fact]:
        """All facts of these kinds, the host's first."""
        return [each for kind in kinds for each in self._by_kind.get(kind, ())]

    def best(self, kind: str) -> list[Fact]:
        """The facts of a kind: the host's where it has one, the log's else."""
        facts = self.every(kind)
        return [each for each in facts if not each.from_log] or facts

    def first(self, kind: str, value: str | None = None, subject: str | None = None) -> Fact | None:
        """The first of `best` with that value and subject."""
        for each in self.best(kind):
            if (value is None or each.value == value) and (subject is None or each.subject == subject):
                return each
        return None

    def says(self, kind: str, subject: str) -> list[Fact]:
        """The facts of a kind about one subject."""
        return [each for each in self.every(kind) if each.subject == subject]

    def symptom(self, *names: str) -> list[Fact]:
        """Failures in words that name no cause, and what people did about them."""
        return [each for each in self.every("symptom") if each.subject in names]

    def test(self, name: str, value: str) -> Fact | None:
        """The test of the host, if it came out so; one failure outweighs any pass."""
        found = self._tests.get(name)
        return found if found is not None and found.value == value else None

    def untried(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those tests that have not been made on this host, in the order of TESTS."""
        wanted = set(names)
        return tuple(
            name for name in TESTS if name in wanted and not (self.test(name, "pass") or self.test(name, "fail"))
        )

    def faults(self) -> list[Fact]:
        """What shows that something failed, whatever its cause."""
        kinds = ("status", "says", "hints", "maybe", "library-missing", "symbol-missing", "architecture-missing",
                 "out-of-memory", "libc-wanted", "xid", "cudnn-reason", "handle")  # fmt: skip
        found = [each for each in self.every(*kinds) if each.from_log]
        found = [each for each in found if each.kind != "library-missing" or _OURS.match(each.subject)]
        found += [each for each in self.every("symptom") if each.subject not in SETTING and each.from_log]
        return found + [each for each in self.host if each.kind == "test" and each.value == "fail"]

    def memory(self) -> list[tuple[int, int, Fact]]:
        """(free, total, fact) in bytes as measured when it failed: in the log, or on the host as it is now."""
        for from_log in (True, False):
            rows = self._memory(from_log)
            if rows:
                return rows
        return []

    def _memory(self, from_log: bool) -> list[tuple[int, int, Fact]]:
        total: dict[str, int] = {}
        rows = []
        facts = self.log if from_log else self.host
        for each in facts:
            if each.kind == "total-bytes" and each.value.isdigit():
                total[each.subject if not from_log else each.where] = int(each.value)
        for each in facts:
            size = total.get(each.subject if not from_log else each.where)
            if each.kind == "free-bytes" and each.value.isdigit() and size:
                rows.append((int(each.value), size, each))
        if rows or not from_log:
            return rows
        for each in facts:
            if each.kind == "smi-memory":
                used, size = (int(part) << 20 for part in each.value.split(" "))
                if size:
                    rows.append((max(0, size - used), size, each))
        return rows

    def memory_is_free(self) -> Fact | None:
        """The fact that more than a quarter of the memory is free, of every GPU that was measured."""
        rows = self.memory()
        if rows and all(free * MEASURED_FREE > total for free, total, _fact in rows):
            return rows[0][2]
        # Words of a log weigh less than what the host has free; only a measurement in the log itself outweighs it.
        return self.test("free-memory", "pass") if not self._memory(True) else None
