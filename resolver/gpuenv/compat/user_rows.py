"""Rows of the compatibility data that this user's `gpuenv matrix update` has read.

They are in one file of the user's data folder, beside the data that came with gpuenv. A row of the
shipped data is never replaced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from platformdirs import user_data_dir

from ..atomic_write import write_whole
from ..errors import DataError
from ..model import Value
from .rows import Row

FORMAT = 1
SOURCE = "gpuenv matrix update"  # the start of the source of each row
_HINT = "run `gpuenv matrix update`, or delete the file"


class UserRows(Value):
    """The rows of the user's file.

    Attributes:
        date: the day of the last update, "" for no update.
        rows: {distribution: its rows}, as in libraries/*.json and frameworks/*.json.
    """

    date: str = ""
    rows: Mapping[str, Sequence[Row]] = {}

    def of_distribution(self, distribution: str) -> Sequence[Row]:
        """Return the rows of a distribution."""
        return self.rows.get(distribution, ())

    def count(self) -> int:
        """Return the number of rows."""
        return sum(map(len, self.rows.values()))


class Update(Value):
    """The result of an update.

    Attributes:
        path: the file of the rows.
        rows: the rows in it.
        new: the releases that were scanned now.
        changed: what is no longer as a row says, with `verify`.
        errors: the wheels that could not be read, and why.
    """

    path: str
    rows: int
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def user_file() -> str:
    """Return the path of the user's rows: in XDG_DATA_HOME/gpuenv, or ~/.local/share/gpuenv.

    GPUENV_DATA_DIR names another folder.
    """
    own = os.environ.get("GPUENV_DATA_DIR")
    folder = os.path.abspath(own) if own else user_data_dir("gpuenv", appauthor=False)
    return os.path.join(folder, "rows.json")


def read_user_rows(path: str) -> UserRows:
    """Read the user's rows; none if there is no file.

    Raises:
        DataError: the file is damaged, or a newer gpuenv wrote it.
    """
    try:
        with open(path, "rb") as file:
            content = json.load(file)
    except FileNotFoundError:
        return UserRows()
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint=_HINT) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        number = content.get("format") if isinstance(content, dict) else None
        raise DataError(f"{path} has format {number}, this gpuenv reads {FORMAT}", hint=_HINT)
    rows, date = content.get("rows"), content.get("date")
    if not isinstance(rows, dict) or not isinstance(date, str):
        raise DataError(f"{path} has no rows or no date", hint=_HINT)
    return UserRows(date=date, rows=rows)


def write_user_rows(path: str, rows: UserRows) -> None:
    """Write the user's rows. Raises OSError."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    content: dict[str, Any] = {"format": FORMAT, "date": rows.date, "rows": rows.rows}
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())
