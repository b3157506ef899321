"""Update the compatibility data from the default index: scan new wheels, write rows, compare.

    python scripts/tools.py data refresh [--date YYYY-MM-DD] [--dry-run] [DISTRIBUTION ...]

1. Scans the releases that the [[scan]] rows ask for and that have no record. Each record is written
   at once, so that an interrupted run goes on where it ended.
2. Derives the rows and the tables (compile.py), and prints each row that is new or changed. Look at
   documented rows that a scan contradicts.
3. Prints the records whose wheels the index no longer has.
4. Checks the data (check.py).

Exit status: 0 done, 1 a contradiction, or a wheel that could not be read; what could be read is
written all the same. With --dry-run the wheels are only named.
"""

from __future__ import annotations

import difflib
import re
import sys
from argparse import Namespace
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from data.check import contradictions
from data.compile import DATA, compiled
from data.index import UNREADABLE, DefaultIndex, say
from data.scan_releases import Scans, scan
from gpuenv.atomic_write import write_whole
from gpuenv.compat import data as matrix
from gpuenv.model import Wheel

THREADS = 4


def scan_all(index: DefaultIndex, wheels: Iterable[Wheel], scans: Scans) -> list[str]:
    """Write a record for each wheel. Return the errors of those that cannot be read."""
    errors = []
    with ThreadPoolExecutor(THREADS) as pool:
        running = {pool.submit(scan, index, wheel): wheel for wheel in wheels}
        for number, future in enumerate(as_completed(running), 1):
            filename = running[future].filename
            try:
                scans.put(future.result())
            except UNREADABLE as error:
                errors.append(f"{filename}: {error}")
            say(f"{number} of {len(running)}: {filename}")
    return errors


def set_date(folder: Path, date: str) -> None:
    """Write the date of the data, also as the version of the distribution gpuenv-matrix."""
    dates = {
        "matrix.toml": f"date = {date}",
        "__init__.py": f'__version__ = "{date.replace("-", ".")}"',
    }
    for name, line in dates.items():
        path = folder / name
        if path.exists():
            field = line.partition(" =")[0]
            text = re.sub(f"^{field} = .*", line, path.read_text("utf-8"), flags=re.MULTILINE)
            write_whole(str(path), text.encode())


ARGUMENTS = {
    "distributions": {"nargs": "*", "metavar": "DISTRIBUTION"},
    "--folder": {"type": Path, "default": DATA, "help": "the data (default: this checkout's)"},
    "--date": {"help": "the date of the data, YYYY-MM-DD (default: as it is)"},
    "--dry-run": {"action": "store_true", "help": "only name the wheels to scan"},
}


def main(options: Namespace) -> int:
    """Refresh the data. Return the exit status."""
    folder, index, scans = options.folder, DefaultIndex(), Scans(options.folder)
    missing = list(scans.missing(index, options.distributions))
    for wheel in missing:
        print(f"to scan: {wheel.filename}")
    if options.dry_run:
        return 0
    errors = scan_all(index, missing, scans)
    if options.date:
        set_date(folder, options.date)
    for path, old, new in compiled(folder):
        if path.name != "tables.json":
            rows = old.splitlines(), new.splitlines()
            print(*difflib.unified_diff(*rows, path.name, path.name, n=0, lineterm=""), sep="\n")
    for name in options.distributions or scans.names():
        files = {wheel.filename for wheel in index.pages.files(name)}
        for record in scans.of(name):
            if record["file"] not in files:
                print(f"no longer on the index: {record['file']}")
    wrong = contradictions(matrix.load(str(folder)))
    for line in wrong:
        print(f"contradiction: {line}", file=sys.stderr)
    for line in errors:
        print(f"error: {line}", file=sys.stderr)
    print(f"{len(missing) - len(errors)} scanned, {len(wrong)} contradictions")
    return 1 if wrong or errors else 0
