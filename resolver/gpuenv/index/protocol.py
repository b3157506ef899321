"""The interface of an index: what the resolver asks of a package source, with defaults.

`Index` has several implementations: SimpleIndex (over HTTP), FindLinks (folders and pages),
Snapshot, and CombinedIndex, which binds each name to one of the others. Names are normalized (PEP
503).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from ..errors import InputError
from ..model import Requirement, Wheel
from ..requirements.target import TargetEnvironment


class Index(ABC):
    """A source of releases. A subclass must list wheels; it overrides what else it can do."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Return whether the index has the package."""

    @abstractmethod
    def wheels(
        self, name: str, environment: TargetEnvironment | None = None
    ) -> Sequence[Wheel]:
        """List the wheels of a package, newest version first; wheels of one version are adjacent.

        Source distributions are not listed.

        Args:
            name: the package.
            environment: if given, wheels that do not fit it may be left out.

        Returns:
            () for a package that the index does not have.

        Raises:
            PackageIndexError: the index failed.
        """

    @abstractmethod
    def dependencies(self, wheel: Wheel) -> Sequence[Requirement]:
        """Return all requirements of a file of this index, with their markers.

        Raises:
            PackageIndexError: the index failed.
        """

    def sdists(self, name: str) -> Sequence[Wheel]:
        """List the source distributions of a package. Default: none."""
        del name
        return ()

    def left_out(self, name: str) -> Sequence[str]:
        """List versions that exist beside those of `wheels`. Default: none."""
        del name
        return ()

    def requires_python(self, wheel: Wheel) -> str | None:
        """Return Requires-Python from the metadata of a file, which its page may lack.

        Its dependencies were read before. Default: None, nothing beyond the page.
        """
        del wheel
        return None

    def direct(self, name: str, url: str) -> Wheel:
        """Return the file of a package at a URL that a requirement names.

        Raises:
            InputError: there is no such file, or the index cannot read URLs (the default).
        """
        raise InputError(f"{name}: requirements at a URL cannot be read here ({url})")

    def size(self, wheel: Wheel) -> int | None:
        """Return the bytes of a file whose page does not give its size. Default: None, unknown."""
        del wheel
        return None

    def prefetch(self, names: Iterable[str]) -> None:
        """Request the pages of several packages at once; failures are raised later."""
        del names

    def at_hand(self, name: str) -> bool:
        """Return whether everything about a package is local. Default: no file is local."""
        del name
        return False


class Source(Index):
    """An index with a name for messages."""

    label: str
