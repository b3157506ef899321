"""Finds the cause of a failure from the facts of a log, of the host and of the environment.

Only what programs print is read, not what people write. Messages become facts (messages/*.toml).
Facts of the host, of the environment and of its binaries have the same form. Rules say what follows
from facts. causes.toml describes the causes. Nothing else decides.

stream: unpacks a log, removes codes and escapes, and cuts the log into blocks of whole lines.
pasted: restores the lines of a pasted log, and finds the prefixes that launchers put before lines.
log_reader: reads the facts of a log.
cudnn_calls: finds misuse of cuDNN handles in cuDNN's log of calls.
origin: says whether a log is from this machine.
host_facts: turns detection, packages, compatibility rules and variables into facts.
check_facts: turns the checks of `gpuenv verify` and the probe tests into facts.
facts: looks up the facts of one diagnosis by kind, and the GPUs, drivers and releases they name.
rules, library_rules: what follows from facts; the rules that are rows are in rules.toml.
judge: makes the diagnosis: what the host rules out, and what is best shown.
advice: what the facts add to a fix.
remedy: solves for a new environment.
diagnosis: composes all this.
catalog: reads the data in matrix_data/doctor.
"""

from .catalog import Cause, Test, causes, tests
from .judge import diagnose
from .log_reader import read_log
from .model import Diagnosis, Fact, Verdict

__all__ = [
    "Cause",
    "Diagnosis",
    "Fact",
    "Test",
    "Verdict",
    "causes",
    "diagnose",
    "read_log",
    "tests",
]
