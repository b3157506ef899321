"""Update the compatibility data from the index: scan new wheels, write the rows, print the changes.

    python scripts/tools.py data refresh --cache DIR [--jobs N] [--date YYYY-MM-DD] [--dry-run]
    [DISTRIBUTION ...]

1. Finds the releases that the [[scan]] rows ask for and that have no scan (scan_releases.py), and
   scans them.
2. Derives the rows of libraries/ and frameworks/ from the scans (derive_rows.py) and compiles the
   tables (compile_matrix.py).
3. Prints each row that is new or changed, and what no longer holds: a documented row that a scan
   contradicts, a scan whose wheel the index no longer has.
4. Checks the data against itself (check_matrix.py).

Exit status: 0 done, 1 a contradiction, or a wheel that could not be read; what could be read is
written all the same. With --dry-run nothing is scanned or written. The index snapshot is made anew
by build_snapshot.py.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data import check as check_matrix
from data import compile as compile_matrix
from data import derive_rows
from data.registry import Registry, simple_url, write
from data.scan_releases import DATA, Scans, scan_missing, scopes, wanted
from gpuenv.compat import data as matrix

FACTS = ("variant", "cuda", "cudnn", "sass", "ptx", "made_by", "evidence")


def rows(text: str) -> dict[str, dict[str, Any]]:
    """Return the rows of a file of releases or builds, by what names them."""
    data = json.loads(text) if text else {}
    listed = data.get("releases", data.get("builds", []))
    return {f"{row.get('local', row['version'])} on {row['platform']}": row for row in listed}


def changes(name: str, old: str, new: str) -> Iterator[str]:
    """Yield one line for each row that is new, changed or gone."""
    before, after = rows(old), rows(new)
    for key, row in after.items():
        if key not in before:
            yield f"new: {name} {key}: {told(row)}"
        elif differing := [field for field in FACTS if before[key].get(field) != row.get(field)]:
            old_row = before[key]
            was = ", ".join(
                f"{field} {shown(old_row.get(field))} -> {shown(row.get(field))}"
                for field in differing
            )
            held = old_row["evidence"] == "documented" and {"sass", "ptx", "cuda"} & {*differing}
            yield f"{'no longer holds' if held else 'changed'}: {name} {key}: {was}"
    for key in before.keys() - after.keys():
        yield f"gone: {name} {key}"


def told(row: dict[str, Any]) -> str:
    """Return a short text of a row."""
    return ", ".join(
        f"{field} {shown(row[field])}" for field in FACTS if row.get(field) not in (None, [])
    )


def shown(value: object) -> str:
    """Return the value of a field as text for a line."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def vanished(scans: Scans, registry: Registry) -> Iterator[str]:
    """Yield the scans whose wheels the index no longer has."""
    for name in scans.names():
        have = {wheel["filename"] for wheel in registry.files(name)}
        yield from (
            f"no longer on the index: {scan['file']}"
            for scan in scans.of(name)
            if scan["file"] not in have
        )


def refresh(options: argparse.Namespace) -> int:
    """Refresh the data, and return the exit status."""
    folder = Path(options.folder)
    scope = tomllib.loads((folder / "scans.toml").read_text(encoding="utf-8")) | {
        "scan": scopes(folder)
    }
    scans, registry = (
        Scans(str(folder / "scans")),
        Registry(simple_url(), os.path.join(options.cache, "metadata")),
    )
    wheels = wanted(scope, registry, options.distributions)
    missing = [
        wheel
        for wheel in wheels
        if not any(have["file"] == wheel["filename"] for have in scans.of(wheel["name"]))
    ]
    for wheel in missing:
        print(f"to scan: {wheel['filename']}")
    if options.dry_run:
        return 0
    errors = scan_missing(wheels, scans, options.cache, options.jobs)
    for path, text in derive_rows.derived(folder):
        old = path.read_text(encoding="ascii") if path.exists() else ""
        if text != old:
            for line in changes(path.stem, old, text):
                print(line)
            write(str(path), text)
    if options.date:
        head, _, _ = (folder / "matrix.toml").read_text(encoding="utf-8").rpartition("date =")
        write(str(folder / "matrix.toml"), f"{head}date = {options.date}\n")
        package = folder / "__init__.py"  # of the distribution gpuenv-matrix
        if package.exists():
            version = f'__version__ = "{options.date.replace("-", ".")}"'
            text = package.read_text(encoding="utf-8")
            write(str(package), re.sub("__version__ = .*", version, text, count=1))
    compile_matrix.write(folder / "tables.json", compile_matrix.render(folder))
    for line in vanished(scans, registry):
        print(line)
    wrong = check_matrix.check(matrix.load(str(folder))).contradictions
    for line in wrong:
        print(f"contradiction: {line}", file=sys.stderr)
    for line in errors:
        print(f"error: {line}", file=sys.stderr)
    print(f"{len(missing) - len(errors)} scanned, {len(wrong)} contradictions")
    return 1 if wrong or errors else 0


def main(words: list[str]) -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("distributions", nargs="*", metavar="DISTRIBUTION")
    parser.add_argument("--folder", default=DATA, help="the data (default: this checkout's)")
    parser.add_argument(
        "--cache", default=".scan-cache", help="folder for what was read from wheels"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--date", help="the date of the data, YYYY-MM-DD (default: as it is)")
    parser.add_argument(
        "--dry-run", action="store_true", help="only name the wheels that lack a scan"
    )
    return refresh(parser.parse_args(words))
