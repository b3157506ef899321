"""Make wheels again of what is installed, with the files that RECORD lists.

    PYTHON scripts/tools.py prove rewheel --dest wheels [NAME ...]

For hosts without a network that hold the frameworks already: the wheels go into a folder for
`gpuenv solve --find-links`. They are those of the interpreter that runs this, which needs nothing
else; without names all of them. Files are stored, not compressed: the wheels are read once. Scripts
outside the library folder are left out (entry points make them again), and so is bytecode.
"""

from __future__ import annotations

import csv
import io
import os
import re
import sysconfig
import zipfile
from argparse import Namespace
from importlib.metadata import Distribution, distributions
from pathlib import Path

ARGUMENTS = {"--dest": {"required": True, "type": Path}, "names": {"nargs": "*", "metavar": "NAME"}}
LEFT_OUT = ("INSTALLER", "REQUESTED", "direct_url.json", "RECORD")


def build(dist: Distribution, dest: Path) -> Path:
    """Write the wheel of a distribution, and return its path."""
    tags = re.findall(r"^Tag: (\S+)-(\S+)-(\S+)$", dist.read_text("WHEEL") or "", re.MULTILINE)
    tag = "-".join(".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True))
    name = re.sub(r"[-_.]+", "_", dist.metadata["Name"]).lower()
    path = dest / f"{name}-{dist.version}-{tag}.whl"
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(f"{path}.tmp", "w", strict_timestamps=False) as wheel:
        # The hashes are those that the publisher wrote: verify compares with them.
        for file, digest, size in csv.reader((dist.read_text("RECORD") or "").splitlines()):
            folder, _, entry = file.rpartition("/")
            # Not that of a vendored distribution.
            is_info = folder.endswith(".dist-info") and "/" not in folder
            if is_info and entry == "RECORD":
                info = file
            if file.startswith("..") or entry.endswith(".pyc") or (is_info and entry in LEFT_OUT):
                continue
            wheel.write(dist.locate_file(file), file)
            rows.writerow((file, digest, size))
        rows.writerow((info, "", ""))
        wheel.writestr(info, record.getvalue())
    os.replace(f"{path}.tmp", path)
    return path


def main(arguments: Namespace) -> None:
    """Make the wheels, and name them."""
    arguments.dest.mkdir(parents=True, exist_ok=True)
    for dist in distributions(path=[sysconfig.get_path("platlib")]):
        if dist.files and dist.name in (arguments.names or [dist.name]):
            print(build(dist, arguments.dest), flush=True)
