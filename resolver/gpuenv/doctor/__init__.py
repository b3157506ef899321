"""From an error message to its cause: facts of a log and of the host, and the verdicts that follow from them."""

from .model import KINDS, TESTS, Diagnosis, Fact, Verdict

__all__ = ["KINDS", "TESTS", "Diagnosis", "Fact", "Verdict"]
