"""Rows of the compatibility data that this user's `gpuenv matrix update` has read.

They are in one file of the user's data folder, beside the data that came with gpuenv. A row of the
shipped data is never replaced.
"""

from __future__ import annotations

import json
import os
from typing import Any

from platformdirs import user_data_dir

from ..atomic_write import write_whole
from ..errors import DataError
from ..model import Value
from .rows import decode

FORMAT = 1
SOURCE = "gpuenv matrix update"  # the start of the source of each row


class UserRows(Value, forbid_unknown_fields=False):
    """The rows of the user's file.

    Attributes:
        format: the layout of the file.
        date: the day of the last update, "" for no update.
        rows: {distribution: its rows}, as in libraries/*.json and frameworks/*.json.
    """

    format: int | None = None
    date: str
    rows: dict[str, list[dict[str, Any]]]

    def count(self) -> int:
        """Return the number of rows."""
        return sum(map(len, self.rows.values()))


NO_ROWS = UserRows(format=FORMAT, date="", rows={})


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
    if not os.path.exists(path):
        return NO_ROWS
    hint = "run `gpuenv matrix update`, or delete the file"
    try:
        rows = decode(path, UserRows)
    except DataError as error:
        if isinstance(error.__cause__, OSError):  # nothing is wrong with its content
            hint = "make it readable, or name another folder: GPUENV_DATA_DIR"
        raise DataError(str(error), hint=hint) from error
    if rows.format != FORMAT:
        text = f"{path} has format {rows.format}, this gpuenv reads {FORMAT}"
        raise DataError(text, hint=hint)
    return rows


def write_user_rows(path: str, rows: UserRows) -> None:
    """Write the user's rows. Raises OSError."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    content = {"format": FORMAT, "date": rows.date, "rows": rows.rows}
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())
