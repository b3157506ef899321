"""The text and the JSON document of `gpuenv matrix scan`: files with device code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..binaries.served import JudgedFile, Scan
from ..model import Gpu, Host, show_pair
from .matrix import Row, columns


def scan_lines(scan: Scan, host: Host) -> list[str]:
    """Return a line for each file, and then what cannot run and what to do.

    Without a GPU on the host nothing is marked.
    """
    gpus = _gpus_text(host)
    if not scan.files:
        return [f"{scan.path}: no device code in {scan.read} files"]
    title = f"{scan.path}: {len(scan.files)} of {scan.read} files have device code"
    header = ["file", "distribution", "SASS", "PTX"]
    if gpus:
        header.append(f"on {gpus}")
    rows: list[Row] = [header]
    for one in scan.files:
        row = [_short(one.file.path, scan.path), one.file.owner, *_code_cells(one)]
        if gpus:
            row.append(_verdict(one))
        rows.append(row)
    return [title, *columns(rows), *_notes(scan, gpus)]


def _notes(scan: Scan, gpus: str) -> list[str]:
    failing = [one for one in scan.files if one.fails]
    notes = [f"{_short(one.file.path, scan.path)} cannot run: {one.hint}" for one in failing]
    if not gpus:
        notes.append("no GPU is visible: --gpu names the one to compare with")
    elif not notes:
        notes.append(f"nothing that must run lacks code for {gpus}")
    return notes


def _gpus_text(host: Host) -> str:
    names = [f"{gpu.name} ({show_pair(gpu.compute_capability)})" for gpu in host.gpus]
    return ", ".join(dict.fromkeys(names))


def _short(path: str, start: str) -> str:
    """Return a path relative to the folder that was scanned."""
    if os.path.isdir(start):
        return os.path.relpath(path, start)
    return path


def _code_cells(one: JudgedFile) -> list[str]:
    if one.file.fault:
        return ["unknown", "unknown"]
    ptx = " ".join(one.code.ptx or ()) or "none"
    if one.code.ptx and one.code.made_by:
        ptx += f" (CUDA {show_pair(one.code.made_by)})"
    return [" ".join(one.code.sass or ()) or "none", ptx]


def _verdict(one: JudgedFile) -> str:
    if one.file.fault:
        return f"damaged: {one.file.fault}"
    if not one.reasons:
        return "runs"
    if one.fails:
        return "cannot run"
    if one.optional:
        return f"no code ({one.optional})"
    return "unknown"


def scan_json(scan: Scan, host: Host) -> dict[str, Any]:
    """Return the document of `matrix scan --json`."""
    return {
        "path": scan.path,
        "kind": scan.kind,
        "read": scan.read,
        "gpus": [_gpu_json(gpu) for gpu in host.gpus],
        "files": [_file_json(one, has_gpu=bool(host.gpus)) for one in scan.files],
    }


def _gpu_json(gpu: Gpu) -> dict[str, str]:
    return {"name": gpu.name, "compute_capability": show_pair(gpu.compute_capability)}


def _file_json(one: JudgedFile, *, has_gpu: bool) -> dict[str, object]:
    reasons: Sequence[dict[str, str]] = [
        {"code": reason.code, "need": reason.need, "have": reason.have} for reason in one.reasons
    ]
    runs = None
    if has_gpu and not one.file.fault:
        runs = not one.reasons
    return {
        "file": one.file.path,
        "distribution": one.file.owner or None,
        "sass": list(one.code.sass or ()),
        "ptx": list(one.code.ptx or ()),
        "made_by": show_pair(one.code.made_by) if one.code.made_by else None,
        "fat_binaries": one.file.images.binaries,
        "runs": runs,
        "fails": one.fails,
        "optional": one.optional or None,
        "reasons": reasons,
        "fault": one.file.fault or None,
        "hint": one.hint or None,
    }
