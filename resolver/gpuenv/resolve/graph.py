"""The graph that resolvelib resolves: identifiers, requirements (edges) and candidates (nodes).

There are four kinds of nodes. The type of an identifier tells which:

- PackageId: a distribution, or a distribution with extras. Its candidates are releases (Candidate).
- FrameworkId: a framework that installs in several ways. Its candidates are releases installed
  in one of these ways (Variant).
- HostFactId: a fact about the host. Its one candidate (Token) exists if no reason speaks against
  it.
- AgreementId: a topic on which all packages must agree, such as the CUDA major version. Its one
  candidate (Token) exists if all requirements name the same value.

Host facts and agreements are nodes so that resolvelib itself finds and names these conflicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..errors import Reason
from ..index.protocol import Listed
from ..model import Build, Framework, Library, Way, Wheel, WheelVariant

# ---- identifiers --------------------------------------------------------------------------------


class Identifier(str):
    """The key of a node. No two kinds of nodes share a text; texts also order nodes stably."""

    __slots__ = ()


class PackageId(Identifier):
    """A distribution ("torch") or a distribution with extras ("torch[a,b]")."""

    __slots__ = ()

    @classmethod
    def of(cls, name: str, extras: Sequence[str] = ()) -> PackageId:
        """Return the identifier of a normalized name with normalized extras in any order."""
        if not extras:
            return cls(name)
        return cls(f"{name}[{','.join(sorted(extras))}]")

    @property
    def name(self) -> str:
        """The name without the extras."""
        return self.partition("[")[0]

    @property
    def extras(self) -> tuple[str, ...]:
        """The extras, sorted."""
        inside = self.partition("[")[2]
        if not inside:
            return ()
        return tuple(inside[:-1].split(","))


def without_extras(node: Identifier) -> Identifier:
    """Return the node of a package without its extras; any other node as it is."""
    return PackageId.of(node.name) if isinstance(node, PackageId) else node


class FrameworkId(Identifier):
    """A framework of the compatibility data that installs in several ways."""

    __slots__ = ()

    @classmethod
    def of(cls, framework: str) -> FrameworkId:
        """Return the identifier of a framework's name."""
        return cls(f"@{framework}")


class HostFactId(Identifier):
    """A fact about the host, such as "__driver" (named as conda's virtual packages are)."""

    __slots__ = ()


class AgreementId(Identifier):
    """A topic on which all requirements must name the same value, such as the CUDA major."""

    __slots__ = ()

    @classmethod
    def of(cls, topic: str) -> AgreementId:
        """Return the identifier of a topic."""
        return cls(f"={topic}")


class NogoodId(Identifier):
    """What no candidate has: the node of NogoodRequirement."""

    __slots__ = ()


FILE_FACT = HostFactId("__file")  # whether a file can be used at all
PYTHON_FACT = HostFactId("__python")
_NOGOOD = NogoodId("!")


# ---- requirements -------------------------------------------------------------------------------


class NodeRequirement:
    """Base of the requirements that a candidate or the request has on one node."""

    __slots__ = ("identifier",)
    identifier: Identifier


class PackageRequirement(NodeRequirement):
    """A distribution in a range of versions, or the file at a URL."""

    __slots__ = ("extras", "name", "specifier", "url")

    def __init__(
        self, name: str, extras: tuple[str, ...], specifier: str, url: str | None = None
    ) -> None:
        self.identifier = PackageId.of(name, extras)
        self.name = name
        self.extras = extras
        self.specifier = specifier
        self.url = url

    def __str__(self) -> str:
        if self.url:
            return f"{self.identifier} @ {self.url.partition('#')[0]}"
        return f"{self.identifier}{self.specifier}"

    def with_base(self) -> tuple[PackageRequirement, ...]:
        """Return this requirement, preceded by one on the package without extras.

        A range or URL of name[extra] limits the package itself too. resolvelib sees the limit
        earlier if the package has the requirement as well.
        """
        if not self.extras or not (self.specifier or self.url):
            return (self,)
        return PackageRequirement(self.name, (), self.specifier, self.url), self


class FrameworkRequirement(NodeRequirement):
    """A framework in a range of versions, installed in any of its ways.

    `text` is how the user wrote it, if it leaves only some of the ways.
    """

    __slots__ = ("framework", "specifier", "text")

    def __init__(self, framework: Framework, specifier: str, text: str = "") -> None:
        self.identifier = FrameworkId.of(framework.name)
        self.framework = framework
        self.specifier = specifier
        self.text = text

    def __str__(self) -> str:
        return self.text or f"{self.framework.name}{self.specifier}"


class SameFileRequirement(NodeRequirement):
    """One file of a package: name[extra] requires name with the same file."""

    __slots__ = ("wheel",)

    def __init__(self, wheel: Wheel) -> None:
        self.identifier = PackageId.of(wheel.name)
        self.wheel = wheel

    def is_file_of(self, candidate: Candidate) -> bool:
        """Return whether a candidate has the file; the file of another version is not read."""
        return candidate.version == self.wheel.version and candidate.wheel is self.wheel

    def __str__(self) -> str:
        return f"{self.identifier}=={self.wheel.version}"


class HostRequirement(NodeRequirement):
    """A fact that the host must fulfil. `reasons` is empty if the host fulfils it."""

    __slots__ = ("reasons",)

    def __init__(self, fact: HostFactId, reasons: tuple[Reason, ...]) -> None:
        self.identifier = fact
        self.reasons = reasons

    def __str__(self) -> str:
        return f"{self.identifier} ({'; '.join(reason.need for reason in self.reasons)})"


class AgreementRequirement(NodeRequirement):
    """The value of a topic that all packages must share, such as the owner of a folder (R5).

    A package that fits several values names all of them.
    """

    __slots__ = ("topic", "value", "values")
    identifier: AgreementId

    def __init__(self, topic: str, *values: str) -> None:
        self.identifier = AgreementId.of(topic)
        self.topic = topic
        self.values = values
        self.value = " or ".join(values)  # as a text

    def agrees_with(self, other: AgreementRequirement) -> bool:
        """Return whether one value fits both."""
        return not set(self.values).isdisjoint(other.values)

    def __str__(self) -> str:
        return f"{self.topic} {self.value}"


class BadPairRequirement(AgreementRequirement):
    """One side ("a" or "b") of a pair of releases that must not be installed together."""

    __slots__ = ("pair", "text")

    def __init__(self, pair: str, side: str, text: str) -> None:
        super().__init__(f"side of {pair}", side)
        self.pair = pair
        self.text = text  # why

    def __str__(self) -> str:
        if self.value == "a":
            return f"only one {self.topic}: {self.text}"
        return f"the other {self.topic}"


class NogoodRequirement(NodeRequirement):
    """What a candidate requires that cannot be chosen with the present pins: nothing has it.

    Attributes:
        releases: the candidate and the pins that exclude it.
        causes: why they exclude each other.
    """

    __slots__ = ("causes", "releases")

    def __init__(self, releases: frozenset[Node], causes: Sequence[Cause]) -> None:
        self.identifier = _NOGOOD
        self.releases = releases
        self.causes = causes

    def __str__(self) -> str:
        return f"not together: {', '.join(sorted(map(repr, self.releases)))}"


# ---- candidates ---------------------------------------------------------------------------------


class Candidate:
    """One release of a distribution on one index, with the file that fits the target best.

    Attributes:
        identifier: PackageId, with extras for a node such as torch[a].
        build: what the compatibility data has about a framework's or companion's build.
        library: what the compatibility data has about a CUDA library. Read when first used:
            a solve looks at one of fifty cuDNN releases.
        variant: the variant of a variant wheel; None for any other file.
        is_yanked: whether the file is yanked.
        needs_build: whether the file is a source distribution.
    """

    __slots__ = (
        "_read_library",
        "_read_wheel",
        "_wheel",
        "build",
        "extras",
        "identifier",
        "is_yanked",
        "name",
        "needs_build",
        "variant",
        "version",
    )

    _read_wheel: Callable[[str], Wheel]

    def __init__(
        self,
        wheel: Wheel,
        build: Build | None,
        read_library: Callable[[str, str], Library | None],
        extras: tuple[str, ...] = (),
        variant: WheelVariant | None = None,
    ) -> None:
        self.identifier = PackageId.of(wheel.name, extras)
        self.name = wheel.name
        self.version = wheel.version
        self.is_yanked = wheel.yanked is not None
        self.needs_build = not wheel.filename.endswith(".whl")
        self._wheel: Wheel | None = wheel
        self.build = build
        self.extras = extras
        self.variant = variant
        self._read_library = read_library

    @classmethod
    def unread(
        cls,
        identifier: PackageId,
        version: str,
        listed: Listed,
        read_wheel: Callable[[str], Wheel],
        read_library: Callable[[str, str], Library | None],
    ) -> Candidate:
        """Return a release whose file is read when first used.

        Args:
            identifier: the package.
            version: the version.
            listed: what the page of the package says of it.
            read_wheel: returns the file of a version.
            read_library: returns the row of a CUDA library.
        """
        candidate = cls.__new__(cls)
        candidate.identifier = identifier
        candidate.name = identifier  # without extras it is the name
        candidate.version = version
        candidate.is_yanked, candidate.needs_build = listed
        candidate._wheel = None
        candidate._read_wheel = read_wheel
        candidate.build = candidate.variant = None
        candidate.extras = ()
        candidate._read_library = read_library
        return candidate

    @property
    def wheel(self) -> Wheel:
        """The file: the wheel that fits best, or a source distribution."""
        wheel = self._wheel
        if wheel is None:
            wheel = self._wheel = self._read_wheel(self.version)
        return wheel

    @property
    def library(self) -> Library | None:
        """The row of a CUDA library; None for any other distribution."""
        return self._read_library(self.name, self.version)

    @property
    def label(self) -> str:
        """The name and version for messages: "torch 2.13.0+cu126"."""
        return f"{self.name} {self.local_version}"

    @property
    def local_version(self) -> str:
        """The version as the build's index writes it, with the label of a variant wheel."""
        if self.variant is not None:
            return f"{self.version} ({self.variant.label})"
        if self.build is None:
            return self.version
        return self.build.local

    def with_extras(self, extras: tuple[str, ...]) -> Candidate:
        """Return the node of the same file with extras."""
        return Candidate(self.wheel, self.build, self._read_library, extras, self.variant)

    def __repr__(self) -> str:
        return f"{self.identifier} {self.version}"


class Variant:
    """A release of a framework, installed in one way: jax 0.12.0 as jax[cuda12].

    Attributes:
        wheel: the file of the distribution that has the framework's version.
        build: what the compatibility data has about the framework with all its carriers.
    """

    __slots__ = ("build", "framework", "identifier", "is_yanked", "version", "way", "wheel")

    def __init__(self, framework: Framework, way: Way, wheel: Wheel, build: Build | None) -> None:
        self.identifier = FrameworkId.of(framework.name)
        self.framework = framework
        self.way = way
        self.wheel = wheel
        self.version = wheel.version
        self.is_yanked = wheel.yanked is not None
        self.build = build

    @property
    def label(self) -> str:
        """The name and version for messages: "jax 0.12.0 (cuda12)"."""
        return f"{self.framework.name} {self.local_version}"

    @property
    def local_version(self) -> str:
        """The version with the way that it is installed: "0.12.0 (cuda12)"."""
        return f"{self.version} ({self.way.variant})"

    def __repr__(self) -> str:
        return self.label


class Token:
    """The only candidate of a host fact, or of an agreement with the agreed value."""

    __slots__ = ("identifier", "value")

    def __init__(self, identifier: Identifier, value: str = "") -> None:
        self.identifier = identifier
        self.value = value

    def __repr__(self) -> str:
        return f"{self.identifier} {self.value}"


Release = Candidate | Variant
Node = Candidate | Token | Variant


class Cause(Protocol):
    """One requirement that takes part in a conflict (resolvelib's RequirementInformation)."""

    @property
    def requirement(self) -> NodeRequirement:
        """The requirement."""

    @property
    def parent(self) -> Node | None:
        """The candidate that has the requirement; None for the request itself."""
