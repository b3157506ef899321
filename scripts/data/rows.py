"""The rows of device code, which compile.py derives from the records of scans/.

libraries/<distribution>.json and the builds of frameworks/<name>.json have what a solve needs of a
record. A record takes the place of a documented row of the same release and platform. Other
documented rows stay. Builds that are on no index, but that public lock files name, have rows by
[[elsewhere]] of scans.toml.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename

from common import read_json
from data.scan_releases import Record, Scans
from gpuenv.binaries.rows import code_fields, toolkit_fields
from gpuenv.compat.catalog import platform_of
from gpuenv.compat.data import within
from gpuenv.compat.rows import read_scopes
from gpuenv.errors import DataError
from gpuenv.model import CudaVersion, parse_pair, show_pair
from gpuenv.requirements.target import PLATFORMS, version_key
from gpuenv.serialize import read_toml

Row = dict[str, Any]
LINUX = ("linux-x86_64", "linux-aarch64")  # the platforms that a wheel for any platform stands for


def derived(folder: Path, tables: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield (path, text) of every file that the records give rows to.

    Args:
        folder: the data. Without scans/, as in an installed package, nothing is derived.
        tables: the content of tables.json.
    """
    if not (folder / "scans").is_dir():
        return
    deriver = Deriver(folder, tables)
    frameworks = sorted(folder.glob("frameworks/*.json"))
    names = {*deriver.scans.names(), *deriver.locked}
    for path in frameworks:
        content = deriver.framework(read_json(path))
        names.discard(content["distribution"])
        yield path, as_text(content)
    for name in sorted(names):
        yield folder / "libraries" / f"{name}.json", as_text(deriver.library(name))


def as_text(content: Mapping[str, Any]) -> str:
    """Return a table as JSON, with a row on each line."""
    parts = []
    for key, value in content.items():
        text = json.dumps(value)
        if isinstance(value, list) and value:
            rows = ",\n".join(f"  {json.dumps(row)}" for row in value)
            text = f"[\n{rows}\n ]"
        parts.append(f' "{key}": {text}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


class Deriver:
    """Derives rows from the records in a folder of the data."""

    def __init__(self, folder: Path, tables: Mapping[str, Any]) -> None:
        self.folder, self.scans = folder, Scans(folder)
        self.scopes = read_scopes(str(folder))
        self.devices = sorted(set(map(tuple, tables["gpus"].values())))
        self.toolkits: dict[str, str] = tables["ptx_toolkits"]
        self.compilers = {
            parse_pair(cuda): frozenset(targets) for cuda, targets in tables["compilers"].items()
        }
        ways = [way for row in tables["frameworks"].values() for way in row["ways"]]
        # The distributions whose device code a convolution of a framework runs.
        self.carriers = {name for way in ways if not way.get("local") for name in way["carriers"]}
        self.kernels = [
            row
            for path in sorted(folder.glob("frameworks/*.toml"))
            for row in read_toml(str(path)).get("kernels", [])
        ]
        self.elsewhere = {
            name: row
            for row in read_toml(str(folder / "scans.toml")).get("elsewhere", [])
            for name in row["distributions"]
        }
        # {distribution: the wheels that public lock files name}
        self.locked: dict[str, list[Row]] = {}
        for wheel in read_json(folder / "pytorch_index.json", {"companions": ()})["companions"]:
            name = parse_wheel_filename(wheel["file"].rpartition("/")[2])[0]
            self.locked.setdefault(name, []).append(wheel)

    def scope_of(self, name: str, platform: str) -> Row:
        """Return the [[scan]] row of a distribution on a platform; {} if there is none now."""
        for scope in self.scopes:
            if name in scope["distributions"] and scope["platform"] == platform:
                return scope
        return {}

    def framework(self, old: Row) -> Row:
        """Return the content of frameworks/<name>.json, with the builds of the default index."""
        name = old["distribution"]
        rows = {(row["local"], row["platform"]): row for row in old["builds"]}
        for record in self.scans.of(name):
            platform, version = platform_of(record["file"]), record["version"]
            scope = self.scope_of(name, platform)
            built_with = toolkit_fields(record, scope)
            if built_with["cuda"] is None:
                continue  # a CPU build: nothing to read from it
            variant = "cu" + built_with["cuda"].replace(".", "")
            head = {"version": version, "local": version, "variant": variant, "index": "default"}
            code = code_fields(record, scope, self.devices, self.toolkits)
            rows[version, platform] = {**head, "platform": platform, **built_with, **code}
        builds = sorted(rows.values(), key=lambda row: (row["index"] != "default", row["index"]))
        return {**old, "builds": sorted(builds, key=release_order)}

    def library(self, name: str) -> Row:
        """Return the content of libraries/<name>.json."""
        records = self.scans.of(name)
        old = read_json(self.folder / "libraries" / f"{name}.json", {"releases": []})
        documented = [row for row in old["releases"] if row["evidence"] != "scanned"]
        rows = {(row["version"], row["platform"]): row for row in documented}
        on_path = name in self.carriers
        for record in records:
            platform = platform_of(record["file"])
            scope = self.scope_of(name, platform)
            on_path = on_path or scope.get("path", False)
            row = self.library_row(name, record, scope)
            for row_platform in [platform] if platform else LINUX:
                rows[record["version"], row_platform] = {
                    "version": record["version"],
                    "platform": row_platform,
                    **row,
                }
        for wheel in self.locked.get(name, ()):
            row = self.locked_row(wheel, self.elsewhere.get(name))
            rows[row["version"], row["platform"]] = row
        major = cuda_major(name, records[-1]["version"]) if records else old.get("cuda_major")
        if self.has_own_runtime(name, records):
            major = 0
        releases = sorted(rows.values(), key=release_order)
        return {"distribution": name, "cuda_major": major, "path": on_path, "releases": releases}

    def has_own_runtime(self, name: str, records: Iterable[Record]) -> bool:
        """Return whether the libraries contain the CUDA runtime, so that they fit any CUDA.

        Raises:
            DataError: a [[scan]] row says so, and a library links or opens one.
        """
        scopes = [self.scope_of(name, platform_of(record["file"])) for record in records]
        if not any(scope.get("own_runtime") for scope in scopes):
            return False
        for record in records:
            if linked_majors(record):
                raise DataError(f"scans.toml: {record['file']} links a CUDA runtime")
        return True

    def library_row(self, name: str, record: Record, scope: Row) -> Row:
        """Return the fields of a row that a record gives, without version and platform."""
        row = code_fields(record, scope, self.devices, self.toolkits)
        # Fat binaries among the constants of a library, which no scan reads: the newest PTX of a
        # release decides which driver compiles it.
        for kernels in self.kernels:
            if name in kernels["distributions"] and within(record["version"], kernels["versions"]):
                makers = [row["made_by"], self.toolkits[kernels["language"]]]
                row["made_by"] = max(makers, key=parse_pair)
                row["source"] += f"; {kernels['source']}"
        if name in self.carriers:
            row |= self.carrier_fields(name, record, scope)
        if scope.get("extension"):
            row |= self.extension_fields(name, record, row)
        return row

    def carrier_fields(self, name: str, record: Record, scope: Row) -> Row:
        """Return the toolkit fields of a carrier of a framework's device code.

        If the wheel does not name its toolkit, this is the newest toolkit of its PTX, otherwise
        the first one of its CUDA major.
        """
        fields = toolkit_fields(record, scope)
        if not fields["cuda"]:
            major, of_ptx = cuda_major(name, record["version"]), self.ptx_toolkits(record)
            fields["cuda"] = f"{major}.0" if major else None
            if of_ptx:
                fields["cuda"] = show_pair(max(of_ptx))
        return fields

    def extension_fields(self, name: str, record: Record, row: Row) -> Row:
        """Return the toolkit of an extension, and a source with what it links and requires."""
        majors = linked_majors(record)
        built = [] if "by_cuda" in row else [f"links CUDA {major}" for major in sorted(majors)]
        for text in record["requires"]:
            if re.match(r"torch\b(?!-)", text) and "extra" not in text:
                built.append(f"requires {text}")
                break
        source = "; ".join([row["source"], *built])
        if "by_cuda" in row or len(majors) > 1:
            return {"cuda": None, "source": source}
        known = self.ptx_toolkits(record)
        if not majors:  # the CUDA runtime is in the libraries themselves
            named = cuda_major(name, record["version"])
            majors = {named} if named else {pair[0] for pair in known}
        if len(majors) != 1:
            return {"cuda": None, "source": source}
        # The toolkit of its PTX, otherwise the oldest one that has its targets.
        (major,) = majors
        targets = {target for library in record["libraries"] for target in library["sass"]}
        toolkits = [pair for pair in known if pair[0] == major]
        for cuda in sorted(self.compilers):
            if cuda[0] == major and targets <= self.compilers[cuda]:
                toolkits.append(cuda)
                break
        return {"cuda": show_pair(max(toolkits, default=(major, 0))), "source": source}

    def ptx_toolkits(self, record: Record) -> list[CudaVersion]:
        """Return the first toolkits that write the PTX of a wheel, as far as they are known."""
        images = [image for library in record["libraries"] for image in library["ptx"]]
        makers = [self.toolkits.get(language) for _, language, _ in images]
        return [parse_pair(maker) for maker in makers if maker]

    def locked_row(self, wheel: Row, document: Row | None) -> Row:
        """Return the row of a wheel that public lock files name.

        Args:
            wheel: its row in pytorch_index.json.
            document: the [[elsewhere]] row of its distribution; without one its code is unknown.
        """
        file = wheel["file"].rpartition("/")[2]
        version = parse_wheel_filename(file)[1]
        row = {"version": str(version), "platform": platform_of(file), "sass": None, "ptx": None}
        source = f"{file} in {' and '.join(wheel['sources'][:2])}"
        cuda = named_toolkit(version.local or "", document["toolkits"] if document else [])
        if document is not None:
            compiled = self.compilers.get(parse_pair(cuda or "0.0"))
            targets = document["sass"]
            if compiled is not None:
                targets = [target for target in targets if target in compiled]
            row |= {"sass": targets, "ptx": []}
            source = f"{document['source']}; {source}"
        url = f"https://{wheel['file'].replace('+', '%2B')}#sha256={wheel['sha256']}"
        row |= {"made_by": None, "evidence": "documented", "source": source}
        return row | {"cuda": cuda, "url": url}


def release_order(row: Row) -> tuple[Any, int]:
    """Return the sort key of a row: its version, then its platform."""
    return version_key(row["version"]), [*PLATFORMS].index(row["platform"])


def cuda_major(name: str, version: str) -> int | None:
    """Return the CUDA major that the name of a distribution tells (-cu12, -cu118, -cuda12x).

    The versions of nvidia-cublas tell it, too.
    """
    match = re.search(r"-cu(?:da)?(\d\d)\d?x?\b", name)
    if match:
        return int(match[1])
    return version_key(version).major if name == "nvidia-cublas" else None


def named_toolkit(local: str, toolkits: list[str]) -> str | None:
    """Return the toolkit that a local version names: 12.9 for cu129.

    For cu12 it is the CUDA 12 toolkit of `toolkits`, otherwise 12.0.
    """
    match = re.search(r"cu(\d\d)(\d*)", local)
    if not match:
        return None
    if match[2]:
        return f"{match[1]}.{match[2]}"
    same_major = [toolkit for toolkit in toolkits if toolkit.startswith(f"{match[1]}.")]
    return same_major[0] if same_major else f"{match[1]}.0"


def linked_majors(record: Record) -> set[int]:
    """Return the CUDA majors whose runtime or cuBLAS the libraries of a wheel link or open.

    Records of 2026 and before have the DLLs that libraries of Windows import.
    """
    pattern = r"lib(?:cudart|cublas)\.so\.(\d\d)(?:\..*)?|(?:cudart64|cublas64)_(\d\d)\d*\.dll"
    names = {name for row in record["libraries"] for name in (*row["needs"], *row["opens"])}
    matches = (re.fullmatch(pattern, name) for name in names)
    return {int(match[1] or match[2]) for match in matches if match}
