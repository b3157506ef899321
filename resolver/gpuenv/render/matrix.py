"""The text and the JSON documents of `gpuenv matrix`: the compatibility data, and device code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..binaries.served import JudgedFile, Scan
from ..compat.catalog import Entry, Release, Variant
from ..compat.user_rows import Update
from ..model import Host, show_pair
from .text import table_lines

# ---- list ---------------------------------------------------------------------------------------


def entries_lines(entries: Sequence[Entry]) -> list[str]:
    """Return frameworks with the variants of their newest release, and then libraries.

    "-" means that the platform has none.
    """
    tables = []
    for kind in ("framework", "library"):
        rows = [[kind, "newest", "releases", "variants"]]
        for entry in entries:
            if entry.kind == kind:
                newest, variants = _newest(entry)
                count = str(len(entry.releases))
                rows.append([entry.name, newest or "", count, " ".join(variants)])
        tables.append(table_lines(rows, ""))
    return [*tables[0], "", *tables[1]]


def _newest(entry: Entry) -> tuple[str | None, list[str]]:
    """Return the newest version and its variants; (None, []) without a release."""
    for release in entry.releases:
        return release.version, [variant.variant for variant in release.variants]
    return None, []


def entries_json(entries: Sequence[Entry], platform: str) -> dict[str, Any]:
    """Return the document of `matrix list --json`."""
    rows: dict[str, list[dict[str, object]]] = {"framework": [], "library": []}
    for entry in entries:
        newest, variants = _newest(entry)
        rows[entry.kind].append(
            {
                "name": entry.name,
                "distributions": entry.distributions,
                "releases": len(entry.releases),
                "newest": newest,
                "variants": variants,
                "on_path": entry.on_path,
            }
        )
    return {"platform": platform, "frameworks": rows["framework"], "libraries": rows["library"]}


# ---- show ---------------------------------------------------------------------------------------


def entry_lines(entry: Entry, platform: str) -> list[str]:
    """Return a line for each release, newest first, with the facts of its first variant."""
    title = f"{entry.name} on {platform}"
    if not entry.releases:
        return [title, "no release is known"]
    rows = [["release", "variants", "CUDA", "cuDNN", "SASS", "PTX", "evidence"]]
    for release in entry.releases:
        first = release.variants[0]
        variants = " ".join(dict.fromkeys(variant.variant for variant in release.variants))
        rows.append([release.version, variants, *_code_cells(first), first.code.evidence])
    return [title, *table_lines(rows, "")]


def _code_cells(variant: Variant) -> list[str]:
    """Return CUDA, cuDNN, SASS and PTX as the tables show them."""
    targets = [
        "unknown" if names is None else " ".join(names) or "none"
        for names in (variant.code.sass, variant.code.ptx)
    ]
    return [variant.cuda or "", variant.cudnn or "", *targets]


def entry_json(entry: Entry, platform: str) -> dict[str, Any]:
    """Return the document of `matrix show NAME --json`: the releases, newest first."""
    versions = [
        {"version": release.version, "variants": list(map(_variant_json, release.variants))}
        for release in entry.releases
    ]
    return {"name": entry.name, "platform": platform, "versions": versions}


def release_lines(name: str, release: Release, platform: str) -> list[str]:
    """Return a line for each variant, and then notes: partial targets, faults, the source."""
    rows = [["variant", "wheel", "CUDA", "cuDNN", "SASS", "PTX", "Python", "evidence"]]
    notes: list[str] = []
    sources: dict[str, list[str]] = {}  # the variants of each source
    for variant in release.variants:
        label, code = variant.variant, variant.code
        wheel, python = f"{variant.distribution} {variant.version}", variant.requires_python
        rows.append([label, wheel, *_code_cells(variant), python or "", code.evidence])
        if code.some:
            targets = " ".join(code.some)
            notes.append(f"{label}: only some libraries or few fat binaries have {targets}")
        if variant.bad:
            severity, text, source = variant.bad
            notes.append(f"{label}: known bad ({severity}): {text} ({source})")
        sources.setdefault(code.source, []).append(label)
    notes += [f"{', '.join(labels)} source: {source}" for source, labels in sources.items()]
    return [f"{name} {release.version} on {platform}", *table_lines(rows, ""), *notes]


def release_json(name: str, release: Release) -> dict[str, Any]:
    """Return the document of `matrix show NAME VERSION --json`.

    Targets without a suffix are numbers, others are texts.
    """
    variants = list(map(_variant_json, release.variants))
    return {"name": name, "version": release.version, "variants": variants}


def _variant_json(variant: Variant) -> dict[str, object]:
    def numbers(targets: Sequence[str] | None) -> list[int | str] | None:
        if targets is None:
            return None
        return [int(target) if target.isdigit() else target for target in targets]

    code = variant.code
    fields = ("variant", "cuda", "cudnn", "requires_python", "distribution", "version", "platform")
    return {
        **{field: getattr(variant, field) for field in fields},
        **{field: numbers(getattr(code, field)) for field in ("sass", "ptx", "some")},
        "source": code.source,
        "index": variant.indexes[0],
        "indexes": variant.indexes,
        "evidence": code.evidence,
        "made_by": show_pair(code.made_by) if code.made_by else None,
        "known_bad": dict(zip(("severity", "text", "source"), variant.bad, strict=True))
        if variant.bad
        else None,
    }


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


# ---- scan ---------------------------------------------------------------------------------------


def scan_lines(scan: Scan, host: Host) -> list[str]:
    """Return a line for each file, and then what cannot run and what to do.

    Without a GPU on the host nothing is marked.
    """
    if not scan.files:
        return [f"{scan.path}: no device code in {scan.read} files"]
    named = [f"{gpu.name} ({show_pair(gpu.compute_capability)})" for gpu in host.gpus]
    gpus = ", ".join(dict.fromkeys(named))
    rows = [["file", "distribution", "SASS", "PTX", *([f"on {gpus}"] if gpus else [])]]
    notes = []
    for judged in scan.files:
        path = judged.file.path
        if os.path.isdir(scan.path):
            path = os.path.relpath(path, scan.path)
        sass = ptx = "unknown"
        if not judged.file.fault:
            sass = " ".join(judged.code.sass or ()) or "none"
            ptx = " ".join(judged.code.ptx or ()) or "none"
            if judged.code.ptx and judged.code.made_by:
                ptx += f" (CUDA {show_pair(judged.code.made_by)})"
        rows.append([path, judged.file.owner, sass, ptx, *([_verdict(judged)] if gpus else [])])
        if judged.fails:
            notes.append(f"{path} cannot run: {judged.hint}")
    if not gpus:
        notes.append("no GPU is visible: --gpu names the one to compare with")
    elif not notes:
        notes.append(f"nothing that must run lacks code for {gpus}")
    title = f"{scan.path}: {len(scan.files)} of {scan.read} files have device code"
    return [title, *table_lines(rows, ""), *notes]


def _verdict(judged: JudgedFile) -> str:
    if judged.file.fault:
        return f"damaged: {judged.file.fault}"
    if not judged.reasons:
        return "runs"
    if judged.fails:
        return "cannot run"
    return f"no code ({judged.optional})" if judged.optional else "unknown"


def scan_json(scan: Scan, host: Host) -> dict[str, Any]:
    """Return the document of `matrix scan --json`."""
    return {
        "path": scan.path,
        "kind": scan.kind,
        "read": scan.read,
        "gpus": [
            {"name": gpu.name, "compute_capability": show_pair(gpu.compute_capability)}
            for gpu in host.gpus
        ],
        "files": [
            {
                "file": judged.file.path,
                "distribution": judged.file.owner or None,
                "sass": judged.code.sass or (),
                "ptx": judged.code.ptx or (),
                "made_by": show_pair(judged.code.made_by) if judged.code.made_by else None,
                "fat_binaries": judged.file.images.binaries,
                "runs": not judged.reasons if host.gpus and not judged.file.fault else None,
                "fails": judged.fails,
                "optional": judged.optional or None,
                "reasons": [
                    {"code": reason.code, "need": reason.need, "have": reason.have}
                    for reason in judged.reasons
                ],
                "fault": judged.file.fault or None,
                "hint": judged.hint or None,
            }
            for judged in scan.files
        ],
    }
