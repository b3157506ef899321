"""The interface of a package index: what the resolver can ask of any source of releases.

Implementations: SimpleIndex (over HTTP), FindLinks (folders and pages), Snapshot (shipped data),
DirectFiles (URLs in requirements), LazyIndex (opens another index on first use) and MultiIndex
(binds each package name to one of the others). Package names are normalized (PEP 503) everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError
from ..model import Requirement, Wheel
from ..requirements.target import TargetEnvironment

if TYPE_CHECKING:  # few packages have variant wheels
    from .variants import ReleaseVariants

DIRECT_URL = "url"  # Wheel.index of a file that a requirement names by its URL


class Listed(NamedTuple):
    """A release on the page of a package.

    Attributes:
        is_yanked: whether all of its files that fit the target are yanked.
        needs_build: whether these files are source distributions only.
    """

    is_yanked: bool
    needs_build: bool


class Releases:
    """The releases of a package with a file that fits a target. Their files are not read yet.

    Attributes:
        versions: the releases by version, the newest version first.
        files: returns the files of a version: wheels whose tags fit, and source distributions.
    """

    __slots__ = ("files", "versions")

    def __init__(
        self, versions: Mapping[str, Listed], files: Callable[[str], Sequence[Wheel]]
    ) -> None:
        self.versions = versions
        self.files = files


class Index(ABC):
    """A source of releases. Methods that are not abstract are optional and have a default."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Return whether the index lists any file of the package.

        Raises:
            PackageIndexError: the index failed.
        """

    @abstractmethod
    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
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

    def releases(self, name: str, environment: TargetEnvironment) -> Releases | None:
        """List the releases of a package that have a file for an environment.

        Returns:
            None if `wheels` must be asked. That is the default.

        Raises:
            PackageIndexError: the index failed.
        """
        del name, environment
        return None

    @abstractmethod
    def dependencies(self, wheel: Wheel) -> Sequence[Requirement]:
        """Return all requirements of a file of this index, with their markers.

        Raises:
            PackageIndexError: the index failed.
            UnusableFileError: the file cannot be chosen; another release may do.
        """

    def variants(self, wheels: Sequence[Wheel]) -> ReleaseVariants:
        """Return what the variants of a release are. Default: none is known.

        Args:
            wheels: the variant wheels of the release, at least one.

        Raises:
            PackageIndexError: the index failed.
            UnusableFileError: the metadata cannot be used.
        """
        from .variants import ReleaseVariants

        del wheels
        return ReleaseVariants()

    def sdists(self, name: str) -> Sequence[Wheel]:
        """List the source distributions of a package, ordered like `wheels`. Default: none."""
        del name
        return ()

    def left_out(self, name: str) -> Sequence[str]:
        """List versions that exist but are not in `wheels`. Default: none, the list is complete."""
        del name
        return ()

    def similar(self, name: str) -> Sequence[str]:
        """Return names of packages that are close to a name. Default: none is known."""
        del name
        return ()

    def requires_python(self, wheel: Wheel) -> str | None:
        """Return Requires-Python from the metadata of a file, which its page may lack.

        It is known after `dependencies(wheel)`. Default: None, nothing beyond the page.
        """
        del wheel
        return None

    def direct(self, name: str, url: str) -> Wheel:
        """Return the file of a package at a URL that a requirement names.

        Raises:
            InputError: the URL names no file of the package, or the index cannot read URLs
                (the default).
        """
        del url
        raise InputError(f"{name}: requirements at a URL cannot be read here")

    def size(self, wheel: Wheel) -> int | None:
        """Return the bytes of a file whose page does not give its size. Default: None, unknown."""
        del wheel
        return None

    def request_dependencies(self, wheels: Sequence[Wheel]) -> None:
        """Start to read the dependencies of wheels that may be asked for. Default: nothing."""
        del wheels

    def request_needs(self, wheel: Wheel, extras: Sequence[str]) -> None:
        """Start to read what a chosen wheel with extras requires. Default: nothing."""
        del wheel, extras

    def at_hand(self, name: str) -> bool:
        """Return whether everything about a package is local. Default: False."""
        del name
        return False


class Source(Index):
    """An index with a name for messages and for binding; `label` holds no credentials."""

    label: str
