"""What the resolver asks an index: the files of a package, and the metadata of a file.

MultiIndex is the index of a solve. Package names are normalized (PEP 503) everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import BinaryIO

from ..errors import InputError
from ..model import Requirement, Value, Wheel
from ..requirements.target import TargetEnvironment
from .variants import ReleaseVariants

DIRECT_URL = "url"  # Wheel.index of a file that a requirement names by its URL


class Metadata(Value):
    """What a file says of itself.

    Attributes:
        dependencies: all of its requirements, with their markers.
        requires_python: its Requires-Python, which its page may lack.
        built_with: the package that must be installed before the file, a source distribution or a
            source tree, can be built: it compiles code for it. "" for an isolated build.
    """

    dependencies: tuple[Requirement, ...] = ()
    requires_python: str | None = None
    built_with: str = ""


class Index(ABC):
    """A source of releases. Methods that are not abstract are optional and have a default."""

    @abstractmethod
    def files(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """List the files of a package, newest version first; files of one version are adjacent.

        Args:
            name: the package.
            environment: if given, wheels that do not fit it may be left out.

        Returns:
            Wheels and source distributions; () for a package that the index does not have.

        Raises:
            PackageIndexError: the index failed.
        """

    @abstractmethod
    def metadata(self, wheel: Wheel) -> Metadata:
        """Return the metadata of a file of this index.

        Raises:
            PackageIndexError: the index failed.
            UnusableFileError: the file cannot be chosen; another release may do.
        """

    def name_of(self, distribution: str) -> str:
        """Return the name that this index has for a distribution."""
        return distribution

    def variants(self, wheels: Sequence[Wheel]) -> ReleaseVariants:
        """Return what the variants of a release are. Default: none is known.

        Args:
            wheels: the variant wheels of the release, at least one.

        Raises:
            PackageIndexError: the index failed.
            UnusableFileError: the metadata cannot be used.
        """
        return ReleaseVariants()

    def direct(self, name: str, url: str) -> Wheel:
        """Return the file of a package at a URL that a requirement names.

        Raises:
            InputError: the URL names no file of the package, or the index cannot read URLs
                (the default).
        """
        raise InputError(f"{name}: requirements at a URL cannot be read here")

    def open(self, wheel: Wheel) -> BinaryIO | None:
        """Open a file of this index. Default: None, its content cannot be asked for.

        Raises:
            PackageIndexError: the index failed.
            NoRangesError: the server breaks the rules of range requests.
        """
        return None

    def at_hand(self, name: str) -> bool:
        """Return whether everything about a package is local. Default: False."""
        return False

    def is_bound(self, name: str) -> bool:
        """Return whether a project names the only index of a package. Default: False."""
        return False

    def left_out(self, name: str) -> Sequence[str]:
        """List versions that exist but are not in `files`. Default: none, the list is complete."""
        return ()

    def request_dependencies(self, wheels: Sequence[Wheel]) -> None:
        """Start to read the dependencies of wheels that may be asked for. Default: nothing."""
        del wheels

    def limit_builds(self) -> None:  # noqa: B027
        """From now on, build metadata for a short time only. Default: nothing."""

    def request_needs(self, wheel: Wheel, extras: Sequence[str]) -> None:
        """Start to read what a chosen wheel with extras requires. Default: nothing."""
        del wheel, extras
