"""Reads the doctor's data in matrix_data/doctor: causes, messages of logs, and old releases."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from ..compat.data import data_folder, gpu_key, load
from ..model import Value, show_pair
from ..serialize import read_toml
from .model import Fact
from .status_codes import cuda_version, cudnn_version, version_tuple

_TERM = re.compile("%[a-z]+%")
# DLLs of CUDA and cuDNN: cudart64_80, cudart64_110, cudart64_12, nvrtc64_112_0, cudnn64_9.
_DLL = re.compile(r"(\w+?)64_(\d{1,3})(?:_\d)?\.dll")
_NEWEST_MAJOR = 20  # a greater number in the name of a DLL is a major and a minor version
_FIRST_WITHOUT_SUFFIX = 13  # the first CUDA whose packages have no suffix
_MESSAGES = ("doctor", "messages")

Row = dict[str, Any]  # of a TOML file
# A CUDA release, and the lowest and the highest compute capability that it compiles for.
Compiler = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class Cause(Value):
    """A cause of failures.

    Attributes:
        scope: what has to change: environment, host or program.
        root: the fix needs an administrator.
        solve: a new solve helps.
        reinstall: the same releases in a new environment help, because files are lost or replaced.
        proves, refutes: what a person can check by hand.
        fails, passes: the tests that prove the cause by failing, and rule it out by passing.
        behind: causes that bring this one about; one of them comes first if it is as sure.
        message: the message that people search for; causes may share one.
        looks: general forms of the messages by which people meet the cause.
        log: what a log alone does not tell about it, or "".
    """

    id: str
    title: str
    message: str
    layer: str
    scope: str
    root: bool
    solve: bool
    proves: tuple[str, ...]
    refutes: tuple[str, ...]
    fix: str
    fails: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    looks: tuple[str, ...] = ()
    log: str = ""
    reinstall: bool = False


class Area(Value):
    """What failed if it is not the environment of an NVIDIA GPU."""

    id: str
    title: str
    fix: str


class Test(Value):
    """A test of the host: a row [[test]] of facts.toml, whose head describes the fields."""

    id: str
    shows: str
    command: str = ""
    probe: bool = False
    proposed: tuple[str, ...] = ()


class Owner(Value):
    """The CUDA major versions and the packages that a library belongs to.

    Attributes:
        last: the last CUDA release that has the library, or "" if the newest one has it.
    """

    cuda: tuple[str, ...]
    packages: tuple[str, ...]
    last: str = ""


class BrokenRelease(Value):
    """A release that uses no GPU, although its package has CUDA code.

    Attributes:
        reason: why it uses none.
        instead: the release to use.
    """

    distribution: str
    version: str
    reason: str
    instead: str


class Message(Value):
    """The general form of a message, and the facts that it states.

    The head of messages/terms.toml describes the fields.
    """

    name: str
    needles: tuple[bytes, ...]
    pattern: str
    facts: tuple[tuple[str, str, str], ...]
    lines: int = 0
    every: bool = False
    numbers: bool = False
    once: bool = False

    def compiled(self) -> re.Pattern[str]:
        """Return the pattern, compiled at its first use."""
        return _compile(self.pattern)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


@cache
def causes() -> Mapping[str, Cause]:
    """Return the causes by id, in the order of the file.

    Raises:
        DataError: the file cannot be read.
    """
    by_id = {}
    for row in _read("doctor", "causes.toml")["cause"]:
        by_id[row["id"]] = Cause(**_with_tuples(row))
    return by_id


class Condition(Value):
    """The facts that one condition of a rule means. "" stands for any text."""

    kinds: tuple[str, ...]
    subject: str = ""
    value: str = ""
    origin: str = ""

    def meets(self, fact: Fact) -> bool:
        """Return whether a fact of one of the kinds meets the condition."""
        if self.origin and fact.from_log is not (self.origin == "log"):
            return False
        pairs = ((self.subject, fact.subject), (self.value, fact.value))
        return all(not form or _exact(form).fullmatch(text) for form, text in pairs)


class Rule(Value):
    """A row of rules.toml, whose head describes the fields."""

    cause: str
    confidence: str
    when: tuple[Condition, ...] = ()
    unless: tuple[Condition, ...] = ()
    of: str = ""

    def is_of(self, fact: Fact) -> bool:
        """Return whether a fact is one of those that a cap is about."""
        return not self.of or _exact(self.of).fullmatch(fact.value) is not None


@cache
def _exact(form: str) -> re.Pattern[str]:
    return re.compile(form)


@cache
def rules() -> tuple[Rule, ...]:
    """Return the rules that are rows.

    Raises:
        DataError: the file cannot be read.
    """
    return tuple(map(_rule, _read("doctor", "rules.toml")["rule"]))


@cache
def caps() -> tuple[Rule, ...]:
    """Return the rows that limit how sure a finding of a log alone is."""
    return tuple(map(_rule, _read("doctor", "rules.toml")["cap"]))


def _rule(row: Row) -> Rule:
    return Rule(
        cause=row["cause"],
        confidence=row["confidence"],
        when=tuple(map(_condition, row.get("when", ()))),
        unless=tuple(map(_condition, row.get("unless", ()))),
        of=row.get("of", ""),
    )


def _condition(row: Sequence[str]) -> Condition:
    kinds, *rest = row
    return Condition(
        kinds=tuple(kinds.split("|")) if kinds else (),
        **dict(zip(("subject", "value", "origin"), rest, strict=False)),
    )


@cache
def areas() -> Mapping[str, Area]:
    """Return the areas by id, in the order in which they are looked for.

    Raises:
        DataError: the file cannot be read.
    """
    return {row["id"]: Area(**row) for row in _read("doctor", "causes.toml")["area"]}


@cache
def messages() -> tuple[Message, ...]:
    """Return the messages, file by file.

    Raises:
        DataError: a file cannot be read.
    """
    terms: dict[str, str] = {}
    rows: list[Row] = []
    for name in sorted(os.listdir(os.path.join(data_folder(), *_MESSAGES))):
        if name.endswith(".toml"):
            table = _read(*_MESSAGES, name)
            terms |= table.get("terms", {})
            rows += table.get("message", [])
    return tuple(_message(row, terms) for row in rows)


def _message(row: Row, terms: Mapping[str, str]) -> Message:
    pattern = row["pattern"]
    if isinstance(pattern, list):
        pattern = "|".join(pattern)
    facts = []
    for kind, subject, *value in row["facts"]:
        # What a message says of a cause carries the name of the message.
        facts.append((kind, subject, value[0] if value else row["name"]))
    return Message(
        name=row["name"],
        needles=tuple(needle.encode() for needle in row["needles"]),
        pattern=_with_terms(pattern, terms),
        facts=tuple(facts),
        lines=row.get("lines", 0),
        every=row.get("every", False),
        numbers=row.get("numbers", False),
        once=row.get("once", False),
    )


def _with_terms(pattern: str, terms: Mapping[str, str]) -> str:
    """Return a pattern in which each %name% is replaced by the term of that name."""
    return _TERM.sub(lambda term: terms[term[0].strip("%")], pattern)


# ---- facts of a message -------------------------------------------------------------------------

_FIELD = re.compile(r"\{(\d)(?:\|(\w+))?\}")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "b": 1}


def fill(template: str, match: re.Match[str]) -> str:
    """Return the template of a fact with the groups of a match.

    "{1}" is the first group, and "{1|cudnn}" is the group in the form "cudnn". A group that does
    not have its form gives "".
    """
    if "{" not in template:
        return template

    def value(field: re.Match[str]) -> str:
        text = (match[int(field[1])] or "").strip()
        form = field[2]
        if not text or form is None:
            return text
        return _FORMS[form](text)

    return _FIELD.sub(value, template)


def _file_name(text: str) -> str:
    return text.rpartition("/")[2]


def _distribution(text: str) -> str:
    return text.lower().replace("_", "-")


def _bytes(text: str) -> str:
    """Return a size in bytes: "2.00 GiB" -> "2147483648"; "" for other text."""
    number, _, unit = text.partition(" ")
    try:
        return str(int(float(number) * _UNITS.get(unit[:1], 1)))
    except ValueError:
        return ""


def _capabilities(text: str) -> str:
    """Return the compute capabilities of targets: "sm_80 sm_120" -> "8.0 12.0"."""
    return " ".join(map(_dotted, re.findall(r"\d{2,3}", text)))


def _dotted_capabilities(text: str) -> str:
    """Return the compute capabilities of a list of torch: "8.0;8.6+PTX" -> "8.0 8.6"."""
    return " ".join(re.findall(r"\d{1,2}\.\d", text))


def cuda_of_driver(release: str) -> str:
    """Return the CUDA version that a driver supports: "470.199.02" -> "11.4"; "" if unknown."""
    major = version_tuple(release)[0]
    for row in _releases()["driver"]:
        if major < int(row["before"]):
            return str(row["cuda"])
    cuda = load().driver_cuda(f"{major}.0")
    return show_pair(cuda) if cuda else ""


def _hexadecimal(text: str) -> str:
    """Return a hexadecimal number as a decimal one: "c" -> "12"."""
    return str(int(text, 16))


def _architecture(text: str) -> str:
    """Return the first compute capability of an architecture: "Pascal" -> "6.0"."""
    return _architectures()[text.lower()]


@cache
def _architectures() -> Mapping[str, str]:
    return {row["name"].lower(): row["capability"] for row in _releases()["architecture"]}


_FORMS: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "cudnn": cudnn_version,
    "cuda": cuda_version,
    "driver": cuda_of_driver,
    "name": _file_name,
    "distribution": _distribution,
    "bytes": _bytes,
    "architecture": _architecture,
    "hexadecimal": _hexadecimal,
    "capability": _capabilities,
    "dotted": _dotted_capabilities,
    "capabilities": _capabilities,
}


@cache
def broken_releases() -> Mapping[tuple[str, str], BrokenRelease]:
    """Return the releases that are known to use no GPU, by distribution and version.

    Raises:
        DataError: the file cannot be read.
    """
    releases = {}
    for row in _read("libraries.toml")["bad"]:
        for name in row["distributions"] if row.get("with_gpu") else ():
            releases[name, row["versions"]] = BrokenRelease(
                distribution=name,
                version=row["versions"],
                reason=row["text"],
                instead=row["instead"],
            )
    return releases


# ---- releases and GPUs --------------------------------------------------------------------------


@cache
def compilers() -> tuple[Compiler, ...]:
    """Return the CUDA releases in order, with the compute capabilities they compile for."""
    old = _releases()["compiler"]
    rows = [_compiler(row["cuda"], row["first"], row["last"]) for row in old]
    for row in _toolkits()["compiler"]:
        # Without targets for one architecture alone, such as 90a.
        targets = [target for target in row["targets"] if target.isdigit()]
        rows.append(_compiler(row["cuda"], _dotted(targets[0]), _dotted(targets[-1])))
    return tuple(sorted(rows))


def _compiler(cuda: str, lowest: str, highest: str) -> Compiler:
    return version_tuple(cuda), version_tuple(lowest), version_tuple(highest)


def _dotted(target: str) -> str:
    """Return the compute capability of a target: "120" -> "12.0"."""
    return f"{target[:-1]}.{target[-1]}"


def newest_capabilities(framework: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the highest compute capabilities that the builds of a framework have SASS for.

    Returns:
        (release, capability) pairs: the highest compute capability of releases before that one.
    """
    rows = _releases()["newest"]
    return [
        (version_tuple(row["before"]), version_tuple(row["capability"]))
        for row in rows
        if row["framework"] == framework
    ]


class Advice(Value):
    """What a finding means for the fix of its cause: a row [[advice]] of releases.toml."""

    causes: tuple[str, ...]
    says: str
    source: str
    messages: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    framework: str = ""
    below: str = ""
    least: str = ""
    title: str = ""
    alone: bool = False


@cache
def advice_rows() -> tuple[Advice, ...]:
    """Return the rows [[advice]]; of those that apply to a finding, the first one counts."""
    return tuple(Advice(**_with_tuples(row)) for row in _releases()["advice"])


def _with_tuples(row: Row) -> Row:
    lists = {name: tuple(value) for name, value in row.items() if isinstance(value, list)}
    return {**row, **lists}


def linux_name(file_name: str) -> str:
    """Return the name on Linux of a DLL: "cudart64_110.dll" -> "libcudart.so.11.0".

    The name of any other file stays.
    """
    match = _DLL.fullmatch(file_name)
    if match is None:
        return file_name
    name, version = match.groups()
    if int(version) > _NEWEST_MAJOR:
        version = f"{version[:-1]}.{version[-1]}"
    return f"lib{name}.so.{version}"


def library_owner(file_name: str) -> Owner | None:
    """Return what a library of CUDA belongs to by its file name, or None: "libcufft.so.11"."""
    name, _, version = linux_name(file_name).partition(".so.")
    row = _owners().get(name)
    if row is None:
        return None
    cuda = tuple(row["cuda"].get(version.partition(".")[0], ()))
    if not cuda:
        return None
    packages = tuple(_package_for(row, major) for major in cuda)
    return Owner(cuda=cuda, packages=packages, last=row.get("last", ""))


def _package_for(row: Row, cuda: str) -> str:
    """Return the package for a CUDA major version; from 13 on, most have no suffix."""
    name: str = row["package"]
    if int(cuda) < _FIRST_WITHOUT_SUFFIX or row.get("suffix"):
        return f"{name}-cu{cuda}"
    return name


@cache
def _owners() -> Mapping[str, Row]:
    return {name: row for row in _releases()["owner"] for name in row["files"]}


def cuda_of_ptx(version: str) -> str:
    """Return the first CUDA release that writes a version of PTX, or "": "8.5" -> "12.5"."""
    for row in _toolkits()["compiler"]:
        if row["ptx"] == version:
            return str(row["cuda"])
    return ""


def toolkit_driver(cuda: str) -> str:
    """Return the driver that the first toolkit of a CUDA release brought; "" if unknown."""
    for row in _toolkits()["toolkit"]:
        if row["version"].startswith(f"{cuda}."):
            return str(row["driver_linux"])
    return ""


def gpus_of_shared_name(name: str) -> tuple[str, ...]:
    """Return the GPUs that share a name, or () for a name of one GPU."""
    row = _shared_names().get(gpu_key(name))
    return tuple(row["gpus"]) if row else ()


def highest_capability_of(name: str) -> tuple[int, int] | None:
    """Return the compute capability of a GPU; of GPUs that share a name, the highest."""
    row = _shared_names().get(gpu_key(name))
    if row is None:
        return load().compute_capability(name)
    major, minor = version_tuple(row["capability"])
    return major, minor


def capability_of_series(name: str) -> tuple[int, int] | None:
    """Return the compute capability of an unlisted GPU by the number of its series, or None."""
    plain = gpu_key(name)
    for row in _releases()["series"]:
        if re.fullmatch(row["pattern"], plain):
            major, minor = version_tuple(row["capability"])
            return major, minor
    return None


@cache
def _shared_names() -> Mapping[str, Row]:
    return {gpu_key(row["name"]): row for row in _releases()["shared_name"]}


@cache
def _toolkits() -> Row:
    return _read("toolkits.toml")


@cache
def fact_rows() -> Row:
    """Return facts.toml, whose head describes it."""
    return _read("doctor", "facts.toml")


@cache
def tests() -> Mapping[str, Test]:
    """Return the tests by id, in the order in which they are proposed."""
    return {row["id"]: Test(**_with_tuples(row)) for row in fact_rows()["test"]}


def tests_for(failure: str) -> tuple[str, ...]:
    """Return the tests that are proposed for a failure without a cause: cudnn, or other."""
    return tuple(test.id for test in tests().values() if failure in test.proposed)


@cache
def _releases() -> Row:
    return _read("doctor", "releases.toml")


def _read(*path: str) -> Row:
    return read_toml(os.path.join(data_folder(), *path))
