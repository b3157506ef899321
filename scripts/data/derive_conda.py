"""Derive the rows of conda packages from repodata: derive_conda.py [--check] FILE ...

Each FILE is a channel's repodata.json or a list of records with their "url" and "channel". What a
record says is written to matrix_data/scans/conda/<package>.json: a row for each build of a
framework's carrier, of cuDNN, and of the packages whose version is the CUDA of an environment.
Architectures are those of matrix_data/conda/carriers.json, else null: unknown. No gpuenv that is
installed reads these rows: the tests hold the rules and carriers.json against them, so that a
change of either is seen on every build that was ever read. Rows of earlier files stay. With --check
nothing is written, and the exit status is 1 if a row would change.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import ROOT
from gpuenv.compat import conda_records
from gpuenv.model import show_pair
from gpuenv.requirements import conda_versions

FOLDER = ROOT / "matrix_data" / "scans" / "conda"
SUBDIRS = ("linux-64", "linux-aarch64", "noarch", "win-64")
PYTORCH = "https://conda.anaconda.org/pytorch"
Key = tuple[str, ...]


def records(path: Path, channel: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a file, each with its channel and file name."""
    data = json.loads(path.read_text())
    if isinstance(data, list):
        for record in data:
            yield {**record, "fn": record["url"].rpartition("/")[2]}
        return
    subdir = data["info"]["subdir"]
    for name, record in {**data["packages"], **data.get("packages.conda", {})}.items():
        yield {
            "subdir": subdir,
            **record,
            "fn": name,
            "channel": channel,
            "url": f"{channel}/{subdir}/{name}",
        }


def least_cuda(record: dict[str, Any]) -> str | None:
    """Return the oldest `__cuda` of a record's depends and constrains; "" is any, None is none."""
    for dependency in (*(record.get("depends") or ()), *(record.get("constrains") or ())):
        name, spec, _ = conda_versions.split(dependency)
        if name == "__cuda":
            return conda_versions.lower_bound(spec) or ""
    return None


def row(record: dict[str, Any], carriers: conda_records.Carriers) -> dict[str, Any]:
    """Return the fields of a record that the row keeps."""
    fields: dict[str, Any] = {
        "name": record["name"],
        "version": record["version"],
        "build": record["build"],
        "channel": conda_records.channel_name(record["channel"]),
        "subdir": record["subdir"],
    }
    build = carriers.row(record)
    if build is not None:
        cuda = None if build.cuda is None else show_pair(build.cuda)
        sass, ptx = (
            [*codes] if codes is not None else None for codes in (build.code.sass, build.code.ptx)
        )
        fields |= {
            "cuda": cuda,
            "cudnn": build.cudnn,
            "sass": sass,
            "ptx": ptx,
            "evidence": "documented",
        }
        fields |= {"architectures": build.code.source}
    elif record["name"] in conda_records.CUDNN:
        asked = [conda_versions.split(dependency) for dependency in record["depends"]]
        fields["cuda"] = [
            f"{name} {spec}" for name, spec, _ in asked if name in conda_records.TOOLKITS
        ]
    fields |= {
        "__cuda": least_cuda(record),
        "file": record["fn"],
        "sha256": record.get("sha256"),
    }
    return fields | {"source": f"repodata of {record['channel']}"}


def key(fields: dict[str, Any]) -> Key:
    """Return the key that identifies a build."""
    return fields["channel"], fields["subdir"], fields["file"]


def in_order(fields: dict[str, Any]) -> Any:
    """Return the sort key of a row: version, channel and build."""
    return (
        conda_versions.version(fields["version"]),
        fields["channel"],
        fields["subdir"],
        fields["build"],
    )


def text(package: str, rows: list[dict[str, Any]]) -> str:
    """Return the text of a file of rows, with one on each line."""
    lines = ",\n".join("  " + json.dumps(fields) for fields in sorted(rows, key=in_order))
    return f'{{\n "package": {json.dumps(package)},\n "rows": [\n{lines}\n ]\n}}\n'


def main(words: list[str]) -> int:
    """Read, derive, and write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument(
        "--channel", default=PYTORCH, help="of a repodata.json, which does not say it"
    )
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args(words)
    carriers = conda_records.Carriers(str(ROOT / "matrix_data"))
    wanted = {
        *carriers.carriers.values(),
        *conda_records.CUDNN,
        *conda_records.TOOLKITS,
        "cuda-arch",
    }
    tables: dict[str, dict[Key, dict[str, Any]]] = {}
    for package in wanted:
        path = FOLDER / f"{package}.json"
        earlier = json.loads(path.read_text())["rows"] if path.exists() else []
        tables[package] = {key(fields): fields for fields in earlier}
    for path in arguments.files:
        for record in records(path, arguments.channel):
            if record["name"] in wanted and record["subdir"] in SUBDIRS:
                fields = row(record, carriers)
                tables[record["name"]][key(fields)] = fields
    stale = 0
    for package, table in sorted(tables.items()):
        path = FOLDER / f"{package}.json"
        if not table or (path.exists() and path.read_text() == text(package, list(table.values()))):
            continue
        stale += 1
        print(f"{path.name}: {len(table)} rows")
        if not arguments.check:
            path.write_text(text(package, list(table.values())))
    return 1 if arguments.check and stale else 0
