"""`gpuenv matrix html` and `gpuenv report`: commands that write one HTML file."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from typing import Any

from gpuenv import InputError, read_lock
from gpuenv.commands import (
    Argument,
    Command,
    activity,
    lock_document,
    output_file,
    read_input,
    write_page,
)

from . import pages
from .tables import Tables


class Html(Command):
    """`gpuenv matrix html`: a page that answers what runs on which GPU."""

    HELP = "Write a page that answers, in a browser and offline, what runs on which GPU"
    DESCRIPTION = f"{HELP}."
    EXAMPLES = (("gpuenv matrix html", "Write a page that answers what runs on which GPU"),)
    ARGUMENTS = (
        Argument(
            "-o --output FILE",
            "Write this file (default: explorer.html)",
            type=output_file,
            default="explorer.html",
        ),
    )

    def run(self, arguments: Namespace) -> int:
        """Write the page."""
        with activity.during("computing what runs where"):
            tables = Tables().document()
        return write_page(arguments.output, pages.explorer_html(tables))


class Report(Command):
    """`gpuenv report`: one HTML file of a lock, a solve, a verification or a fleet."""

    HELP = "Write an HTML report of locks and JSON documents"
    DESCRIPTION = (
        "Write one HTML file that needs no network, from locks and from documents of solve, verify"
        " and fleet with --json. Several documents of fleet verify give a timeline."
    )
    EXAMPLES = (
        ("gpuenv report pylock.toml", "Show a lock: its builds, its needs and its packages"),
        (
            "gpuenv report monday.json tuesday.json -o fleet.html",
            "Show two runs of fleet verify",
        ),
    )
    ARGUMENTS = (
        Argument(
            "FILE",
            "A lock (pylock.toml), or a document of solve, verify or fleet with --json",
            nargs="+",
        ),
        Argument(
            "-o --output FILE",
            "Write this file (default: report.html)",
            type=output_file,
            default="report.html",
        ),
    )

    def run(self, arguments: Namespace) -> int:
        """Write the report."""
        documents = [(os.path.basename(path), _read(path)) for path in arguments.file]
        return write_page(arguments.output, pages.report_html(documents))


def _read(path: str) -> dict[str, Any]:
    if path.endswith(".toml"):
        return lock_document(read_lock(path))
    try:
        document = json.loads(read_input(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from None
    if not isinstance(document, dict) or pages.kind(document) is None:
        hint = "give documents of gpuenv solve, verify or fleet with --json"
        raise InputError(f"{path}: is not a document that has a report", hint=hint)
    return document


html, report = Html(), Report()
