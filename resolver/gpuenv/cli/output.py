"""What commands print: lines for people, or one JSON document."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from collections.abc import Sequence
    from typing import Any


def print_lines(lines: Sequence[str]) -> None:
    """With rich on a terminal, unless NO_COLOR is set; plain elsewhere."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        from rich.console import Console

        Console(soft_wrap=True).print("\n".join(lines), markup=False)
        return
    print("\n".join(lines), flush=True)


def print_json(document: Any) -> None:
    """One document on stdout."""
    import json

    print(json.dumps(document, indent=2))
