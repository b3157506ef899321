"""The host and the request that the flags of a command describe."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from .. import activity, api
from ..atomic_write import require_place
from ..compat.names import close_name, meant_framework
from ..compat.what_if import pythons
from ..errors import InputError
from ..index.urls import path_to_file_url
from ..model import (
    EVERY_FRAMEWORK,
    CondaOptions,
    Host,
    IndexOptions,
    Request,
    show_pair,
)
from ..prefix import active_environment, is_conda, is_venv, prefix_of
from ..requirements.conda_projects import (
    PIXI_TOML,
    CondaProject,
    is_project_file,
    read_project_file,
)
from ..requirements.dockerfile import is_dockerfile
from ..requirements.files import read_files
from ..requirements.parse import (
    NameOf,
    RequirementSet,
    build_names,
    checked_requirement,
)
from ..requirements.pyproject import (
    has_setup,
    importable,
    importable_by_name,
    read_project,
)
from ..requirements.target import TargetEnvironment, normalize_name
from ..resolve.requested import frameworks_of_flags
from .flags import ALWAYS_OF_WHEELS, HOST_FLAGS, OF_WHEELS

DEFAULT_PATHS = {
    "pylock": "pylock.toml",
    "conda-explicit": "conda-explicit.txt",
    "conda-lock": "conda-lock.yml",
}
_PIP_LINES = "write what its pip lines install to a file, one on a line, and read that with -r"
# What to do with a file that is given as a requirement, by its name or the end of it.
FILES = {
    ".txt": "read its requirements with -r {}",
    ".toml": "give the folder of a project with --project",
    "setup.py": "give the folder of a project with --project",
    PIXI_TOML: "read it with --backend conda -r {}",
    ".lock": "for the lock of a tool: gpuenv explain {0}, gpuenv sync {0}",
    ".yml": "read it with --backend conda -r {}",
    ".yaml": "read it with --backend conda -r {}",
    ".ipynb": _PIP_LINES,
    ".bat": _PIP_LINES,
    ".sh": _PIP_LINES,
}
EXPLAIN_DOCKERFILE = "what it installs: gpuenv explain {0}"


# ---- the host ------------------------------------------------------------------------------------


def is_described(arguments: Namespace) -> bool:
    """Return whether the flags describe another host, which has other devices."""
    return bool(arguments.gpu or arguments.host)


def used_host_flags(arguments: Namespace) -> list[str]:
    """Return the host flags that the user gave."""
    return [f"--{name}" for name in HOST_FLAGS if getattr(arguments, name)]


def read_host(
    arguments: Namespace, *, need_gpu: bool = False, keep_python: bool = True, conda: bool = False
) -> Host:
    """Return the host that the flags describe; facts that they leave out are detected.

    Args:
        arguments: the parsed flags.
        need_gpu: whether to raise InputError if no GPU was found and none was excluded by the
            flags.
        keep_python: False ignores --python, which names the interpreter of a new environment then.
        conda: as `api.detect`.
    """
    python = arguments.python if keep_python else None
    base = None
    if arguments.host:
        base = api.read_host(arguments.host)
    elif not arguments.gpu:
        base, python = api.detect(python=python, conda=conda), None
    host = describe_from(base, arguments, python=python)
    if need_gpu:
        api.require_gpu(host)
    return host


def describe_from(base: Host | None, arguments: Namespace, *, python: str | None) -> Host:
    """Return a host with the facts that the flags change."""
    return api.describe(
        base,
        gpus=arguments.gpu,
        driver=arguments.driver,
        python=python,
        platform=arguments.platform,
        glibc=arguments.glibc,
    )


def is_about_conda(path: str | None) -> bool:
    """Return whether a path is a lock of conda packages or a conda environment.

    None is the active environment.
    """
    path = active_environment() if path is None else path
    return path is not None and (is_conda(prefix_of(path)) or api.is_conda_lock(path))


def active_conda_prefix() -> str | None:
    """Return the folder of the active conda environment; None if a venv is active in it."""
    venv, prefix = os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX")
    if venv and is_venv(venv):
        return None
    return prefix if prefix and is_conda(prefix) else None


# ---- the request ---------------------------------------------------------------------------------


def read_index_options(arguments: Namespace) -> IndexOptions:
    """Return where packages may come from, by the flags of `flags.INDEXES` that a command has.

    InputError if flags contradict each other. A setting of the user gives way to a flag.
    """
    for name in ("index_url", "extra_index_url"):
        is_given = getattr(arguments, name) and not {name, "no_index"} & set(arguments.settings)
        if is_given and getattr(arguments, "no_index", False):
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"{flag} contradicts --no-index: give one of them")
    names = ("index_url", "no_index", "offline", "refresh", "exclude_newer")
    return IndexOptions(
        extra_index_urls=tuple(arguments.extra_index_url),
        find_links=tuple(arguments.find_links),
        **{name: value for name, value in vars(arguments).items() if name in names},
    )


def read_solve_request(arguments: Namespace) -> tuple[Request, IndexOptions, Host]:
    """Read what to solve for: wheels or conda packages."""
    if wants_conda(arguments):
        return read_conda_request(arguments)
    _refuse_conda_flags(arguments)
    check_names(arguments.requirement)
    return read_request(arguments, lambda: read_host(arguments, need_gpu=True))


def read_conda_request(arguments: Namespace) -> tuple[Request, IndexOptions, Host]:
    """Read a request for conda packages, and for the wheels of --pip beside them."""
    paths = arguments.requirements
    project_files = list(filter(is_project_file, paths))
    arguments.requirements = [path for path in paths if path not in project_files]

    host_of_flags = cache(partial(read_host, arguments, need_gpu=True, conda=True))
    name_of = None
    if not arguments.no_build:
        name_of = name_reader(host_of_flags, read_index_options(arguments))
    projects = [
        read_project_file(path, host_of_flags().platform, name_of) for path in project_files
    ]
    asked = any(project.specs or project.wheels.requirements for project in projects)
    request, options, host = read_request(arguments, host_of_flags, conda=True, asked=asked)
    specs = [spec for project in projects for spec in project.specs]
    request = request.replace(requirements=(*request.requirements, *specs))
    wheels = list(map(read_requirement, getattr(arguments, "pip", ())))
    for project in projects:
        wheels += project.wheels.requirements
        request, options = _merged(request, options, project.wheels.replace(requirements=()))
    _refuse_ignored(arguments, request, options, with_wheels=bool(wheels))
    return request.replace(conda=_conda_options(arguments, projects, wheels)), options, host


def read_repair_request(arguments: Namespace) -> tuple[Request, IndexOptions, Host]:
    """Read how to solve for what is in an environment, which has the requirements itself."""
    names = ("framework", "requirement", "requirements", "constraints", "overrides", "project")
    if any(getattr(arguments, name) for name in (*names, "pip", "extra", "group", "cuda")):
        message = "--repair: solves for what is in the environment; give no REQUIREMENT"
        raise InputError(message)
    request, options = _request_of_flags(arguments), read_index_options(arguments)
    _refuse_ignored(arguments, request, options, with_wheels=False)
    host = read_host(arguments, need_gpu=True, conda=True)
    return request.replace(conda=_conda_options(arguments, (), ())), options, host


def _refuse_ignored(
    arguments: Namespace, request: Request, options: IndexOptions, *, with_wheels: bool
) -> None:
    """Raise InputError for what a solve of conda packages would ignore.

    Settings of wheels in variables and in the config file are for the solves that have wheels.
    """

    def given(name: str) -> bool:
        return bool(getattr(options, name, None) or getattr(request, name, None))

    refused = [flag for name, flag in ALWAYS_OF_WHEELS.items() if given(name)]
    hint = "it is for wheels: leave it out"
    if not refused and not with_wheels:
        optional = OF_WHEELS if arguments.backend == "auto" else arguments.settings
        refused = [flag for name, flag in OF_WHEELS.items() if given(name) and name not in optional]
        hint += ", or add wheels: --pip REQUIREMENT"
    if refused:
        raise InputError(f"{refused[0]}: says nothing about conda packages", hint=hint)


def _conda_options(
    arguments: Namespace, projects: Sequence[CondaProject], wheels: Sequence[str]
) -> CondaOptions:
    """Return what a request for conda packages adds. The channels of flags come first."""
    channels = list(arguments.channel)
    for place, channel in enumerate(channels):
        if "://" not in channel and (os.sep in channel or "." in channel):
            if not os.path.isdir(channel):
                raise InputError(f"--channel {channel}: no such folder")
            channels[place] = path_to_file_url(os.path.abspath(channel))
    configured = all(project.with_configured for project in projects)
    for project in projects:
        channels += project.channels
    return CondaOptions(
        channels=tuple(dict.fromkeys(channels)),
        configured_channels=configured and not arguments.channel,
        keep_python=arguments.python is not None,
        wheels=tuple(wheels),
    )


def wants_conda(arguments: Namespace) -> bool:
    """Return whether to solve for a conda environment: by --format, or by --backend.

    The backend auto is conda where a conda environment is active.
    """
    form = getattr(arguments, "format", "")
    if form.startswith("conda-"):
        if arguments.backend == "pip":
            raise InputError(f"--format {form} needs --backend conda")
        return True
    if arguments.backend == "auto":
        return active_conda_prefix() is not None
    return bool(arguments.backend == "conda")


def _refuse_conda_flags(arguments: Namespace) -> None:
    """Raise InputError for a flag of conda where wheels are solved for, other than by "auto"."""
    optional = ("channel", "pip") if arguments.backend == "auto" else arguments.settings
    for name in ("channel", "pip"):
        texts = getattr(arguments, name, ())
        if texts and name not in optional:
            raise InputError(f"--{name} {texts[0]}: is for --backend conda")


def read_request(
    arguments: Namespace,
    read_host: Callable[[], Host],
    *,
    conda: bool = False,
    asked: bool = False,
) -> tuple[Request, IndexOptions, Host]:
    """Read the request, the options of its indexes, and the host.

    Args:
        arguments: the parsed flags of `flags.REQUEST`.
        read_host: returns the host; it is called when the request is known to be one.
        conda: whether frameworks may have the names of conda's packages.
        asked: whether something is asked for that the flags do not name.

    Raises:
        InputError: a file or a text cannot be read, or nothing is asked for.
    """
    options, host_of_target = read_index_options(arguments), cache(read_host)
    name_of = None if arguments.no_build else name_reader(host_of_target, options)
    request = _request_of_flags(arguments, name_of)
    folder = _project_folder(arguments, asked=asked)
    files = []
    if folder is not None:
        files.append(_of_project(folder, arguments, host_of_target, options))
    if arguments.requirements or arguments.constraints or arguments.overrides:
        paths = arguments.requirements, arguments.constraints
        for path in (*arguments.requirements, *arguments.constraints):
            hint = EXPLAIN_DOCKERFILE if is_dockerfile(path) else _hint_of(path)
            is_other = hint not in (None, FILES[".txt"], FILES[".lock"])
            if hint and is_other and os.path.exists(path):
                raise InputError(f"{path}: is no requirements file", hint=hint.format(path))
        overrides, read_url = arguments.overrides, partial(api.read_url, options=options)
        files.append(read_files(*paths, overrides=overrides, name_of=name_of, read_url=read_url))
    for file in files:
        request, options = _merged(request, options, file)
    direct = any(" @ " in text for text in request.requirements)  # a wheel by its path or its URL
    if options.no_index and not options.find_links and not direct:
        hint = "name a folder of wheels: --find-links DIR"
        raise InputError("--no-index: without --find-links nothing can be found", hint=hint)
    if not asked and not request.frameworks and not request.requirements:
        raise _nothing_to_solve()
    if not conda:
        frameworks_of_flags(request, api.compatibility_data())
    host = host_of_target()
    for file in files:
        if folder is not None and file.requires_python:
            _require_python(file.requires_python, folder, host)
    return request, options, host


def name_reader(host: Callable[[], Host], options: IndexOptions) -> NameOf:
    """Return what builds the metadata of a project for its name, with the Python of a host."""
    return lambda url: api.name_of_project(url, host(), options)


def _nothing_to_solve() -> InputError:
    """Return the error for a request that asks for nothing. A file that is here is named."""
    of_project = "for the project that is here" if has_setup(".") else "in a project"
    hint = f"or -r FILE, or --project {of_project}"
    for path in [*importable("."), *importable_by_name(".")][:1]:
        of_conda = "--backend conda " if is_project_file(path.name) else ""
        hint = f"or {of_conda}-r {path}, which is here"
    return InputError("nothing to solve: give --framework NAME or a REQUIREMENT", hint=hint)


def _project_folder(arguments: Namespace, *, asked: bool) -> str | None:
    """Return the project that is solved: the working folder's if nothing else is asked for."""
    named = (arguments.framework, arguments.requirement, arguments.requirements)
    is_default = not asked and not any(named) and os.path.isfile("pyproject.toml")
    if arguments.project is None and (arguments.extra or arguments.group or is_default):
        return "."
    folder: str | None = arguments.project
    return folder


def _of_project(
    folder: str, arguments: Namespace, host: Callable[[], Host], options: IndexOptions
) -> RequirementSet:
    """Read what a project asks for, with the extras and groups of the flags."""

    def holds(marker: str) -> bool:
        return TargetEnvironment(host()).marker(marker, ())

    def built(place: str, extras: Sequence[str]) -> tuple[Sequence[str], str | None]:
        return api.built_requirements(place, extras, host(), options)

    file = read_project(
        folder,
        arguments.extra,
        arguments.group,
        holds=holds,
        built=None if arguments.no_build else built,
    )
    place = folder if os.path.isdir(folder) else os.path.dirname(folder)
    links = [link if "://" in link else os.path.join(place, link) for link in file.find_links]
    return file.replace(find_links=tuple(links))


def _require_python(needed: str, folder: str, host: Host) -> None:
    if not TargetEnvironment(host).accepts_python(needed):
        python = host.python.full_version or show_pair(host.python.version)
        path = folder if folder.endswith(".toml") else os.path.join(folder, "pyproject.toml")
        message = f"{path}: the project needs Python {needed}, and the target has Python {python}"
        others = (other.host for other in pythons(host))  # the nearest first
        fit = (other for other in others if TargetEnvironment(other).accepts_python(needed))
        wanted = next((show_pair(other.python.version) for other in fit), "X.Y or X.Y.Z")
        raise InputError(message, hint=f"name another one: --python {wanted}")


def _request_of_flags(arguments: Namespace, name_of: NameOf | None = None) -> Request:
    """Return the request of the command line, without that of its files."""
    builds: dict[str, str] = {}
    frameworks = [_without_tag(text, builds) for text in arguments.framework]
    requirements = [_without_tag(text, builds) for text in arguments.requirement]
    cuda = arguments.cuda
    if cuda is not None:
        if not re.fullmatch(r"\d{1,2}(\.\d{1,2})?|cu(da)?\d+|cpu", cuda):
            hint = "give a version or the tag of a build: --cuda 12.8, --cuda 12, --cuda cu128"
            raise InputError(f"--cuda {cuda}: is no CUDA version", hint=hint)
        builds[EVERY_FRAMEWORK] = cuda
    return Request(
        frameworks=tuple(frameworks),
        requirements=tuple(read_requirement(text, name_of) for text in requirements),
        builds=tuple(builds.items()),
        no_build=build_names(arguments.no_build_package, everything=arguments.no_build),
        no_binary=build_names(arguments.no_binary),
        default_index_only=arguments.default_index_only,
        pre=arguments.pre,
        exclude_newer=arguments.exclude_newer,
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


def check_names(texts: Sequence[str]) -> None:
    """Raise InputError for a nickname or a slip such as pytorch: another package has that name.

    A name that may be a slip is announced in one line.
    """
    data = api.compatibility_data()
    frameworks, known = data.frameworks(), data.names()
    for text in texts:
        name = re.split(r"[^\w.-]", text)[0]
        framework = meant_framework(name, frameworks)
        if framework is not None:
            hint = f"write {framework}, or give the package of that name in a file: -r FILE"
            raise InputError(f"{text}: this package is not the framework {framework}", hint=hint)
        close = close_name(normalize_name(name), known)
        if close is not None:
            line = f"warning: {name} is a package of its own; did you mean {close}?"
            activity.current.announce(line)


def _hint_of(path: str) -> str | None:
    """Return the hint of FILES for a file; None for one that FILES does not know."""
    return FILES.get(os.path.basename(path)) or FILES.get(os.path.splitext(path)[1].lower())


def read_requirement(text: str, name_of: NameOf | None = None) -> str:
    """Read a requirement of the command line; one with a URL or a path is read as in a file.

    Raises:
        InputError: a lock cannot hold it, or it is the name of a file or a version. An index can
            have a package of that name, which nobody means.
    """
    if re.fullmatch(r"\d+(\.\d+)+", text):
        message = f"{text}: is a version, not a requirement"
        raise InputError(message, hint=f"write it with the name, as NAME=={text}")
    hint = _hint_of(text)
    if hint != FILES[".txt"] and api.is_tool_lock(text):
        hint = FILES[".lock"]
    if is_dockerfile(text) or re.fullmatch(r"(Docker|Container)file", text):
        hint = EXPLAIN_DOCKERFILE
    if hint is not None and not os.path.exists(text):
        raise InputError(f"{text}: does not exist")
    if hint is not None:
        raise InputError(f"{text}: is a file, not a requirement", hint=hint.format(text))
    is_place = any(sign in text for sign in ("/", "\\", ".whl", ".tar", ".zip"))
    if "::" in text or not (is_place or text.startswith(".")):
        return text
    return checked_requirement(text, "the command line", name_of)


def _merged(
    request: Request, options: IndexOptions, file: RequirementSet
) -> tuple[Request, IndexOptions]:
    """Add what a file asks for.

    The command line and a file must not name different default indexes.
    """
    own_url, file_url = options.index_url, file.index_url
    if own_url is not None and file_url is not None and own_url.rstrip("/") != file_url.rstrip("/"):
        place = dict(file.origins).get("--index-url", "a requirements file")
        message = f"{place}: --index-url differs from the one of the command line: give one"
        raise InputError(message)

    def joined(value: Request | IndexOptions) -> dict[str, Any]:
        """Return the fields that both have: all texts, each once, or the first of two values."""
        both: dict[str, Any] = {}
        for name in value.__struct_fields__:
            if hasattr(file, name):
                own, other = getattr(value, name), getattr(file, name)
                is_several = isinstance(own, tuple)
                both[name] = tuple(dict.fromkeys((*own, *other))) if is_several else own or other
        return both

    return request.replace(**joined(request)), options.replace(**joined(options))


# ---- where the lock goes -------------------------------------------------------------------------


def read_output(arguments: Namespace) -> tuple[str, str | None]:
    """Return (the format of the lock, its file), checked before anything is solved.

    The file is None if the lock goes to stdout: with -o -, and for requirements without -o.
    """
    form, path = arguments.format, arguments.output
    if wants_conda(arguments):
        if form in ("requirements", "pylock"):
            hint = "conda takes conda-explicit or conda-lock"
            raise InputError(f"--format {form} is for pip: {hint}")
        form = form or "conda-explicit"
    elif form == "requirements":
        return form, None if path == "-" else path
    form = form or "pylock"
    path = path or DEFAULT_PATHS[form]
    if path == "-":
        return form, None
    if form == "pylock" and not re.fullmatch(r"pylock(\.[^.]+)?\.toml", os.path.basename(path)):
        name = os.path.basename(path).partition(".")[0]
        hint = f"name it pylock.{name}.toml" if name else ""
        message = f"{path}: pip and uv take a lock only as pylock.toml or pylock.NAME.toml"
        raise InputError(message, hint=hint)
    require_place(path)
    return form, path
