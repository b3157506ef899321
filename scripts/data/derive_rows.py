"""Derive the rows of device code from the scans: derive_rows.py [--check] [FOLDER].

matrix_data/scans/*.json are what was read from each wheel; libraries/<distribution>.json and the
builds of frameworks/<name>.json hold what a solve needs of it. A scan takes the place of a
documented row of the same release and platform; other documented rows stay. With --check nothing is
written, and the exit status is 1 if a row is stale.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from common import ROOT
from data.registry import write
from data.scan_releases import Scans, platform_of, scopes
from gpuenv.binaries.rows import code_fields, toolkit_fields
from gpuenv.compat.data import within
from gpuenv.model import parse_pair, show_pair

LINUX = ("linux-x86_64", "linux-aarch64")  # the platforms that a wheel for any platform stands for
PLATFORMS = (*LINUX, "win-amd64")


@cache
def devices(folder: Path) -> list[tuple[int, int]]:
    """Return every compute capability of the GPU table."""
    groups = tomllib.loads((folder / "gpus.toml").read_text(encoding="utf-8"))["group"]
    return sorted({parse_pair(group["capability"]) for group in groups})


def library_file(
    name: str, records: list[dict[str, Any]], folder: Path, toolkits: dict[str, str]
) -> dict[str, Any]:
    """Return the content of libraries/<name>.json.

    It has the scanned rows, and the documented rows that no scan replaces.
    """
    path = folder / "libraries" / f"{name}.json"
    old = json.loads(path.read_text(encoding="ascii")) if path.exists() else {"releases": []}
    rows = {
        (row["version"], row["platform"]): row
        for row in old["releases"]
        if row["evidence"] != "scanned"
    }
    everything = scopes(folder)
    carriers = {carrier for scope in everything for carrier in scope["carriers"]}
    on_path = name in carriers
    for record in records:
        platform = platform_of(record["file"])
        scope = scope_of(name, platform, everything)
        on_path = on_path or scope.get("path", False)
        row = {
            "version": record["version"],
            "platform": platform,
            **code_fields(record, scope, devices(folder), toolkits),
        }
        row |= with_kernels(row, name, toolkits, folder)
        if name in carriers:
            row |= carrier_fields(name, record, scope, toolkits)
        if scope.get("extension"):
            row |= companion_fields(record, row, toolkits, compilers(folder))
        for row_platform in [platform] if platform else LINUX:
            rows[record["version"], row_platform] = {**row, "platform": row_platform}
    for row in elsewhere(name, folder):
        rows[row["version"], row["platform"]] = row
    ordered = sorted(
        rows.values(), key=lambda row: (Version(row["version"]), PLATFORMS.index(row["platform"]))
    )
    major = cuda_major(name, records[-1]["version"]) if records else old.get("cuda_major")
    return {"distribution": name, "cuda_major": major, "path": on_path, "releases": ordered}


def with_kernels(
    row: dict[str, Any], name: str, toolkits: dict[str, str], folder: Path
) -> dict[str, Any]:
    """Return the fields of a row that the [[kernels]] of its release change.

    These are fat binaries among the constants of a library, which no scan reads. The newest PTX of
    a release decides which driver compiles it.
    """
    for kernels in kernel_rows(folder):
        if name in kernels["distributions"] and within(row["version"], kernels["versions"]):
            makers = [row["made_by"], toolkits[kernels["language"]]]
            source = f"{row['source']}; {kernels['source']}"
            return {"made_by": max(makers, key=parse_pair), "source": source}
    return {}


@cache
def kernel_rows(folder: Path) -> list[dict[str, Any]]:
    """Return every [[kernels]] row of frameworks/*.toml."""
    return [
        row
        for path in sorted(folder.glob("frameworks/*.toml"))
        for row in tomllib.loads(path.read_text(encoding="utf-8")).get("kernels", [])
    ]


def cuda_major(name: str, version: str) -> int | None:
    """Return the CUDA major of a distribution.

    Its name says it (-cu12, -cuda12x), or NVIDIA's version numbers do.
    """
    match = re.search(r"-cu(?:da)?(\d\d)x?\b", name)
    if match:
        return int(match[1])
    return Version(version).major if name == "nvidia-cublas" else None


def carrier_fields(
    name: str, record: dict[str, Any], scope: dict[str, Any], toolkits: dict[str, str]
) -> dict[str, Any]:
    """Return the toolkit fields of a carrier of a framework's device code.

    If the wheel does not name its toolkit, this is the newest toolkit of its PTX, otherwise the
    first one of its CUDA major.
    """
    fields = toolkit_fields(record, scope)
    if fields["cuda"]:
        return fields
    languages = {language for library in record["libraries"] for _, language, _ in library["ptx"]}
    of_ptx = [parse_pair(toolkits[language]) for language in languages if language in toolkits]
    major = cuda_major(name, record["version"])
    cuda = f"{major}.0" if major else None
    if of_ptx:
        cuda = show_pair(max(of_ptx))
    return {**fields, "cuda": cuda}


@cache
def compilers(folder: Path) -> list[tuple[tuple[int, int], frozenset[str]]]:
    """Return the targets that the compiler of each toolkit line has, the oldest line first."""
    rows = tomllib.loads((folder / "toolkits.toml").read_text(encoding="utf-8"))["compiler"]
    lines = [(parse_pair(row["cuda"]), frozenset(row["targets"])) for row in rows]
    return sorted(lines, key=lambda line: line[0])


def companion_fields(
    record: dict[str, Any],
    row: dict[str, Any],
    toolkits: dict[str, str],
    lines: list[tuple[tuple[int, int], frozenset[str]]],
) -> dict[str, Any]:
    """Return the toolkit and the source of a companion.

    The source says which CUDA version it links and which torch its METADATA requires.
    """
    majors = linked_majors(record)
    torch = [
        text
        for text in record["requires"]
        if re.match(r"torch\b(?!-)", text) and "extra" not in text
    ]
    built = [f"links CUDA {major}" for major in sorted(majors)] if "by_cuda" not in row else []
    built += [f"requires {text}" for text in torch[:1]]
    source = "; ".join([row["source"], *built])
    if "by_cuda" in row or len(majors) > 1:
        return {"cuda": None, "source": source}
    return {"cuda": companion_toolkit(record, majors, toolkits, lines), "source": source}


def companion_toolkit(
    record: dict[str, Any],
    majors: set[int],
    toolkits: dict[str, str],
    lines: list[tuple[tuple[int, int], frozenset[str]]],
) -> str | None:
    """Return the toolkit of a companion's PTX, otherwise the oldest one that has its targets.

    Args:
        record: the scan.
        majors: the CUDA major that the companion links; empty if it links none.
        toolkits: {PTX language version: the first toolkit that writes it}.
        lines: see `compilers`.

    Returns:
        None if the CUDA major is not known.
    """
    known = [
        parse_pair(toolkits[language])
        for library in record["libraries"]
        for _, language, _ in library["ptx"]
        if language in toolkits
    ]
    if not majors:  # the CUDA runtime is in the libraries themselves
        named = cuda_major(record["name"], record["version"])
        majors = {named} if named else {pair[0] for pair in known}
    if len(majors) != 1:
        return None
    (major,) = majors
    targets = {target for library in record["libraries"] for target in library["sass"]}
    of_ptx = [pair for pair in known if pair[0] == major]
    of_targets = [pair for pair, has in lines if pair[0] == major and targets <= has]
    return show_pair(max(of_ptx + of_targets[:1], default=(major, 0)))


def elsewhere(name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of builds that are on no index, but whose wheels public lock files name.

    The device code is known if scans.toml has an [[elsewhere]] row for the distribution.
    """
    documents = tomllib.loads((folder / "scans.toml").read_text(encoding="utf-8"))
    known = {
        distribution: row
        for row in documents.get("elsewhere", [])
        for distribution in row["distributions"]
    }
    for wheel in companion_wheels(folder):
        file = wheel["file"].rpartition("/")[2]
        distribution, version, _, _ = parse_wheel_filename(file)
        if distribution != name:
            continue
        document = known.get(name, {})
        cuda = toolkit_of(version.local or "", document.get("toolkits", []))
        compiled = dict(compilers(folder)).get(parse_pair(cuda or "0.0"))
        sass = document.get("sass")
        if sass is not None and compiled is not None:
            sass = [target for target in sass if target in compiled]
        source = f"{file} in {' and '.join(wheel['sources'][:2])}"
        yield {
            "version": str(version),
            "platform": platform_of(file),
            "sass": sass,
            "ptx": [] if document else None,
            "made_by": None,
            "evidence": "documented",
            "source": f"{document['source']}; {source}" if document else source,
            "cuda": cuda,
            "url": f"https://{wheel['file'].replace('+', '%2B')}#sha256={wheel['sha256']}",
        }


def toolkit_of(local: str, toolkits: list[str]) -> str | None:
    """Return the toolkit that a local version names: 12.9 for cu129.

    For cu12 it is the CUDA 12 toolkit of `toolkits`, otherwise 12.0.
    """
    match = re.search(r"cu(\d\d)(\d*)", local)
    if not match:
        return None
    same_major = [toolkit for toolkit in toolkits if toolkit.startswith(f"{match[1]}.")]
    return f"{match[1]}.{match[2]}" if match[2] else [*same_major, f"{match[1]}.0"][0]


def companion_wheels(folder: Path) -> list[dict[str, Any]]:
    """Return the wheels of companions that public lock files name."""
    path = folder / "pytorch_index.json"
    if not path.exists():
        return []
    content: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
    companions: list[dict[str, Any]] = content.get("companions", [])
    return companions


def linked_majors(record: dict[str, Any]) -> set[int]:
    """Return the CUDA majors whose runtime or cuBLAS the libraries of a wheel link or open."""
    pattern = r"lib(?:cudart|cublas)\.so\.(\d\d)(?:\..*)?|(?:cudart64|cublas64)_(\d\d)\d*\.dll"
    return {
        int(match[1] or match[2])
        for row in record["libraries"]
        for name in (*row["needs"], *row["opens"])
        if (match := re.fullmatch(pattern, name))
    }


def framework_file(
    path: Path, scans: Scans, folder: Path, toolkits: dict[str, str]
) -> dict[str, Any]:
    """Return the content of frameworks/<name>.json. Its default builds come from the scans."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
    name, everything = data["distribution"], scopes(folder)
    rows = {(row["local"], row["platform"]): row for row in data["builds"]}
    for record in scans.of(name):
        platform = platform_of(record["file"])
        scope = scope_of(name, platform, everything)
        with_what = toolkit_fields(record, scope)
        if with_what["cuda"] is None:
            continue  # a CPU build: nothing to read from it
        version = record["version"]
        head = {
            "version": version,
            "local": version,
            "variant": "cu" + with_what["cuda"].replace(".", ""),
        }
        row = {**head, "index": "default", "platform": platform, **with_what}
        rows[version, platform] = row | code_fields(record, scope, devices(folder), toolkits)
    order = sorted(rows.values(), key=lambda row: (row["index"] != "default", row["index"]))
    order.sort(key=lambda row: (Version(row["version"]), PLATFORMS.index(row["platform"])))
    return {**data, "builds": order}


def scope_of(name: str, platform: str, everything: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the [[scan]] row for a distribution on a platform."""
    matching = [
        scope
        for scope in everything
        if name in scope["distributions"] and scope["platform"] == platform
    ]
    return matching[0] if matching else {"carriers": []}


def dump(data: dict[str, Any]) -> str:
    """Return the rows as text, with one row on each line, in the order given."""
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
    """Yield (path, text) of every file that the scans give rows to."""
    scans = Scans(str(folder / "scans"))
    tables = json.loads((folder / "tables.json").read_text(encoding="ascii"))
    toolkits: dict[str, str] = tables["ptx_toolkits"]
    frameworks = {json.loads(path.read_text(encoding="ascii"))["distribution"]: path
                  for path in sorted(folder.glob("frameworks/*.json"))}  # fmt: skip
    for path in frameworks.values():
        yield path, dump(framework_file(path, scans, folder, toolkits))
    files = [wheel["file"].rpartition("/")[2] for wheel in companion_wheels(folder)]
    for name in sorted({*scans.names(), *(parse_wheel_filename(file)[0] for file in files)}):
        if name not in frameworks:
            yield (
                folder / "libraries" / f"{name}.json",
                dump(library_file(name, scans.of(name), folder, toolkits)),
            )


def main(words: list[str]) -> int:
    """Write what changed, or say what would."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "matrix_data")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a file is stale")
    options = parser.parse_args(words)
    stale = 0
    for path, text in derived(options.folder):
        if path.exists() and path.read_text(encoding="ascii") == text:
            continue
        stale = 1
        print(f"{path} is {'stale' if options.check else 'written'}")
        if not options.check:
            write(str(path), text)
    return stale if options.check else 0
