"""One version of each framework for all profiles of a project.

Each profile is solved on its own first. Where versions of a framework differ, the newest version
that all profiles can have is looked for. If there is none, each profile keeps its own version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

from ..errors import NoSolutionError, PackageIndexError, Reason
from ..model import Lock, Plan, Value
from ..requirements.target import version_key
from .profiles import Profile

MAX_VERSIONS = 30  # of a framework that are tried

Versions = Mapping[str, str]  # framework -> version
# (profile, the versions that it must have) -> its plan; raises NoSolutionError
Solve = Callable[[Profile, Versions], Plan]
# (framework, platform) -> its known versions
KnownVersions = Callable[[str, str], Iterable[str]]


class SharedVersion(Value):
    """A framework that profiles would have in different versions, or that they have so.

    Attributes:
        framework: the name of the framework.
        versions: (profile, version) as locked, in the order of the profiles.
        alone: (profile, version) of the profiles that would have another version alone.
        separate: the profiles that say in pyproject.toml that they have their own version.
        against: (profile, version, reasons) for each version of another profile that a profile
            cannot have.
    """

    framework: str
    versions: tuple[tuple[str, str], ...]
    alone: tuple[tuple[str, str], ...] = ()
    separate: tuple[str, ...] = ()
    against: tuple[tuple[str, str, tuple[Reason, ...]], ...] = ()

    @property
    def is_shared(self) -> bool:
        """Return whether all profiles have the same version."""
        return len({version for _, version in self.versions}) == 1


def share_versions(
    profiles: Sequence[Profile],
    selected: Set[str],
    locked: Mapping[str, Versions],
    solve: Solve,
    known: KnownVersions,
) -> tuple[dict[str, Plan], tuple[SharedVersion, ...]]:
    """Solve profiles with one version of each framework, where that is possible.

    Args:
        profiles: all profiles of the project, in the order of the file.
        selected: the names of those to solve. The locks of the others stay as they are.
        locked: the versions in the earlier lock of each profile that has one. Versions that still
            fit are kept before newer ones are taken.
        solve: solves a profile.
        known: the versions of a framework that are tried.

    Returns:
        The plans by profile, and a report for each framework of which profiles have, or would
        have, different versions.

    Raises:
        NoSolutionError: there is no solution for a profile alone.
    """
    search = _Search(profiles, selected, locked, solve, known)
    frameworks: dict[str, None] = {}  # in order, each once
    for plan in search.plans.values():
        frameworks.update(dict.fromkeys(versions_of(plan)))
    reports = [search.share(framework) for framework in frameworks]
    return search.plans, tuple(report for report in reports if report is not None)


def versions_of(plan: Plan | Lock) -> dict[str, str]:
    """Return the version of each framework, without its local part."""
    return {choice.framework: choice.version.partition("+")[0] for choice in plan.choices}


def _has_own_version(profile: Profile, framework: str) -> bool:
    """Return whether a profile says that its version of a framework is its own."""
    return profile.separate_versions or framework in profile.own_ranges


class _Search:
    """The plans of the selected profiles, and the versions that were fixed so far."""

    def __init__(
        self,
        profiles: Sequence[Profile],
        selected: Set[str],
        locked: Mapping[str, Versions],
        solve: Solve,
        known: KnownVersions,
    ) -> None:
        self._profiles, self._selected = profiles, selected
        self._locked, self._solve, self._known = locked, solve, known
        self.plans: dict[str, Plan] = {}
        self._fixed: dict[str, dict[str, str]] = {}
        self._failures: dict[tuple[str, str, str], tuple[Reason, ...]] = {}
        for profile in profiles:
            if profile.name in selected:
                self.plans[profile.name] = solve(profile, {})
                self._fixed[profile.name] = {}

    def share(self, framework: str) -> SharedVersion | None:
        """Give all profiles one version of a framework if there is one; report differences."""
        alone = self._versions(framework)
        separate = [
            profile.name
            for profile in self._profiles
            if profile.name in alone and _has_own_version(profile, framework)
        ]
        sharing = {name: version for name, version in alone.items() if name not in separate}
        if len(set(sharing.values())) > 1:
            for version in self._candidates(framework, sharing):
                if self._give(framework, version, sharing):
                    break
        versions = self._versions(framework)
        if len({*alone.values(), *versions.values()}) == 1:
            return None
        changed = [(name, alone[name]) for name in alone if alone[name] != versions[name]]
        wanted = set(alone.values())
        against = [
            (profile, version, reasons)
            for (profile, name, version), reasons in self._failures.items()
            if name == framework and version in wanted
        ]
        return SharedVersion(
            framework=framework,
            versions=tuple(versions.items()),
            alone=tuple(changed),
            separate=tuple(separate),
            against=tuple(against),
        )

    def _versions(self, framework: str) -> dict[str, str]:
        """Return the version of each profile: of its plan, or of the lock that stays."""
        versions = {}
        for profile in self._profiles:
            name = profile.name
            of_profile = self._locked.get(name, {})
            if name in self.plans:
                of_profile = versions_of(self.plans[name])
            if framework in of_profile:
                versions[name] = of_profile[framework]
        return versions

    def _candidates(self, framework: str, sharing: Versions) -> list[str]:
        """Return the versions to try: those of locks that stay; or kept ones, then the newest."""
        staying = {version for name, version in sharing.items() if name not in self._selected}
        if staying:
            return _newest_first(staying)
        kept = set()
        for name, version in sharing.items():
            if self._locked.get(name, {}).get(framework) == version:
                kept.add(version)
        versions = set(sharing.values())
        newest = max(map(version_key, versions))
        for profile in self._profiles:
            if profile.name in sharing:
                known = self._known(framework, profile.platform)
                versions.update(version for version in known if version_key(version) <= newest)
        ordered = dict.fromkeys((*_newest_first(kept), *_newest_first(versions)))
        return list(ordered)[:MAX_VERSIONS]

    def _give(self, framework: str, version: str, sharing: Versions) -> bool:
        """Give the selected profiles a version. Return False if one of them cannot have it."""
        plans = {}
        for profile in self._oldest_first(sharing):
            plan = self._plan_with(profile, framework, version)
            if plan is None:
                return False
            plans[profile.name] = plan
        self.plans.update(plans)
        for name in plans:
            self._fixed[name][framework] = version
        return True

    def _oldest_first(self, sharing: Versions) -> Iterator[Profile]:
        """Yield the selected profiles, first those that most versions are too new for."""
        by_name = {profile.name: profile for profile in self._profiles}
        for name in sorted(sharing, key=lambda name: version_key(sharing[name])):
            if name in self._selected:
                yield by_name[name]

    def _plan_with(self, profile: Profile, framework: str, version: str) -> Plan | None:
        plan = self.plans[profile.name]
        if versions_of(plan)[framework] == version:
            return plan
        try:
            return self._solve(profile, {**self._fixed[profile.name], framework: version})
        except NoSolutionError as error:
            self._failures[profile.name, framework, version] = error.explanation.reasons
            return None
        except PackageIndexError:  # only the live index has old releases
            return None


def _newest_first(versions: Iterable[str]) -> list[str]:
    return sorted(versions, key=version_key, reverse=True)
