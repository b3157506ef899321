"""What `gpuenv solve` and `gpuenv install` are asked for: flags, requirement files and a project, as one request."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .. import api
from ..errors import InputError
from ..model import Host, IndexOptions, Request

if TYPE_CHECKING:  # the modules that read files are imported where files are read
    from ..requirements.parse import RequirementSet


def request_flags(parser: ArgumentParser, *, output: bool = True) -> None:
    """What is wanted, and where it may come from; with `output` where the lock goes."""
    parser.add_argument("--framework", metavar="NAME[SPEC]", action="append", default=[], help="torch, torch>=2.9, ...")
    parser.add_argument("requirement", metavar="REQUIREMENT", nargs="*", help="further packages, as pip takes them")
    group = parser.add_argument_group("files")
    group.add_argument("-r", "--requirements", metavar="FILE", action="append", default=[], help="as pip reads them")
    group.add_argument("-c", "--constraints", metavar="FILE", action="append", default=[], help="limits only")
    group.add_argument(
        "--project", metavar="DIR", nargs="?", const=".", help="the dependencies of its pyproject.toml (default: here)"
    )
    group.add_argument("--extra", metavar="NAME", action="append", default=[], help="those of an extra of the project")
    group.add_argument("--group", metavar="NAME", action="append", default=[], help="those of a dependency group")
    group = parser.add_argument_group("index")
    group.add_argument("--index-url", metavar="URL", help="use this index for every package, and not the snapshot")
    group.add_argument("--extra-index-url", metavar="URL", action="append", default=[])
    group.add_argument("--find-links", metavar="DIR", action="append", default=[], help="a folder of wheels")
    group.add_argument("--default-index-only", action="store_true", help="leave out the frameworks' own indexes")
    group.add_argument("--offline", action="store_true", help="ask no index")
    group.add_argument("--refresh", action="store_true", help="ask the index, not the snapshot or the cache")
    group.add_argument("--exclude-newer", metavar="DATE", help="only files uploaded up to then; asks the live index")
    group.add_argument("--pre", action="store_true", help="take pre-releases too")
    group.add_argument(
        "--allow-sdist", metavar="NAME", action="append", default=[], help="take its source where there is no wheel"
    )
    if output:
        parser.add_argument("-o", "--output", metavar="FILE", help="the lock file (default: pylock.toml)")


def asked(arguments: Namespace, host_of: Callable[[], Host]) -> tuple[Request, IndexOptions, Host]:
    """The request, its indexes and the host, which is looked at when the request is known to be one.

    InputError for what cannot be read, or if nothing is asked for.
    """
    request = Request(
        frameworks=tuple(arguments.framework),
        requirements=tuple(map(readable, arguments.requirement)),
        allow_sdist=names(arguments.allow_sdist),
        default_index_only=arguments.default_index_only,
        pre=arguments.pre,
        exclude_newer=arguments.exclude_newer,
    )
    options = IndexOptions(
        index_url=arguments.index_url,
        extra_index_urls=tuple(arguments.extra_index_url),
        find_links=tuple(arguments.find_links),
        offline=arguments.offline,
        refresh=arguments.refresh,
        exclude_newer=request.exclude_newer,
    )
    folder, python = _project(arguments), None
    if folder is not None:
        from ..requirements.pyproject import read_project

        found = read_project(folder, arguments.extra, arguments.group)
        request, options, python = *_with(request, options, found), found.requires_python
    if arguments.requirements or arguments.constraints:
        from ..requirements.files import read_files

        found = read_files(arguments.requirements, arguments.constraints)
        request, options = _with(request, options, found)
    if not request.frameworks and not request.requirements:
        raise InputError(
            "nothing to solve: give --framework NAME or a REQUIREMENT", hint="or -r FILE, or --project in a project"
        )
    host = host_of()
    if folder is not None and python:
        _check_python(python, folder, host)
    return request, options, host


def frameworks_first(frameworks: Sequence[str], requirements: Sequence[str]) -> tuple[list[str], list[str]]:
    """A requirement whose name is a framework's is asked for as one, the first time that it is named."""
    from ..requirements.target import parse_requirement

    matrix = api.compatibility_data()
    named = {parse_requirement(text).name for text in frameworks}
    mine, others = list(frameworks), []
    for text in requirements:
        parsed = None if any(sign in text for sign in "/\\") else parse_requirement(text)
        plain = parsed is not None and not (parsed.marker or parsed.url) and matrix.framework(parsed.name) is not None
        if parsed is not None and plain and parsed.name not in named:
            named.add(parsed.name)
            mine.append(text)
        else:
            others.append(text)
    return mine, others


def _project(arguments: Namespace) -> str | None:
    """The folder of the project that is asked for: where nothing else is, the one that stands here."""
    if arguments.project is not None:
        return str(arguments.project)
    if arguments.extra or arguments.group:
        return "."
    named = arguments.framework or arguments.requirement or arguments.requirements
    return "." if not named and os.path.isfile("pyproject.toml") else None


def readable(text: str) -> str:
    """A requirement of the command line: one with a URL or a path is looked at as in a file."""
    if not any(sign in text for sign in ("/", "\\", ".whl", ".tar", ".zip")):
        return text
    from ..requirements.parse import checked_requirement

    return checked_requirement(text, "the command line")


def names(texts: list[str]) -> tuple[str, ...]:
    """Names of packages, normalized and in order."""
    from ..requirements.target import normalize_name

    return tuple(sorted(set(map(normalize_name, texts))))


def _with(request: Request, options: IndexOptions, found: RequirementSet) -> tuple[Request, IndexOptions]:
    """The same with what a file adds. An index of the command line and one of a file must be the same."""
    mine, its = options.index_url, found.index_url
    if mine is not None and its is not None and mine.rstrip("/") != its.rstrip("/"):
        where = dict(found.origins).get("--index-url", "a requirements file")
        raise InputError(f"{where}: --index-url differs from the one of the command line: give one")
    request = request.replace(
        requirements=(*request.requirements, *found.requirements),
        constraints=(*request.constraints, *found.constraints),
        hashes=found.hashes or request.hashes,
        require_hashes=request.require_hashes or found.require_hashes,
        pre=request.pre or found.pre,
    )
    options = options.replace(
        index_url=mine or its,
        extra_index_urls=tuple(dict.fromkeys((*options.extra_index_urls, *found.extra_index_urls))),
        find_links=tuple(dict.fromkeys((*options.find_links, *found.find_links))),
    )
    return request, options


def _check_python(needed: str, folder: str, host: Host) -> None:
    from ..requirements.target import TargetEnvironment

    if not TargetEnvironment(host).accepts_python(needed):
        version = host.python.full_version or f"{host.python.version[0]}.{host.python.version[1]}"
        path = folder if folder.endswith(".toml") else os.path.join(folder, "pyproject.toml")
        what = f"{path}: the project needs Python {needed}, and the target has Python {version}"
        raise InputError(what, hint="name another one: --python X.Y")
