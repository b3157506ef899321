"""What gpuenv writes into a lock: the types of its fields, its formats and their migrations.

Both formats hold the same values. They differ in the form of pairs and of unknown values: TOML has
"13.2" and leaves unknown values out, the JSON of conda locks has [13, 2] and null.

To add a field: add it to model.Lock and to PylockTable. Raise the numbers of the formats that have
it, and add a migration to each. A lock has the oldest number that has its fields: an optional field
that is left out raises nothing.

Every later release of gpuenv reads every format that an earlier one wrote. A change that an older
release could not read raises the number of the format by one and adds a migration: a function from
gpuenv's part of the document of the old number to that of the next one. Documents of older numbers
are migrated step by step before they are read, so only the current one is read.

docs/lock-format.md specifies the fields; tests/data/locks holds a lock of every number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InputError, Reason
from ..model import (
    Choice,
    Code,
    CudaVersion,
    Host,
    Lock,
    Needs,
    Value,
    WheelVariant,
    parse_pair,
    parse_release,
)
from ..serialize import from_plain, to_plain

# The parsed document: the whole pylock.toml, or what gpuenv writes into a conda lock.
Document = dict[str, Any]
Migration = Callable[[Document], Document]


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

    def migrate(self, document: Document, where: str) -> Document:
        """Return a document in the current format.

        Raises:
            ValueError: its `format` is no number that any release wrote; `where` is its place.
        """
        number = document.get("format")
        # type() because True is equal to 1.
        if type(number) is not int or number not in (self.current, *self.migrations):
            raise ValueError(f"{where} is {number!r}; this gpuenv reads {self.current}")
        for older in range(number, self.current):
            document = self.migrations[older](document)
        return document


def _without_allowed_sdists(table: Document) -> Document:
    """Migrate a table that may name the packages whose source distributions were allowed."""
    return {key: value for key, value in table.items() if key != "allow-sdist"}


# `format` under [tool.gpuenv] of a pylock.toml. Format 2 has only optional fields more than 1.
PYLOCK = LockFormat(current=3, migrations={1: dict, 2: _without_allowed_sdists})
# The oldest release of gpuenv that reads each number but the first.
OLDEST_READERS = {2: "0.1.0", 3: "0.1.0"}
# `format` in the JSON document that a conda lock carries.
CONDA = LockFormat(current=1, migrations={})


# ---- conda --------------------------------------------------------------------------------------


class CondaTable(Value):
    """The fields of model.Lock that stand in the JSON document of a conda lock."""

    frameworks: tuple[str, ...]
    requirements: tuple[str, ...]
    data: str
    needs: Needs
    choices: tuple[Choice, ...]
    host: Host


# ---- pylock.toml --------------------------------------------------------------------------------


class _VariantCode(Value):
    """The device code of the libraries of a variant wheel; what is unknown is left out."""

    sass: tuple[str, ...] | None = None
    ptx: tuple[str, ...] | None = None
    some: tuple[str, ...] = ()
    made_by: CudaVersion | None = None
    source: str


class _Variant(Value):
    """A WheelVariant with its properties as variant.json has them."""

    name: str
    label: str
    properties: dict[str, dict[str, tuple[str, ...]]]
    code: _VariantCode | None = None


class PylockTable(Value, rename="kebab"):
    """[tool.gpuenv] of a pylock.toml. TOML puts tables after all texts and lists."""

    format: int
    oldest_reader: str | None = None
    frameworks: tuple[str, ...]
    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    no_build: tuple[str, ...] = ()
    no_binary: tuple[str, ...] = ()
    data: str
    digest: str
    content: str | None = None  # locks of the first releases have none
    inputs: dict[str, Any] | None = None
    needs: Needs
    choices: tuple[Choice, ...]
    warnings: tuple[Reason, ...] = ()
    variants: tuple[_Variant, ...] = ()
    host: Host


# The fields of model.Lock that both have in the same form.
_SAME = (
    "frameworks", "requirements", "constraints", "overrides", "no_build", "no_binary", "data",
    "digest", "needs", "choices", "warnings", "host",
)  # fmt: skip


def write_table(lock: Lock) -> Document:
    """Return [tool.gpuenv] of a lock, with an empty digest of its content."""
    number = 1
    if lock.variants:
        number = 2
    if lock.no_build or lock.no_binary or lock.overrides:
        number = 3
    table = PylockTable(
        format=number,
        oldest_reader=OLDEST_READERS.get(number),
        content="",
        inputs=dict(lock.inputs) or None,
        variants=tuple(map(_plain_variant, lock.variants)),
        **{name: getattr(lock, name) for name in _SAME},
    )
    document: Document = _toml_form(to_plain(table))
    return document


def _plain_variant(variant: WheelVariant) -> _Variant:
    code = None
    if variant.code is not None:
        names = _VariantCode.__struct_fields__
        code = _VariantCode(**{name: getattr(variant.code, name) for name in names})
    return _Variant(name=variant.name, label=variant.label, properties=variant.features, code=code)


def _toml_form(value: object) -> Any:
    """Leave out nulls, which TOML does not have, and write pairs as people do: "13.2"."""
    if isinstance(value, dict):
        return {key: _toml_form(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        if len(value) == 2 and all(type(item) is int for item in value):
            return f"{value[0]}.{value[1]}"
        return [_toml_form(item) for item in value]
    return value


# The keys of pairs below each key of [tool.gpuenv].
_PAIRS = {
    "needs": {"cuda", "glibc", "python", "compute_capabilities"},
    "choices": {"cuda"},
    "variants": {"made_by"},
    "host": {"glibc", "driver_cuda", "version", "compute_capability"},
}
# What the tables in a list have where TOML leaves it out.
_UNKNOWN = {"choices": {"cuda": None, "cudnn": None}, "gpus": {"compute_capability": None}}


def read_table(document: Document) -> dict[str, Any]:
    """Return {field of model.Lock: value} of [tool.gpuenv] in any format.

    Raises:
        ValueError: names the field that does not fit.
    """
    where = "tool.gpuenv"
    migrated = PYLOCK.migrate(document, f"{where}.format")
    plain = {
        key: _json_form(value, _PAIRS.get(key, set()), f"{where}.{key}")
        for key, value in migrated.items()
    }
    table = from_plain(plain, PylockTable, where)
    for driver in (table.needs.driver, table.host.driver):
        if driver is not None:
            parse_release(driver)
    inputs = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in (table.inputs or {}).items()
    }
    return {
        **{name: getattr(table, name) for name in _SAME},
        "inputs": tuple(inputs.items()),
        "variants": tuple(map(_wheel_variant, table.variants)),
    }


def _json_form(value: object, pairs: set[str], place: str, *, is_pair: bool = False) -> Any:
    """Undo `_toml_form`. ValueError for a pair of another form."""
    if isinstance(value, list):
        return [_json_form(item, pairs, place, is_pair=is_pair) for item in value]
    if is_pair:
        try:
            return list(parse_pair(value))  # type: ignore[arg-type]
        except (ValueError, AttributeError):
            problem = f'{place} must be of the form "X.Y", not {value!r}'
            raise ValueError(problem) from None
    if not isinstance(value, dict):
        return value
    form: Document = dict(_UNKNOWN.get(place.rpartition(".")[2], {}))
    for key, item in value.items():
        form[key] = _json_form(item, pairs, f"{place}.{key}", is_pair=key in pairs)
    return form


def _wheel_variant(variant: _Variant) -> WheelVariant:
    properties = [
        (namespace, feature, values)
        for namespace, features in sorted(variant.properties.items())
        for feature, values in sorted(features.items())
    ]
    code = None
    if variant.code is not None:
        names = variant.code.__struct_fields__
        code = Code(evidence="scanned", **{name: getattr(variant.code, name) for name in names})
    return WheelVariant(
        name=variant.name, label=variant.label, properties=tuple(properties), code=code
    )
