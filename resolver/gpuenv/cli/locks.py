"""`gpuenv list`, `tree`, `why`, `outdated` and `export`: commands about a lock."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from .. import api
from ..errors import InputError
from ..index.urls import path_to_file_url
from ..lock import conda_projects, sbom, tool_projects
from ..lock.pylock import requirements_text, write_texts
from ..lock.tree import Tree
from ..model import Request
from ..project.profiles import with_earlier
from ..render import trees
from ..requirements.source_urls import EDITABLE
from ..requirements.versions import normalize_name
from .flags import INDEXES, LOCK
from .output import print_json, print_result
from .parser import Argument, Command, output_file, positive_count
from .requests import read_index_options
from .state import find_lock


class ShowTree(Command):
    """`gpuenv tree`: the packages of a lock below those that require them."""

    HELP = "Show the packages of a lock as a tree"
    DESCRIPTION = "Print every package of a lock below the packages that require it."
    EXAMPLES = (
        ("gpuenv tree", "Show pylock.toml"),
        ("gpuenv tree pylock.h100.toml --depth 2", "Show two levels of another lock"),
        ("gpuenv tree --invert", "Show what requires each package"),
    )
    ARGUMENTS = (
        LOCK,
        Argument("--depth N", "Show N levels (default: all)", type=positive_count),
        Argument("--invert", "Show every package above those that require it"),
    )

    def run(self, arguments: Namespace) -> int:
        """Print the tree."""
        _, lock = find_lock(arguments.lock)
        tree = Tree(lock)
        lines = trees.tree_lines(tree, lock, arguments.depth, invert=arguments.invert)
        return print_result(trees.tree_json(tree), lines)


class List(Command):
    """`gpuenv list`: the packages of a lock with their versions."""

    HELP = "List the packages of a lock"
    DESCRIPTION = "Print every package of a lock with its version, one in a line."
    EXAMPLES = (("gpuenv list", "List the packages of the project or of the environment"),)
    ARGUMENTS = (LOCK,)

    def run(self, arguments: Namespace) -> int:
        """Print the packages."""
        versions = Tree(find_lock(arguments.lock)[1]).pins
        rows = {name: versions[name].wheel.version for name in sorted(versions)}
        return print_result(rows, [f"{name} {rows[name]}" for name in rows])


class Why(Command):
    """`gpuenv why`: which packages of a lock require a package."""

    HELP = "Show why a package is in a lock"
    DESCRIPTION = "Print the shortest path to a package from each package that the request names."
    EXAMPLES = (("gpuenv why nvidia-cudnn-cu13", "Show what requires cuDNN"),)
    ARGUMENTS = (Argument("NAME", "The package"), LOCK)

    def run(self, arguments: Namespace) -> int:
        """Print the paths."""
        tree = Tree(find_lock(arguments.lock)[1])
        paths, name = tree.paths_to(arguments.name), normalize_name(arguments.name)
        lines = trees.why_lines(tree, name, paths)
        return print_result(trees.why_json(tree, name, paths), lines)


class Outdated(Command):
    """`gpuenv outdated`: what a new solve of a lock's request would change."""

    HELP = "Show which packages of a lock have newer releases that fit"
    DESCRIPTION = (
        "Solve the request of a lock again for the same host, without its pins, and print what "
        "differs. Nothing is written."
    )
    EXAMPLES = (("gpuenv outdated --refresh", "Compare pylock.toml with the indexes"),)
    ARGUMENTS = (LOCK, *INDEXES)

    def run(self, arguments: Namespace) -> int:
        """Print the packages that differ."""
        path, lock = find_lock(arguments.lock)
        if lock.conda:
            raise InputError("a conda lock cannot be solved again", hint="use gpuenv solve")
        flags = Request(pre=arguments.pre, default_index_only=arguments.default_index_only)
        request = with_earlier(api.with_recorded(flags, lock), lock, [])
        plan = api.solve(request, lock.host, read_index_options(arguments))
        document = {"lock": path, "packages": trees.outdated_rows(lock, plan)}
        return print_result(document, trees.outdated_lines(path, lock, plan))


class Export(Command):
    """`gpuenv export`: a lock for another tool, or as a bill of materials."""

    HELP = "Write a lock for another tool, or as a bill of materials"
    DESCRIPTION = (
        "Write the packages of a lock as requirements with hashes, as tables for the project file"
        " of another tool, or as a bill of materials (SBOM)."
    )
    EXAMPLES = (
        ("gpuenv export --to requirements -o requirements.txt", "Write what pip can install"),
        ("gpuenv export --to uv", "Print tables for a project of uv"),
        ("gpuenv export conda-lock.yml --to conda -o environment.yml", "Write an environment.yml"),
        ("gpuenv export --to cyclonedx -o bom.json", "Write a bill of materials"),
    )
    ARGUMENTS = (
        LOCK,
        Argument(
            "--to",
            "Write requirements, tables for this tool, or a bill of materials of this format",
            dest="tool",
            choices=(
                "requirements",
                *("uv", "pixi", "poetry", "pdm", "conda", "constructor"),
                *sbom.FORMATS,
            ),
            required=True,
        ),
        Argument("-o --output FILE", "Write to this file (default: stdout)", type=output_file),
    )

    def run(self, arguments: Namespace) -> int:
        """Write the tables; 3 if the tool cannot express the lock."""
        (place, lock), tool, path = find_lock(arguments.lock), arguments.tool, arguments.output
        # The tables are for the project itself.
        itself = path_to_file_url(os.path.abspath(os.path.dirname(place))) + EDITABLE
        others = lock.replace(pins=tuple(pin for pin in lock.pins if pin.wheel.url != itself))
        if tool in sbom.FORMATS:
            text = sbom.lock_text(tool, lock)
        elif lock.conda:
            if tool not in conda_projects.TOOLS:
                raise InputError(f"{tool} takes wheels, and the lock has conda packages")
            text = conda_projects.project_text(tool, lock)
        elif tool == "requirements":
            text = requirements_text(others)
        else:
            if tool not in tool_projects.TOOLS:
                raise InputError(f"{tool} takes conda packages, and the lock has wheels")
            text = tool_projects.project_tables(tool, others)
        if path is not None:
            write_texts({path: text})
        elif not arguments.json:
            sys.stdout.write(text)
        print_json({"to": tool, "file": path, "tables": text})
        return 0
