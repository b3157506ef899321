"""Finds the cause of a failure from the facts of a log and of the host.

stream: unpacks a log, removes codes and escapes, and cuts the log into blocks of whole lines.
pasted: restores the lines of a pasted log, and finds the prefixes that launchers put before lines.
prefilter: finds the lines that may hold a message.
log_reader: reads the facts of a log.
failure_words: finds failures that no message explains, and words that suggest causes.
origin: says whether a log is from this machine.
dates: finds the years that a log states or shows.
cudnn_calls: finds misuse of cuDNN handles in cuDNN's log of calls.
host_facts: turns detection, packages, compatibility rules and variables into facts.
check_facts: turns the checks of `gpuenv verify` and the probe tests into facts.
facts: looks up the facts of one diagnosis by kind.
case_versions: compares the GPUs, drivers, CUDA versions and releases that a case names.
rules, build_rules, architecture_rules, library_rules: draw conclusions (findings) from facts.
verdicts: makes verdicts of the findings, the best first.
advice: states what the facts mean for the fix.
remedy: solves anew for the frameworks that are installed or that a log names.
diagnosis: composes all of these.
catalog: reads the causes, the messages and the releases of matrix_data/doctor.
status_codes: reads status numbers, Xids and forms of versions.
model: defines the values.
"""

from .catalog import Cause, causes
from .log_reader import read_log
from .model import KINDS, PROBE_TESTS, TESTS, Diagnosis, Fact, Verdict
from .verdicts import diagnose

__all__ = [
    "KINDS",
    "PROBE_TESTS",
    "TESTS",
    "Cause",
    "Diagnosis",
    "Fact",
    "Verdict",
    "causes",
    "diagnose",
    "read_log",
]
