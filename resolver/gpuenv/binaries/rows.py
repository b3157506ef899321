"""Make a row of the compatibility data from the scan of a wheel.

The row has the device code that all libraries of the release on the path of a convolution carry.
docs/evidence.md has the rules.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from ..compat.architectures import common_code, parse_target
from ..model import Code, ComputeCapability, parse_pair, show_pair
from .device_code import code_of
from .fat_binaries import Images

Document = Mapping[str, Any]  # a record of a wheel, or a [[scan]] row


def code_fields(
    record: Document,
    scope: Document,
    devices: Sequence[ComputeCapability],
    toolkits: Mapping[str, str],
) -> dict[str, Any]:
    """Return the fields of a row that the device code of a wheel gives.

    Args:
        record: what was read of the wheel.
        scope: its [[scan]] row, which names the libraries that count.
        devices: the compute capabilities for which the row must be exact.
        toolkits: the first toolkit that writes each version of the PTX language.
    """
    if "by_cuda" in scope:
        return _fields_by_cuda(record, scope["by_cuda"], toolkits)
    members = _codes(record, scope, toolkits)
    code = Code(sass=(), ptx=())
    if members:
        code = common_code([code for _, code in members], devices)
    paths = {path for path, _ in members}
    carried: set[str] = set()
    for row in record["libraries"]:
        if paths & {*row["paths"]}:
            carried.update(row["sass"])
    fields: dict[str, Any] = {
        "sass": list(code.sass or ()),
        "ptx": list(code.ptx or ()),
        "made_by": show_pair(code.made_by) if code.made_by else None,
    }
    partial_targets = sorted(carried - {*(code.sass or ())}, key=parse_target)
    if partial_targets:
        fields["some"] = partial_targets
    return fields | {
        "evidence": "scanned",
        "source": f"fat binaries: {_described(members)}",
        "file": record["file"],
        "sha256": record["sha256"],
    }


def _fields_by_cuda(record: Document, pattern: str, toolkits: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a row with one library for each CUDA version.

    `sass` and `ptx` have every target that at least one of the libraries carries.
    """
    expression = re.escape(pattern).replace(re.escape("{cuda}"), r"(\d\d)(\d+)")
    rows: list[dict[str, Any]] = []
    members = _codes(record, {"files": [pattern.replace("{cuda}", "*")]}, toolkits)
    for path, code in members:
        match = re.fullmatch(expression, path)
        if match:
            rows.append(
                {
                    "cuda": f"{match[1]}.{match[2]}",
                    "sass": list(code.sass or ()),
                    "ptx": list(code.ptx or ()),
                    "made_by": show_pair(code.made_by) if code.made_by else None,
                }
            )
    rows.sort(key=lambda row: parse_pair(row["cuda"]))
    sass = {target for row in rows for target in row["sass"]}
    ptx = {target for row in rows for target in row["ptx"]}
    return {
        "sass": sorted(sass, key=parse_target),
        "ptx": sorted(ptx, key=parse_target),
        "made_by": None,
        "by_cuda": rows,
        "evidence": "scanned",
        "source": f"fat binaries: {len(rows)} libraries, one for each CUDA version",
        "file": record["file"],
        "sha256": record["sha256"],
    }


def _described(members: Sequence[tuple[str, Code]]) -> str:
    if not members:
        return "no library has any"
    if len(members) == 1:
        return PurePosixPath(members[0][0]).name
    return f"{len(members)} libraries"


def _codes(
    record: Document, scope: Document, toolkits: Mapping[str, str]
) -> list[tuple[str, Code]]:
    """Return (path, code) of each library of a wheel that counts and carries device code."""
    files, engines = scope.get("files", ["*"]), scope.get("engines", [])
    codes = []
    for row in record["libraries"]:
        if not row["binaries"]:
            continue
        images = Images(
            binaries=row["binaries"],
            sass=tuple(row["sass"].items()),
            ptx=tuple(tuple(image) for image in row["ptx"]),
        )
        for path in row["paths"]:
            if _matches(path, files):
                is_engine = _matches(path, engines)
                codes.append((path, code_of(images, toolkits, every_target=is_engine)))
    return codes


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


# ---- what a framework was built with -------------------------------------------------------------


def toolkit_fields(record: Document, scope: Document) -> dict[str, Any]:
    """Return the toolkit and the cuDNN of a framework's build.

    The wheel's own texts say them, otherwise its METADATA.
    """
    cuda = _stated(record, scope.get("cuda"))
    if cuda is not None:
        cuda = ".".join(cuda.split(".")[:2])
    return {"cuda": cuda, "cudnn": _required_cudnn(record) or _stated(record, scope.get("cudnn"))}


def _stated(record: Document, where: Sequence[str] | None) -> str | None:
    """Return the number that a text of the wheel gives a name: cuda = '13.2'."""
    if where is None or where[0] not in record["texts"]:
        return None
    # cuda = '12.1', cuda: Optional[str] = '12.1', ('cuda_version', '12.5.1')
    pattern = rf"\b{where[1]}\b(?:\s*:\s*[^=\n]+=)?\W+(\d[\d.]*)"
    match = re.search(pattern, record["texts"][where[0]])
    return match[1] if match else None


def _required_cudnn(record: Document) -> str | None:
    """Return the cuDNN that METADATA pins, or the oldest that it admits."""
    for text in record["requires"]:
        if not text.startswith("nvidia-cudnn-cu"):
            continue
        try:
            specifier = Requirement(text).specifier
        except InvalidRequirement:
            continue
        versions = [clause.version for clause in specifier if clause.operator in ("==", ">=")]
        if versions:
            return str(max(map(Version, versions)))
    return None


def cuda_major(name: str, version: str) -> int | None:
    """Return the CUDA major of a distribution.

    Its name says it (-cu12, -cuda12x), or NVIDIA's version numbers do.
    """
    match = re.search(r"-cu(?:da)?(\d\d)x?\b", name)
    if match:
        return int(match[1])
    return Version(version).major if name == "nvidia-cublas" else None
