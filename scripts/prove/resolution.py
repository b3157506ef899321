"""Compare gpuenv's answers to made-up requirement sets with what is known about them.

    tools.py prove resolution --count 10000 --seed 1 --jobs 1 [--record FILE] [--failures
    FILE]

tests/families.py generates the sets. A set is identified by the seed and its number. Every lock is
checked against all requirements. A refusal is wrong if the set was built around a solution, or if a
complete search (tests/complete_search.py) finds one. If all of these solutions have a pre-release,
a yanked release or a URL that only the requirement of another release admits, the refusal is an
exception instead: resolution.py says why. A set is unfinished if gpuenv gives up, or has no answer
after LIMIT seconds of CPU time. The exit status is 1 if an answer is wrong or a set is unfinished.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from complete_search import Search, UndecidedError
from families import FAMILIES, RequirementSet, requirement_set
from gpuenv import activity
from gpuenv.compat import data
from gpuenv.errors import UnfinishedError
from gpuenv.model import Host, Python, Request
from gpuenv.requirements.target import TargetEnvironment, parse_requirement
from gpuenv.resolve.candidates import CandidateStore
from gpuenv.resolve.graph import (
    Candidate,
    NodeRequirement,
    PackageId,
    PackageRequirement,
)
from gpuenv.resolve.owners import Owners
from gpuenv.resolve.provider import Progress, Provider
from gpuenv.resolve.release_facts import ReleaseFacts
from gpuenv.resolve.resolution import ImpossibleError, LearningResolver
from gpuenv.resolve.widening import Widening
from universe import Universe

LIMIT = 60  # seconds of CPU time for one set
STEPS = 100_000  # of the complete search
HOST = Host(glibc=(2, 28), python=Python(version=(3, 12), full_version="3.12.4"))
DATA = data.load()


@dataclass(kw_only=True)
class Row:
    """The answers to the sets of a family."""

    sets: int = 0
    solved: int = 0
    refused: int = 0
    proven: int = 0
    exceptions: int = 0
    wrong_refusals: int = 0
    wrong_locks: int = 0
    unfinished: int = 0
    slowest_seconds: float = 0
    most_conflicts: int = 0


@dataclass(kw_only=True)
class Answer:
    """What gpuenv answered to a set.

    Attributes:
        pins: the solution; None for a refusal or no answer.
        outcome: a count of Row: "solved", "refused" and so on.
        faults: what is wrong.
    """

    family: str
    seed: int
    number: int
    pins: dict[str, str] | None = None
    outcome: str = ""
    faults: list[str] = field(default_factory=list)
    seconds: float = 0
    conflicts: int = 0


class NoTimeError(Exception):
    """No answer after LIMIT seconds of CPU time."""


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise NoTimeError


def make_provider(made: RequirementSet, roots: Sequence[NodeRequirement]) -> Provider:
    """Return a provider for the universe of a set."""
    request = Request(requirements=tuple(made.requires), constraints=tuple(made.constraints))
    environment = TargetEnvironment(HOST)
    store = CandidateStore(request, HOST, DATA, Universe(made.packages), environment)
    first = [PackageId.of(name) for name in made.first]
    widening = Widening(None, store, frozenset())
    facts = ReleaseFacts(store, Owners.of((), store.data))
    return Provider(store, facts, roots, first, widening=widening, lenient=True)


def roots_of(made: RequirementSet) -> list[NodeRequirement]:
    """Return the requirements of a set."""
    roots: list[NodeRequirement] = []
    for text in made.requires:
        requirement = parse_requirement(text)
        roots += PackageRequirement(
            requirement.name, requirement.extras, requirement.specifier, requirement.url
        ).with_base()
    return roots


def solve(made: RequirementSet, answer: Answer) -> None:
    """Ask gpuenv, and note its answer, the time and the conflicts."""
    roots = roots_of(made)
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        provider = make_provider(made, roots)
        resolver = LearningResolver(provider, Progress(provider.store.index))
        nodes = resolver.resolve(roots).mapping.values()
        candidates = [node for node in nodes if isinstance(node, Candidate)]
        answer.pins = {candidate.name: candidate.version for candidate in candidates}
        answer.outcome = "solved"
    except ImpossibleError:
        answer.outcome = "refused"
    except (UnfinishedError, NoTimeError):
        answer.outcome = "unfinished"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    answer.seconds = round(time.process_time() - start, 2)
    answer.conflicts = activity.current.conflicts


def judge(family: str, seed: int, number: int) -> Answer:
    """Return gpuenv's answer to a set, checked."""
    made = requirement_set(family, seed, number)
    answer = Answer(family=family, seed=seed, number=number)
    solve(made, answer)
    search = Search(made.packages, made.requires, made.constraints)
    if answer.pins is not None:
        answer.faults = search.faults(answer.pins)
        if answer.faults:
            answer.outcome = "wrong_locks"
    elif answer.outcome == "refused":
        judge_refusal(search, made, answer)
    return answer


def judge_refusal(search: Search, made: RequirementSet, answer: Answer) -> None:
    """Note whether a refusal is proven or wrong."""
    if made.solution is not None:
        answer.outcome = "wrong_refusals"
        answer.faults = [f"the solution is {made.solution}"]
        return
    try:
        if not search.is_possible(STEPS):
            answer.outcome = "proven"
        elif not search.without_exceptions().is_possible(STEPS):
            answer.outcome = "exceptions"
        else:
            answer.outcome = "wrong_refusals"
            answer.faults = ["a complete search finds a solution"]
    except UndecidedError:
        pass


def add(rows: dict[str, Row], answer: Answer) -> None:
    """Count an answer in the row of its family."""
    row = rows.setdefault(answer.family, Row())
    row.sets += 1
    setattr(row, answer.outcome, getattr(row, answer.outcome) + 1)
    row.slowest_seconds = max(row.slowest_seconds, answer.seconds)
    row.most_conflicts = max(row.most_conflicts, answer.conflicts)


def table(rows: dict[str, Row]) -> str:
    """Return the rows as text."""
    titles = list(asdict(Row()))
    lines = ["family".ljust(16) + "".join(title.rjust(16) for title in titles)]
    for family, row in sorted(rows.items()):
        values = asdict(row).values()
        lines.append(family.ljust(16) + "".join(str(value).rjust(16) for value in values))
    return "\n".join(lines)


def judge_all(families: Sequence[str], seed: int, count: int, jobs: int) -> Sequence[Answer]:
    """Return the answers to `count` sets. The families take turns."""
    sets = [(families[number % len(families)], seed, number) for number in range(count)]
    with multiprocessing.Pool(jobs, _prepare) as pool:
        return pool.starmap(judge, sets, chunksize=20)


def _prepare() -> None:
    signal.signal(signal.SIGPROF, _stop)


def main(words: list[str]) -> int:
    """Run the sets, print the table, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="default: all")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--failures", type=Path, help="write wrong and slow answers to this file")
    options = parser.parse_args(words)
    rows: dict[str, Row] = {}
    failures = []
    families = options.family or list(FAMILIES)
    for answer in judge_all(families, options.seed, options.count, options.jobs):
        add(rows, answer)
        if answer.faults or answer.outcome == "unfinished" or answer.seconds > 5:
            failures.append(asdict(answer))
    print(table(rows))
    if options.record:
        record = {name: asdict(row) for name, row in sorted(rows.items())}
        content = {"seed": options.seed, "count": options.count, "families": record}
        options.record.write_text(json.dumps(content, indent=1) + "\n")
    if options.failures:
        options.failures.write_text(json.dumps(failures, indent=1) + "\n")
    wrong = sum(row.wrong_locks + row.wrong_refusals + row.unfinished for row in rows.values())
    return int(wrong > 0)
