"""What the stages ask of one another's objects: an index, an environment, the compatibility data. Types only.

A module imports these for its annotations, under TYPE_CHECKING: at run time nothing of this is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from .errors import InputError
from .model import (
    Build,
    ComputeCapability,
    CudaVersion,
    Framework,
    Library,
    Requirement,
    Way,
    Wheel,
)


class Environment(Protocol):
    """The target's answers about tags, markers and versions (environment.py has the one implementation)."""

    def rank(self, filename: str) -> int | None:
        """None if the wheel does not fit the target; else smaller is better."""

    def least_glibc(self, filename: str) -> tuple[int, int] | None:
        """The oldest glibc that the wheel runs on; None if it needs none."""

    def marker(self, text: str, extras: Sequence[str]) -> bool: ...

    def accepts_python(self, requires_python: str | None) -> bool: ...

    def contains(self, specifier: str, version: str, pre: bool) -> bool: ...

    def is_prerelease(self, version: str) -> bool: ...


class Index(Protocol):
    """Where releases come from. Names are normalized (PEP 503)."""

    def has(self, name: str) -> bool:
        """Whether the index has any wheel of `name`."""

    def wheels(self, name: str, environment: Environment | None = None) -> Sequence[Wheel]:
        """Every wheel of `name`, newest version first; () for a name that the index does not have.

        With an environment, wheels that do not fit it may be left out. Wheels of one version stand together. Sdists
        are not listed. Raises errors.PackageIndexError.
        """

    def dependencies(self, wheel: Wheel) -> Sequence[Requirement]:
        """The requirements of `wheel`, all of them, with the markers still on."""


class ResolverIndex(Index, Protocol):
    """An index that the resolver can use. The defaults are those of an index without the feature."""

    def sdists(self, name: str) -> Sequence[Wheel]:
        """Return the source distributions of a name, ordered as `wheels` orders its wheels."""
        return ()

    def direct(self, name: str, url: str) -> Wheel:
        """Return the file of `name` at the URL of a requirement.

        Raises:
            InputError: the file is not one of that name, or the index cannot read URLs.
        """
        raise InputError(f"{name} @ {url}: requirements at a URL cannot be read here")

    def requires_python(self, wheel: Wheel) -> str | None:
        """Return the Requires-Python of a file's metadata; its page on the index may lack it."""
        return None

    def left_out(self, name: str) -> Sequence[str]:
        """Return versions of a name that the live index has and this one does not list."""
        return ()

    def at_hand(self, name: str) -> bool:
        """Return whether everything about a name is known without the network."""
        return False


class Source(Index, Protocol):
    """An index that can be named: `label` is shown to people."""

    label: str


class Matrix(Protocol):
    """Compatibility data (matrix.py has the one implementation). `platform` is as Host.platform says it."""

    version: str

    def framework(self, name: str) -> Framework | None: ...

    def frameworks(self) -> Sequence[str]: ...

    def build(self, distribution: str, version: str, platform: str) -> Build | None:
        """The build that this version string (with its local part, if any) of an index names; None is unknown."""

    def builds(self, distribution: str, platform: str, above: str = "") -> Sequence[Build]:
        """Every known build, newest version first; with `above` only those of newer versions."""

    def variant(self, framework: Framework, way: Way, version: str, platform: str) -> Build | None:
        """A release of a framework, installed one way, as a build: the least of what its carriers carry (R3)."""

    def library(self, distribution: str, version: str, platform: str) -> Library | None: ...

    def is_library(self, distribution: str) -> bool:
        """Whether rules R2 to R4 ask for facts about this distribution (it is one of the CUDA libraries)."""

    def bad(
        self, distribution: str, version: str, capabilities: Iterable[ComputeCapability] = ()
    ) -> tuple[str, str, str] | None:
        """(severity, text, source) of a release known to be bad, everywhere or on a device of these capabilities."""

    def bad_pairs(self, distribution: str, version: str) -> Sequence[tuple[str, str, bool, str, str, str]]:
        """(pair, side, several_gpus, text, source, severity): the bad pairs of which the release is side "a" or "b".

        Releases of different sides of a pair must not meet, with `several_gpus` only on a host with several.
        """

    def slots(self, distribution: str) -> Sequence[str]:
        """The folders that only one distribution of a plan may own (R5): ("nvidia/cudnn",), ..."""

    def compute_capability(self, gpu: str) -> ComputeCapability | None:
        """By marketing name, case and spaces and the words NVIDIA, GeForce, Tesla aside; None is unknown."""

    def capabilities(self) -> Sequence[ComputeCapability]:
        """Every compute capability that the GPU table knows, ascending."""

    def gpu_names(self) -> Sequence[str]: ...

    def driver_cuda(self, release: str) -> CudaVersion | None:
        """The CUDA version that a driver release supports; None beyond the newest known branch."""

    def driver_floor(self, cuda: CudaVersion, os: str) -> tuple[str, str] | None:
        """(release, source) of R1 for a toolkit; None is unknown."""

    def last_branch(self, capability: ComputeCapability) -> tuple[int, str] | None:
        """(branch, source) of the last driver branch that drives the device; None if none has dropped it."""

    def newest_branch(self) -> int: ...

    def driver_steps(self, os: str) -> Sequence[str]:
        """The driver releases from which on more runs than before: the floors of R1, and branches of a newer CUDA."""

    def first_cuda(self, capability: ComputeCapability) -> CudaVersion | None:
        """The first toolkit that compiles for a device, which tells the drivers that can know it; None is unknown."""
