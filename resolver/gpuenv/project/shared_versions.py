"""One version of each framework for all profiles of a project.

Each profile is solved on its own first. Where versions of a framework differ, the newest version
that all profiles can have is looked for. If there is none, each profile keeps its own version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from ..errors import NoSolutionError, PackageIndexError, Reason
from ..model import Lock, Plan, Value
from ..requirements.target import parse_requirement, version_key
from ..requirements.versions import public
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
    by_name = {profile.name: profile for profile in profiles}
    plans = {name: solve(profile, {}) for name, profile in by_name.items() if name in selected}
    search = _Search(by_name, locked, solve, known, plans, {name: {} for name in plans})
    frameworks = dict.fromkeys(name for plan in plans.values() for name in versions_of(plan))
    reports = [search.share(framework) for framework in frameworks]
    return search.plans, tuple(report for report in reports if report is not None)


def versions_of(plan: Plan | Lock) -> dict[str, str]:
    """Return the version of each framework, without its local part."""
    return {choice.framework: public(choice.version) for choice in plan.choices}


@dataclass
class _Search:
    """The plans of the selected profiles, and the versions that were fixed so far."""

    profiles: Mapping[str, Profile]
    locked: Mapping[str, Versions]
    solve: Solve
    known: KnownVersions
    plans: dict[str, Plan]
    fixed: dict[str, dict[str, str]]

    def share(self, framework: str) -> SharedVersion | None:
        """Give all profiles one version of a framework if there is one; report differences."""
        alone = self._versions(framework)
        separate = []
        for name in alone:
            profile = self.profiles[name]
            if profile.separate_versions or framework in profile.own_ranges:
                separate.append(name)
        sharing = {name: version for name, version in alone.items() if name not in separate}
        failures: dict[tuple[str, str], tuple[Reason, ...]] = {}
        if len(set(sharing.values())) > 1:
            for version in self._candidates(framework, sharing):
                plans = self._plans_with(framework, version, sharing, failures)
                if plans is not None:
                    self.plans |= plans
                    for name in plans:
                        self.fixed[name][framework] = version
                    break
        versions = self._versions(framework)
        if len({*alone.values(), *versions.values()}) == 1:
            return None
        changed = [(name, alone[name]) for name in alone if alone[name] != versions[name]]
        against = [
            (name, version, reasons)
            for (name, version), reasons in failures.items()
            if version in alone.values()
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
        for name in self.profiles:
            plan = self.plans.get(name)
            of_profile = self.locked.get(name, {}) if plan is None else versions_of(plan)
            if framework in of_profile:
                versions[name] = of_profile[framework]
        return versions

    def _candidates(self, framework: str, sharing: Versions) -> list[str]:
        """Return the versions to try: those of locks that stay; or kept ones, then the newest."""
        staying = {version for name, version in sharing.items() if name not in self.plans}
        if staying:
            return _newest_first(staying)
        kept, versions = set(), set(sharing.values())
        newest = max(map(version_key, versions))
        for name, version in sharing.items():
            if self.locked.get(name, {}).get(framework) == version:
                kept.add(version)
            known = self.known(framework, self.profiles[name].platform)
            versions.update(other for other in known if version_key(other) <= newest)
        ordered = dict.fromkeys((*_newest_first(kept), *_newest_first(versions)))
        return list(ordered)[:MAX_VERSIONS]

    def _plans_with(
        self,
        framework: str,
        version: str,
        sharing: Versions,
        failures: dict[tuple[str, str], tuple[Reason, ...]],
    ) -> dict[str, Plan] | None:
        """Return the plans of the selected profiles with a version; None if one cannot have it.

        {} if sharing costs newer releases of what the profiles name: each keeps its own version.
        First come the profiles that most versions are too new for. `failures` gets the reasons of
        a profile that has no solution with the version.
        """
        plans = {}
        for name in sorted(sharing, key=lambda name: version_key(sharing[name])):
            if name not in self.plans:
                continue
            plans[name] = self.plans[name]
            if versions_of(plans[name])[framework] == version:
                continue
            versions = {**self.fixed[name], framework: version}
            try:
                plans[name] = self.solve(self.profiles[name], versions)
            except NoSolutionError as error:
                failures[name, version] = error.explanation.reasons
                return None
            except PackageIndexError:  # only the live index has old releases
                return None
            if self._steps_back(framework, self.plans[name], plans[name]):
                return {}
        return plans

    def _steps_back(self, framework: str, alone: Plan, plan: Plan) -> bool:
        """Return whether a framework that nobody names costs a newer release of what is named.

        Its own packages (torchvision, onnxruntime-gpu) change with it.
        """
        if plan.request.conda is not None:
            return False
        texts = (*plan.request.frameworks, *plan.request.requirements)
        named = {parse_requirement(text).name for text in texts}
        old, new = alone.versions, plan.versions
        others = [name for name in named & old.keys() & new.keys() if framework not in name]
        return framework not in named and any(
            version_key(new[name]) < version_key(old[name]) for name in others
        )


def _newest_first(versions: Iterable[str]) -> list[str]:
    return sorted(versions, key=version_key, reverse=True)
