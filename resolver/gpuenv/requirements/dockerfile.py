"""What a Dockerfile installs, and what its base image brings, as far as the tag says it.

Only the last stage counts, with the stages that it is made from or copies from. Nothing is run or
downloaded. What a tag does not show is unknown.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from ..errors import InputError
from ..model import CudaVersion, Value, parse_pair
from ..serialize import read_input, read_toml
from .files import read_files
from .parse import RequirementSet, checked_requirement

_FILE_NAME = re.compile(r"(?i)(dockerfile|containerfile)(\..+)?|.+\.(dockerfile|containerfile)")
_CONTENT = re.compile(r"\A(?:\s*#.*\n|\s*ARG .*\n|\s*\n)*FROM \S+")
_VARIABLE = re.compile(r"\\?\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_HEREDOC = re.compile(r"(?<!<)<<-?[\"']?(\w+)[\"']?")
# What tags say: nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04, pytorch/pytorch:2.6.0-cuda12.4-
# cudnn9-runtime, tensorflow/tensorflow:2.15.0-gpu, python:3.12-slim.
_CUDA = re.compile(r"(?:^nvidia/cuda:|[:-]cu(?:da)?-?)(\d+\.\d+)")
_CUDNN = re.compile(r"cudnn(\d+)")
_PYTHON = re.compile(r"(?:^|/)python:(\d\.\d+)|[:-]py(?:thon)?(3\.\d+)")
_FRAMEWORK = re.compile(r"(?:^|/)(pytorch|tensorflow)/(?:pytorch|tensorflow):(\d+(?:\.\d+)+)")
_KIND = re.compile(r"[:-](base|runtime|devel)(?:-|$)")
_DISTRIBUTIONS = {"pytorch": "torch"}
# Python that a command names: apt-get install python3.11, --python 3.12, conda's python=3.10.
_NAMED_PYTHON = re.compile(r"(?:\bpython|--python[ =])=*(3\.\d+)")
_SYSTEM_PYTHON = re.compile(r"\binstall\b[^;&]*\spython3(?:-\w+)?(?=\s|$)")
_CUDNN_FOLDER = re.compile(r"/usr/lib/\w+-linux-gnu|cudnn")  # of the images of nvidia/cuda
_LONGEST_TEXT = 100_000  # characters of an instruction
_CONDA = frozenset({"conda", "mamba", "micromamba"})
_CONDA_CUDA = re.compile(r"(?:cudatoolkit|pytorch-cuda|cuda-version|cuda-toolkit)=+(\d+\.\d+)")
_PIP = re.compile(r"pip3?(?:\.\d+)?")
_PYTHON_COMMAND = re.compile(r"python3?(?:\.\d+)?")
_RUN_BY_CONDA = re.compile(rf"{_PIP.pattern}|{_PYTHON_COMMAND.pattern}|uv")
_PREFIXES = ("sudo", "then", "do", "else", "exec", "time", "{", "(", "!")
_ABSENT = "it is not beside the Dockerfile"
_ARCHIVE = re.compile(r"\.(?:tar\.\w+|zip|tgz)$")


@cache
def _facts() -> dict[str, Any]:
    """Return dockerfile.toml: the options of pip and uv, locks, and distributions of Linux."""
    facts = read_toml(os.path.join(os.path.dirname(__file__), "dockerfile.toml"))
    return facts | {key: frozenset(facts[key].split()) for key in ("valued", "indexes")}


class Install(Value):
    """One command that installs something.

    Attributes:
        line: its line.
        requirements: PEP 508 texts.
        sources: requirements that are built from a repository, a folder or an archive.
        indexes: the URLs of its indexes, and of --torch-backend its tag.
        is_isolated: whether builds get an environment of their own.
        lock: the path of the lock of a tool that installs one; "" for others.
        cuda: the CUDA version that it names to conda.
        unread: (what is not judged, why).
    """

    line: int
    requirements: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    is_isolated: bool = True
    lock: str = ""
    cuda: CudaVersion | None = None
    unread: tuple[tuple[str, str], ...] = ()


class Dockerfile(Value):
    """What a Dockerfile says. None and "" are not known.

    Attributes:
        image: the base image.
        line: the line that names it.
        cuda: the CUDA version of the image.
        cudnn: the major version of the cuDNN of the image.
        kind: base, runtime or devel: only devel has nvcc.
        framework: the framework of the image, as a requirement.
        python: X.Y of the Python.
        glibc: the version of the glibc.
        platform: as in Host.platform.
        library_path: the line that puts the folder of the cuDNN into LD_LIBRARY_PATH; 0 for none.
        installs: the commands that install packages.
    """

    image: str
    line: int
    cuda: CudaVersion | None = None
    cudnn: int | None = None
    kind: str = ""
    framework: str = ""
    python: str = ""
    glibc: str = ""
    platform: str = "linux-x86_64"
    library_path: int = 0
    installs: tuple[Install, ...] = ()


class _Stage:
    """A stage: the instructions, with those of the stage before it and of those it copies from."""

    def __init__(self, name: str, image: str, line: int, platform: str) -> None:
        self.name, self.image, self.line, self.platform = name, image, line, platform
        self.commands: dict[int, str] = {}  # by their lines
        self.variables: dict[str, str] = {}
        self.library_path = 0


def is_dockerfile(path: str) -> bool:
    """Return whether a file is a Dockerfile, by its name or its content; False without a file."""
    if not os.path.isfile(path):
        return False
    if _FILE_NAME.fullmatch(os.path.basename(path)):
        return True
    try:
        return _CONTENT.match(read_input(path)[:10_000].decode(errors="replace")) is not None
    except OSError:
        return False


def read_dockerfile(path: str) -> Dockerfile:
    """Return what a Dockerfile says.

    Raises:
        InputError: it cannot be read, or it has no base image.
    """
    try:
        text = read_input(path).decode()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text") from None
    stages: list[_Stage] = []
    variables: dict[str, str] = {}  # the ARGs before the first stage
    for line, keyword, rest in _instructions(text):
        own = stages[-1].variables if stages else variables
        if keyword == "FROM":
            stages.append(_stage(_replaced(rest, variables), line, stages))
        elif keyword in ("ARG", "ENV"):
            for name, value in _assignments(rest):
                default = variables.get(name, "") if keyword == "ARG" and stages else ""
                own[name] = _replaced(value, own) or default
                if name == "LD_LIBRARY_PATH" and stages and _CUDNN_FOLDER.search(value):
                    stages[-1].library_path = line
        elif keyword == "COPY" and stages:
            source = re.match(r"(?:--\S+ )*--from=(\S+)", rest)
            for stage in stages[:-1]:
                if source is not None and source[1] in (stage.name, str(stages.index(stage))):
                    stages[-1].commands |= stage.commands
        elif keyword == "RUN" and stages:
            stages[-1].commands[line] = _shell_text(rest, own)
    if not stages:
        raise InputError(f"{path}: has no FROM, so it is no Dockerfile")
    return _described(stages[-1], path)


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, keyword, the rest) of each instruction, its continued lines joined."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = [line]
        while parts[-1].rstrip().endswith("\\"):
            parts[-1] = parts[-1].rstrip()[:-1]
            following = next((row for _, row in lines if not row.lstrip().startswith("#")), "")
            parts.append(following)
        whole = " ".join(parts).strip()
        for end in _HEREDOC.findall(whole):
            for _, row in lines:
                if row.strip() == end:
                    break
                whole += f" ; {row.strip()}" if row.strip() else ""
        keyword, _, rest = _HEREDOC.sub("", whole).partition(" ")
        yield number, keyword.upper(), rest.strip()


def _replaced(text: str, variables: dict[str, str]) -> str:
    """Return a text with the values of its variables; one without a value stays as it is."""
    replaced = _VARIABLE.sub(
        lambda match: variables.get(match[1] or match[3]) or match[2] or match[0], text
    )
    return replaced if len(replaced) <= _LONGEST_TEXT else text  # it may double in each line


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of ARG and ENV: NAME=VALUE ..., NAME VALUE, or NAME."""
    if "=" not in text.partition(" ")[0]:
        name, _, value = text.partition(" ")
        yield name, value.strip()
        return
    for word in _words(text):
        name, equals, value = word.partition("=")
        if equals:
            yield name, value


def _stage(text: str, line: int, stages: Sequence[_Stage]) -> _Stage:
    words = [word for word in text.split() if not word.startswith("--")]
    platform = re.search(r"--platform=\S*(arm64|aarch64)", text)
    image = words[0] if words else ""
    name = words[2] if len(words) > 2 else ""
    stage = _Stage(name, image, line, "linux-aarch64" if platform else "linux-x86_64")
    for other in stages:
        if other.name and other.name == image:
            stage.image, stage.line, stage.platform = other.image, other.line, other.platform
            stage.commands = {**other.commands}
            stage.variables, stage.library_path = {**other.variables}, other.library_path
    return stage


def _shell_text(text: str, variables: dict[str, str]) -> str:
    """Return the shell command of a RUN, also of its JSON form."""
    text = re.sub(r"^(?:--\S+\s+)+", "", text)
    if text.startswith("["):
        try:
            return shlex.join(map(str, json.loads(text)))
        except (ValueError, TypeError):
            return ""
    return _replaced(text, variables)


def _described(stage: _Stage, path: str) -> Dockerfile:
    image, text = stage.image, "\n".join(stage.commands.values())
    if not image:
        raise InputError(f"{path}:{stage.line}: FROM names no image")
    cuda, cudnn, kind = _CUDA.search(image), _CUDNN.search(image), _KIND.search(image)
    python, framework = _PYTHON.search(image), _FRAMEWORK.search(image)
    glibc, system_python = next(
        (facts for name, facts in _facts()["systems"].items() if name in image.replace(":", "")),
        ("", ""),
    )
    named = _NAMED_PYTHON.search(text)
    version = (python[1] or python[2]) if python else named[1] if named else ""
    if not version and _SYSTEM_PYTHON.search(text):
        version = system_python
    return Dockerfile(
        image=image,
        line=stage.line,
        cuda=parse_pair(cuda[1]) if cuda else None,
        cudnn=int(cudnn[1]) if cudnn else None,
        kind=kind[1] if kind else "base" if re.search(r"(?:^|/)python:", image) else "",
        framework=(
            f"{_DISTRIBUTIONS.get(framework[1], framework[1])}=={framework[2]}" if framework else ""
        ),
        python=version,
        glibc=glibc,
        platform=stage.platform,
        library_path=stage.library_path,
        installs=tuple(
            install
            for line, command in sorted(stage.commands.items())
            for words in _simple_commands(command)
            if (install := _install(words, path, line, stage.variables)) is not None
        ),
    )


def _words(text: str) -> list[str]:
    """Return the words of a shell text, and its operators as words; [] if it cannot be read."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:
        return []


def _simple_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a shell text, those of `sh -c TEXT` too."""
    words: list[str] = []
    is_comment = False
    for word in [*_words(text), ";"]:
        is_comment = word != ";" and (is_comment or word.startswith("#"))
        if is_comment:
            continue
        if set(word) <= {*";&|"}:
            shell, *options = words or [""]
            is_nested = os.path.basename(shell) in ("sh", "bash") and len(options) > 1
            if is_nested and re.fullmatch(r"-\w*c", options[-2]):
                yield from _simple_commands(options[-1])
            yield words
            words = []
        elif words or not (word in _PREFIXES or re.match(r"\w+=", word)):
            words.append(word)


def _plain(words: Sequence[str]) -> list[str]:
    """Return a command as the program itself is called: of python -m pip, conda run and uv pip."""
    program, *rest = words or [""]
    program, verb = os.path.basename(program), rest[0] if rest else ""
    if program in _CONDA and verb == "run":
        start = next((at for at, word in enumerate(rest) if _RUN_BY_CONDA.fullmatch(word)), None)
        return [] if start is None else _plain(rest[start:])
    if _PYTHON_COMMAND.fullmatch(program) and verb == "-m":
        return rest[1:]
    if (program, verb) == ("uv", "add"):
        return ["pip", "install", *rest[1:]]
    return rest if (program, verb) == ("uv", "pip") else [program, *rest]


def _install(
    words: Sequence[str], path: str, line: int, variables: dict[str, str]
) -> Install | None:
    """Return what a command installs; None for a command that is not known to install packages."""
    program, verb, *rest = (*_plain(words), "", "")
    install = Install(line=line)
    lock = _facts()["locks"].get(program)
    if _PIP.fullmatch(program) and verb == "install":
        return _arguments_of_pip(rest, path, line, variables)
    if lock is not None and verb in ("sync", "install"):
        place = os.path.join(os.path.dirname(path), lock)
        is_there = os.path.isfile(place)
        unread = () if is_there else ((lock, _ABSENT),)
        return install.replace(lock=place if is_there else "", unread=unread)
    if program in _CONDA and verb in ("install", "create", "env"):
        unread = ((f"{program} {verb}", "packages of conda are not read here"),)
        cuda = _CONDA_CUDA.search(" ".join(rest))
        return install.replace(cuda=parse_pair(cuda[1]) if cuda else None, unread=unread)
    if verb in ("install", "add") and program in ("mim", "poetry", "pdm"):
        return install.replace(unread=((f"{program} {verb}", "its arguments are not read here"),))
    is_old = _PYTHON_COMMAND.fullmatch(program) and verb.endswith("setup.py")
    return install.replace(sources=(verb,)) if is_old else None


def _arguments_of_pip(
    words: Sequence[str], path: str, line: int, variables: dict[str, str]
) -> Install:
    requirements, sources, unread = [], [], list[tuple[str, str]]()
    names = _facts()["indexes"]
    indexes = [value for name, value in variables.items() if name in names]
    for option, value in _arguments(words):
        if option in ("-e", "--editable") or (not option and _is_source(value)):
            sources.append(value)
        elif "$" in value:
            unread += [(value, "the value of the variable is not known")] if not option else []
        elif not option and value.endswith((".whl", ".toml")):
            unread.append((value, "the file is not read here"))
        elif not option:
            try:
                requirements.append(checked_requirement(value, f"{path}:{line}"))
            except InputError as error:
                unread.append((value, error.message.partition(": ")[2]))
        elif option in names:
            indexes.append(value)
        elif option in ("-r", "--requirement", "--requirements"):
            try:
                read = _file(value, os.path.dirname(path))
            except InputError as error:
                unread.append((value, error.message))
                continue
            requirements += read.requirements
            indexes += [*filter(None, [read.index_url]), *read.extra_index_urls]
    return Install(
        line=line,
        requirements=tuple(requirements),
        sources=tuple(sources),
        indexes=tuple(indexes),
        is_isolated="--no-build-isolation" not in words,
        unread=tuple(unread),
    )


def _is_source(text: str) -> bool:
    """Return whether an argument is a project that is built: a folder, repository or archive."""
    path = text.partition("[")[0]
    is_place = path in (".", "..") or "/" in path or _ARCHIVE.search(path) is not None
    return is_place and not text.endswith((".whl", ".toml"))


def _file(name: str, folder: str) -> RequirementSet:
    """Read a requirements file that is beside the Dockerfile, wherever it is in the image.

    Raises:
        InputError: it is not there, or it cannot be read.
    """
    places = (os.path.join(folder, name), os.path.join(folder, os.path.basename(name)))
    file = next(filter(os.path.isfile, places), None)
    if file is None:
        raise InputError(_ABSENT)
    return read_files([file])


def _arguments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (option, value) of a command; the option of a requirement is ""."""
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if re.match(r"\d*[<>]", word):  # a redirection, with the file in the next word or in it
            if word.endswith((">", "<")):
                next(rest, "")
        elif not word.startswith("-"):
            if word.strip():
                yield "", word
        elif option in _facts()["valued"] and not equals:
            yield option, next(rest, "")
        elif re.match(r"-[rciefC][^-]", word):
            yield word[:2], word[2:]
        else:
            yield option, value
