"""Releases that the index snapshot leaves out: when to ask the live index for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..errors import OfflineError, PackageIndexError, Reason
from ..requirements.target import version_key
from ..requirements.versions import names_prerelease
from .candidates import CandidateStore
from .graph import Candidate
from .selection import can_be, is_exact


class MoreReleasesError(Exception):
    """A name has more releases than the resolution began with. Begin again."""


class Widening:
    """Asks the live index, once for each name, if the known releases are not enough.

    Attributes:
        asked: the names that the live index was asked for.
        failures: the errors of an index that did not answer. For the names of the user's own
            requirements the error is raised, if the data does not have all of their releases; for
            other names a solution may exist without.
        offline: what is not in the cache. A solution may exist without.
    """

    def __init__(
        self,
        widen: Callable[[str], bool] | None,
        store: CandidateStore,
        user_names: frozenset[str],
    ) -> None:
        """Create a widening.

        Args:
            widen: asks the live index for a name; True if it has more releases than were known.
                None if no index may be asked.
            store: the candidates known so far.
            user_names: the names of the user's own requirements and frameworks.
        """
        self._widen = widen
        self._store = store
        self._user_names = user_names
        self._compared: set[tuple[str, ...]] = set()
        self.asked: set[str] = set()
        self.failures: dict[str, PackageIndexError] = {}
        self.offline: list[OfflineError] = []

    def stop(self) -> None:
        """Ask for no more releases: the resolution has ended."""
        self._widen = None

    def try_for(self, name: str, specifiers: Sequence[str]) -> None:
        """Ask for releases of a name of which no known release is in the ranges.

        Raises:
            MoreReleasesError: there are more releases.
            PackageIndexError: the index did not answer and the user requires the name.
        """
        if self.may_help(name, specifiers):
            is_old_build = name in self._user_names and self._has_row(name, specifiers)
            self._ask(name, required=is_old_build or self._is_required(name))

    def try_newer(
        self,
        name: str,
        specifiers: Sequence[str],
        matches: Sequence[Candidate],
        candidates: Sequence[Candidate],
    ) -> None:
        """Ask if the snapshot left out a release in the ranges that is newer than all matches.

        This looks only below the newest candidate. Which release is the newest of all is as of the
        snapshot's date.

        Raises:
            MoreReleasesError: there are more releases.
        """
        key = (name, *specifiers)
        if self._widen is None or name in self.asked or key in self._compared:
            return
        self._compared.add(key)
        if self._store.is_in_data(name) or not self._store.index.at_hand(name):
            return
        left_out = self._store.index.left_out(name)
        if not left_out:
            return
        newest = max(version_key(match.version) for match in matches)
        limit = max(version_key(candidate.version) for candidate in candidates)
        for version in left_out:
            if newest < version_key(version) < limit and self._contains_all(specifiers, version):
                self._ask(name, required=False)
                return

    def try_prereleases(self, name: str, specifiers: Sequence[str]) -> None:
        """Ask for the pre-releases of a name if they are admitted; the snapshot has none.

        Raises:
            MoreReleasesError: there are more releases.
            PackageIndexError: the index did not answer and the user requires the name.
        """
        if self._widen is None or name in self.asked:
            return
        if not self._store.request.pre and not any(map(names_prerelease, specifiers)):
            return
        if not self._store.is_in_data(name):
            self._ask(name, required=self._is_required(name))

    def may_help(self, name: str, specifiers: Sequence[str]) -> bool:
        """Return whether the live index may have a release in the ranges that is not known."""
        if self._widen is None or name in self.asked:
            return False
        store = self._store
        if not store.index.at_hand(name):
            return False  # the live index supplies the package already
        if not self._may_be_left_out(name, specifiers):
            return False
        if store.is_in_data(name) or not store.request.may_build(name):
            # A known release without a wheel for the target has none on the live index either.
            for version in {wheel.version for wheel in store.index.wheels(name)}:
                if self._contains_all(specifiers, version):
                    return False
        return can_be(specifiers, store.environment.contains)

    def doubts(self) -> Iterator[Reason]:
        """Yield a doubt for each name of which not all releases could be looked at."""
        for name, error in sorted(self.failures.items()):
            yield Reason(
                code="index-unknown",
                subject=name,
                need="releases that the index snapshot leaves out",
                have=error.message,
            )

    def _is_required(self, name: str) -> bool:
        """Return whether the user requires a name of which the data does not have all releases."""
        return name in self._user_names and not self._store.is_in_data(name)

    def _has_row(self, name: str, specifiers: Sequence[str]) -> bool:
        """Return whether the data has a build in the ranges; the snapshot leaves out old ones."""
        versions = self._store.data.known_versions(name, self._store.host.platform)
        return any(self._contains_all(specifiers, version) for version in versions)

    def _may_be_left_out(self, name: str, specifiers: Sequence[str]) -> bool:
        """Return whether the default index may have a release that the snapshot leaves out.

        Of a framework these are old releases: builds that the data knows and, if the user names
        the framework, older ones.
        """
        if any("+" in specifier for specifier in specifiers):
            return False  # the default index has no local versions
        versions = list(self._store.data.known_versions(name, self._store.host.platform))
        is_users = name in self._user_names
        if not versions or not (is_users or self._store.framework_of(name)):
            return True
        if is_users:
            oldest = min(map(version_key, versions))
            exact = [text.removeprefix("==") for text in specifiers if is_exact(text)]
            versions += ["0", *(version for version in exact if version_key(version) < oldest)]
        return any(self._contains_all(specifiers, version) for version in versions)

    def _contains_all(self, specifiers: Sequence[str], version: str) -> bool:
        contains = self._store.environment.contains
        return all(contains(specifier, version, True) for specifier in specifiers)

    def _ask(self, name: str, *, required: bool) -> None:
        if self._widen is None:
            return
        framework = self._store.framework_of(name)
        # An old release of a framework goes with old releases of its companions.
        names = (name,) if framework is None else framework.distributions
        self.asked.update(names)
        try:
            widened = [package for package in names if self._widen(package)]
        except OfflineError as error:
            if required and self._store.is_in_data(name):
                raise  # the data has the build, so that nothing else is a solution
            self.offline.append(error)
            return
        except PackageIndexError as error:
            if required:
                raise
            self.failures[name] = error
            return
        for package in widened:
            self._store.forget(package)
        if widened:
            raise MoreReleasesError(name)
