"""The compatibility data as tables: `gpuenv matrix`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..compat.audit import Audit
from ..compat.catalog import Entry, Release, Variant
from ..model import show_pair


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows of a table as lines, each column as wide as its widest cell; "-" for an empty one."""
    cells = [[cell or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in cells]


def entries_lines(entries: Sequence[Entry]) -> list[str]:
    """Frameworks with the variants of their newest release, then libraries; "-" where the platform has none."""
    lines: list[str] = []
    for kind in ("framework", "library"):
        rows = [[kind, "newest", "releases", "variants"]]
        for one in entries:
            if one.kind == kind:
                newest = one.releases[0] if one.releases else None
                names = " ".join(variant.variant for variant in newest.variants) if newest else ""
                rows.append([one.name, newest.version if newest else "", str(len(one.releases)), names])
        lines += [*([""] if lines else []), *columns(rows)]
    return lines


def entries_json(entries: Sequence[Entry], platform: str) -> dict[str, Any]:
    """The document of `matrix list --json`."""
    document: dict[str, Any] = {"platform": platform, "frameworks": [], "libraries": []}
    for one in entries:
        newest = one.releases[0] if one.releases else None
        row = {
            "name": one.name,
            "distributions": list(one.distributions),
            "releases": len(one.releases),
            "newest": newest.version if newest else None,
            "variants": [variant.variant for variant in newest.variants] if newest else [],
            "on_path": one.on_path,
        }
        document["frameworks" if one.kind == "framework" else "libraries"].append(row)
    return document


def entry_lines(entry: Entry, platform: str) -> list[str]:
    """A line a release, newest first; the facts are those of its first variant."""
    rows = [["release", "variants", "CUDA", "cuDNN", "SASS", "PTX", "evidence"]]
    for release in entry.releases:
        first = release.variants[0]
        names = " ".join(dict.fromkeys(one.variant for one in release.variants))
        facts = [first.cuda or "", first.cudnn or "", *_targets(first), first.code.evidence]
        rows.append([release.version, names, *facts])
    return [f"{entry.name} on {platform}", *(columns(rows) if entry.releases else ["no release is known"])]


def entry_json(entry: Entry, platform: str) -> dict[str, Any]:
    """The document of `matrix show NAME --json`: its releases, newest first, each as `release_json` has them."""
    versions = [{"version": one.version, "variants": [*map(_variant_json, one.variants)]} for one in entry.releases]
    return {"name": entry.name, "platform": platform, "versions": versions}


def release_lines(name: str, release: Release, platform: str) -> list[str]:
    """A line a variant, then what is to be said of each: targets in few places, faults, the source."""
    rows = [["variant", "wheel", "CUDA", "cuDNN", "SASS", "PTX", "Python", "evidence"]]
    notes = []
    for one in release.variants:
        wheel = f"{one.distribution} {one.version}"
        python = one.requires_python or ""
        rows.append([one.variant, wheel, one.cuda or "", one.cudnn or "", *_targets(one), python, one.code.evidence])
        if one.code.some:
            notes.append(f"{one.variant} has in some libraries or few fat binaries only: {' '.join(one.code.some)}")
        if one.bad:
            severity, text, source = one.bad
            notes.append(f"{one.variant} is known to be bad ({severity}): {text} ({source})")
        notes.append(f"{one.variant} source: {one.code.source}")
    return [f"{name} {release.version} on {platform}", *columns(rows), *notes]


def release_json(name: str, release: Release) -> dict[str, Any]:
    """The document of `matrix show NAME VERSION --json`: targets without a suffix are numbers, others texts."""
    return {"name": name, "version": release.version, "variants": [*map(_variant_json, release.variants)]}


def _targets(variant: Variant) -> tuple[str, str]:
    """SASS and PTX as a table shows them: "none" is known to be empty."""
    lists = (variant.code.sass, variant.code.ptx)
    sass, ptx = ("unknown" if one is None else " ".join(one) or "none" for one in lists)
    return sass, ptx


def _variant_json(variant: Variant) -> dict[str, Any]:
    code, bad = variant.code, variant.bad
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
        "made_by": show_pair(code.made_by) if code.made_by else None,
        "known_bad": {"severity": bad[0], "text": bad[1], "source": bad[2]} if bad else None,
    }


def _numbers(targets: Sequence[str] | None) -> list[int | str] | None:
    return None if targets is None else [int(one) if one.isdigit() else one for one in targets]


def audit_ok(audit: Audit) -> bool:
    """True if no facts contradict one another and every row has a source. What is not known is no contradiction."""
    return not audit.contradictions and not audit.unsourced


def audit_lines(audit: Audit, most: int = 20) -> list[str]:
    """How much is known, then what is wrong, at most `most` of each kind."""
    lines = ["rows of device code: " + ", ".join(f"{count} {kind}" for kind, count in audit.counts)]
    if audit.records:
        total = sum(count for _, count in audit.records)
        lines.append(f"wheels scanned: {total} of {len(audit.records)} distributions")
        lines += [f"  {name} {count}" for name, count in audit.records]
    if audit.unlisted:
        lines.append(f"not in the index snapshot, so that nothing can be missed: {', '.join(audit.unlisted)}")
    kinds = (
        ("in scope and not scanned", audit.unscanned),
        ("carried by a build and not by its cuDNN", audit.narrowed),
        ("rows without a source", audit.unsourced),
        ("contradictions", audit.contradictions),
    )
    for title, found in kinds:
        lines.append(f"{title}: {len(found)}")
        lines += [f"  {one}" for one in found[:most]]
        if len(found) > most:
            lines.append(f"  and {len(found) - most} more (--json names all)")
    lines.append("the data agrees with itself" if audit_ok(audit) else "the data is NOT right")
    return lines


def audit_json(audit: Audit) -> dict[str, Any]:
    """The document of `matrix check --json`."""
    return {
        "ok": audit_ok(audit),
        "counts": dict(audit.counts),
        "records": dict(audit.records),
        "unscanned": list(audit.unscanned),
        "unlisted": list(audit.unlisted),
        "narrowed": list(audit.narrowed),
        "unsourced": list(audit.unsourced),
        "contradictions": list(audit.contradictions),
    }
