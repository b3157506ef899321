"""The fields of model.Lock as lock files keep them, listed once in FIELDS.

Both formats write and read by this table. They differ in the form of pairs and of unknown values:
TOML has "13.2" and leaves unknown values out, the JSON of conda locks has [13, 2] and null.

To add a field: add it to model.Lock, to FIELDS and, if a plan has it, to `plan_fields`. Raise the
numbers of the formats that have it, and add a migration to each. A lock has the oldest number that
has its fields: an optional field that is left out raises nothing.

Every later release of gpuenv reads every format that an earlier one wrote. A change that an older
release could not read raises the number of the format by one and adds a migration: a function from
the document of the old number to the document of the next one. Documents of older numbers are
migrated step by step before they are read, so only the current one is read.

docs/lock-format.md specifies the fields; tests/data/locks holds a lock of every number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InputError, Reason
from ..model import (
    Choice,
    Code,
    Host,
    Lock,
    Needs,
    Plan,
    Value,
    WheelVariant,
    parse_pair,
    parse_release,
    show_pair,
)
from ..serialize import host_from_plain, to_plain

# The parsed document: the whole pylock.toml, or what gpuenv writes into a conda lock.
Document = dict[str, Any]
Migration = Callable[[Document], Document]
Pair = tuple[int, int]
ReadPair = Callable[[object, str], Pair]  # from (the value in the file, its place for messages)


class LockField(Value):
    """How one field of model.Lock stands in a lock file.

    `read` gets the value, its place for messages and the reader of pairs, and raises ValueError.
    """

    name: str
    read: Callable[[object, str, ReadPair], object]
    table: bool = False  # holds tables, which stand behind all texts and lists in TOML
    optional: bool = False  # not written where it is empty
    in_conda: bool = True  # False: only a pylock.toml has it
    since: int = 1  # the first number of PYLOCK that has it

    @property
    def key(self) -> str:
        """The name in the file."""
        return self.name.replace("_", "-")


class LockFormat(Value):
    """One format: its current number and {older number: migration to the next number}."""

    current: int
    migrations: Mapping[int, Migration]

    def refuse_newer(self, table: Mapping[str, object], where: str) -> None:
        """Raise InputError if a newer release of gpuenv wrote the lock.

        Args:
            table: What gpuenv wrote: its key `format`, and from format 2 on `oldest-reader`, the
                oldest release of gpuenv that reads it.
            where: The file and the key, for the message.
        """
        number = table.get("format")
        if type(number) is not int or number <= self.current:
            return
        release = table.get("oldest-reader")
        hint = "upgrade gpuenv: a newer release wrote this lock"
        if isinstance(release, str):
            hint = f"upgrade gpuenv to {release} or newer"
        raise InputError(f"{where} is {number}; this gpuenv reads {self.current}", hint=hint)

    def migrate(self, document: Document, number: object, where: str) -> Document:
        """Return the document, which is of format `number`, in the current format.

        Raises:
            ValueError: `number` is no number that any release wrote; `where` is its place.
        """
        # type() because True is equal to 1.
        if type(number) is not int or number not in (self.current, *self.migrations):
            raise ValueError(f"{where} is {number!r}; this gpuenv reads {self.current}")
        for older in range(number, self.current):
            document = self.migrations[older](document)
        return document


# ---- readers ------------------------------------------------------------------------------------


def toml_pair(value: object, where: str) -> Pair:
    """Read "13.2"."""
    if isinstance(value, str):
        try:
            return parse_pair(value)
        except ValueError:
            pass
    raise ValueError(f'{where} must be of the form "X.Y", not {value!r}')


def json_pair(value: object, where: str) -> Pair:
    """Read [13, 2]."""
    if isinstance(value, list) and len(value) == 2 and all(type(part) is int for part in value):
        return value[0], value[1]
    raise ValueError(f"{where} must be two numbers, not {value!r}")


def read_table(value: object, where: str) -> dict[str, object]:
    """Return a table. ValueError for anything else."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a table")
    return value


def _read_list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"{where} must be a list, not {value!r}")
    return value


def _read_texts(value: object, where: str, _: ReadPair) -> tuple[str, ...]:
    return tuple(map(str, _read_list(value, where)))


def _read_text(value: object, where: str, _: ReadPair) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where} must be a text, not {value!r}")
    return value


def _read_inputs(value: object, where: str, _: ReadPair) -> tuple[tuple[str, object], ...]:
    """Read the inputs; whoever compares them knows which keys there are."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a table, not {value!r}")
    inputs: list[tuple[str, object]] = []
    for key, item in value.items():
        inputs.append((key, tuple(item) if isinstance(item, list) else item))
    return tuple(inputs)


def _read_needs(value: object, where: str, read_pair: ReadPair) -> Needs:
    fields = _read_fields(Needs, value, where, read_pair)
    driver = fields.get("driver")
    if isinstance(driver, str):
        parse_release(driver)
    return Needs(**fields)


def _read_choices(value: object, where: str, read_pair: ReadPair) -> tuple[Choice, ...]:
    choices = []
    for item in _read_list(value, where):
        # TOML leaves these two out where they are unknown.
        unknown = {"cuda": None, "cudnn": None}
        choices.append(Choice(**{**unknown, **_read_fields(Choice, item, where, read_pair)}))
    return tuple(choices)


def _read_warnings(value: object, where: str, _: ReadPair) -> tuple[Reason, ...]:
    warnings = []
    for item in _read_list(value, where):
        fields: dict[str, str] = {}
        for name, text in read_table(item, where).items():
            if name not in Reason.__struct_fields__ or not isinstance(text, str):
                raise ValueError(f"{where}.{name} must not be {text!r}")
            fields[name] = text
        missing = {"code", "subject", "need", "have"} - set(fields)
        if missing:
            raise ValueError(f"{where}.{min(missing)} is missing")
        warnings.append(Reason(**fields))
    return tuple(warnings)


def _read_variants(value: object, where: str, _: ReadPair) -> tuple[WheelVariant, ...]:
    variants = []
    for item in _read_list(value, where):
        fields = read_table(item, where)
        unknown = sorted(set(fields) - set(WheelVariant.__struct_fields__))
        if unknown:
            raise ValueError(f"{where}.{unknown[0]} is not a field that this gpuenv knows")
        rows = []
        properties = read_table(fields.get("properties", {}), f"{where}.properties")
        for namespace, features in sorted(properties.items()):
            place = f"{where}.properties.{namespace}"
            for feature, values in sorted(read_table(features, place).items()):
                rows.append((namespace, feature, _strict_texts(values, f"{place}.{feature}")))
        name = _read_text(fields.get("name"), f"{where}.name", _)
        label = _read_text(fields.get("label"), f"{where}.label", _)
        code = None
        if "code" in fields:
            code = _read_code(read_table(fields["code"], f"{where}.code"), f"{where}.code")
        row = WheelVariant(name=name, label=label, properties=tuple(rows), code=code)
        variants.append(row)
    return tuple(variants)


def _read_code(table: Mapping[str, object], where: str) -> Code:
    """Read the device code of a wheel's libraries; what is unknown is left out."""
    fields: dict[str, Any] = {"sass": None, "evidence": "scanned"}
    for name, value in table.items():
        place = f"{where}.{name}"
        if name in ("sass", "ptx", "some"):
            fields[name] = _strict_texts(value, place)
        elif name == "source":
            fields[name] = _read_text(value, place, toml_pair)
        elif name == "made_by":
            fields[name] = toml_pair(value, place)
        else:
            raise ValueError(f"{place} is not a field that this gpuenv knows")
    return Code(**fields)


def _plain_variant(variant: WheelVariant) -> dict[str, object]:
    """Return a variant with its properties as variant.json has them."""
    properties: dict[str, dict[str, list[str]]] = {}
    for namespace, feature, values in variant.properties:
        properties.setdefault(namespace, {})[feature] = list(values)
    plain: dict[str, object] = {"name": variant.name, "label": variant.label}
    plain["properties"] = properties
    if variant.code is not None:
        plain["code"] = _plain_code(variant.code)
    return plain


def _plain_code(code: Code) -> dict[str, object]:
    plain: dict[str, object] = {}
    if code.sass is not None:
        plain["sass"] = list(code.sass)
    if code.ptx is not None:
        plain["ptx"] = list(code.ptx)
    if code.some:
        plain["some"] = list(code.some)
    if code.made_by is not None:
        plain["made_by"] = show_pair(code.made_by)
    plain["source"] = code.source
    return plain


_PAIRS = {"cuda", "glibc", "python"}
_LISTS_OF_TEXTS = {"sass", "ptx"}
_TEXTS = {
    "driver", "platform", "framework", "version", "variant", "cudnn", "evidence", "source",
}  # fmt: skip


def _read_fields(
    cls: type[Needs | Choice], value: object, where: str, read_pair: ReadPair
) -> dict[str, Any]:
    """Read the fields of Needs or Choice; ValueError names the field that does not fit."""
    fields: dict[str, Any] = {}
    for name, item in read_table(value, where).items():
        place = f"{where}.{name}"
        if name not in cls.__struct_fields__:
            raise ValueError(f"{place} is not a field that this gpuenv knows")
        if item is None:  # an unknown value in JSON
            fields[name] = None
        elif name in _PAIRS:
            fields[name] = read_pair(item, place)
        elif name == "compute_capabilities":
            fields[name] = tuple(read_pair(pair, place) for pair in _read_list(item, place))
        elif name in _LISTS_OF_TEXTS:
            fields[name] = _strict_texts(item, place)
        elif name in _TEXTS and isinstance(item, str):
            fields[name] = item
        else:
            raise ValueError(f"{place} must not be {item!r}")
    return fields


def _strict_texts(value: object, where: str) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ValueError(f"{where} must not be {value!r}")


def _read_host(value: object, where: str, read_pair: ReadPair) -> Host:
    """Read the host: its pairs become the lists that `host_from_plain` reads."""
    fields = _with_pair_lists(read_table(value, where), where, read_pair)
    if isinstance(fields.get("python"), dict):
        python = read_table(fields["python"], f"{where}.python")
        fields["python"] = _with_pair_lists(python, f"{where}.python", read_pair)
    gpus = fields.get("gpus")
    if isinstance(gpus, list):
        fields["gpus"] = [_gpu_fields(gpu, f"{where}.gpus", read_pair) for gpu in gpus]
    return host_from_plain(fields)


_HOST_PAIRS = ("glibc", "driver_cuda", "compute_capability", "version")


def _with_pair_lists(
    table: Mapping[str, object], where: str, read_pair: ReadPair
) -> dict[str, object]:
    fields = dict(table)
    for name in _HOST_PAIRS:
        if fields.get(name) is not None:
            fields[name] = list(read_pair(fields[name], f"{where}.{name}"))
    return fields


def _gpu_fields(gpu: object, where: str, read_pair: ReadPair) -> dict[str, object]:
    # TOML leaves out the compute capability of an unknown GPU.
    unknown = {"compute_capability": None}
    return {**unknown, **_with_pair_lists(read_table(gpu, where), where, read_pair)}


def _as_it_is(document: Document) -> Document:
    """Migrate a document that lacks only optional fields."""
    return document


def _without_allowed_sdists(document: Document) -> Document:
    """Migrate a document that may name the packages whose source distributions were allowed."""
    own = {key: value for key, value in document["tool"]["gpuenv"].items() if key != "allow-sdist"}
    return document | {"tool": document["tool"] | {"gpuenv": own}}


# ---- the table ----------------------------------------------------------------------------------

FIELDS = (
    LockField(name="frameworks", read=_read_texts),
    LockField(name="requirements", read=_read_texts),
    LockField(name="constraints", read=_read_texts, optional=True, in_conda=False),
    LockField(name="no_build", read=_read_texts, optional=True, in_conda=False, since=3),
    LockField(name="no_binary", read=_read_texts, optional=True, in_conda=False, since=3),
    LockField(name="data", read=_read_text),
    LockField(name="digest", read=_read_text, in_conda=False),
    # conda_formats keeps its two inputs under keys of their own.
    LockField(name="inputs", read=_read_inputs, table=True, optional=True, in_conda=False),
    LockField(name="needs", read=_read_needs, table=True),
    LockField(name="choices", read=_read_choices, table=True),
    LockField(name="warnings", read=_read_warnings, table=True, optional=True, in_conda=False),
    LockField(
        name="variants", read=_read_variants, table=True, optional=True, in_conda=False, since=2
    ),
    LockField(name="host", read=_read_host, table=True),
)

# `format` under [tool.gpuenv] of a pylock.toml.
PYLOCK = LockFormat(current=3, migrations={1: _as_it_is, 2: _without_allowed_sdists})
# The oldest release of gpuenv that reads each number but the first.
OLDEST_READERS = {2: "0.1.0", 3: "0.1.0"}
# `format` in the JSON document that a conda lock carries.
CONDA = LockFormat(current=1, migrations={})


def plan_fields(plan: Plan, fields: tuple[LockField, ...]) -> dict[str, Any]:
    """Return {name of the field of Lock: value} of the fields that are taken from a plan as is."""
    values: dict[str, Any] = {
        "needs": plan.needs,
        "choices": plan.choices,
        "frameworks": plan.request.frameworks,
        "requirements": plan.request.requirements,
        "constraints": plan.request.constraints,
        "no_build": plan.request.no_build,
        "no_binary": plan.request.no_binary,
        "data": plan.data,
        "digest": plan.digest,
        "variants": plan.variants,
    }
    names = {field.name for field in fields}
    return {name: value for name, value in values.items() if name in names}


def plain_fields(lock: Lock, fields: tuple[LockField, ...]) -> dict[str, object]:
    """Return {key: the field as JSON-able data}, in the order of `fields`."""
    table: dict[str, object] = {}
    for field in fields:
        value = getattr(lock, field.name)
        if field.name == "inputs":
            value = dict(value)
        if field.name == "variants":
            value = tuple(map(_plain_variant, value))
        if value or not field.optional:
            table[field.key] = to_plain(value)
    return table


def oldest_number(lock: Lock) -> int:
    """Return the oldest number of PYLOCK that has all fields of a lock."""
    return max(field.since for field in FIELDS if getattr(lock, field.name) or not field.optional)


def read_fields(
    table: Mapping[str, object], where: str, fields: tuple[LockField, ...], read_pair: ReadPair
) -> dict[str, Any]:
    """Return {name of the field of Lock: value}. ValueError names the field that does not fit."""
    values = {}
    for field in fields:
        if field.key in table or not field.optional:
            place = f"{where}{field.key}"
            values[field.name] = field.read(table.get(field.key), place, read_pair)
    return values
