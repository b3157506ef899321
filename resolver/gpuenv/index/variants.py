"""Variant wheels (PEP 825): the metadata of their variants, and the markers about them.

Two files have the same content for different scopes: `*.dist-info/variant.json` in a variant wheel
describes its one variant, and `NAME-VERSION-variants.json` beside the wheels describes all variants
of a release. PEP 850 (a draft) adds `providers`: how an installer learns which properties suit a
host.

This module parses the content; the indexes find the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping

from ..model import Value, WheelVariant

NULL_LABEL = "null"
INDEX_FILE_SUFFIX = "-variants.json"
WHEEL_FILE = "variant.json"  # in *.dist-info

# Drafts have the major number 0, and PEP 825 promises 1.0.0 for its final text.
_READABLE_MAJORS = ("0", "1")
_SCHEMA_VERSION = re.compile(r"/v(\d+)\.\d+\.\d+\.json")
_NAME = re.compile(r"[a-z0-9_]+")
_VALUE = re.compile(r"[a-z0-9_.]+")
_LABEL = re.compile(r"[0-9a-z_.]+")
_KEYS = frozenset(("$schema", "default-priorities", "variants", "providers"))
_SCHEMAS_WITH_PROVIDERS = "/peps/850/"
_PROVIDER_KEYS = frozenset(
    ("builtin", "feature-order", "optional", "plugin-api", "requires", "static-properties")
)

Features = tuple[tuple[str, tuple[str, ...]], ...]  # (feature, values), best first


class ReleaseVariants(Value):
    """The variants of a release.

    Attributes:
        namespaces: the namespaces of the properties, the most important one first.
        variants: the variants, by label.
        static: (namespace, features) of the namespaces whose compatible values the metadata lists.
    """

    namespaces: tuple[str, ...] = ()
    variants: tuple[WheelVariant, ...] = ()
    static: tuple[tuple[str, Features], ...] = ()

    def find(self, label: str) -> WheelVariant | None:
        """Return the variant with a label; None if the metadata does not have it."""
        for variant in self.variants:
            if variant.label == label:
                return variant
        return None


def index_file_name(wheel_filename: str) -> str:
    """Return the name of the file that describes the variants of a wheel's release."""
    name, version = wheel_filename.split("-")[:2]
    return f"{name}-{version}{INDEX_FILE_SUFFIX}"


# ---- metadata ------------------------------------------------------------------------------------


def parse(content: bytes, name: str) -> ReleaseVariants:
    """Parse the variant metadata of a wheel or of a release.

    Args:
        content: the file.
        name: the distribution.

    Raises:
        ValueError: the content does not follow PEP 825; the text says where.
    """
    try:
        document = json.loads(content)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError("it is not JSON") from None
    table = _table(document, "it")
    schema = _checked_schema(table.get("$schema"))
    _check_keys(table, _KEYS, "it")
    priorities = _table(table.get("default-priorities"), "default-priorities")
    namespaces = _names(priorities.get("namespace"), "default-priorities.namespace", _NAME)
    # Another key would change the order in a way that is not known.
    _check_keys(priorities, frozenset(("namespace",)), "default-priorities")
    variants = []
    for label, properties in sorted(_table(table.get("variants"), "variants").items()):
        variants.append(_variant(name, label, properties, namespaces))
    providers = _table(table.get("providers", {}), "providers")
    must_have_providers = "providers" in table or _SCHEMAS_WITH_PROVIDERS in schema
    if must_have_providers and providers.keys() != set(namespaces):
        raise ValueError("providers must have the namespaces of default-priorities.namespace")
    return ReleaseVariants(
        namespaces=namespaces,
        variants=tuple(variants),
        static=_static(providers),
    )


def combine(parts: Iterable[ReleaseVariants]) -> ReleaseVariants:
    """Combine the metadata of several wheels of a release.

    Raises:
        ValueError: two of them contradict each other.
    """
    namespaces: tuple[str, ...] = ()
    variants: dict[str, WheelVariant] = {}
    static: dict[str, Features] = {}
    for part in parts:
        shorter, longer = sorted((namespaces, part.namespaces), key=len)
        if longer[: len(shorter)] != shorter:
            raise ValueError("its wheels order the namespaces differently")
        namespaces = longer
        for variant in part.variants:
            if variants.setdefault(variant.label, variant) != variant:
                raise ValueError(f"its wheels define the variant {variant.label} differently")
        static.update(part.static)
    return ReleaseVariants(
        namespaces=namespaces,
        variants=tuple(variants[label] for label in sorted(variants)),
        static=tuple(sorted(static.items())),
    )


def _checked_schema(schema: object) -> str:
    """Return the URL of the JSON schema, which ends in the version of the format."""
    text = schema if isinstance(schema, str) else ""
    match = _SCHEMA_VERSION.search(text)
    if match is None:
        raise ValueError("its $schema names no version of the format")
    if match[1] not in _READABLE_MAJORS:
        raise ValueError(f"its format has the major version {match[1]}, which is not known")
    return text


def _check_keys(table: Mapping[str, object], known: frozenset[str], where: str) -> None:
    unknown = sorted(table.keys() - known)
    if unknown:
        raise ValueError(f"{where} must not have the key {unknown[0]}")


def _variant(
    name: str, label: str, properties: object, namespaces: tuple[str, ...]
) -> WheelVariant:
    where = f"variants.{label}"
    if not _LABEL.fullmatch(label):
        raise ValueError(f"{where} is no variant label")
    rows = []
    for namespace, listed in sorted(_table(properties, where).items()):
        features = _table(listed, f"{where}.{namespace}")
        if features and namespace not in namespaces:
            raise ValueError(f"{where}.{namespace} is not in default-priorities.namespace")
        for feature, values in sorted(features.items()):
            place = f"{where}.{namespace}.{feature}"
            if not _NAME.fullmatch(feature):
                raise ValueError(f"{place} is no name of a feature")
            rows.append((namespace, feature, _names(values, place, _VALUE)))
    if label == NULL_LABEL and rows:
        raise ValueError(f"{where} has properties, and the null variant has none")
    return WheelVariant(name=name, label=label, properties=tuple(rows))


def _static(providers: Mapping[str, object]) -> tuple[tuple[str, Features], ...]:
    """Return the values that providers list in the metadata itself.

    An optional provider counts only if the user enables it, which gpuenv has no option for.
    """
    static = []
    for namespace, provider in sorted(providers.items()):
        where = f"providers.{namespace}"
        table = _table(provider, where)
        _check_keys(table, _PROVIDER_KEYS, where)
        if table.get("static-properties") is None or table.get("optional") is True:
            continue
        listed = _table(table["static-properties"], f"{where}.static-properties")
        features = tuple(
            (feature, _names(listed[feature], f"{where}.{feature}", _VALUE))
            for feature in _feature_order(table, listed, where)
        )
        static.append((namespace, features))
    return tuple(static)


def _feature_order(
    provider: Mapping[str, object], listed: Mapping[str, object], where: str
) -> tuple[str, ...]:
    """Return the features that a provider lists, the one that counts most first."""
    order = provider.get("feature-order")
    if order is None and len(listed) < 2:
        return tuple(listed)
    features = _names(order, f"{where}.feature-order", _NAME)
    if set(features) != listed.keys():
        raise ValueError(f"{where}.feature-order must have the features of static-properties")
    return features


def _table(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object")
    return value


def _names(value: object, where: str, pattern: re.Pattern[str]) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{where} must be a list that is not empty")
    for item in value:
        if not isinstance(item, str) or not pattern.fullmatch(item):
            raise ValueError(f"{where} must not have {item!r}")
    if len(set(value)) < len(value):
        raise ValueError(f"{where} must not have a value twice")
    return tuple(value)


# ---- markers -------------------------------------------------------------------------------------

_VARIABLE = r"variant_(?:label|properties|features|namespaces)"
_TEXT = r"""(?:"[^"]*"|'[^']*')"""
_OPERATOR = r"(?:===|==|!=|~=|<=|>=|<|>|not\s+in|in)"
_CLAUSE = re.compile(
    rf"(?:(?P<variable>{_VARIABLE})\s*(?P<operator>{_OPERATOR})\s*(?P<text>{_TEXT})"
    rf"|(?P<text2>{_TEXT})\s*(?P<operator2>{_OPERATOR})\s*(?P<variable2>{_VARIABLE}))"
)
# packaging knows no variant variables: clauses about them are replaced by one of these.
ALWAYS, NEVER = 'python_version >= "0"', 'python_version < "0"'


def names_variant(marker: str) -> bool:
    """Return whether a marker has a clause about the variant of its wheel."""
    return "variant_" in marker and _CLAUSE.search(marker) is not None


def split_variant_marker(requirement: str) -> tuple[str, str | None]:
    """Split a marker about the variant of its wheel off a requirement.

    Returns:
        The requirement with clauses that packaging can read, and the marker as it stands. The
        requirement itself and None if its marker says nothing about the variant.
    """
    if "variant_" not in requirement:
        return requirement, None
    head, semicolon, marker = requirement.rpartition(";")
    if not semicolon or not names_variant(marker):
        return requirement, None
    return f"{head};{replace_clauses(marker, lambda _: True)}", marker.strip()


class Clause(Value):
    """A comparison of a marker with one of the four variables of PEP 825.

    Attributes:
        variable: the name of the variable.
        operator: the operator, with single spaces.
        text: what the variable is compared with.
        text_first: whether the text is left of the operator, as in `"a" in variant_label`.
    """

    variable: str
    operator: str
    text: str
    text_first: bool = False


def replace_clauses(marker: str, decide: Callable[[Clause], bool]) -> str:
    """Replace the clauses about the variant by clauses that always or never hold.

    Args:
        marker: a PEP 508 marker.
        decide: whether a clause holds.
    """

    def replacement(match: re.Match[str]) -> str:
        clause = Clause(
            variable=match["variable"] or match["variable2"],
            operator=" ".join((match["operator"] or match["operator2"]).split()),
            text=(match["text"] or match["text2"])[1:-1],
            text_first=match["text2"] is not None,
        )
        return ALWAYS if decide(clause) else NEVER

    return _CLAUSE.sub(replacement, marker)


def clause_holds(clause: Clause, label: str, properties: Iterable[tuple[str, str, str]]) -> bool:
    """Return whether a clause of a marker holds for a wheel.

    Args:
        clause: the clause.
        label: the label of the wheel; "" for a wheel that is no variant.
        properties: the properties of the wheel that suit the host.

    Raises:
        ValueError: the operator is not allowed for the variable.
    """
    if clause.variable == "variant_label":
        return _label_clause_holds(clause, label)
    if clause.operator not in ("in", "not in") or not clause.text_first:
        raise ValueError(f'{clause.variable} must be compared as "..." in {clause.variable}')
    length = {"variant_namespaces": 1, "variant_features": 2, "variant_properties": 3}
    items = {" :: ".join(row[: length[clause.variable]]) for row in properties}
    wanted = " :: ".join(part.strip() for part in clause.text.split("::"))
    return (wanted in items) == (clause.operator == "in")


def _label_clause_holds(clause: Clause, label: str) -> bool:
    """Return whether a clause about the label holds; `in` tests for a substring."""
    if clause.operator in ("==", "!="):
        return (clause.text == label) == (clause.operator == "==")
    if clause.operator not in ("in", "not in"):
        raise ValueError(f"variant_label has no operator {clause.operator}")
    part, whole = (clause.text, label) if clause.text_first else (label, clause.text)
    return (part in whole) == (clause.operator == "in")
