"""Releases that the index snapshot leaves out: when to ask the live index for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from packaging.specifiers import SpecifierSet

from ..errors import OfflineError, PackageIndexError, Reason
from ..requirements.target import version_key
from ..requirements.versions import contains, names_prerelease
from .candidates import CandidateStore, is_exact
from .graph import Candidate


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
        store, is_users = self._store, name in self._user_names
        if self._widen is None or name in self.asked or not store.index.at_hand(name):
            return  # the live index supplies the package already
        if any("+" in specifier for specifier in specifiers):
            return  # the default index has no local versions
        rows = list(store.data.known_versions(name, store.host.platform))
        left_out = list(rows)
        if rows and (is_users or store.data.framework_of(name)):
            # Of a framework the snapshot leaves out old releases: builds that the data knows and,
            # if the user names the framework, older ones.
            if is_users:
                oldest = min(map(version_key, rows))
                exact = [text.lstrip("=") for text in specifiers if is_exact(text)]
                left_out += ["0", *(text for text in exact if version_key(text) < oldest)]
            if not self._any_in(specifiers, left_out):
                return
        # A known release without a wheel for the target has none on the live index either.
        needs_wheel = store.data.covers(name) or not store.request.may_build(name)
        wheels = store.index.files(name) if needs_wheel else ()
        if self._any_in(specifiers, {wheel.version for wheel in wheels}):
            return
        if not SpecifierSet(",".join(filter(None, specifiers))).is_unsatisfiable():
            is_old_build = is_users and self._any_in(specifiers, rows)
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
        if self._widen is None or name in self.asked:
            return
        if self._store.data.covers(name) or not self._store.index.at_hand(name):
            return
        left_out = self._store.index.left_out(name)
        if not left_out:
            return
        newest = max(version_key(match.version) for match in matches)
        limit = max(version_key(candidate.version) for candidate in candidates)
        between = [version for version in left_out if newest < version_key(version) < limit]
        if self._any_in(specifiers, between):
            self._ask(name, required=False)

    def try_prereleases(self, name: str, specifiers: Sequence[str]) -> None:
        """Ask for the pre-releases of a name if they are admitted; the snapshot has none.

        Raises:
            MoreReleasesError: there are more releases.
            PackageIndexError: the index did not answer and the user requires the name.
        """
        if self._widen is None or name in self.asked or self._store.data.covers(name):
            return
        if self._store.request.pre or any(map(names_prerelease, specifiers)):
            self._ask(name, required=self._is_required(name))

    def doubts(self) -> Iterator[Reason]:
        """Yield a doubt for each name of which not all releases could be looked at."""
        for name, error in sorted(self.failures.items()):
            yield Reason(
                "index-unknown",
                name,
                "releases that the index snapshot leaves out",
                error.message,
            )

    def _is_required(self, name: str) -> bool:
        """Return whether the user requires a name of which the data does not have all releases."""
        return name in self._user_names and not self._store.data.covers(name)

    def _any_in(self, specifiers: Sequence[str], versions: Iterable[str]) -> bool:
        """Return whether one of some versions is in all ranges."""
        return any(
            all(contains(specifier, version) for specifier in specifiers) for version in versions
        )

    def _ask(self, name: str, *, required: bool) -> None:
        """Ask for a name. If `required`, an index that does not answer is an error."""
        if self._widen is None:
            return
        framework = self._store.data.framework_of(name)
        # An old release of a framework goes with old releases of its companions.
        names = (name,) if framework is None else framework.distributions
        self.asked.update(names)
        try:
            widened = [package for package in names if self._widen(package)]
        except OfflineError as error:
            if required and self._store.data.covers(name):
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
