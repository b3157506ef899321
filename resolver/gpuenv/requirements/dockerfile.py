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

from ..errors import InputError
from ..model import CudaVersion, Value, parse_pair
from ..serialize import read_input
from .files import read_files
from .parse import checked_requirement

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
# {what names a distribution of Linux: (glibc, its python3)}: packages glibc and python3 of each.
_SYSTEMS = {
    "ubuntu18.04": ("2.27", "3.6"), "ubuntu20.04": ("2.31", "3.8"), "ubuntu22.04": ("2.35", "3.10"),
    "ubuntu24.04": ("2.39", "3.12"), "bullseye": ("2.31", "3.9"), "bookworm": ("2.36", "3.11"),
    "trixie": ("2.41", "3.13"), "ubi8": ("2.28", ""), "rockylinux8": ("2.28", ""),
    "ubi9": ("2.34", "3.9"), "rockylinux9": ("2.34", "3.9"),
}  # fmt: skip
# Python that a command names: apt-get install python3.11, --python 3.12, conda's python=3.10.
_NAMED_PYTHON = re.compile(r"(?:\bpython|--python[ =])=*(3\.\d+)")
_SYSTEM_PYTHON = re.compile(r"\binstall\b[^;&]*\spython3(?:-\w+)?(?=\s|$)")
_CUDNN_FOLDER = re.compile(r"/usr/lib/\w+-linux-gnu|cudnn")  # of the images of nvidia/cuda
_LONGEST_TEXT = 100_000  # characters of an instruction
_LOCKS = {"uv": "uv.lock", "poetry": "poetry.lock", "pdm": "pdm.lock", "pipenv": "Pipfile.lock"}
_CONDA = frozenset({"conda", "mamba", "micromamba"})
_PIP = re.compile(r"(?:.*/)?pip3?(?:\.\d+)?")
_PYTHON_COMMAND = re.compile(r"(?:.*/)?python3?(?:\.\d+)?")
# Options of pip and uv that have a value in the next word.
_VALUED = frozenset({
    "-r", "-c", "-i", "-f", "-e", "-t", "-C", "--requirement", "--requirements",
    "--constraint", "--index-url", "--extra-index-url", "--find-links", "--editable",
    "--target", "--prefix", "--root", "--timeout", "--retries", "--trusted-host", "--python",
    "--cache-dir", "--torch-backend", "--index", "--default-index", "--index-strategy",
    "--platform", "--abi", "--python-version", "--implementation", "--no-binary",
    "--only-binary", "--upgrade-strategy", "--cert", "--src", "--progress-bar", "--proxy",
    "--config-settings", "--report", "--no-build-isolation-package", "-p", "--group",
    "--build-constraint", "--override", "--overrides", "--link-mode", "--exclude-newer",
})  # fmt: skip
_INDEX_OPTIONS = (
    "-i", "--index-url", "--extra-index-url", "--index", "--default-index", "--torch-backend"
)  # fmt: skip


class Install(Value):
    """One command of pip or uv that installs something, or one of a tool that installs its lock.

    Attributes:
        line: its line.
        requirements: PEP 508 texts.
        sources: requirements that are built from a repository, a folder or an archive.
        indexes: the URLs of its indexes, and of --torch-backend its tag.
        is_isolated: whether builds get an environment of their own.
        lock: the path of the lock; "" for a command of pip.
        unread: files that are not beside the Dockerfile, and commands of conda.
    """

    line: int
    requirements: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    is_isolated: bool = True
    lock: str = ""
    unread: tuple[str, ...] = ()


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
    return _described(stages[-1], os.path.dirname(path))


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
    if not words:
        raise InputError(f"line {line}: FROM names no image")
    image = words[0]
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


def _described(stage: _Stage, folder: str) -> Dockerfile:
    image, text = stage.image, "\n".join(stage.commands.values())
    cuda, cudnn, kind = _CUDA.search(image), _CUDNN.search(image), _KIND.search(image)
    python, framework = _PYTHON.search(image), _FRAMEWORK.search(image)
    glibc, system_python = next(
        (facts for name, facts in _SYSTEMS.items() if name in image.replace(":", "")), ("", "")
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
            if (install := _install(words, line, folder, stage.variables)) is not None
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
    words: list[str] = []
    for word in [*_words(text), ";"]:
        if set(word) <= {*";&|"}:
            yield words
            words = []
        elif words or not (word in ("sudo", "then", "do", "{", "(") or re.match(r"\w+=", word)):
            words.append(word)


def _install(
    words: Sequence[str], line: int, folder: str, variables: dict[str, str]
) -> Install | None:
    """Return what a command installs if it is one of pip, uv or a tool with a lock."""
    if len(words) > 2 and _PYTHON_COMMAND.fullmatch(words[0]) and words[1] == "-m":
        words = words[2:]
    if len(words) > 1 and words[1] in ("sync", "install") and words[0] in _LOCKS:
        name = _LOCKS[words[0]]
        path = os.path.join(folder, name)
        is_there = os.path.isfile(path)
        return Install(line=line, lock=path if is_there else "", unread=() if is_there else (name,))
    if len(words) > 1 and words[0] in _CONDA and words[1] in ("install", "create", "env"):
        return Install(line=line, unread=(" ".join(words[:2]),))
    if words[:2] == ["uv", "pip"]:
        words = words[1:]
    if len(words) < 2 or not _PIP.fullmatch(words[0]) or words[1] != "install":
        return None
    requirements, sources, unread = [], [], []
    indexes = [variables[name] for name in ("PIP_INDEX_URL", "UV_INDEX_URL") if name in variables]
    for option, value in _arguments(words[2:]):
        if option in ("-e", "--editable") or (not option and re.search(r"[/$]", value)):
            sources.append(value)
        elif not option:
            requirements.append(checked_requirement(value, f"line {line}"))
        elif option in _INDEX_OPTIONS:
            indexes.append(value)
        elif option in ("-r", "--requirement", "--requirements"):
            places = (os.path.join(folder, value), os.path.join(folder, os.path.basename(value)))
            file = next(filter(os.path.isfile, places), None)
            if file is None:
                unread.append(value)
                continue
            read = read_files([file])
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


def _arguments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (option, value) of a command; the option of a requirement is ""."""
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if not word.startswith("-"):
            yield "", word
        elif option in _VALUED and not equals:
            yield option, next(rest, "")
        else:
            yield option, value
