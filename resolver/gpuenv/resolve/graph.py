"""The graph that a resolution resolves: identifiers, requirements (edges) and candidates (nodes).

There are three kinds of nodes. The type of an identifier tells which:

- PackageId: a distribution, or a distribution with extras. Its candidates are releases (Candidate).
- FrameworkId: a framework that installs in several ways. Its candidates are releases installed
  in one of these ways (Variant).
- AgreementId: a topic on which all packages must agree, such as the CUDA major version. Its one
  candidate (Token) exists if all requirements name the same value.

Agreements are nodes so that the resolution itself finds and names these conflicts. So is UNMET,
which has no candidate: what requires it cannot be chosen.

Requirements and candidates are compared by identity: a resolution reads each of them once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from resolvelib.structs import RequirementInformation

from ..compat.evaluate import Agreement
from ..errors import Reason
from ..model import Build, Framework, Library, Way, Wheel, WheelVariant
from .wheel_variants import JudgedVariant

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
        return cls(f"{name}[{','.join(sorted(extras))}]" if extras else name)

    @property
    def extras(self) -> tuple[str, ...]:
        """The extras, sorted."""
        inside = self.partition("[")[2]
        return tuple(inside[:-1].split(",")) if inside else ()


def without_extras(node: Identifier) -> Identifier:
    """Return the node of a package without its extras; any other node as it is."""
    if isinstance(node, PackageId) and "[" in node:
        return PackageId(node.partition("[")[0])
    return node


class FrameworkId(Identifier):
    """A framework of the compatibility data that installs in several ways."""

    __slots__ = ()

    @classmethod
    def of(cls, framework: str) -> FrameworkId:
        """Return the identifier of a framework's name."""
        return cls(f"@{framework}")


class AgreementId(Identifier):
    """A topic on which all requirements must name the same value, such as the CUDA major."""

    __slots__ = ()

    @classmethod
    def of(cls, topic: str) -> AgreementId:
        """Return the identifier of a topic."""
        return cls(f"={topic}")


UNMET = Identifier("__unmet")

# ---- requirements -------------------------------------------------------------------------------


class NodeRequirement:
    """Base of the requirements that a candidate or the request has on one node.

    Requirements of one meaning admit the same candidates, whichever release has them. Those of
    most kinds have a meaning of their own.
    """

    identifier: Identifier

    @property
    def meaning(self) -> Hashable:
        """What the requirement demands."""
        return self

    def with_base(self) -> tuple[NodeRequirement, ...]:
        """Return this requirement, preceded by one that follows from it."""
        return (self,)


@dataclass(eq=False)
class PackageRequirement(NodeRequirement):
    """A distribution in a range of versions, or the file at a URL.

    `replaced` is the distribution that a dependency names, if this one takes its place. `because`
    is why a release needs the range, if its metadata does not say so.
    """

    name: str
    extras: tuple[str, ...]
    specifier: str
    url: str | None = None
    replaced: str = ""
    because: str = ""

    def __post_init__(self) -> None:
        self.identifier = PackageId.of(self.name, self.extras)

    @property
    def meaning(self) -> Hashable:
        """What the requirement demands."""
        return self.identifier, self.specifier, self.url

    def __str__(self) -> str:
        if self.url:
            return f"{self.identifier} @ {self.url.partition('#')[0]}"
        text = f"{self.identifier}{self.specifier}".replace("===", "==")  # as people write it
        note = f"in place of {self.replaced}" if self.replaced else self.because
        return f"{text} ({note})" if note else text

    def with_base(self) -> tuple[PackageRequirement, ...]:
        """Return this requirement, preceded by one on the package without extras.

        A range or URL of name[extra] limits the package itself too. The resolution sees the limit
        earlier if the package has the requirement as well.
        """
        if not self.extras or not (self.specifier or self.url):
            return (self,)
        return replace(self, extras=()), self


@dataclass(eq=False)
class FrameworkRequirement(NodeRequirement):
    """A framework in a range of versions, installed in any of its ways.

    `text` is how the user wrote it, if it leaves only some of the ways. `replaced` is as in
    PackageRequirement.
    """

    framework: Framework
    specifier: str
    text: str = ""
    replaced: str = ""

    def __post_init__(self) -> None:
        self.identifier = FrameworkId.of(self.framework.name)

    @property
    def meaning(self) -> Hashable:
        """What the requirement demands."""
        return self.identifier, self.specifier

    def __str__(self) -> str:
        return self.text or f"{self.framework.name}{self.specifier}"


@dataclass(eq=False)
class SameFileRequirement(NodeRequirement):
    """One file of a package: name[extra] requires name with the same file."""

    wheel: Wheel

    def __post_init__(self) -> None:
        self.identifier = PackageId(self.wheel.name)

    def __str__(self) -> str:
        return f"{self.identifier}=={self.wheel.version}"


@dataclass(eq=False)
class UnmetRequirement(NodeRequirement):
    """A requirement that cannot be met, because of the file of a release or the host."""

    reason: Reason
    identifier = UNMET

    def __str__(self) -> str:
        return self.reason.need


@dataclass(eq=False)
class AgreementRequirement(NodeRequirement):
    """The value of a topic that all packages must share, such as the CUDA major."""

    agreement: Agreement

    def __post_init__(self) -> None:
        self.identifier = AgreementId.of(self.agreement.topic)

    @property
    def meaning(self) -> Hashable:
        """What the requirement demands."""
        return self.identifier, frozenset(self.agreement.values)

    def __str__(self) -> str:
        return self.agreement.text


# ---- candidates ---------------------------------------------------------------------------------


@dataclass(eq=False)
class Candidate:
    """One release of a distribution on one index, with the file that fits the target best.

    Attributes:
        wheel: the file: the wheel that fits best, or a source distribution.
        framework: the framework that this is a build of, or a companion's build for.
        build: what the compatibility data has about the build.
        library: what the compatibility data has about a CUDA library.
        judged: what is known about a variant wheel; None for any other file.
        extras: those of a node such as torch[a].
        identifier: of the node.
    """

    wheel: Wheel
    framework: Framework | None
    build: Build | None
    library: Library | None
    judged: JudgedVariant | None
    extras: tuple[str, ...] = ()
    _nodes: dict[tuple[str, ...], Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = self.wheel.name
        self.version = self.wheel.version
        self.identifier = PackageId.of(self.name, self.extras)

    @property
    def on_path(self) -> bool:
        """Whether its code runs in a convolution (see CandidateStore.on_path)."""
        return self.framework is not None and self.framework.distribution == self.name

    @property
    def is_yanked(self) -> bool:
        """Whether the file is yanked."""
        return self.wheel.yanked is not None

    @property
    def variant(self) -> WheelVariant | None:
        """The variant of a variant wheel."""
        return None if self.judged is None else self.judged.variant

    @property
    def needs_build(self) -> bool:
        """Whether the file is a source distribution."""
        return self.wheel.is_sdist

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
        """Return the node of the same file with extras, always the same object."""
        if not extras:
            return self
        if extras not in self._nodes:
            self._nodes[extras] = replace(self, extras=extras, _nodes={})
        return self._nodes[extras]

    def __repr__(self) -> str:
        return f"{self.identifier} {self.version}"


@dataclass(eq=False)
class Variant:
    """A release of a framework, installed in one way: jax 0.12.0 as jax[cuda12].

    Attributes:
        wheel: the file of the distribution that has the framework's version.
        build: what the compatibility data has about the framework with all its carriers.
    """

    framework: Framework
    way: Way
    wheel: Wheel
    build: Build | None

    def __post_init__(self) -> None:
        self.identifier = FrameworkId.of(self.framework.name)
        self.version = self.wheel.version

    @property
    def is_yanked(self) -> bool:
        """Whether the file is yanked."""
        return self.wheel.yanked is not None

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


@dataclass(eq=False)
class Token:
    """The candidate of an agreement with the agreed value."""

    identifier: AgreementId
    value: str

    def __str__(self) -> str:
        return f"{self.identifier} {self.value}"


Release = Candidate | Variant
Node = Candidate | Token | Variant
Cause = RequirementInformation[NodeRequirement, Node]  # a requirement, and what has it
