"""How locks of older formats are migrated and locks of newer ones refused.

The promise: every later release of gpuenv reads every format that an earlier one wrote. A change
that an older release could not read raises the number of the format by one and adds a migration:
a function from the document of the old number to the document of the next one. Documents of older
numbers are migrated step by step before they are read, so only the current one is read.

fields.py has the current numbers and the migrations. docs/lock-format.md specifies the fields;
tests/data/locks holds a lock of every number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InputError
from ..model import Value

# The parsed document: the whole pylock.toml, or what gpuenv writes into a conda lock.
Document = dict[str, Any]
Migration = Callable[[Document], Document]


class LockFormat(Value):
    """One format: its current number and {older number: migration to the next number}."""

    current: int
    migrations: Mapping[int, Migration]

    def refuse_newer(self, table: Mapping[str, object], where: str) -> None:
        """Raise InputError if a newer release of gpuenv wrote the lock.

        Args:
            table: What gpuenv wrote: its key `format`, and from format 2 on `oldest-reader`, the
                oldest release of gpuenv that reads it.
            where: The file and the key, for the message.
        """
        number = table.get("format")
        if type(number) is not int or number <= self.current:
            return
        release = table.get("oldest-reader")
        hint = "upgrade gpuenv: a newer release wrote this lock"
        if isinstance(release, str):
            hint = f"upgrade gpuenv to {release} or newer"
        raise InputError(f"{where} is {number}; this gpuenv reads {self.current}", hint=hint)

    def migrate(self, document: Document, number: object, where: str) -> Document:
        """Return the document, which is of format `number`, in the current format.

        Raises:
            ValueError: `number` is no number that any release wrote; `where` is its place.
        """
        # type() because True is equal to 1.
        if type(number) is not int or number not in (self.current, *self.migrations):
            raise ValueError(f"{where} is {number!r}; this gpuenv reads {self.current}")
        for older in range(number, self.current):
            document = self.migrations[older](document)
        return document
