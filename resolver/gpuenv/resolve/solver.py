"""Solve a request: request, host, compatibility data and index in; one consistent plan out.

This is pure: the same inputs give the same plan, without hardware, clock or files. The index is an
argument and may read files or the network.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice

from ..compat.data import CompatibilityData, RuleRow
from ..compat.evaluate import pin_reasons
from ..errors import (
    Change,
    Explanation,
    GpuEnvError,
    InputError,
    NoSolutionError,
    Reason,
    UnfinishedError,
)
from ..index.protocol import Index
from ..model import Host, Plan, Request
from ..requirements.target import TargetEnvironment, parse_requirement
from ..requirements.versions import public
from .candidates import CandidateStore
from .explain import Trials, explain
from .graph import (
    Candidate,
    FrameworkRequirement,
    Identifier,
    Node,
    NodeRequirement,
    PackageRequirement,
    Release,
    Token,
)
from .import_limits import ImportLimits
from .owners import Owners
from .plan import build_plan
from .provider import Progress, Provider
from .release_facts import ReleaseFacts
from .requested import framework_nodes, requirements_of
from .resolution import MAX_CONFLICTS, ImpossibleError, LearningResolver
from .solution import Solution
from .suggestions import MAX_CHANGES, Alternatives, smallest_changes
from .widening import MoreReleasesError, Widening

MAX_TRIALS = 60  # of parts of a request that has no solution
MAX_TRIAL_CONFLICTS = 300  # of a part: each can need the metadata of another release
SUBJECTS = 5  # requirements that name a request

EnvironmentFor = Callable[[Host], TargetEnvironment]


def solve(
    request: Request,
    host: Host,
    data: CompatibilityData,
    index: Index,
    environment_for: EnvironmentFor,
    *,
    widen: Callable[[str], bool] | None = None,
    changes: bool = True,
    data_version: str = "",
) -> Plan:
    """Return the plan for a request on a host (see CandidateStore for the order of candidates).

    Doubts (code of unknown architectures, releases to avoid) never cost a newer release of what
    the request names. If the best releases have doubts, a second, strict resolution looks for
    builds without doubts of the same versions. Doubts that remain are warnings of the plan.

    Args:
        request: what the user requests.
        host: what the environment will run on.
        data: the compatibility data.
        index: the source of releases.
        environment_for: gives the tags and markers of a host as target.
        widen: asks for the releases of a name that the index left out so far, and returns
            whether there are any. It is called if no known release will do.
        changes: whether a refusal has the smallest changes that help.
        data_version: the version of all data, for the lock. By default that of `data`.

    Raises:
        NoSolutionError: there is no plan. It has every reason.
        InputError: the request cannot be read.
        PackageIndexError: an index failed.
    """
    data_version = data_version or data.version
    question = _Question(request, host, data, index, environment_for(host))
    plan = question.plan(data_version, widen)
    if plan is not None:
        return plan
    named = {root.name for root in question.roots if isinstance(root, PackageRequirement)}
    may_meet = data.has_pair_to_avoid(question.facts.required_names() | named)
    if may_meet or question.facts.limits.has_uses:
        question = _Question(request, host, data.accepting(), index, environment_for(host))
        plan = question.plan(data_version, widen)
        if plan is not None:
            pins = [(pin.wheel.name, pin.wheel.version) for pin in plan.pins]
            avoided = [one for one in pin_reasons(pins, host, data) if one.code == "avoid-pair"]
            return plan.replace(warnings=(*plan.warnings, *avoided))

    def solve_changed(changed_request: Request, changed_host: Host) -> Plan | None:
        try:
            environment = environment_for(changed_host)
            changed = _Question(changed_request, changed_host, data, index, environment)
            return changed.plan(data_version, widen)
        except GpuEnvError:
            return None

    index.limit_builds()
    # Each requirement is tried alone, and at most once more to find a larger group.
    attempt = partial(question.attempt, widen=widen)
    trials = Trials(attempt, max(MAX_TRIALS, 2 * len(question.roots)))
    trials.note(question.roots, question.failure)
    reasons, groups = explain(question.facts, question.roots, trials)
    helps: Iterable[Change] = ()
    if changes:
        alternatives = Alternatives(question.store, solve_changed)
        helps = islice(smallest_changes(alternatives, trials, groups, reasons), MAX_CHANGES)
    texts = _distinct(question.roots)
    names = texts[:SUBJECTS]
    if texts[SUBJECTS:]:
        names.append(f"{len(texts) - SUBJECTS} more")
    explanation = Explanation(
        subject=" and ".join(names),
        reasons=(*reasons, *question.index_doubts),
        changes=tuple(helps),
    )
    raise NoSolutionError(explanation)


def _distinct(roots: Iterable[NodeRequirement]) -> list[str]:
    """Return the requirements of a request, without those that another one says with a limit.

    The command line, a project, its extras and groups, and a profile may all name a package.
    """
    texts = list(dict.fromkeys(map(str, roots)))
    names = {text: parse_requirement(text).name for text in texts}
    limited = {name for text, name in names.items() if text != name}
    return [text for text in texts if text not in limited]


class _Question:
    """A request on a host. It can be solved whole or in parts.

    Attributes:
        store, facts: the candidates and what they require.
        roots: the requirements of the request, its frameworks first.
        failure: why the last resolution of the whole request was impossible.
        index_doubts: the indexes that did not answer during it.
    """

    failure: ImpossibleError
    index_doubts: tuple[Reason, ...] = ()

    def __init__(
        self,
        request: Request,
        host: Host,
        data: CompatibilityData,
        index: Index,
        environment: TargetEnvironment,
    ) -> None:
        self.store = CandidateStore(request, host, data, index, environment)
        self.roots = requirements_of(request, self.store)
        owners = Owners.of(self.roots, data)
        self.facts = ReleaseFacts(self.store, owners, ImportLimits(self.store, owners.named))

    def plan(self, data_version: str, widen: Callable[[str], bool] | None) -> Plan | None:
        """Return the plan; None if resolution is impossible.

        Raises:
            PackageIndexError: the index could not be asked for releases that may be the solution.
        """
        widening = Widening(widen, self.store, self.facts.owners.named)
        try:
            resolver, nodes = self._complete(widening)
        except ImpossibleError as error:
            self.failure = error
            self.index_doubts = tuple(widening.doubts())
            failures = [*widening.failures.values(), *widening.offline, *self.facts.offline]
            if failures and not self._is_stack_impossible():
                raise failures[0] from None
            return None
        required = chain(self.roots, *map(self.facts.requirements_of, nodes))
        same = self.facts.owners.one_release(self.store, nodes, required)
        if same:
            versions = (_versions(nodes) | same).items()  # all else stays
            pins = [PackageRequirement(name, (), f"=={public(text)}") for name, text in versions]
            with suppress(ImpossibleError, UnfinishedError):
                nodes = self._resolve([*self.roots, *pins], widening)[1]
        releases = [node for node in nodes if not isinstance(node, Token)]
        if any(self.facts.reasons(release) for release in releases):
            same_versions = _same_versions(self.roots, releases)
            roots = [*self.roots, *same_versions]
            try:
                strict = self._resolve(roots, widening, lenient=False)
            except ImpossibleError:
                pass  # the doubts become warnings
            else:
                if self.facts.owners.replacing(_versions(strict[1])) is None:
                    resolver, nodes = strict
        widening.stop()
        plan = build_plan(Solution(resolver, self.roots, nodes), data_version)
        _check_hashes(plan)
        ignored = self.facts.limits.ignored_uses(pin.wheel for pin in plan.pins)
        return plan.replace(warnings=(*plan.warnings, *ignored))

    def _complete(self, widening: Widening) -> tuple[LearningResolver, list[Node]]:
        """Return a solution in which no package is to be replaced (R5) and none is missing (R10).

        What takes whose place, and what the metadata of releases lack, shows in a first solution,
        as well as which files must be read for what they import.
        If there is none, the former shows in what was required: the package to be replaced may
        have no release that can be installed.
        """
        undeclared: tuple[RuleRow, ...] = ()
        first: tuple[ReleaseFacts, ImpossibleError] | None = None
        while True:
            try:
                solution = self._resolve(self.roots, widening)
                versions = _versions(solution[1])
                owners = self.facts.owners.replacing(versions)
                rows = self.store.data.undeclared(versions)
                new = [row for row in rows if row not in undeclared]
                misfits = self.facts.limits.read(solution[1])
                if owners is None and not new and not misfits:
                    return solution
                undeclared = (*undeclared, *new)
            except ImpossibleError as error:
                owners = self.facts.owners.replacing(self.facts.required_names())
                first = first or (self.facts, error)
                if owners is None or error is not first[1]:
                    self.facts, error = first
                    raise error from None
            limits = self.facts.limits
            self.facts = ReleaseFacts(self.store, owners or self.facts.owners, limits, undeclared)

    def _is_stack_impossible(self) -> bool:
        """Return whether the data and the snapshot alone refuse the request's GPU stack.

        They have all releases of it, so no index can change that answer.
        """
        covers = self.store.data.covers
        stack = [
            root
            for root in self.roots
            if not isinstance(root, PackageRequirement) or covers(root.name)
        ]
        try:
            self.attempt(stack)
        except ImpossibleError:
            return True
        return False

    def attempt(
        self,
        roots: Sequence[NodeRequirement],
        sparse: Container[str] = (),
        *,
        widen: Callable[[str], bool] | None = None,
    ) -> list[Node]:
        """Return a solution of some requirements.

        Args:
            roots: the requirements.
            sparse: packages of which only the newest release of each minor series is looked at.
            widen: as in `solve`. A resolution of the whole request may have failed before it asked.

        Raises:
            ImpossibleError: there is none.
            PackageIndexError: the index did not answer and the user requires the name.
            UnfinishedError: no answer after MAX_TRIAL_CONFLICTS.
        """
        widening = Widening(widen, self.store, self.facts.owners.named)
        _, nodes = self._resolve(roots, widening, sparse=sparse, max_conflicts=MAX_TRIAL_CONFLICTS)
        return nodes

    def _resolve(
        self,
        roots: Sequence[NodeRequirement],
        widening: Widening,
        *,
        lenient: bool = True,
        sparse: Container[str] = (),
        max_conflicts: int = MAX_CONFLICTS,
    ) -> tuple[LearningResolver, list[Node]]:
        """Return the candidates that a resolution chooses, and what it has learned.

        When the index turns out to have more releases of a name, the resolution begins again.
        """
        requirements: list[NodeRequirement] = []
        for root in roots:
            requirements += root.with_base()
            if isinstance(root, PackageRequirement):
                requirements += self.facts.owners.agreements(root)
        while True:
            try:
                provider = Provider(
                    self.facts,
                    requirements,
                    framework_nodes(self.roots, self.store),
                    widening=widening,
                    lenient=lenient,
                    sparse=sparse,
                )
                resolver = LearningResolver(provider, Progress(self.store.index))
                result = resolver.resolve(requirements, max_conflicts)
                return resolver, list(result.mapping.values())
            except MoreReleasesError:
                continue


def _versions(nodes: Iterable[Node]) -> dict[str, str]:
    """Return {distribution: version} of the nodes of a solution."""
    return {node.name: node.version for node in nodes if isinstance(node, Candidate)}


def _same_versions(
    roots: Sequence[NodeRequirement], releases: Sequence[Release]
) -> Iterator[NodeRequirement]:
    """Yield requirements on the versions that a solution has of what the request names."""
    versions: dict[Identifier, str] = {}
    for release in releases:
        versions[release.identifier] = release.version
    for root in roots:
        if isinstance(root, FrameworkRequirement):
            yield FrameworkRequirement(root.framework, f"=={versions[root.identifier]}")
        elif isinstance(root, PackageRequirement) and root.url is None:
            yield PackageRequirement(root.name, (), f"=={public(versions[root.identifier])}")


def _check_hashes(plan: Plan) -> None:
    """Raise InputError for a pin without a hash from the user in pip's hash-checking mode."""
    request = plan.request
    if not request.require_hashes:
        return
    known = {name for name, _ in request.hashes}
    for pin in plan.pins:
        name, version, sha256 = pin.wheel.name, pin.wheel.version, pin.wheel.sha256
        # The URL of a requirement can have the hash itself.
        is_in_url = any(f"sha256={sha256}" in text for text in request.requirements)
        if name not in known and not is_in_url:
            raise InputError(
                f"hash-checking mode: the requirements have no hash of {name} {version}",
                hint=f"if it is to be trusted, add {name}=={version} --hash=sha256:{sha256}",
            )
