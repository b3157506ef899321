"""The flags, requirement files and project that say what to solve for, read into one request."""

from __future__ import annotations

import os
import re
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Sequence

from .. import api
from ..errors import InputError
from ..model import EVERY_FRAMEWORK, CondaOptions, Host, IndexOptions, Lock, Request
from ..prefix import is_conda, is_venv
from ..requirements.parse import RequirementSet, build_names, no_build_names
from ..resolve.requested import NICKNAMES, frameworks_of_flags
from .host_args import add_host_flags, read_conda_host, read_host_flags
from .parser import add_common_flags

FORMATS = ("pylock", "requirements", "conda-explicit", "conda-lock")
DEFAULT_PATHS = {
    "pylock": "pylock.toml",
    "conda-explicit": "conda-explicit.txt",
    "conda-lock": "conda-lock.yml",
}


# ---- flags ---------------------------------------------------------------------------------------


def add_request_flags(parser: ArgumentParser) -> None:
    """Add the flags that say what to solve for, and where it may come from."""
    parser.add_argument(
        "--framework",
        metavar="NAME[SPEC]",
        action="append",
        default=[],
        help="Solve for a framework, such as torch or torch>=2.9. Repeat for several",
    )
    parser.add_argument(
        "requirement",
        metavar="REQUIREMENT",
        nargs="*",
        help="Frameworks and packages, as pip takes them",
    )
    parser.add_argument(
        "--cuda",
        metavar="X[.Y]|TAG",
        help="Choose the builds of the frameworks by hand: for CUDA 12.8, any 12, or cu128",
    )
    _add_file_flags(parser)
    add_index_flags(parser)


def _add_file_flags(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("Files")
    group.add_argument(
        "-r",
        "--requirements",
        metavar="FILE",
        action="append",
        default=[],
        help="Read requirements from a file, as pip does",
    )
    group.add_argument(
        "-c",
        "--constraints",
        metavar="FILE",
        action="append",
        default=[],
        help="Read version constraints from a file",
    )
    group.add_argument(
        "--project",
        metavar="DIR",
        nargs="?",
        const=".",
        help="Use the dependencies of pyproject.toml in DIR (default: the working folder)",
    )
    group.add_argument(
        "--extra",
        metavar="NAME",
        action="append",
        default=[],
        help="Use the dependencies of an extra of the project",
    )
    group.add_argument(
        "--group",
        metavar="NAME",
        action="append",
        default=[],
        help="Use a dependency group of the project",
    )


def add_index_flags(parser: ArgumentParser) -> None:
    """Add the flags that say where packages may come from."""
    group = parser.add_argument_group("Indexes")
    group.add_argument(
        "--index-url",
        metavar="URL",
        help="Use this index instead of the default one and the snapshot",
    )
    group.add_argument(
        "--extra-index-url",
        metavar="URL",
        action="append",
        default=[],
        help="Use this index before the default one",
    )
    group.add_argument(
        "--find-links",
        metavar="DIR",
        action="append",
        default=[],
        help="Use the wheels of this folder, too",
    )
    group.add_argument(
        "--no-index", action="store_true", help="Use no index, only the folders of --find-links"
    )
    group.add_argument(
        "--default-index-only",
        action="store_true",
        help="Use no index that belongs to a framework",
    )
    group.add_argument("--offline", action="store_true", help="Use no network")
    group.add_argument(
        "--refresh", action="store_true", help="Ask the indexes, not the snapshot or the cache"
    )
    group.add_argument(
        "--exclude-newer",
        metavar="DATE",
        help="Use only files that were uploaded up to this date",
    )
    group.add_argument("--pre", action="store_true", help="Allow pre-releases")
    add_build_flags(parser)


def add_build_flags(parser: ArgumentParser) -> None:
    """Add the flags that say which packages may be built from source distributions."""
    group = parser.add_argument_group("Builds")
    group.add_argument(
        "--no-build", action="store_true", help="Build no source distribution: take wheels only"
    )
    group.add_argument(
        "--no-build-package",
        "--only-binary",
        metavar="NAME",
        action="append",
        default=[],
        help="Take only wheels of this package (:all: is every package)",
    )
    group.add_argument(
        "--no-binary",
        metavar="NAME",
        action="append",
        default=[],
        help="Build this package, although it has a wheel (:all: is every package)",
    )
    group.add_argument("--allow-sdist", metavar="NAME", action="append", help=SUPPRESS)


def read_index_options(arguments: Namespace) -> IndexOptions:
    """Read the flags of `add_index_flags`."""
    return IndexOptions(
        index_url=arguments.index_url,
        extra_index_urls=tuple(arguments.extra_index_url),
        find_links=tuple(arguments.find_links),
        no_index=arguments.no_index,
        offline=arguments.offline,
        refresh=arguments.refresh,
        exclude_newer=arguments.exclude_newer,
    )


def add_solve_flags(parser: ArgumentParser) -> None:
    """Add the flags of `gpuenv solve`, which `gpuenv install` has, too."""
    add_request_flags(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the lock to this file, - for stdout (default: pylock.toml)",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="pylock",
        help="Write this format; without -o, requirements go to stdout",
    )
    parser.add_argument(
        "--require-attestations",
        action="store_true",
        help="Lock only files whose publisher an attestation of the index proves (PEP 740)",
    )
    add_backend_flags(parser)
    parser.add_argument(
        "--pip",
        metavar="REQUIREMENT",
        action="append",
        default=[],
        help="With conda: add this wheel beside the conda packages",
    )
    add_host_flags(parser)
    add_common_flags(parser)


def add_backend_flags(parser: ArgumentParser) -> None:
    """Add the flags that say whether to solve for wheels or for conda packages."""
    parser.add_argument(
        "--backend",
        choices=("pip", "conda", "auto"),
        help="Solve for wheels with pip (the default) or for conda packages;"
        " auto is conda if a conda environment is active",
    )
    parser.add_argument(
        "--channel",
        metavar="URL",
        action="append",
        default=[],
        help="Use this conda channel: its name, URL or folder",
    )


# ---- the request ---------------------------------------------------------------------------------


def read_solve_request(arguments: Namespace) -> tuple[Request, IndexOptions, Host]:
    """Read what `gpuenv solve` and `gpuenv install` solve for: wheels or conda packages."""
    if wants_conda(arguments):
        _read_project_files(arguments)
        request, options, host = _read_for_conda(arguments)
        conda = _conda_options(arguments, tuple(map(read_requirement, arguments.pip)))
        return request.replace(conda=conda), options, host
    if arguments.pip:
        message = f"--pip {arguments.pip[0]}: is for --backend conda"
        raise InputError(message, hint="with pip it is a REQUIREMENT")
    refuse_nicknames(arguments.requirement)
    return read_request(arguments, lambda: read_host_flags(arguments, need_gpu=True))


def read_conda_request(arguments: Namespace) -> tuple[Request, IndexOptions, Host]:
    """Read a request for conda packages alone."""
    arguments.pip = []
    _read_project_files(arguments)
    request, options, host = _read_for_conda(arguments)
    return request.replace(conda=_conda_options(arguments, ())), options, host


def _read_for_conda(arguments: Namespace) -> tuple[Request, IndexOptions, Host]:
    return read_request(arguments, lambda: read_conda_host(arguments), conda=True)


def read_repair_request(arguments: Namespace) -> tuple[Request, IndexOptions, Host]:
    """Read how to solve for what is in an environment, which has the requirements itself."""
    request = _request_of_flags(arguments).replace(conda=_conda_options(arguments, ()))
    return request, read_index_options(arguments), read_conda_host(arguments)


def _read_project_files(arguments: Namespace) -> None:
    """Move what files of conda and pixi ask for from -r to the other flags."""
    from ..requirements.conda_projects import is_project_file, read_project_file

    paths = list(filter(is_project_file, arguments.requirements))
    if not paths:
        return
    platform = read_conda_host(arguments).platform
    for path in paths:
        project = read_project_file(path, platform)
        arguments.requirement = [*arguments.requirement, *project.specs]
        arguments.pip = [*arguments.pip, *project.wheels]
        arguments.channel = [*arguments.channel, *project.channels]
    arguments.requirements = [path for path in arguments.requirements if path not in paths]


def _conda_options(arguments: Namespace, wheels: tuple[str, ...]) -> CondaOptions:
    return CondaOptions(
        channels=tuple(map(_channel, arguments.channel)),
        keep_python=arguments.python is not None,
        wheels=wheels,
    )


def wants_conda(arguments: Namespace) -> bool:
    """Return whether to solve for a conda environment."""
    conda_format = arguments.format.startswith("conda-")
    if conda_format and arguments.backend == "pip":
        raise InputError(f"--format {arguments.format} needs --backend conda")
    return conda_format or is_conda_backend(arguments)


def is_conda_backend(arguments: Namespace) -> bool:
    """Return whether --backend is conda, or auto where a conda environment is active."""
    if arguments.backend == "auto":
        return active_conda_prefix() is not None
    return bool(arguments.backend == "conda")


def active_conda_prefix() -> str | None:
    """Return the folder of the active conda environment; None if a venv is active in it."""
    venv, prefix = os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX")
    if venv and is_venv(venv):
        return None
    return prefix if prefix and is_conda(prefix) else None


def _channel(text: str) -> str:
    """Return a channel by its name or URL; a folder as a URL."""
    if "://" in text or not (os.sep in text or "." in text):
        return text
    if not os.path.isdir(text):
        raise InputError(f"--channel {text}: no such folder")
    from urllib.request import pathname2url

    return "file://" + pathname2url(os.path.abspath(text))


def read_request(
    arguments: Namespace, read_host: Callable[[], Host], *, conda: bool = False
) -> tuple[Request, IndexOptions, Host]:
    """Read the request, the options of its indexes, and the host.

    Args:
        arguments: the parsed flags of `add_request_flags`.
        read_host: returns the host; it is called when the request is known to be one.
        conda: whether frameworks may have the names of conda's packages.

    Raises:
        InputError: a file or a text cannot be read, or nothing is asked for.
    """
    request, options = _request_of_flags(arguments), read_index_options(arguments)
    folder = _project_folder(arguments)
    requires_python = None
    if folder is not None:
        from ..requirements.pyproject import read_project

        project = read_project(folder, arguments.extra, arguments.group)
        requires_python = project.requires_python
        request, options = _merged(request, options, project)
    if arguments.requirements or arguments.constraints:
        from ..requirements.files import read_files

        files = read_files(arguments.requirements, arguments.constraints)
        request, options = _merged(request, options, files)
    _refuse_empty(request, options)
    if not conda:
        frameworks_of_flags(request, api.compatibility_data())
    host = read_host()
    if folder is not None and requires_python:
        _check_python(requires_python, folder, host)
    return request, options, host


def _request_of_flags(arguments: Namespace) -> Request:
    """Return the request of the command line, without that of its files."""
    builds: dict[str, str] = {}
    frameworks = [_without_tag(text, builds) for text in arguments.framework]
    requirements = [_without_tag(text, builds) for text in arguments.requirement]
    if arguments.cuda is not None:
        builds[EVERY_FRAMEWORK] = _checked_cuda(arguments.cuda)
    return Request(
        frameworks=tuple(frameworks),
        requirements=tuple(map(read_requirement, requirements)),
        builds=tuple(builds.items()),
        no_build=no_build_names(arguments.no_build_package, everything=arguments.no_build),
        no_binary=build_names(arguments.no_binary),
        default_index_only=arguments.default_index_only,
        pre=arguments.pre,
        exclude_newer=arguments.exclude_newer,
    )


def _refuse_empty(request: Request, options: IndexOptions) -> None:
    """Raise InputError if nothing is requested, or if no index and no folder may be used."""
    if options.no_index and not options.find_links:
        hint = "name a folder of wheels: --find-links DIR"
        raise InputError("--no-index: without --find-links nothing can be found", hint=hint)
    if not request.frameworks and not request.requirements:
        raise InputError(
            "nothing to solve: give --framework NAME or a REQUIREMENT",
            hint="or -r FILE, or --project in a project",
        )


def _without_tag(text: str, builds: dict[str, str]) -> str:
    """Return "torch" for "torch+cu128", and note the tag of the build."""
    name, plus, tag = text.partition("+")
    if not (plus and tag.isalnum() and re.fullmatch(r"[A-Za-z0-9._-]+(\[[^\]]*\])?", name)):
        return text
    bare = name.partition("[")[0].lower()
    if api.compatibility_data().framework(bare) is None:
        hint = "a version with a tag is NAME==VERSION+TAG"
        raise InputError(f"{text}: {bare} is no framework, which has builds", hint=hint)
    builds[bare] = tag
    return name


def _checked_cuda(text: str) -> str:
    """Return a CUDA version, major version, or tag of a build. InputError for another text."""
    if re.fullmatch(r"\d{1,2}(\.\d{1,2})?|cu(da)?\d+|cpu", text):
        return text
    hint = "give a version or the tag of a build: --cuda 12.8, --cuda 12, --cuda cu128"
    raise InputError(f"--cuda {text}: is no CUDA version", hint=hint)


def refuse_nicknames(texts: Sequence[str]) -> None:
    """Raise InputError for a nickname such as pytorch: another package has that name."""
    for text in texts:
        framework = NICKNAMES.get(re.split(r"[^\w.-]", text)[0].lower())
        if framework is not None:
            hint = f"write {framework}, or give the package of that name in a file: -r FILE"
            raise InputError(f"{text}: this package is not the framework {framework}", hint=hint)


# What to do with a file that is given as a requirement, by the end of its name.
_FILES = {
    ".txt": "read its requirements with -r {}",
    ".toml": "give the folder of a project with --project",
    ".lock": "gpuenv takes pylock.toml: uv export --format pylock.toml -o pylock.toml",
    ".yml": "read it with --backend conda -r {}",
}


def read_requirement(text: str) -> str:
    """Read a requirement of the command line; one with a URL or a path is read as in a file.

    Raises:
        InputError: a lock cannot hold it, or it is the name of a file or a version. An index can
            have a package of that name, which nobody means.
    """
    if re.fullmatch(r"\d+(\.\d+)+", text):
        message = f"{text}: is a version, not a requirement"
        raise InputError(message, hint=f"write it with the name, as NAME=={text}")
    hint = _FILES.get(os.path.splitext(text)[1].lower())
    if hint is not None:
        raise InputError(f"{text}: is a file, not a requirement", hint=hint.format(text))
    if not any(sign in text for sign in ("/", "\\", ".whl", ".tar", ".zip")):
        return text
    from ..requirements.parse import checked_requirement

    return checked_requirement(text, "the command line")


def _project_folder(arguments: Namespace) -> str | None:
    """Return the folder of the project: the working folder if nothing else is asked for."""
    if arguments.project is not None:
        return str(arguments.project)
    if arguments.extra or arguments.group:
        return "."
    if arguments.framework or arguments.requirement or arguments.requirements:
        return None
    return "." if os.path.isfile("pyproject.toml") else None


def _merged(
    request: Request, options: IndexOptions, requirement_set: RequirementSet
) -> tuple[Request, IndexOptions]:
    """Add what files ask for.

    The command line and a file must not name different default indexes.
    """
    own_url, file_url = options.index_url, requirement_set.index_url
    if own_url is not None and file_url is not None and own_url.rstrip("/") != file_url.rstrip("/"):
        file = dict(requirement_set.origins).get("--index-url", "a requirements file")
        message = f"{file}: --index-url differs from the one of the command line: give one"
        raise InputError(message)
    request = request.replace(
        requirements=(*request.requirements, *requirement_set.requirements),
        constraints=(*request.constraints, *requirement_set.constraints),
        hashes=requirement_set.hashes or request.hashes,
        require_hashes=request.require_hashes or requirement_set.require_hashes,
        pre=request.pre or requirement_set.pre,
        no_build=_joined(request.no_build, requirement_set.no_build),
        no_binary=_joined(request.no_binary, requirement_set.no_binary),
    )
    options = options.replace(
        index_url=own_url or file_url,
        extra_index_urls=_joined(options.extra_index_urls, requirement_set.extra_index_urls),
        find_links=_joined(options.find_links, requirement_set.find_links),
        no_index=options.no_index or requirement_set.no_index,
    )
    return request, options


def _joined(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """Join two sequences without repetitions."""
    return tuple(dict.fromkeys((*first, *second)))


def _check_python(requires_python: str, folder: str, host: Host) -> None:
    from ..requirements.target import TargetEnvironment

    if TargetEnvironment(host).accepts_python(requires_python):
        return
    python = host.python
    version = python.full_version or f"{python.version[0]}.{python.version[1]}"
    path = folder if folder.endswith(".toml") else os.path.join(folder, "pyproject.toml")
    raise InputError(
        f"{path}: the project needs Python {requires_python}, and the target has Python {version}",
        hint="name another one: --python X.Y",
    )


def attested(lock: Lock, options: IndexOptions) -> Lock:
    """Return a lock that says who has published each file, by attestations (PEP 740).

    The indexes of the files are asked for them. It needs the extra gpuenv[attestations].

    Args:
        lock: the lock.
        options: the options of the solve, which may have credentials.

    Raises:
        InputError: the lock is of conda packages, or the network must not be used.
        NotAttestedError: a file has no attestation, or one that does not hold.
        PackageIndexError: an index does not answer.
    """
    from ..index import attestations

    if lock.conda or options.offline or options.no_index:
        message = "--require-attestations asks the indexes of wheels"
        raise InputError(message, hint="leave out --offline, --no-index and --backend conda")
    return lock.replace(pins=attestations.attested_pins(lock.pins, options))


# ---- where the lock goes -------------------------------------------------------------------------


def read_output(arguments: Namespace) -> tuple[str, str | None]:
    """Return (the format of the lock, its file), checked before anything is solved.

    The file is None if the lock goes to stdout: with -o -, and for requirements without -o.
    """
    form, path = arguments.format, arguments.output
    if wants_conda(arguments):
        if form == "requirements":
            hint = "conda takes conda-explicit or conda-lock"
            raise InputError(f"--format requirements is for pip: {hint}")
        if form == "pylock":
            form = "conda-explicit"
    elif form == "requirements":
        return form, None if path == "-" else path
    path = path or DEFAULT_PATHS[form]
    if path == "-":
        return form, None
    if form == "pylock":
        _check_pylock_name(path)
    _check_folder(path)
    return form, path


def _check_pylock_name(path: str) -> None:
    name = os.path.basename(path)
    middle = name.removeprefix("pylock.").removesuffix(".toml")
    named = name == f"pylock.{middle}.toml" and middle and "." not in middle
    if name != "pylock.toml" and not named:
        raise InputError(f"{path}: pip and uv take a lock only as pylock.toml or pylock.NAME.toml")


def _check_folder(path: str) -> None:
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        hint = "make it, or give another -o"
        raise InputError(f"{path}: the folder {folder} does not exist", hint=hint)
    if not os.access(folder, os.W_OK | os.X_OK):
        hint = "give another -o"
        raise InputError(f"{path}: the folder {folder} cannot be written", hint=hint)
