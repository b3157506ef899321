"""From an error message to its cause: facts of a log and of the host, and the verdicts that follow from them."""

from .catalogue import Cause, causes
from .diagnosing import diagnose
from .model import KINDS, TESTS, Diagnosis, Fact, Verdict
from .reading import read_log

__all__ = ["KINDS", "TESTS", "Cause", "Diagnosis", "Fact", "Verdict", "causes", "diagnose", "read_log"]
