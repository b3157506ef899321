"""Requirement and constraint files, read as pip reads them (its req_file.py)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from ..errors import InputError
from .parse import Asked, cut, requirement, shown

# pip's own patterns (req_file.py): a comment needs white space before it, a variable is of capitals in braces.
_COMMENT = re.compile(r"(^|\s+)#.*$")
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_CODING = re.compile(rb"coding[:=]\s*([-\w.]+)")
# The longer ones first: the mark of UTF-32-LE starts with that of UTF-16-LE.
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe\0\0", "utf-32-le"), (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"),
)  # fmt: skip
_VALUED = {
    "-r": "--requirement", "-c": "--constraint", "-i": "--index-url", "-f": "--find-links", "-e": "--editable",
    "--pypi-url": "--index-url",
}  # fmt: skip
_TAKES_VALUE = frozenset(
    {*_VALUED.values(), "--extra-index-url", "--hash", "--no-binary", "--only-binary", "--trusted-host",
     "--use-feature", "--config-settings", "--all-releases", "--only-final"}
)  # fmt: skip
_FLAGS = frozenset({"--pre", "--no-index", "--prefer-binary", "--require-hashes", "--no-require-hashes"})
_WITHOUT_EFFECT = frozenset({"--prefer-binary", "--only-binary"})  # wheels are all that is taken by default
_REFUSED = {
    "--no-index": "give --offline and --find-links on the command line",
    "--no-binary": "wheels are preferred here; --allow-sdist NAME takes a source distribution where there is no wheel",
    "--trusted-host": "give the CA certificate of the index in REQUESTS_CA_BUNDLE",
    "--use-feature": "it is about pip itself; take it out",
    "--config-settings": "nothing is built when requirements are solved; take it out",
    "--only-final": "pre-releases are taken only where a requirement names one; take it out",
    "--editable": "an editable install cannot be locked: name the release, or install it after gpuenv",
}


def read_files(
    requirements: Sequence[str], constraints: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Asked:
    """What requirement and constraint files ask for, files that they name included. InputError with FILE:LINE.

    `environ` gives the values of ${VARIABLE}; a variable without one is a mistake, since what it leaves is none.
    """
    reader = _Reader(os.environ if environ is None else environ)
    for path in requirements:
        reader.read(path, path, constraint=False, above=())
    for path in constraints:
        reader.read(path, path, constraint=True, above=())
    return reader.asked()


class _Reader:
    """Collects what files say."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.requirements: list[str] = []
        self.constraints: list[str] = []
        self.origins: dict[str, str] = {}
        self.hashes: dict[str, set[str]] = {}
        self.strict: list[tuple[str, str, str]] = []  # (name, text, where): what hash-checking mode asks about
        self.required: bool | None = None
        self.index: tuple[str, str] | None = None  # the URL and where it was said
        self.extra: list[str] = []
        self.links: list[str] = []
        self.pre = False

    def asked(self) -> Asked:
        """All of it. InputError where hash-checking mode finds a requirement without a hash or a version."""
        strict = bool(self.hashes) if self.required is None else self.required
        for name, text, where in self.strict if strict else ():
            if name not in self.hashes or not _is_pinned(text):
                hint = "one --hash, or --require-hashes, asks all of them for it, as in pip"
                raise InputError(f"{where}: {text} needs == and a --hash in hash-checking mode", hint=hint)
        return Asked(
            requirements=tuple(self.requirements),
            constraints=tuple(self.constraints),
            hashes=tuple((name, tuple(sorted(self.hashes[name]))) for name in sorted(self.hashes)),
            require_hashes=strict,
            index_url=self.index[0] if self.index else None,
            extra_index_urls=tuple(dict.fromkeys(self.extra)),
            find_links=tuple(dict.fromkeys(self.links)),
            pre=self.pre,
            origins=tuple(self.origins.items()),
        )

    def read(self, path: str, named: str, *, constraint: bool, above: tuple[str, ...]) -> None:
        """Reads a file; `named` is what messages call it and `above` the files that led to it."""
        for number, line in _lines(path, named, self.environ):
            where = f"{named}:{number}"
            text, options = _split(line, where)
            if text:
                self._requirement(text, options, where, constraint=constraint)
                continue
            for option, value in options:
                if option in ("--requirement", "--constraint"):
                    self._nested(path, named, value, where, constraint=option == "--constraint", above=above)
                else:
                    self._option(option, value, where, os.path.dirname(path))

    def _nested(
        self, path: str, named: str, value: str, where: str, *, constraint: bool, above: tuple[str, ...]
    ) -> None:
        if "://" in value:
            raise InputError(f"{where}: {shown(value)} is a URL: fetch the file first, and name the copy")
        inner = os.path.join(os.path.dirname(path), os.path.expanduser(value))
        chain = (*above, os.path.abspath(path))
        if os.path.abspath(inner) in chain:
            raise InputError(f"{where}: {value} leads back to itself")
        if not os.path.isfile(inner):
            raise InputError(f"{where}: {inner} does not exist")
        self.read(inner, os.path.join(os.path.dirname(named), value), constraint=constraint, above=chain)

    def _requirement(self, text: str, options: Sequence[tuple[str, str]], where: str, *, constraint: bool) -> None:
        from packaging.requirements import Requirement as Parsed
        from packaging.utils import canonicalize_name

        parsed = Parsed(requirement(text, where))
        if constraint and parsed.extras:
            raise InputError(f"{where}: {parsed.name} has extras, which a constraint cannot have")
        (self.constraints if constraint else self.requirements).append(str(parsed))
        self.origins.setdefault(str(parsed), where)
        hashes = set()
        for option, value in options:
            if option in _REFUSED:
                _refuse(option, where)
            if option != "--hash":  # pip passes over it, which nobody means
                raise InputError(f"{where}: {option} needs a line of its own")
            hashes.add(_sha256(value, where))
        name = str(canonicalize_name(parsed.name))
        if hashes:
            self.hashes[name] = self.hashes.get(name, hashes) & hashes
        # A marker may leave a requirement out; a URL with its own hash needs no other one.
        if not constraint and parsed.marker is None and "sha256=" not in (parsed.url or ""):
            self.strict.append((name, str(parsed), where))

    def _option(self, option: str, value: str, where: str, folder: str) -> None:
        if option == "--index-url":
            if self.index is not None and self.index[0].rstrip("/") != value.rstrip("/"):
                raise InputError(f"{where}: --index-url differs from the one of {self.index[1]}: give one")
            self.index = self.index or (value, where)
            self.origins.setdefault(option, where)
        elif option == "--extra-index-url":
            self.extra.append(value)
        elif option == "--find-links":
            # As pip does: relative to the file if it is there, else to where pip runs.
            beside = os.path.join(folder, value)
            found = beside if "://" not in value and os.path.exists(beside) else value
            if "://" not in found and not os.path.exists(os.path.expanduser(found)):
                raise InputError(f"{where}: --find-links {value} does not exist")
            self.links.append(found)
        elif option == "--pre" or (option == "--all-releases" and value == ":all:"):
            self.pre = True
        elif option in ("--require-hashes", "--no-require-hashes"):
            self.required = option == "--require-hashes"
        elif option == "--hash":
            raise InputError(f"{where}: --hash belongs to the line of a requirement")
        elif option not in _WITHOUT_EFFECT:
            _refuse(option, where)


def _is_pinned(text: str) -> bool:
    from packaging.requirements import Requirement as Parsed

    parsed = Parsed(text)
    exact = [one for one in parsed.specifier if one.operator in ("==", "===") and not one.version.endswith(".*")]
    return bool(exact) or parsed.url is not None


def _refuse(option: str, where: str) -> NoReturn:
    raise InputError(f"{where}: {option} is not taken from a requirements file", hint=_REFUSED.get(option, ""))


def _sha256(value: str, where: str) -> str:
    algorithm, _, digest = value.partition(":")
    digest = digest.lower()
    if algorithm != "sha256":
        raise InputError(f"{where}: --hash={algorithm}: an index gives sha256 hashes, and a lock holds only these")
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise InputError(f"{where}: --hash={cut(value)} is not a sha256, which has 64 hexadecimal digits")
    return digest


def _lines(path: str, named: str, environ: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """(number, text) of each logical line: continuations joined, comments off, variables in."""
    for number, whole in _joined(decoded(path, named).splitlines()):
        line = _COMMENT.sub("", whole).strip()
        for name in _VARIABLE.findall(line):
            value = environ.get(name)
            if not value:
                raise InputError(f"{named}:{number}: the environment variable {name} is not set")
            line = line.replace("${" + name + "}", value)
        if line:
            yield number, line


def _joined(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """A line that ends in a backslash goes on in the next one; a comment ends what goes on, as in pip."""
    start, parts = 0, list[str]()
    for number, line in enumerate(lines, 1):
        comment = _COMMENT.match(line)
        if line.endswith("\\") and not comment:
            start = start if parts else number
            parts.append(line.strip("\\"))
            continue
        yield (start, "".join([*parts, " " + line if comment else line])) if parts else (number, line)
        parts = []
    if parts:
        yield start, "".join(parts)


def decoded(path: str, named: str) -> str:
    """The text of a file: by its byte-order mark, by its PEP 263 comment, else UTF-8."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise InputError(f"{named}: cannot be read: {error.strerror}") from None
    encoding = "utf-8"
    for mark, name in _MARKS:
        if data.startswith(mark):
            data, encoding = data[len(mark) :], name
            break
    else:
        for line in data.split(b"\n")[:2]:
            if line.startswith(b"#") and (found := _CODING.search(line)):
                encoding = found[1].decode("ascii")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        number = data[: error.start].count(b"\n") + 1
        raise InputError(f"{named}:{number}: is not {encoding.upper()} text") from None
    except LookupError:
        raise InputError(f"{named}:1: has the unknown encoding {encoding}") from None


def _split(line: str, where: str) -> tuple[str, list[tuple[str, str]]]:
    """(requirement, options) of a line; options by their long names, "" as the value of a flag."""
    import shlex

    words = re.split(r"(\s+)", line)
    end = next((at for at in range(0, len(words), 2) if words[at].startswith("-")), len(words))
    text, rest = "".join(words[:end]).strip(), "".join(words[end:])
    try:
        tokens = shlex.split(rest)
    except ValueError as error:
        raise InputError(f"{where}: {cut(rest)} cannot be read: {str(error).lower()}") from None
    options: list[tuple[str, str]] = []
    while tokens:
        option, equals, value = tokens.pop(0).partition("=")
        if not option.startswith("--") and option[:2] in _VALUED:
            # -rFILE, or -r FILE
            value, equals, option = option[2:] + equals + value, option[2:] + equals, _VALUED[option[:2]]
        option = _VALUED.get(option, option)
        if option not in _TAKES_VALUE | _FLAGS:
            raise InputError(f"{where}: {cut(option)} is no option of a requirements file")
        if option in _FLAGS and equals:
            raise InputError(f"{where}: {option} takes no value")
        if option in _TAKES_VALUE and not equals:
            if not tokens:
                raise InputError(f"{where}: {option} needs a value")
            value = tokens.pop(0)
        options.append((option, value))
    return text, options
