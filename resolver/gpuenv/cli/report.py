"""`gpuenv report`: one HTML file of a solve, a verification or a fleet."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from typing import Any

from ..atomic_write import write_whole
from ..errors import InputError
from ..render import html
from ..serialize import read_input
from .output import print_json, print_report
from .parser import Parser, add_common_flags

HELP = "Write an HTML report of JSON documents"
DESCRIPTION = (
    "Write one HTML file that needs no network, from documents of solve, verify and fleet with "
    "--json. Several documents of fleet verify give a timeline."
)
EXAMPLES = (
    ("gpuenv report monday.json tuesday.json -o fleet.html", "Show two runs of fleet verify"),
)


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv report`."""
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="+",
        help="A document of solve, verify or fleet with --json",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="report.html",
        help="Write this file (default: report.html)",
    )
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Write the report."""
    documents = [(os.path.basename(path), _read(path)) for path in arguments.file]
    text = html.report_html(documents)
    try:
        write_whole(arguments.output, text.encode())
    except OSError as error:
        raise InputError(f"{arguments.output}: cannot be written: {error.strerror}") from None
    if arguments.json:
        print_json({"path": arguments.output, "bytes": len(text.encode())})
    else:
        print_report([f"wrote {arguments.output}"])
    return 0


def _read(path: str) -> dict[str, Any]:
    try:
        document = json.loads(read_input(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from None
    if not isinstance(document, dict) or html.kind(document) is None:
        hint = "give documents of gpuenv solve, verify or fleet with --json"
        raise InputError(f"{path}: is not a document that has a report", hint=hint)
    return document
