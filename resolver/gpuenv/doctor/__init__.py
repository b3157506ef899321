"""From an error message to its cause: facts of a log and of the host, and the verdicts that follow from them."""

from .catalog import Cause, causes
from .log_reader import read_log
from .model import KINDS, TESTS, Diagnosis, Fact, Verdict
from .verdicts import diagnose

__all__ = ["KINDS", "TESTS", "Cause", "Diagnosis", "Fact", "Verdict", "causes", "diagnose", "read_log"]
