"""Values of the doctor: facts, findings, verdicts and the diagnosis.

A fact has the same kind whether it comes from a log, from detection or from a check of an
environment. Where a log and the host disagree, the host's fact counts. matrix_data/doctor lists
every kind of fact and every test (facts.toml), and every cause (causes.toml).
"""

from __future__ import annotations

from functools import partial

from ..model import Value

CONFIDENCES = ("proved", "likely", "possible")
MAX_TEXT = 300  # characters of a fact's text

Capability = tuple[int, ...]  # a compute capability: (9, 0)


def version_tuple(text: str) -> tuple[int, ...]:
    """Return the numbers of a dotted version, for comparison: "12.4" -> (12, 4); () for none."""
    parts = text.split(".")
    return tuple(
        int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 10
    )


class Fact(Value):
    """One observation.

    Attributes:
        kind: a kind of facts.toml, which says what `subject` and `value` hold.
        where: "log line 12", or the source on the host ("host: NVML"). A fact of the host never
            has a `where` that starts with "log".
        text: the line of the log, or the observation in words: MAX_TEXT characters at most.
    """

    kind: str
    subject: str = ""
    value: str = ""
    where: str = ""
    text: str = ""

    @property
    def from_log(self) -> bool:
        """Whether the fact comes from a log. Facts of the host outrank it."""
        return self.where.startswith("log")

    @property
    def version(self) -> tuple[int, ...]:
        """The numbers of the value, if it is a dotted version."""
        return version_tuple(self.value)

    @property
    def major(self) -> str:
        """The first part of the value, if it is a dotted version: "12" of "12.4"."""
        return self.value.partition(".")[0]


class Finding(Value):
    """A cause that a rule found, its confidence (one of CONFIDENCES), and the facts."""

    cause: str
    confidence: str
    facts: tuple[Fact, ...]

    @property
    def order(self) -> int:
        """The place of the confidence in CONFIDENCES."""
        return CONFIDENCES.index(self.confidence)

    def at_most(self, confidence: str) -> Finding:
        """Return the finding with a confidence that is not higher than another."""
        return self.replace(confidence=max(self.confidence, confidence, key=CONFIDENCES.index))


class Verdict(Value):
    """A cause of the failure: the confidence, at least one line of evidence, and what to do.

    Attributes:
        advice: what the facts add to the fix, in sentences.
        title: what the facts say more exactly than the cause's title, or "".
        complete: whether the fix is all there is to do: a new solve does not help.
    """

    cause: str
    confidence: str  # one of CONFIDENCES
    evidence: tuple[str, ...]
    fix: str
    advice: tuple[str, ...] = ()
    title: str = ""
    complete: bool = False


class Diagnosis(Value):
    """The result: verdicts, the best first, or the tests that would settle an open question.

    Attributes:
        abstained: something failed, and no fact tells its cause. `next_tests` then names the tests
            of facts.toml to run, in order, without those that have run already. If cuDNN failed to
            start, `verdicts` holds the one verdict "cudnn_init_failed_unknown", which names no
            cause.
        verdicts: empty, with `abstained` false, if nothing failed.
        failures: lines of evidence that something failed, if `abstained`.
        outside: what failed instead of the GPU's environment, if the log shows it and `abstained`;
            its cause is an id of `catalog.areas`.
    """

    abstained: bool = False
    verdicts: tuple[Verdict, ...] = ()
    next_tests: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    outside: Verdict | None = None


def finding_of(confidence: str, cause: str, *facts: Fact | None) -> Finding:
    """Return a finding. Facts that are None are left out."""
    given = tuple(fact for fact in facts if fact is not None)
    return Finding(cause=cause, confidence=confidence, facts=given)


proved = partial(finding_of, "proved")  # the facts have no other explanation
likely = partial(finding_of, "likely")  # the facts mostly mean the cause
possible = partial(finding_of, "possible")  # the facts allow the cause
