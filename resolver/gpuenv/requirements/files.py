"""Requirement and constraint files, read as pip reads them (pip's req_file.py)."""

from __future__ import annotations

import codecs
import io
import os
import re
import shlex
import tokenize
from argparse import ArgumentError, ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import unquote, urljoin, urlsplit

from packaging.requirements import Requirement

from ..errors import InputError
from ..serialize import read_input
from .parse import (
    NameOf,
    RequirementSet,
    build_names,
    checked_requirement,
    editable_requirement,
    public_url,
    shortened,
)
from .versions import normalize_name

ReadUrl = Callable[[str], bytes]  # returns what is at an http:// or https:// URL
_KINDS = ("requirements", "constraints", "overrides")  # fields of RequirementSet
MOST_LINES = 100_000
LONGEST_LINE = 50_000  # characters; a requirement with hundreds of hashes has fewer
# The patterns of pip: a comment needs white space before it; a variable is ${CAPITALS}.
_COMMENT = re.compile(r"(^|\s)#.*$")  # the white space before it is stripped, too
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
# UTF-32 comes first: its little-endian mark starts with that of UTF-16.
_BYTE_ORDER_MARKS = {
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
_HINTS_FOR_REFUSED = {
    "--trusted-host": "give the CA certificate of the index in REQUESTS_CA_BUNDLE",
    "--use-feature": "it is about pip itself; take it out",
    "--config-settings": "builds get no settings here; take it out",
    "--only-final": "pre-releases are taken only where a requirement names one; take it out",
}


def _parser() -> ArgumentParser:
    """Return the parser of the options of a line."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for names in (
        "-r --requirement", "-c --constraint", "-i --index-url --pypi-url", "-f --find-links",
        "-e --editable", "--extra-index-url", "--hash", "--no-binary", "--only-binary",
        "--trusted-host", "--use-feature", "--config-settings", "--all-releases", "--only-final",
    ):  # fmt: skip
        parser.add_argument(*names.split(), action="append")
    for flag in (
        "--pre", "--no-index", "--prefer-binary", "--require-hashes", "--no-require-hashes",
    ):  # fmt: skip
        parser.add_argument(flag, action="store_const", const=[""])
    return parser


_PARSER = _parser()


def read_files(
    requirements: Sequence[str],
    constraints: Sequence[str] = (),
    overrides: Sequence[str] = (),
    *,
    name_of: NameOf | None = None,
    read_url: ReadUrl | None = None,
) -> RequirementSet:
    """Read files of requirements, constraints and overrides, and the files that they name.

    Args:
        requirements: paths or URLs of requirement files.
        constraints: paths or URLs of constraint files.
        overrides: paths of files of overrides.
        name_of: as for `checked_requirement`.
        read_url: reads files at URLs; None refuses them.

    Raises:
        InputError: with FILE:LINE; also for a variable without a value.
    """
    reader = _Reader(name_of, read_url)
    for kind, paths in zip(_KINDS, (requirements, constraints, overrides), strict=True):
        for path in map(_local, paths):
            reader.read(path, public_url(path) if _is_url(path) else path, kind, ancestors=())
    return reader.result()


def read_lines(
    lines: Sequence[str], path: str, key: str, name_of: NameOf | None = None
) -> RequirementSet:
    """Read lines of a requirements file from another file, such as those below `pip` in YAML.

    Raises:
        InputError: with FILE: KEY:LINE.
    """
    reader = _Reader(name_of, None)
    content = "\n".join(lines).encode()
    reader.read(path, f"{path}: {key}", "requirements", ancestors=(), content=content)
    return reader.result()


class _Reader:
    """Collects what files say."""

    def __init__(self, name_of: NameOf | None, read_url: ReadUrl | None) -> None:
        self.name_of, self.read_url = name_of, read_url
        self.texts: dict[str, list[str]] = {kind: [] for kind in _KINDS}
        self.origins: dict[str, str] = {}
        self.hashes: dict[tuple[str, str], set[str]] = {}  # by the name and its marker
        # (requirement, where) of those that need a hash in hash-checking mode
        self.need_hash: list[tuple[Requirement, str]] = []
        # Values by option. Of the two options about hash-checking, the last one that was given.
        self.options: dict[str, list[str]] = {}
        self.index: tuple[str, str] | None = None  # (URL, where)

    def result(self) -> RequirementSet:
        """Return everything that was read.

        Raises:
            InputError: a requirement without a hash or a version in hash-checking mode.
        """
        options = self.options
        hashes: dict[str, set[str]] = {}
        for (name, _), digests in self.hashes.items():
            hashes.setdefault(name, set()).update(digests)
        require_hashes = "--require-hashes" in options or (
            bool(hashes) and "--no-require-hashes" not in options
        )
        for parsed, where in self.need_hash if require_hashes else ():
            is_pinned = parsed.url is not None or any(
                clause.operator in ("==", "===") and not clause.version.endswith(".*")
                for clause in parsed.specifier
            )
            if normalize_name(parsed.name) not in hashes or not is_pinned:
                raise InputError(
                    f"{where}: {parsed} needs == and a --hash in hash-checking mode",
                    hint="one --hash, or --require-hashes, asks all of them for it, as in pip",
                )
        return RequirementSet(
            requirements=tuple(self.texts["requirements"]),
            constraints=tuple(self.texts["constraints"]),
            overrides=tuple(self.texts["overrides"]),
            hashes=tuple((name, tuple(sorted(hashes[name]))) for name in sorted(hashes)),
            require_hashes=require_hashes,
            index_url=None if self.index is None else self.index[0],
            extra_index_urls=tuple(dict.fromkeys(options.get("--extra-index-url", ()))),
            find_links=tuple(dict.fromkeys(options.get("--find-links", ()))),
            no_index="--no-index" in options,
            pre="--pre" in options,
            no_build=build_names(options.get("--only-binary", ())),
            no_binary=build_names(options.get("--no-binary", ())),
            origins=tuple(self.origins.items()),
        )

    def read(
        self,
        path: str,
        shown_path: str,
        kind: str,
        *,
        ancestors: tuple[str, ...],
        content: bytes | None = None,
    ) -> None:
        """Read a file.

        Args:
            path: the path or the URL of the file.
            shown_path: its path in messages.
            kind: what its requirements are, one of _KINDS.
            ancestors: the absolute paths and the URLs of the files that led to it.
            content: what is in it, if that was read.
        """
        ancestors = (*ancestors, _place(path))
        if content is None:
            read_url = self.read_url if _is_url(path) else None
            content = read_url(path) if read_url else _read(path, shown_path)
        for number, line in _logical_lines(content, shown_path):
            where = f"{shown_path}:{number}"
            text, options = _split(line, where)
            if "--editable" in options and kind == "requirements" and not text:
                for value in options.pop("--editable"):
                    self._add_requirement(value, {}, where, kind, is_editable=True)
            if text:
                self._add_requirement(text, options, where, kind)
                continue
            for option, values in options.items():
                for value in values:
                    if option not in ("--requirement", "--constraint"):
                        self._apply_option(option, value, where, os.path.dirname(path))
                        continue
                    nested, shown = _nested(_local(value), path, shown_path)
                    if _is_url(nested) and self.read_url is None:
                        hint = "fetch the file first, and name the copy"
                        raise InputError(f"{where}: {shown} is a URL", hint=hint)
                    if _place(nested) in ancestors:
                        named = shown if _is_url(nested) else value
                        raise InputError(f"{where}: {named} leads back to itself")
                    if not _is_url(nested) and not os.path.isfile(nested):
                        hint = "correct the path, which is relative to this file"
                        raise InputError(f"{where}: {nested} does not exist", hint=hint)
                    self.read(nested, shown, _kind_of_nested(option, kind), ancestors=ancestors)

    def _add_requirement(
        self,
        text: str,
        options: Mapping[str, list[str]],
        where: str,
        kind: str,
        *,
        is_editable: bool = False,
    ) -> None:
        checked = editable_requirement if is_editable else checked_requirement
        parsed = Requirement(checked(text, where, self.name_of))
        if kind == "constraints" and parsed.extras:
            raise InputError(f"{where}: {parsed.name} has extras, which a constraint cannot have")
        self.texts[kind].append(str(parsed))
        self.origins.setdefault(str(parsed), where)
        for option in options:
            if option in _HINTS_FOR_REFUSED:
                _refuse(option, where)
            if option != "--hash":  # pip ignores such an option, which nobody intends
                raise InputError(f"{where}: {option} needs a line of its own")
        hashes = {_sha256(value, where) for value in options.get("--hash", ())}
        if (
            hashes
        ):  # of a name in several lines that hold together only the common hashes are allowed
            key = (normalize_name(parsed.name), str(parsed.marker or ""))
            self.hashes[key] = self.hashes.get(key, hashes) & hashes
        # A marker may exclude a requirement. A URL with its own hash needs no other hash.
        has_hash = "sha256=" in (parsed.url or "")
        if kind == "requirements" and parsed.marker is None and not has_hash:
            self.need_hash.append((parsed, where))

    def _apply_option(self, option: str, value: str, where: str, folder: str) -> None:
        if option == "--hash":
            raise InputError(f"{where}: --hash belongs to the line of a requirement")
        if (
            option in _HINTS_FOR_REFUSED
            or option == "--editable"
            or (option == "--all-releases" and value != ":all:")
        ):
            _refuse(option, where)
        if option == "--index-url":
            if self.index is not None and self.index[0].rstrip("/") != value.rstrip("/"):
                raise InputError(
                    f"{where}: --index-url differs from the one of {self.index[1]}: give one"
                )
            self.index = self.index or (value, where)
            self.origins.setdefault("--index-url", where)
        elif option == "--find-links" and "://" not in value:
            # Relative to its file if it is there, as in pip.
            beside = os.path.join(folder, value)
            if os.path.exists(beside):
                value = beside
            elif not os.path.exists(os.path.expanduser(value)):
                hint = "give a folder of wheels"
                raise InputError(f"{where}: --find-links {value} does not exist", hint=hint)
        elif option.endswith("require-hashes"):
            self.options.pop("--require-hashes", None)
            self.options.pop("--no-require-hashes", None)
        elif option == "--all-releases":
            option = "--pre"
        self.options.setdefault(option, []).append(value)


def _is_url(path: str) -> bool:
    return path.lower().startswith(("http://", "https://"))


def _local(path: str) -> str:
    """Return the path in a file:// URL; other texts stay as they are."""
    return unquote(urlsplit(path).path) if path.lower().startswith("file:") else path


def _place(path: str) -> str:
    return path if _is_url(path) else os.path.abspath(path)


def _nested(value: str, path: str, shown_path: str) -> tuple[str, str]:
    """Return the path or the URL of a file that another one names, and the same for messages.

    It is relative to that other one, as in pip.
    """
    if _is_url(path):
        value = urljoin(path, value)
    if _is_url(value):
        return value, public_url(value)
    nested = os.path.join(os.path.dirname(path), os.path.expanduser(value))
    return nested, os.path.join(os.path.dirname(shown_path), value)


def _kind_of_nested(option: str, kind: str) -> str:
    """Return what the requirements of a file are that one of a kind names with an option."""
    if option == "--constraint":
        return "constraints"
    return kind if kind == "overrides" else "requirements"


def _refuse(option: str, where: str) -> NoReturn:
    raise InputError(
        f"{where}: {option} is not taken from a requirements file",
        hint=_HINTS_FOR_REFUSED.get(option, ""),
    )


def _sha256(value: str, where: str) -> str:
    algorithm, _, digest = value.partition(":")
    if algorithm != "sha256":
        raise InputError(
            f"{where}: --hash={algorithm}: an index gives sha256 hashes, "
            "and a lock holds only these"
        )
    if not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise InputError(
            f"{where}: --hash={shortened(value)} is not a sha256, which has 64 hexadecimal digits"
        )
    return digest.lower()


# ---- lines --------------------------------------------------------------------------------------


def _logical_lines(content: bytes, shown_path: str) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of each logical line.

    Continued lines are joined, comments are removed and ${VARIABLES} of the environment are
    replaced.
    """
    lines = _decoded(content, shown_path).splitlines()
    if len(lines) > MOST_LINES:
        raise InputError(f"{shown_path}: has more than {MOST_LINES} lines")
    for number, joined in _joined(lines):
        if len(joined) > LONGEST_LINE:
            message = f"{shown_path}:{number}: has more than {LONGEST_LINE} characters"
            raise InputError(message)
        line = _COMMENT.sub("", joined).strip()
        for name in _VARIABLE.findall(line):
            value = os.environ.get(name)
            if not value:
                raise InputError(
                    f"{shown_path}:{number}: the environment variable {name} is not set"
                )
            line = line.replace("${" + name + "}", value)
        if line:
            yield number, line


def _joined(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with their continuations.

    A line that ends in a backslash continues on the next line. As in pip, a comment ends it.
    """
    start = 0
    parts: list[str] = []
    for number, line in enumerate(lines, 1):
        is_comment = line.lstrip().startswith("#")
        if not parts:
            start = number
        if line.endswith("\\") and not is_comment:
            parts.append(line.strip("\\"))
            continue
        yield start, "".join([*parts, f" {line}" if parts and is_comment else line])
        parts = []
    if parts:
        yield start, "".join(parts)


def decoded(path: str) -> str:
    """Return the text of a file: by its byte-order mark, by its PEP 263 comment, or UTF-8.

    Raises:
        InputError: the file cannot be read or decoded.
    """
    return _decoded(_read(path, path), path)


def _read(path: str, shown_path: str) -> bytes:
    try:
        return read_input(path)
    except OSError as error:
        message = f"{shown_path}: cannot be read: {error.strerror}"
        raise InputError(message, hint="give the path of a requirement file") from None


def _decoded(content: bytes, shown_path: str) -> str:
    encoding = "utf-8"
    for name, marks in _BYTE_ORDER_MARKS.items():
        if content.startswith(marks):
            encoding = name
            break
    else:
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        except SyntaxError as error:
            if "unknown encoding" in str(error):
                encoding = str(error).rpartition(": ")[2]
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise InputError(f"{shown_path}:{number}: is not {encoding.upper()} text") from None
    except LookupError:
        raise InputError(f"{shown_path}:1: has the unknown encoding {encoding}") from None


def _split(line: str, where: str) -> tuple[str, dict[str, list[str]]]:
    """Return the requirement of a line, and the values of its options by their long names."""
    start = re.search(r"(?<!\S)-", line)
    end = start.start() if start else len(line)
    requirement, rest = line[:end].strip(), line[end:]
    try:
        given, unknown = _PARSER.parse_known_args(shlex.split(rest))
    except ArgumentError as error:
        raise InputError(f"{where}: {error}") from None
    except ValueError as error:
        raise InputError(
            f"{where}: {shortened(rest)} cannot be read: {str(error).lower()}"
        ) from None
    if unknown:
        raise InputError(f"{where}: {shortened(unknown[0])} is no option of a requirements file")
    options: dict[str, Any] = vars(given)
    return requirement, {
        f"--{name.replace('_', '-')}": values for name, values in options.items() if values
    }
