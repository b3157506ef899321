"""What a package needs that adds a command to gpuenv.

The command is a `Command`, and an entry point of the group `gpuenv.commands`. The name of the entry
point is that of the command; "matrix.html" is the command `gpuenv matrix html`.
"""

from __future__ import annotations

from .activity import current as activity
from .atomic_write import require_place, write_whole
from .cli.flags import REQUEST, TIMEOUT
from .cli.output import print_errors, print_result, write_page
from .cli.parser import (
    Argument,
    Command,
    Group,
    Parser,
    output_file,
    positive_count,
    seconds,
)
from .cli.requests import read_request
from .model import quantity_text, show_pair
from .render.locks import lock_document
from .requirements.target import PLATFORMS, PYTHONS
from .serialize import read_input

__all__ = [
    "PLATFORMS",
    "PYTHONS",
    "REQUEST",
    "TIMEOUT",
    "Argument",
    "Command",
    "Group",
    "Parser",
    "activity",
    "lock_document",
    "output_file",
    "positive_count",
    "print_errors",
    "print_result",
    "quantity_text",
    "read_input",
    "read_request",
    "require_place",
    "seconds",
    "show_pair",
    "write_page",
    "write_whole",
]
