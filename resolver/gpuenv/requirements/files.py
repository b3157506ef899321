"""Requirement and constraint files, read as pip reads them (pip's req_file.py)."""

from __future__ import annotations

import codecs
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from ..errors import InputError
from ..serialize import read_input
from .parse import RequirementSet, build_names, checked_requirement, public_url, shortened
from .versions import normalize_name

MOST_LINES = 100_000
LONGEST_LINE = 50_000  # characters; a requirement with hundreds of hashes has fewer
# The patterns of pip: a comment needs white space before it; a variable is ${CAPITALS}.
_COMMENT = re.compile(r"(^|\s)#.*$")  # the white space before it is stripped, too
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_CODING = re.compile(rb"coding[:=]\s*([-\w.]+)")  # PEP 263
# UTF-32-LE comes first: its mark starts with that of UTF-16-LE.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LONG_NAMES = {
    "-r": "--requirement",
    "-c": "--constraint",
    "-i": "--index-url",
    "-f": "--find-links",
    "-e": "--editable",
    "--pypi-url": "--index-url",
}
_WITH_VALUE = frozenset({
    *_LONG_NAMES.values(), "--extra-index-url", "--hash", "--no-binary", "--only-binary",
    "--trusted-host", "--use-feature", "--config-settings", "--all-releases", "--only-final",
})  # fmt: skip
_FLAGS = frozenset(
    {"--pre", "--no-index", "--prefer-binary", "--require-hashes", "--no-require-hashes"}
)
_IGNORED = frozenset({"--prefer-binary"})  # a wheel of a release comes before its source
_HINTS_FOR_REFUSED = {
    "--trusted-host": "give the CA certificate of the index in REQUESTS_CA_BUNDLE",
    "--use-feature": "it is about pip itself; take it out",
    "--config-settings": "builds get no settings here; take it out",
    "--only-final": "pre-releases are taken only where a requirement names one; take it out",
    "--editable": "an editable install cannot be locked: name the release, or install it after "
    "gpuenv",
}

Options = list[tuple[str, str]]  # (long name, value); the value of a flag is ""


def read_files(
    requirements: Sequence[str],
    constraints: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> RequirementSet:
    """Read requirement and constraint files, and the files that they name.

    Args:
        requirements: paths of requirement files.
        constraints: paths of constraint files.
        environ: the values of ${VARIABLE}; by default the environment variables.

    Raises:
        InputError: with FILE:LINE; also for a variable without a value.
    """
    reader = _Reader(os.environ if environ is None else environ)
    for path in requirements:
        reader.read(path, path, is_constraint=False, ancestors=())
    for path in constraints:
        reader.read(path, path, is_constraint=True, ancestors=())
    return reader.result()


class _Reader:
    """Collects what files say."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.requirements: list[str] = []
        self.constraints: list[str] = []
        self.origins: dict[str, str] = {}
        self.hashes: dict[str, set[str]] = {}
        # (name, text, where) of the requirements that need a hash in hash-checking mode
        self.need_hash: list[tuple[str, str, str]] = []
        self.require_hashes: bool | None = None  # None: no option says it
        self.index: tuple[str, str] | None = None  # (URL, where)
        self.extra_indexes: list[str] = []
        self.find_links: list[str] = []
        self.no_index = False
        self.pre = False
        self.only_binary: list[str] = []
        self.no_binary: list[str] = []

    def result(self) -> RequirementSet:
        """Return everything that was read.

        Raises:
            InputError: a requirement without a hash or a version in hash-checking mode.
        """
        require_hashes = self.require_hashes
        if require_hashes is None:
            require_hashes = bool(self.hashes)
        if require_hashes:
            self._check_hashes()
        hashes = tuple((name, tuple(sorted(self.hashes[name]))) for name in sorted(self.hashes))
        return RequirementSet(
            requirements=tuple(self.requirements),
            constraints=tuple(self.constraints),
            hashes=hashes,
            require_hashes=require_hashes,
            index_url=None if self.index is None else self.index[0],
            extra_index_urls=tuple(dict.fromkeys(self.extra_indexes)),
            find_links=tuple(dict.fromkeys(self.find_links)),
            no_index=self.no_index,
            pre=self.pre,
            no_build=build_names(self.only_binary),
            no_binary=build_names(self.no_binary),
            origins=tuple(self.origins.items()),
        )

    def _check_hashes(self) -> None:
        for name, text, where in self.need_hash:
            if name not in self.hashes or not _is_pinned(text):
                raise InputError(
                    f"{where}: {text} needs == and a --hash in hash-checking mode",
                    hint="one --hash, or --require-hashes, asks all of them for it, as in pip",
                )

    def read(
        self, path: str, shown_path: str, *, is_constraint: bool, ancestors: tuple[str, ...]
    ) -> None:
        """Read a file.

        Args:
            path: the file.
            shown_path: its path in messages.
            is_constraint: whether its requirements are constraints.
            ancestors: the absolute paths of the files that led to it.
        """
        for number, line in _logical_lines(path, shown_path, self.environ):
            where = f"{shown_path}:{number}"
            text, options = _split(line, where)
            if text:
                self._add_requirement(text, options, where, is_constraint=is_constraint)
                continue
            for option, value in options:
                if option in ("--requirement", "--constraint"):
                    nested, shown_nested = self._nested(path, shown_path, value, where, ancestors)
                    self.read(
                        nested,
                        shown_nested,
                        is_constraint=option == "--constraint",
                        ancestors=(*ancestors, os.path.abspath(path)),
                    )
                else:
                    self._apply_option(option, value, where, os.path.dirname(path))

    def _nested(
        self, path: str, shown_path: str, value: str, where: str, ancestors: tuple[str, ...]
    ) -> tuple[str, str]:
        """Return the path of a file that a file names, and its path in messages."""
        if "://" in value:
            raise InputError(
                f"{where}: {public_url(value)} is a URL: fetch the file first, and name the copy"
            )
        nested = os.path.join(os.path.dirname(path), os.path.expanduser(value))
        if os.path.abspath(nested) in (*ancestors, os.path.abspath(path)):
            raise InputError(f"{where}: {value} leads back to itself")
        if not os.path.isfile(nested):
            hint = "correct the path, which is relative to this file"
            raise InputError(f"{where}: {nested} does not exist", hint=hint)
        return nested, os.path.join(os.path.dirname(shown_path), value)

    def _add_requirement(
        self, text: str, options: Options, where: str, *, is_constraint: bool
    ) -> None:
        from packaging.requirements import Requirement as ParsedRequirement  # heavy

        parsed = ParsedRequirement(checked_requirement(text, where))
        if is_constraint and parsed.extras:
            raise InputError(f"{where}: {parsed.name} has extras, which a constraint cannot have")
        if is_constraint:
            self.constraints.append(str(parsed))
        else:
            self.requirements.append(str(parsed))
        self.origins.setdefault(str(parsed), where)
        name = normalize_name(parsed.name)
        hashes = _hashes(options, where)
        if hashes:  # of a name in several lines only the common hashes are allowed
            self.hashes[name] = self.hashes.get(name, hashes) & hashes
        # A marker may exclude a requirement. A URL with its own hash needs no other hash.
        has_hash = "sha256=" in (parsed.url or "")
        if not is_constraint and parsed.marker is None and not has_hash:
            self.need_hash.append((name, str(parsed), where))

    def _apply_option(self, option: str, value: str, where: str, folder: str) -> None:
        if option == "--index-url":
            self._set_index(value, where)
        elif option == "--extra-index-url":
            self.extra_indexes.append(value)
        elif option == "--find-links":
            self.find_links.append(_find_links(value, where, folder))
        elif option == "--no-index":
            self.no_index = True
        elif option == "--pre" or (option == "--all-releases" and value == ":all:"):
            self.pre = True
        elif option == "--only-binary":
            self.only_binary.append(value)
        elif option == "--no-binary":
            self.no_binary.append(value)
        elif option in ("--require-hashes", "--no-require-hashes"):
            self.require_hashes = option == "--require-hashes"
        elif option == "--hash":
            raise InputError(f"{where}: --hash belongs to the line of a requirement")
        elif option not in _IGNORED:
            _refuse(option, where)

    def _set_index(self, url: str, where: str) -> None:
        if self.index is None:
            self.index = (url, where)
        elif self.index[0].rstrip("/") != url.rstrip("/"):
            raise InputError(
                f"{where}: --index-url differs from the one of {self.index[1]}: give one"
            )
        self.origins.setdefault("--index-url", where)


def _find_links(value: str, where: str, folder: str) -> str:
    """Return a --find-links place: relative to its file if it is there, as in pip."""
    if "://" in value:
        return value
    beside = os.path.join(folder, value)
    if os.path.exists(beside):
        return beside
    if not os.path.exists(os.path.expanduser(value)):
        hint = "give a folder of wheels"
        raise InputError(f"{where}: --find-links {value} does not exist", hint=hint)
    return value


def _is_pinned(text: str) -> bool:
    """Return whether a requirement names one version or one file."""
    from packaging.requirements import Requirement as ParsedRequirement  # heavy

    parsed = ParsedRequirement(text)
    for clause in parsed.specifier:
        if clause.operator in ("==", "===") and not clause.version.endswith(".*"):
            return True
    return parsed.url is not None


def _refuse(option: str, where: str) -> NoReturn:
    raise InputError(
        f"{where}: {option} is not taken from a requirements file",
        hint=_HINTS_FOR_REFUSED.get(option, ""),
    )


def _hashes(options: Options, where: str) -> set[str]:
    """Return the sha256s of the options of a requirement, which can only be --hash."""
    hashes = set()
    for option, value in options:
        if option in _HINTS_FOR_REFUSED:
            _refuse(option, where)
        if option != "--hash":  # pip ignores such an option, which nobody intends
            raise InputError(f"{where}: {option} needs a line of its own")
        hashes.add(_sha256(value, where))
    return hashes


def _sha256(value: str, where: str) -> str:
    algorithm, _, digest = value.partition(":")
    digest = digest.lower()
    if algorithm != "sha256":
        raise InputError(
            f"{where}: --hash={algorithm}: an index gives sha256 hashes, "
            "and a lock holds only these"
        )
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise InputError(
            f"{where}: --hash={shortened(value)} is not a sha256, which has 64 hexadecimal digits"
        )
    return digest


# ---- lines --------------------------------------------------------------------------------------


def _logical_lines(
    path: str, shown_path: str, environ: Mapping[str, str]
) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of each logical line.

    Continued lines are joined, comments are removed and variables are replaced.
    """
    lines = decoded(path, shown_path).splitlines()
    if len(lines) > MOST_LINES:
        raise InputError(f"{shown_path}: has more than {MOST_LINES} lines")
    for number, joined in _joined(lines):
        if len(joined) > LONGEST_LINE:
            message = f"{shown_path}:{number}: has more than {LONGEST_LINE} characters"
            raise InputError(message)
        line = _COMMENT.sub("", joined).strip()
        for name in _VARIABLE.findall(line):
            value = environ.get(name)
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
        if line.endswith("\\") and not is_comment:
            if not parts:
                start = number
            parts.append(line.strip("\\"))
            continue
        if parts:
            last = f" {line}" if is_comment else line
            yield start, "".join([*parts, last])
            parts = []
        else:
            yield number, line
    if parts:
        yield start, "".join(parts)


def decoded(path: str, shown_path: str) -> str:
    """Return the text of a file: by its byte-order mark, by its PEP 263 comment, or UTF-8.

    Raises:
        InputError: the file cannot be read or decoded.
    """
    try:
        content = read_input(path)
    except OSError as error:
        message = f"{shown_path}: cannot be read: {error.strerror}"
        raise InputError(message, hint="give the path of a requirement file") from None
    content, encoding = _without_mark(content)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise InputError(f"{shown_path}:{number}: is not {encoding.upper()} text") from None
    except LookupError:
        raise InputError(f"{shown_path}:1: has the unknown encoding {encoding}") from None


def _without_mark(content: bytes) -> tuple[bytes, str]:
    """Return the content without its byte-order mark, and its encoding."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return content.removeprefix(mark), encoding
    encoding = "utf-8"
    for line in content.split(b"\n")[:2]:
        coding = _CODING.search(line) if line.startswith(b"#") else None
        if coding is not None:
            encoding = coding[1].decode("ascii")
    return content, encoding


def _split(line: str, where: str) -> tuple[str, Options]:
    """Return the requirement and the options of a line."""
    words = re.split(r"(\s+)", line)
    end = len(words)
    for place in range(0, len(words), 2):  # spaces stand between the words
        if words[place].startswith("-"):
            end = place
            break
    requirement, rest = "".join(words[:end]).strip(), "".join(words[end:])
    try:
        tokens = shlex.split(rest)
    except ValueError as error:
        raise InputError(
            f"{where}: {shortened(rest)} cannot be read: {str(error).lower()}"
        ) from None
    options: Options = []
    while tokens:
        options.append(_take_option(tokens, where))
    return requirement, options


def _take_option(tokens: list[str], where: str) -> tuple[str, str]:
    """Remove an option and its value from the start of the tokens of a line."""
    option, equals, value = tokens.pop(0).partition("=")
    if not option.startswith("--") and option[:2] in _LONG_NAMES:  # -rFILE, or -r FILE
        value = option[2:] + equals + value
        equals = value
        option = option[:2]
    option = _LONG_NAMES.get(option, option)
    if option not in _WITH_VALUE | _FLAGS:
        raise InputError(f"{where}: {shortened(option)} is no option of a requirements file")
    if option in _FLAGS and equals:
        raise InputError(f"{where}: {option} takes no value")
    if option in _WITH_VALUE and not equals:
        if not tokens:
            raise InputError(f"{where}: {option} needs a value")
        value = tokens.pop(0)
    return option, value
