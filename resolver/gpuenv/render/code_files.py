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
    for judged_file in scan.files:
        file = judged_file.file
        row = [_short(file.path, scan.path), file.owner, *_code_cells(judged_file)]
        if gpus:
            row.append(_verdict(judged_file))
        rows.append(row)
    return [title, *columns(rows), *_notes(scan, gpus)]


def _notes(scan: Scan, gpus: str) -> list[str]:
    failing = [judged_file for judged_file in scan.files if judged_file.fails]
    notes = [
        f"{_short(judged_file.file.path, scan.path)} cannot run: {judged_file.hint}"
        for judged_file in failing
    ]
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


def _code_cells(judged_file: JudgedFile) -> list[str]:
    if judged_file.file.fault:
        return ["unknown", "unknown"]
    ptx = " ".join(judged_file.code.ptx or ()) or "none"
    if judged_file.code.ptx and judged_file.code.made_by:
        ptx += f" (CUDA {show_pair(judged_file.code.made_by)})"
    return [" ".join(judged_file.code.sass or ()) or "none", ptx]


def _verdict(judged_file: JudgedFile) -> str:
    if judged_file.file.fault:
        return f"damaged: {judged_file.file.fault}"
    if not judged_file.reasons:
        return "runs"
    if judged_file.fails:
        return "cannot run"
    if judged_file.optional:
        return f"no code ({judged_file.optional})"
    return "unknown"


def scan_json(scan: Scan, host: Host) -> dict[str, Any]:
    """Return the document of `matrix scan --json`."""
    return {
        "path": scan.path,
        "kind": scan.kind,
        "read": scan.read,
        "gpus": [_gpu_json(gpu) for gpu in host.gpus],
        "files": [_file_json(judged_file, has_gpu=bool(host.gpus)) for judged_file in scan.files],
    }


def _gpu_json(gpu: Gpu) -> dict[str, str]:
    return {"name": gpu.name, "compute_capability": show_pair(gpu.compute_capability)}


def _file_json(judged_file: JudgedFile, *, has_gpu: bool) -> dict[str, object]:
    reasons: Sequence[dict[str, str]] = [
        {"code": reason.code, "need": reason.need, "have": reason.have}
        for reason in judged_file.reasons
    ]
    runs = None
    if has_gpu and not judged_file.file.fault:
        runs = not judged_file.reasons
    return {
        "file": judged_file.file.path,
        "distribution": judged_file.file.owner or None,
        "sass": list(judged_file.code.sass or ()),
        "ptx": list(judged_file.code.ptx or ()),
        "made_by": show_pair(judged_file.code.made_by) if judged_file.code.made_by else None,
        "fat_binaries": judged_file.file.images.binaries,
        "runs": runs,
        "fails": judged_file.fails,
        "optional": judged_file.optional or None,
        "reasons": reasons,
        "fault": judged_file.file.fault or None,
        "hint": judged_file.hint or None,
    }
