"""What the doctor knows, from matrix_data/doctor: the causes, and the messages with the facts that they give."""

from __future__ import annotations

import os
import re
from typing import Any

from ..compat.data import data_folder
from ..errors import DataError
from ..model import Value
from .status_codes import pair

DIGITS = b"0123456789"
_KEPT: dict[str, Any] = {}


class Cause(Value):
    """A class of causes: `proves`, `refutes` and `fix` in words; `fails`, `passes`: the tests that decide it.

    `looks`: general forms of the messages by which it is met; `log`: what a log alone does not tell of it, or "".
    `rank` orders causes that are as sure as one another. `scope`: environment, host or program, what has to change.
    `root`: the fix needs an administrator's rights. `solve`: a new solve helps.
    """

    id: str
    title: str
    layer: str
    rank: int
    scope: str
    root: bool
    solve: bool
    proves: tuple[str, ...]
    refutes: tuple[str, ...]
    fix: str
    fails: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    looks: tuple[str, ...] = ()
    log: str = ""


class Message(Value):
    """A message's general form, and what it says: a cause or facts. See the head of messages.toml."""

    name: str
    needles: tuple[bytes, ...]
    pattern: str
    cause: str = ""
    sure: str = ""
    facts: tuple[tuple[str, str, str], ...] = ()
    lines: int = 0
    alike: bool = False

    @property
    def numbered(self) -> tuple[bytes, ...]:
        """The needles in which lines may differ that differ in their digits only."""
        return () if self.alike else tuple(one for one in self.needles if one != one.translate(None, DIGITS))

    def compiled(self) -> re.Pattern[str]:
        """Its pattern; compiled when a line is looked at for the first time."""
        found: re.Pattern[str] | None = _KEPT.get(self.name)
        if found is None:
            found = _KEPT[self.name] = re.compile(self.pattern, re.IGNORECASE)
        return found


def _read(*path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(os.path.join(data_folder(), *path), "rb") as stream:
            return tomllib.load(stream)
    except (OSError, ValueError) as error:
        raise DataError(f"the doctor's data cannot be read: {'/'.join(path)}: {error}") from None


def causes() -> dict[str, Cause]:
    """The causes by their ids, in the order of the file. Read once."""
    if "causes" not in _KEPT:
        rows = _read("doctor", "causes.toml")["cause"]
        plain: list[dict[str, Any]] = [
            {name: tuple(at) if isinstance(at, list) else at for name, at in row.items()} for row in rows
        ]
        _KEPT["causes"] = {row["id"]: Cause(**row) for row in plain}
    return _KEPT["causes"]  # type: ignore[no-any-return]


def messages() -> tuple[Message, ...]:
    """The messages, in the order of the file. Read once."""
    if "messages" not in _KEPT:
        data = _read("doctor", "messages.toml")
        terms = {f"%{name}%": text for name, text in data["terms"].items()}
        _KEPT["messages"] = tuple(
            Message(
                name=row["name"],
                needles=tuple(one.encode() for one in row["needles"]),
                pattern=re.sub("%[a-z]+%", lambda term: terms[term[0]], row["pattern"]),
                cause=row.get("cause", ""),
                sure=row.get("sure", ""),
                facts=tuple((kind, subject, value) for kind, subject, value in row.get("facts", ())),
                lines=row.get("lines", 0),
                alike=row.get("alike", False),
            )
            for row in data["message"]
        )
    return _KEPT["messages"]  # type: ignore[no-any-return]


def compilers() -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """CUDA releases in their order, each with the first and the last compute capability that it compiles for."""
    if "compilers" not in _KEPT:
        old = [(row["cuda"], row["first"], row["last"]) for row in _releases()["compiler"]]
        new = []
        for row in _read("toolkits.toml")["compiler"]:
            targets = [one for one in row["targets"] if one.isdigit()]  # without those of one architecture alone: 90a
            new.append((row["cuda"], *(f"{one[:-1]}.{one[-1]}" for one in (targets[0], targets[-1]))))
        _KEPT["compilers"] = sorted(tuple(map(pair, row)) for row in [*old, *new])
    return _KEPT["compilers"]  # type: ignore[no-any-return]


def releases_before(table: str, framework: str = "") -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Rows of releases.toml: releases that are older than the first have the second, a CUDA or a compute capability."""
    rows = [row for row in _releases()[table] if row.get("framework", "") == framework]
    return [(pair(row["before"]), pair(row.get("cuda") or row["capability"])) for row in rows]


def _releases() -> dict[str, Any]:
    if "releases" not in _KEPT:
        _KEPT["releases"] = _read("doctor", "releases.toml")
    return _KEPT["releases"]  # type: ignore[no-any-return]


def capability_of(name: str) -> tuple[int, int] | None:
    """The compute capability of a GPU by the name that a log gives it, None where the tables have no such name."""
    if "gpus" not in _KEPT:
        _KEPT["gpus"] = {
            _plain_name(each): group["capability"] for group in _read("gpus.toml")["group"] for each in group["names"]
        }
    found = _KEPT["gpus"].get(_plain_name(name))
    if found is None:
        return None
    major, _, minor = found.partition(".")
    return int(major), int(minor)


def _plain_name(name: str) -> str:
    bare = re.sub(r"(?i)\b(?:NVIDIA|GeForce|Tesla|Quadro|Laptop GPU|\d{1,3} ?GB|SXM\d?|PCIe|HBM\d\w?)\b", " ", name)
    return "".join(bare.lower().split())
