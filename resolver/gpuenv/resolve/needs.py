"""What the resolver is asked for: distributions, frameworks, host facts and topics to agree on."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Reason
from ..model import Framework, Wheel


def with_extras(name: str, extras: Sequence[str]) -> str:
    """("torch", ("a", "b")) -> "torch[a,b]"."""
    return f"{name}[{','.join(sorted(extras))}]" if extras else name


class Need:
    """Base of what a candidate asks for. `ident` names the node."""

    __slots__ = ("ident",)
    ident: str


class DistNeed(Need):
    """A distribution in a range of versions, or the file at a URL."""

    __slots__ = ("extras", "name", "specifier", "url")

    def __init__(self, name: str, extras: tuple[str, ...], specifier: str, url: str | None = None):
        self.ident, self.name, self.extras, self.specifier = with_extras(name, extras), name, extras, specifier
        self.url = url

    def __str__(self) -> str:
        return f"{self.ident} @ {self.url.partition('#')[0]}" if self.url else f"{self.ident}{self.specifier}"

    def with_base(self) -> tuple[DistNeed, ...]:
        """What name[extra] in a range asks for: the range of the name itself too, so that it is chosen as a whole."""
        if not self.extras or not (self.specifier or self.url):
            return (self,)
        return DistNeed(self.name, (), self.specifier, self.url), self


class FrameworkNeed(Need):
    """A framework in a range of versions, installed any of its ways."""

    __slots__ = ("framework", "specifier")

    def __init__(self, framework: Framework, specifier: str):
        self.ident, self.framework, self.specifier = "@" + framework.name, framework, specifier

    def __str__(self) -> str:
        return f"{self.framework.name}{self.specifier}"


class ExactNeed(Need):
    """Just this candidate: what name[extra] asks of name."""

    __slots__ = ("wheel",)

    def __init__(self, wheel: Wheel):
        self.ident, self.wheel = wheel.name, wheel

    def __str__(self) -> str:
        return f"{self.ident}=={self.wheel.version}"


class FactNeed(Need):
    """A host fact; `reasons` is empty when the host fulfils it."""

    __slots__ = ("reasons",)

    def __init__(self, ident: str, reasons: tuple[Reason, ...]):
        self.ident, self.reasons = ident, reasons

    def __str__(self) -> str:
        return f"{self.ident} ({'; '.join(reason.need for reason in self.reasons)})"


class AgreeNeed(Need):
    """A topic on which all that name it must say the same: the CUDA major, the owner of a folder (R5)."""

    __slots__ = ("value",)

    def __init__(self, topic: str, value: str):
        self.ident, self.value = "=" + topic, value

    def __str__(self) -> str:
        return f"{self.ident[1:]} {self.value}"


class SideNeed(AgreeNeed):
    """One side of a pair of releases that must not meet; `text` says why."""

    __slots__ = ("text",)

    def __init__(self, pair: str, side: str, text: str):
        super().__init__(f"side of {pair}", side)
        self.text = text

    def __str__(self) -> str:
        return f"only one {self.ident[1:]}: {self.text}" if self.value == "a" else f"the other {self.ident[1:]}"
