"""Make a row of the compatibility data from a wheel.

The row has the device code that all libraries of the release on the path of a convolution carry:

- Only the `files` of the [[scan]] row count, or all libraries with device code if it has none.
- In a library, a plain target counts if it is in a tenth of the fat binaries that have the most
  common target, and a target with a suffix if it is in half of them. The others are in `some`. In
  `engines` (cuDNN, cuBLASLt) each target counts: a fat binary there is for one kind of device.
- Of several libraries the minimum counts (R3): targets that all of them have or serve.
- `made_by` is the first toolkit that writes the PTX version. If fewer than half of the fat binaries
  have PTX, it is left out, and PTX never counts.
"""

from __future__ import annotations

import email.parser
import fnmatch
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import IO, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from ..compat.architectures import common_code, parse_target
from ..model import Code, ComputeCapability, CudaVersion, show_pair
from . import elf
from .device_code import (
    PTX,
    SASS,
    DamagedFileError,
    Image,
    Images,
    all_code,
    code_of,
    read_code,
    summary,
)
from .environment import Progress, is_code_file
from .wheel import opened, tell_member, unpacked

Document = Mapping[str, Any]  # a record of a wheel, or a [[scan]] row

# Where frameworks say what they were built with.
TEXTS = (
    "torch/version.py",
    "*/python/platform/build_info.py",
    "*/capi/build_and_package_info.py",
    "cupy/.data/_wheel.json",
    "*/version.py",
)
_LARGEST_TEXT, _LARGEST_METADATA = 64 << 10, 16 << 20
_KERNELS = (".cubin", ".fatbin")  # a folder of them is one row
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")


def read_record(
    file: IO[bytes],
    filename: str,
    *,
    sha256: str,
    patterns: Sequence[str],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return what a wheel says.

    Args:
        file: the wheel.
        filename: its name.
        sha256: its hash, which the index gave.
        patterns: the libraries that count.
        progress: is called with a line for each library that is read.

    Raises:
        DamagedFileError: the wheel is damaged.
    """
    texts, metadata = {}, ""
    images: dict[str, list[Images]] = {}
    links: dict[str, dict[str, list[str]]] = {}
    with opened(file) as archive:
        for member in archive.infolist():
            name = member.filename
            if _METADATA.fullmatch(name):
                with unpacked(archive, member) as content:
                    metadata = content.read(_LARGEST_METADATA).decode(errors="replace")
            elif _matches(name, TEXTS) and member.file_size < _LARGEST_TEXT:
                with unpacked(archive, member) as content:
                    texts[name] = content.read().decode(errors="replace")
            elif is_code_file(name) and _matches(name, patterns):
                tell_member(progress, filename, member)
                path = name
                if name.endswith(_KERNELS):
                    path = f"{name.partition('/')[0]}/*{PurePosixPath(name).suffix}"
                with unpacked(archive, member) as content:
                    try:
                        images.setdefault(path, []).append(read_code(content) or Images())
                    except DamagedFileError as error:
                        raise DamagedFileError(f"{name}: {error}") from error
                    links[path] = _links(content, name)
    rows: dict[str, dict[str, Any]] = {}  # libraries with equal facts are one row
    for path in sorted(images):
        code = _sum(images[path])
        facts = {
            **links[path],
            "binaries": code.binaries,
            "sass": dict(code.sass),
            "ptx": [list(image) for image in code.ptx],
        }
        rows.setdefault(json.dumps(facts), {"paths": [], **facts})["paths"].append(path)
    head = email.parser.HeaderParser().parsestr(metadata)
    return {
        "version": head["Version"],
        "file": filename,
        "sha256": sha256,
        "requires": head.get_all("Requires-Dist") or [],
        "texts": texts,
        "libraries": list(rows.values()),
    }


def _links(file: IO[bytes], path: str) -> dict[str, list[str]]:
    """Return the libraries that an ELF file needs, and those that it may open by name."""
    try:
        library = elf.read_open(file, path, names=True)
    except elf.NotElfError:
        return {"needs": [], "opens": []}
    opens = {*library.names} - {library.soname, *library.needed}
    return {"needs": list(library.needed), "opens": sorted(opens)}


def _sum(parts: Sequence[Images]) -> Images:
    """Return the device code of several files together."""
    counts: Counter[Image] = Counter()
    for part in parts:
        counts.update({(SASS, target, ""): count for target, count in part.sass})
        counts.update({(PTX, target, language): count for target, language, count in part.ptx})
    return summary(counts, sum(part.binaries for part in parts))


def code_fields(
    record: Document,
    scope: Document,
    devices: Sequence[ComputeCapability],
    toolkits: Mapping[str, str],
) -> dict[str, Any]:
    """Return the fields of a row that the device code of a wheel gives.

    A wheel with one library for each CUDA version has `by_cuda`; then `sass` and `ptx` have every
    target that at least one of these libraries carries.

    Args:
        record: what was read of the wheel.
        scope: its [[scan]] row, which names the libraries that count.
        devices: the compute capabilities for which the row must be exact.
        toolkits: the first toolkit that writes each version of the PTX language.
    """
    pattern = scope.get("by_cuda", "")
    files = [pattern.replace("{cuda}", "*")] if pattern else scope.get("files", ["*"])
    codes: dict[str, Code] = {}
    carried: set[str] = set()
    for row in record["libraries"]:
        images = Images(
            binaries=row["binaries"],
            sass=tuple(row["sass"].items()),
            ptx=tuple(tuple(image) for image in row["ptx"]),
        )
        for path in row["paths"]:
            if row["binaries"] and _matches(path, files):
                is_engine = _matches(path, scope.get("engines", []))
                codes[path] = code_of(images, toolkits, every_target=is_engine)
                carried.update(row["sass"])
    if pattern:
        expression = re.escape(pattern).replace(re.escape("{cuda}"), r"(\d\d)(\d+)")
        by_cuda: dict[CudaVersion, Code] = {}
        for path, code in codes.items():
            match = re.fullmatch(expression, path)
            if match:
                by_cuda[int(match[1]), int(match[2])] = code
        libraries = [
            {"cuda": show_pair(cuda), **_target_fields(code)}
            for cuda, code in sorted(by_cuda.items(), key=lambda item: item[0])
        ]
        fields = _target_fields(all_code([*by_cuda.values()]).replace(made_by=None))
        fields["by_cuda"] = libraries
        source = f"{len(libraries)} libraries, one for each CUDA version"
    else:
        common = common_code(list(codes.values()), devices) if codes else Code(sass=(), ptx=())
        fields = _target_fields(common)
        partial_targets = sorted(carried - {*(common.sass or ())}, key=parse_target)
        if partial_targets:
            fields["some"] = partial_targets
        source = f"{len(codes)} libraries"
        if not codes:
            source = "no library has any"
        elif len(codes) == 1:
            source = PurePosixPath(*codes).name
    return fields | {
        "evidence": "scanned",
        "source": f"fat binaries: {source}",
        "file": record["file"],
        "sha256": record["sha256"],
    }


def _target_fields(code: Code) -> dict[str, Any]:
    return {
        "sass": list(code.sass or ()),
        "ptx": list(code.ptx or ()),
        "made_by": show_pair(code.made_by) if code.made_by else None,
    }


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def toolkit_fields(record: Document, scope: Document) -> dict[str, Any]:
    """Return the toolkit and the cuDNN of a framework's build.

    The wheel's own texts say them, otherwise its METADATA.
    """
    cuda = _stated(record, scope.get("cuda"))
    if cuda is not None:
        cuda = ".".join(cuda.split(".")[:2])
    cudnn = _stated(record, scope.get("cudnn"))
    for text in record["requires"]:
        if text.startswith("nvidia-cudnn-cu"):
            try:
                specifier = Requirement(text).specifier
            except InvalidRequirement:
                continue
            versions = [part.version for part in specifier if part.operator in ("==", ">=")]
            if versions:  # the cuDNN that METADATA pins, or the oldest that it admits
                return {"cuda": cuda, "cudnn": str(max(map(Version, versions)))}
    return {"cuda": cuda, "cudnn": cudnn}


def _stated(record: Document, where: Sequence[str] | None) -> str | None:
    """Return the number that a text of the wheel gives a name: cuda = '13.2'."""
    if where is None or where[0] not in record["texts"]:
        return None
    # cuda = '12.1', cuda: Optional[str] = '12.1', ('cuda_version', '12.5.1')
    pattern = rf"\b{where[1]}\b(?:\s*:\s*[^=\n]+=)?\W+(\d[\d.]*)"
    match = re.search(pattern, record["texts"][where[0]])
    return match[1] if match else None
