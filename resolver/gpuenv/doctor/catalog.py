"""Reads the doctor's data in matrix_data/doctor: causes, messages of logs, and old releases."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from ..compat.data import data_folder, gpu_key, load
from ..model import Value, parse_pair, show_pair
from ..serialize import read_toml
from .model import Capability, Fact, Verdict, version_tuple

_TERM = re.compile("%([a-z]+)%")
# DLLs of CUDA and cuDNN: cudart64_80, cudart64_110, cudart64_12, nvrtc64_112_0, cudnn64_9.
_DLL = re.compile(r"(\w+?)64_(\d{1,3})(?:_\d)?\.dll")
_NEWEST_MAJOR = 20  # a greater number in the name of a DLL is a major and a minor version
_FIRST_WITHOUT_SUFFIX = 13  # the first CUDA whose packages have no suffix

Row = dict[str, Any]  # of a TOML file
# A CUDA release, and the lowest and the highest compute capability that it compiles for.
Compiler = tuple[tuple[int, ...], Capability, Capability]
_Kind = TypeVar("_Kind", bound=Value)


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


class Test(Value):
    """A test of the host: a row [[test]] of facts.toml, whose head describes the fields."""

    id: str
    shows: str
    command: str = ""
    probe: bool = False
    proposed: tuple[str, ...] = ()


class Owner(Value):
    """What a library belongs to.

    Attributes:
        packages: its package, by CUDA major version.
        last: the last CUDA release that has the library, or "" if the newest one has it.
    """

    packages: Mapping[str, str]
    last: str = ""


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


class Condition(Value, array_like=True):
    """The facts that one condition of a rule means. "" stands for any text."""

    kind: str  # or several, separated by "|"
    subject: str = ""
    value: str = ""
    origin: str = ""

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of the facts; none stands for all."""
        return self.kind.split("|") if self.kind else []

    def meets(self, fact: Fact) -> bool:
        """Return whether a fact of one of the kinds meets the condition."""
        if self.origin and fact.from_log is not (self.origin == "log"):
            return False
        pairs = ((self.subject, fact.subject), (self.value, fact.value))
        return all(not form or re.fullmatch(form, text) for form, text in pairs)


class Rule(Value):
    """A row of rules.toml, whose head describes the fields."""

    cause: str
    confidence: str
    when: tuple[Condition, ...] = ()
    unless: tuple[Condition, ...] = ()
    of: str = ".*"


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


# ---- files: InputError if one cannot be read ----------------------------------------------------


@cache
def _file(*path: str) -> Row:
    """Return the content of a file of matrix_data."""
    return read_toml(os.path.join(data_folder(), *path))


def _rows(kind: type[_Kind], file: str, table: str) -> tuple[_Kind, ...]:
    """Return the rows of a table of a file of matrix_data/doctor as values."""
    return tuple(msgspec.convert(row, kind) for row in _file("doctor", file)[table])


def _releases(table: str) -> list[Row]:
    rows: list[Row] = _file("doctor", "releases.toml")[table]
    return rows


@cache
def causes() -> Mapping[str, Cause]:
    """Return the causes by id, in the order of the file."""
    return {cause.id: cause for cause in _rows(Cause, "causes.toml", "cause")}


@cache
def rules(table: str = "rule") -> tuple[Rule, ...]:
    """Return the rules that are rows, or the rows "cap", which limit how sure a finding is."""
    return _rows(Rule, "rules.toml", table)


def areas() -> Mapping[str, Verdict]:
    """Return the failures outside the GPU's environment by id, in the order of the search."""
    return {
        row["id"]: Verdict(
            cause=row["id"], confidence="proved", evidence=(), fix=row["fix"], title=row["title"]
        )
        for row in _file("doctor", "causes.toml")["area"]
    }


def fact_rows() -> Row:
    """Return facts.toml, whose head describes it."""
    return _file("doctor", "facts.toml")


def tests() -> Mapping[str, Test]:
    """Return the tests by id, in the order in which they are proposed."""
    return {test.id: test for test in _rows(Test, "facts.toml", "test")}


def tests_for(failure: str) -> tuple[str, ...]:
    """Return the tests that are proposed for a failure without a cause: cudnn, or other."""
    return tuple(test.id for test in tests().values() if failure in test.proposed)


def advice_rows() -> tuple[Advice, ...]:
    """Return the rows [[advice]]; of those that apply to a finding, the first one counts."""
    return _rows(Advice, "releases.toml", "advice")


@cache
def messages() -> tuple[Message, ...]:
    """Return the messages, file by file."""
    terms: dict[str, str] = {}
    rows: list[Row] = []
    for name in sorted(os.listdir(os.path.join(data_folder(), "doctor", "messages"))):
        if name.endswith(".toml"):
            table = _file("doctor", "messages", name)
            terms |= table.get("terms", {})
            rows += table.get("message", [])
    found = []
    for row in rows:
        forms = row["pattern"]
        pattern = forms if isinstance(forms, str) else "|".join(forms)
        changed = {
            "needles": tuple(needle.encode() for needle in row["needles"]),
            "pattern": _TERM.sub(lambda term: terms[term[1]], pattern),
            # What a message says of a cause carries the name of the message.
            "facts": tuple((*fact, row["name"])[:3] for fact in row["facts"]),
        }
        found.append(Message(**{**row, **changed}))
    return tuple(found)


# ---- facts of a message -------------------------------------------------------------------------

_FIELD = re.compile(r"\{(\d)(?:\|(\w+))?\}")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "b": 1}


def fill(template: str, match: re.Match[str]) -> str:
    """Return the template of a fact with the groups of a match.

    "{1}" is the first group, and "{1|cudnn}" is the group in the form "cudnn". A group that does
    not have its form gives "".
    """

    def value(field: re.Match[str]) -> str:
        text = (match[int(field[1])] or "").strip()
        return _FORMS[field[2]](text) if text and field[2] else text

    return _FIELD.sub(value, template)


def _cudnn_version(text: str) -> str:
    """Return a cuDNN version with dots, or "" for any other text.

    Known forms (cudnn_version.h): "9.1.0", "(8, 3, 2)", and the number of cudnnGetVersion: "7605",
    "8907", "90100".
    """
    parts = [part for part in re.sub("[() ]", "", text).replace(",", ".").split(".") if part]
    if not parts or not all(re.fullmatch("[0-9]{1,6}", part) for part in parts):
        return ""
    if len(parts) > 1:
        return ".".join(str(int(part)) for part in parts[:3])
    number = int(parts[0])
    if number < 1000:
        return ""
    major = 10000 if number >= 90000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def _cuda_version(text: str) -> str:
    """Return the version of cudaDriverGetVersion's number: "12040" -> "12.4"; "" for other text."""
    if not (text.isascii() and text.isdigit()):
        return ""
    return f"{int(text) // 1000}.{int(text) % 1000 // 10}"


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


def cuda_of_driver(release: str) -> str:
    """Return the CUDA version that a driver supports: "470.199.02" -> "11.4"; "" if unknown."""
    major = version_tuple(release)[0]
    for row in _releases("driver"):
        if major < int(row["before"]):
            return str(row["cuda"])
    cuda = load().driver_cuda(f"{major}.0")
    return show_pair(cuda) if cuda else ""


def _architecture(text: str) -> str:
    """Return the first compute capability of an architecture: "Pascal" -> "6.0"."""
    rows = _releases("architecture")
    return str(next(row["capability"] for row in rows if row["name"].lower() == text.lower()))


_FORMS: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "cudnn": _cudnn_version,
    "cuda": _cuda_version,
    "driver": cuda_of_driver,
    "name": lambda text: text.rpartition("/")[2],
    "distribution": lambda text: text.lower().replace("_", "-"),
    "bytes": _bytes,
    "architecture": _architecture,
    "hexadecimal": lambda text: str(int(text, 16)),  # "c" -> "12"
    "capability": _capabilities,
    # A list of torch: "8.0;8.6+PTX" -> "8.0 8.6".
    "dotted": lambda text: " ".join(re.findall(r"\d{1,2}\.\d", text)),
}


# ---- releases and GPUs --------------------------------------------------------------------------


def broken_releases() -> Mapping[tuple[str, str], tuple[str, str]]:
    """Return the releases that use no GPU, although their packages have CUDA code.

    Returns:
        (distribution, version) -> (why it uses none, the release to use)
    """
    return {
        (name, row["versions"]): (row["text"], row["instead"])
        for row in _file("libraries.toml")["bad"]
        for name in row["distributions"]
        if row.get("with_gpu")
    }


def compilers() -> list[Compiler]:
    """Return the CUDA releases in order, with the compute capabilities they compile for."""
    limits = [(row["cuda"], row["first"], row["last"]) for row in _releases("compiler")]
    for row in _file("toolkits.toml")["compiler"]:
        # Without targets for one architecture alone, such as 90a.
        targets = [target for target in row["targets"] if target.isdigit()]
        limits.append((row["cuda"], _dotted(targets[0]), _dotted(targets[-1])))
    return sorted(
        (version_tuple(cuda), version_tuple(lowest), version_tuple(highest))
        for cuda, lowest, highest in limits
    )


def compiled_capabilities(cuda: tuple[int, ...]) -> tuple[Capability, Capability] | None:
    """Return the lowest and the highest capability that a CUDA release compiles for, or None.

    A major version alone stands for its last release.
    """
    newest = None
    for since, lowest, highest in compilers():
        if cuda >= since[: len(cuda)]:
            newest = lowest, highest
    return newest


def _dotted(target: str) -> str:
    """Return the compute capability of a target: "120" -> "12.0"."""
    return f"{target[:-1]}.{target[-1]}"


def newest_capability(framework: str, version: tuple[int, ...]) -> Capability | None:
    """Return the highest capability that the builds of a release have SASS for; None is unknown."""
    for row in _releases("newest"):
        if row["framework"] == framework and version < version_tuple(row["before"]):
            return version_tuple(row["capability"])
    return None


def linux_name(file_name: str) -> str:
    """Return the name on Linux of a DLL: "cudart64_110.dll" -> "libcudart.so.11.0".

    The name of any other file stays.
    """
    match = _DLL.fullmatch(file_name)
    if match is None:
        return file_name
    name, version = match.groups()
    return f"lib{name}.so.{_dotted(version) if int(version) > _NEWEST_MAJOR else version}"


def library_name(file_name: str) -> tuple[str, str]:
    """Return the name and the major version of a library: "libcufft.so.11" -> "libcufft", "11"."""
    name, _, version = linux_name(file_name).partition(".so.")
    return name, version.partition(".")[0]


def library_owner(file_name: str) -> Owner | None:
    """Return what a library of CUDA belongs to by its file name, or None: "libcufft.so.11"."""
    name, major = library_name(file_name)
    for row in _releases("owner"):
        if name in row["files"] and major in row["cuda"]:
            packages = {}
            for cuda in row["cuda"][major]:
                has_suffix = int(cuda) < _FIRST_WITHOUT_SUFFIX or row.get("suffix")
                packages[cuda] = row["package"] + (f"-cu{cuda}" if has_suffix else "")
            return Owner(packages=packages, last=row.get("last", ""))
    return None


def cuda_of_ptx(version: str) -> str:
    """Return the first CUDA release that writes a version of PTX, or "": "8.5" -> "12.5"."""
    rows = _file("toolkits.toml")["compiler"]
    return next((row["cuda"] for row in rows if row["ptx"] == version), "")


def toolkit_driver(cuda: str) -> str:
    """Return the driver that the first toolkit of a CUDA release brought; "" if unknown."""
    rows = _file("toolkits.toml")["toolkit"]
    return next((row["driver_linux"] for row in rows if row["version"].startswith(f"{cuda}.")), "")


def _shared_name(name: str) -> Row | None:
    rows = _releases("shared_name")
    return next((row for row in rows if gpu_key(row["name"]) == gpu_key(name)), None)


def gpus_of_shared_name(name: str) -> tuple[str, ...]:
    """Return the GPUs that share a name, or () for a name of one GPU."""
    row = _shared_name(name)
    return tuple(row["gpus"]) if row else ()


def highest_capability(name: str) -> tuple[int, int] | None:
    """Return the compute capability of a GPU; of GPUs that share a name, the highest.

    That of a GPU which gpus.toml does not list is the one of its series.
    """
    row = _shared_name(name)
    if row is None:
        known = load().compute_capability(name)
        if known is not None:
            return known
        plain = gpu_key(name)
        series = _releases("series")
        row = next((row for row in series if re.fullmatch(row["pattern"], plain)), None)
    return parse_pair(row["capability"]) if row else None
