"""The text and the JSON documents of `gpuenv matrix`: the compatibility data as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..compat.catalog import Entry, Release, Variant
from ..compat.user_rows import Update
from ..model import show_pair

Row = Sequence[str]


def columns(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table; each column is as wide as its widest cell.

    An empty cell is shown as "-".
    """
    widths = [0] * len(rows[0])
    for row in rows:
        for place, cell in enumerate(row):
            widths[place] = max(widths[place], len(cell or "-"))
    lines = []
    for row in rows:
        cells = [f"{cell or '-':<{width}}" for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


# ---- list ---------------------------------------------------------------------------------------


def entries_lines(entries: Sequence[Entry]) -> list[str]:
    """Return frameworks with the variants of their newest release, and then libraries.

    "-" means that the platform has none.
    """
    lines = columns(_entry_rows(entries, "framework"))
    return [*lines, "", *columns(_entry_rows(entries, "library"))]


def _entry_rows(entries: Sequence[Entry], kind: str) -> list[Row]:
    rows: list[Row] = [[kind, "newest", "releases", "variants"]]
    for entry in entries:
        if entry.kind != kind:
            continue
        version, variants = "", ""
        if entry.releases:
            version, variants = entry.releases[0].version, " ".join(_variants(entry.releases[0]))
        rows.append([entry.name, version, str(len(entry.releases)), variants])
    return rows


def _variants(release: Release) -> list[str]:
    return [variant.variant for variant in release.variants]


def entries_json(entries: Sequence[Entry], platform: str) -> dict[str, Any]:
    """Return the document of `matrix list --json`."""
    rows: dict[str, list[dict[str, object]]] = {"framework": [], "library": []}
    for entry in entries:
        newest: str | None = None
        variants: list[str] = []
        if entry.releases:
            newest, variants = entry.releases[0].version, _variants(entry.releases[0])
        row = {
            "name": entry.name,
            "distributions": list(entry.distributions),
            "releases": len(entry.releases),
            "newest": newest,
            "variants": variants,
            "on_path": entry.on_path,
        }
        rows[entry.kind].append(row)
    return {"platform": platform, "frameworks": rows["framework"], "libraries": rows["library"]}


# ---- show ---------------------------------------------------------------------------------------


def entry_lines(entry: Entry, platform: str) -> list[str]:
    """Return a line for each release, newest first, with the facts of its first variant."""
    title = f"{entry.name} on {platform}"
    if not entry.releases:
        return [title, "no release is known"]
    rows: list[Row] = [["release", "variants", "CUDA", "cuDNN", "SASS", "PTX", "evidence"]]
    for release in entry.releases:
        first = release.variants[0]
        variants = " ".join(dict.fromkeys(_variants(release)))
        facts = [first.cuda or "", first.cudnn or "", *_targets(first), first.code.evidence]
        rows.append([release.version, variants, *facts])
    return [title, *columns(rows)]


def entry_json(entry: Entry, platform: str) -> dict[str, Any]:
    """Return the document of `matrix show NAME --json`: the releases, newest first."""
    versions = []
    for release in entry.releases:
        variants = list(map(_variant_json, release.variants))
        versions.append({"version": release.version, "variants": variants})
    return {"name": entry.name, "platform": platform, "versions": versions}


def release_lines(name: str, release: Release, platform: str) -> list[str]:
    """Return a line for each variant, and then notes: partial targets, faults, the source."""
    header = ["variant", "wheel", "CUDA", "cuDNN", "SASS", "PTX", "Python", "evidence"]
    rows: list[Row] = [header]
    notes: list[str] = []
    sources: dict[str, list[str]] = {}  # the variants of each source
    for variant in release.variants:
        wheel = f"{variant.distribution} {variant.version}"
        versions = [variant.cuda or "", variant.cudnn or ""]
        python = variant.requires_python or ""
        targets = _targets(variant)
        rows.append([variant.variant, wheel, *versions, *targets, python, variant.code.evidence])
        notes += _notes(variant)
        sources.setdefault(variant.code.source, []).append(variant.variant)
    notes += [f"{', '.join(names)} source: {source}" for source, names in sources.items()]
    return [f"{name} {release.version} on {platform}", *columns(rows), *notes]


def _notes(variant: Variant) -> list[str]:
    name, code, notes = variant.variant, variant.code, []
    if code.some:
        targets = " ".join(code.some)
        notes.append(f"{name}: only some libraries or few fat binaries have {targets}")
    if variant.bad:
        severity, text, source = variant.bad
        notes.append(f"{name}: known bad ({severity}): {text} ({source})")
    return notes


def release_json(name: str, release: Release) -> dict[str, Any]:
    """Return the document of `matrix show NAME VERSION --json`.

    Targets without a suffix are numbers, others are texts.
    """
    variants = list(map(_variant_json, release.variants))
    return {"name": name, "version": release.version, "variants": variants}


def _targets(variant: Variant) -> tuple[str, str]:
    """Return SASS and PTX as the table shows them."""
    return _targets_text(variant.code.sass), _targets_text(variant.code.ptx)


def _targets_text(targets: Sequence[str] | None) -> str:
    if targets is None:
        return "unknown"
    return " ".join(targets) or "none"


def _variant_json(variant: Variant) -> dict[str, object]:
    code = variant.code
    made_by, known_bad = None, None
    if code.made_by:
        made_by = show_pair(code.made_by)
    if variant.bad:
        known_bad = dict(zip(("severity", "text", "source"), variant.bad, strict=True))
    return {
        "variant": variant.variant,
        "cuda": variant.cuda,
        "cudnn": variant.cudnn,
        "sass": _numbers(code.sass),
        "ptx": _numbers(code.ptx),
        "requires_python": variant.requires_python,
        "source": code.source,
        "distribution": variant.distribution,
        "version": variant.version,
        "platform": variant.platform,
        "index": variant.indexes[0],
        "indexes": list(variant.indexes),
        "evidence": code.evidence,
        "some": _numbers(code.some),
        "made_by": made_by,
        "known_bad": known_bad,
    }


def _numbers(targets: Sequence[str] | None) -> list[int | str] | None:
    if targets is None:
        return None
    return list(map(_number, targets))


def _number(target: str) -> int | str:
    if target.isdigit():
        return int(target)
    return target


# ---- update -------------------------------------------------------------------------------------


def update_lines(update: Update, *, verified: bool) -> list[str]:
    """Return the releases that were scanned, what could not be read, and where the rows are.

    Args:
        update: the result.
        verified: the rows of earlier updates were compared.
    """
    lines = [f"scanned {release}" for release in update.new]
    lines += [f"no longer so: {change}" for change in update.changed]
    lines += [f"not read: {error}" for error in update.errors]
    where = f"{update.rows} rows in {update.path}"
    if verified:
        verdict = "they differ from the files: delete the file and update again"
        if not update.changed:
            verdict = "all agree with the files"
        return [*lines, f"{where}: {verdict}"]
    if not update.new and not update.errors:
        return [f"the data knows every release on the index; {where}"]
    return [*lines, where]


def update_json(update: Update) -> dict[str, Any]:
    """Return the document of `matrix update --json`."""
    return {
        "path": update.path,
        "rows": update.rows,
        "new": list(update.new),
        "changed": list(update.changed),
        "errors": list(update.errors),
    }
