"""Derives the rows of device code from the scans (a maintainers' tool): derive_rows.py [--check] [FOLDER].

matrix_data/scans/*.json are what was read from each wheel; libraries/<distribution>.json and the builds of
frameworks/<name>.json hold what a solve needs of it. A scan takes the place of a documented row of the same release
and platform; other documented rows stay. With --check nothing is written, and the exit status is 1 if a row is stale.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "resolver")]

from gpuenv.binaries.device_code import code_of  # noqa: E402  - the path must be set first
from gpuenv.binaries.fat_binaries import Images  # noqa: E402
from gpuenv.compat.architectures import common_code, parse_target  # noqa: E402
from gpuenv.model import Code, parse_pair, show_pair  # noqa: E402  - the path must be set first
from registry import write  # noqa: E402
from scan_releases import Scans, platform_of, scopes  # noqa: E402

PLATFORMS = ("linux-x86_64", "linux-aarch64", "win-amd64")


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path fits one of the patterns."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def codes(
    record: dict[str, Any], scope: dict[str, Any], toolkits: dict[str, str]
) -> list[tuple[str, Code]]:
    """(path, code) of each library of a wheel that counts and carries device code."""
    files, engines = scope.get("files", ["*"]), scope.get("engines", [])
    return [
        (path, library_code(row, engine=matches(path, engines), toolkits=toolkits))
        for row in record["libraries"]
        for path in row["paths"]
        if row["binaries"] and matches(path, files)
    ]


def library_code(row: dict[str, Any], *, engine: bool, toolkits: dict[str, str]) -> Code:
    """The targets of one library that count, as gpuenv.binaries.device_code says."""
    images = Images(
        binaries=row["binaries"], sass=tuple(row["sass"].items()), ptx=tuple(map(tuple, row["ptx"]))
    )
    return code_of(images, toolkits, every_target=engine)


@cache
def devices(folder: Path) -> list[tuple[int, int]]:
    """Every compute capability of the GPU table."""
    groups = tomllib.loads((folder / "gpus.toml").read_text(encoding="utf-8"))["group"]
    return sorted({parse_pair(group["capability"]) for group in groups})


def facts(
    record: dict[str, Any], scope: dict[str, Any], folder: Path, toolkits: dict[str, str]
) -> dict[str, Any]:
    """The fields of a row that the scan of a wheel gives."""
    members = codes(record, scope, toolkits)
    code = (
        common_code([code for _, code in members], devices(folder))
        if members
        else Code(sass=(), ptx=())
    )
    paths = {path for path, _ in members}
    carried = {
        target for row in record["libraries"] if paths & {*row["paths"]} for target in row["sass"]
    }
    some = sorted(carried - {*(code.sass or ())}, key=parse_target)
    count = len(members)
    row: dict[str, Any] = {
        "sass": list(code.sass or ()),
        "ptx": list(code.ptx or ()),
        "made_by": show_pair(code.made_by) if code.made_by else None,
    }
    if some:
        row["some"] = some
    what = (
        Path(members[0][0]).name
        if count == 1
        else f"{count} libraries"
        if count
        else "no library has any"
    )
    source = f"fat binaries: {what}"
    return {
        **row,
        "evidence": "scanned",
        "source": source,
        "file": record["file"],
        "sha256": record["sha256"],
    }


def built_with(record: dict[str, Any], scope: dict[str, Any]) -> dict[str, Any]:
    """The toolkit and the cuDNN of a framework's build: what the wheel's own texts say, else what its METADATA asks."""
    cuda = said(record, scope.get("cuda"))
    if cuda is not None:
        cuda = ".".join(cuda.split(".")[:2])
    return {"cuda": cuda, "cudnn": needed_cudnn(record) or said(record, scope.get("cudnn"))}


def said(record: dict[str, Any], where: list[str] | None) -> str | None:
    """The number that a text of the wheel gives a name: cuda = '13.2'."""
    if where is None or where[0] not in record["texts"]:
        return None
    # cuda = '12.1', cuda: Optional[str] = '12.1', ('cuda_version', '12.5.1')
    found = re.search(
        rf"\b{where[1]}\b(?:\s*:\s*[^=\n]+=)?\W+(\d[\d.]*)", record["texts"][where[0]]
    )
    return found[1] if found else None


def needed_cudnn(record: dict[str, Any]) -> str | None:
    """The cuDNN that METADATA pins, or the oldest that it admits."""
    for text in record["requires"]:
        if not text.startswith("nvidia-cudnn-cu"):
            continue
        try:
            specifier = Requirement(text).specifier
        except InvalidRequirement:
            continue
        versions = [one.version for one in specifier if one.operator in ("==", ">=")]
        if versions:
            return str(max(map(Version, versions)))
    return None


def major_of(name: str, record: dict[str, Any]) -> int | None:
    """The CUDA major that a distribution's name says (-cu12, -cuda12x), or that NVIDIA's version numbers say."""
    found = re.search(r"-cu(?:da)?(\d\d)x?\b", name)
    if found:
        return int(found[1])
    return Version(record["version"]).major if name == "nvidia-cublas" else None


def library_file(
    name: str, records: list[dict[str, Any]], folder: Path, toolkits: dict[str, str]
) -> dict[str, Any]:
    """The content of libraries/<name>.json: scanned rows, and the documented ones that no scan replaces."""
    path = folder / "libraries" / f"{name}.json"
    old = json.loads(path.read_text(encoding="ascii")) if path.exists() else {"releases": []}
    rows = {
        (row["version"], row["platform"]): row
        for row in old["releases"]
        if row["evidence"] != "scanned"
    }
    everything = scopes(folder)
    carriers = {one for scope in everything for one in scope["carriers"]}
    on_path = name in carriers
    for record in records:
        scope = scope_of(name, platform_of(record["file"]), everything)
        on_path = on_path or scope.get("path", False)
        platform = platform_of(record["file"])
        row = {
            "version": record["version"],
            "platform": platform,
            **facts(record, scope, folder, toolkits),
        }
        if name in carriers:
            with_what = built_with(record, scope)
            newest = max((parse_pair(toolkits[lang]) for lib in record["libraries"] for _, lang, _ in lib["ptx"]
                          if lang in toolkits), default=None)  # fmt: skip
            major = major_of(name, record)
            with_what["cuda"] = with_what["cuda"] or (
                show_pair(newest) if newest else f"{major}.0" if major else None
            )
            row |= with_what
        rows[record["version"], platform] = row
    ordered = sorted(
        rows.values(), key=lambda row: (Version(row["version"]), PLATFORMS.index(row["platform"]))
    )
    return {
        "distribution": name,
        "cuda_major": major_of(name, records[-1]) if records else old.get("cuda_major"),
        "path": on_path,
        "releases": ordered,
    }


def framework_file(
    path: Path, scans: Scans, folder: Path, toolkits: dict[str, str]
) -> dict[str, Any]:
    """The content of frameworks/<name>.json, the builds of the default index taken from the scans."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
    name, everything = data["distribution"], scopes(folder)
    rows = {(row["local"], row["platform"]): row for row in data["builds"]}
    for record in scans.of(name):
        platform = platform_of(record["file"])
        scope = scope_of(name, platform, everything)
        with_what = built_with(record, scope)
        if with_what["cuda"] is None:
            continue  # a CPU build: nothing to read from it
        version = record["version"]
        head = {
            "version": version,
            "local": version,
            "variant": "cu" + with_what["cuda"].replace(".", ""),
        }
        row = {**head, "index": "default", "platform": platform, **with_what}
        rows[version, platform] = row | facts(record, scope, folder, toolkits)
    order = sorted(rows.values(), key=lambda row: (row["index"] != "default", row["index"]))
    order.sort(key=lambda row: (Version(row["version"]), PLATFORMS.index(row["platform"])))
    return {**data, "builds": order}


def scope_of(name: str, platform: str, everything: list[dict[str, Any]]) -> dict[str, Any]:
    """The [[scan]] row for a distribution on a platform."""
    found = [
        one for one in everything if name in one["distributions"] and one["platform"] == platform
    ]
    return found[0] if found else {"carriers": []}


def dump(data: dict[str, Any]) -> str:
    """One row a line, in the order given."""
    parts = []
    for key, value in data.items():
        if isinstance(value, list):
            rows = ",\n".join("  " + json.dumps(row) for row in value)
            parts.append(
                f" {json.dumps(key)}: [\n{rows}\n ]" if rows else f" {json.dumps(key)}: []"
            )
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def derived(folder: Path) -> Iterator[tuple[Path, str]]:
    """(path, text) of every file that the scans give rows to."""
    scans = Scans(str(folder / "scans"))
    tables = json.loads((folder / "tables.json").read_text(encoding="ascii"))
    toolkits: dict[str, str] = tables["ptx_toolkits"]
    frameworks = {json.loads(path.read_text(encoding="ascii"))["distribution"]: path
                  for path in sorted(folder.glob("frameworks/*.json"))}  # fmt: skip
    for path in frameworks.values():
        yield path, dump(framework_file(path, scans, folder, toolkits))
    for name in scans.names():
        if name not in frameworks:
            yield (
                folder / "libraries" / f"{name}.json",
                dump(library_file(name, scans.of(name), folder, toolkits)),
            )


def main(arguments: list[str] | None = None) -> int:
    """Writes what changed, or says what would."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "matrix_data")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a file is stale")
    options = parser.parse_args(arguments)
    stale = 0
    for path, text in derived(options.folder):
        if path.exists() and path.read_text(encoding="ascii") == text:
            continue
        stale = 1
        print(f"{path} is {'stale' if options.check else 'written'}")
        if not options.check:
            write(str(path), text)
    return stale if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
