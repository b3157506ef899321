"""`gpuenv matrix html`: a page that answers what runs on which GPU."""

from __future__ import annotations

from argparse import Namespace

from gpuenv.commands import COMMON, Parser, activity, output_file, write_page

from . import pages
from .tables import Tables

HELP = "Write a page that answers, in a browser and offline, what runs on which GPU"
DESCRIPTION = f"{HELP}."
EXAMPLES = (("gpuenv matrix html", "Write a page that answers what runs on which GPU"),)


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv matrix html`."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=output_file,
        default="explorer.html",
        help="Write this file (default: explorer.html)",
    )
    COMMON.add_to(parser)


def run(arguments: Namespace) -> int:
    """Write the page."""
    with activity.during("computing what runs where"):
        tables = Tables().document()
    return write_page(arguments.output, pages.explorer_html(tables))
