"""Check the files of a release: build them again, compare the bytes, and validate each file.

python scripts/tools.py release check dist --tag v1.2.3
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from argparse import Namespace
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from gpuenv.version import __version__
from release.build import BILL, build


def differences(files: list[Path]) -> list[str]:
    """Return which files another build, as on another machine, does not give."""
    with tempfile.TemporaryDirectory() as name:
        umask = os.umask(0o077)
        os.environ |= {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
        try:
            again = {path.name: path.read_bytes() for path in build(Path(name))}
        finally:
            os.umask(umask)
    first = {path.name: path.read_bytes() for path in files}
    names = sorted(name for name in first | again if first.get(name) != again.get(name))
    return [f"a second build gives other bytes: {name}" for name in names]


ARGUMENTS = {
    "folder": {"type": Path},
    "--tag": {"required": True},
}


def main(options: Namespace) -> int:
    """Print what is wrong."""
    files = sorted((*options.folder.glob("*.tar.gz"), *options.folder.glob("*.whl")))
    faults = differences(files)
    if options.tag != f"v{__version__}":
        faults.append(f"the tag is {options.tag}, the version {__version__}")
    for path in options.folder.glob("*.whl"):
        with zipfile.ZipFile(path) as wheel:
            (bill,) = (name for name in wheel.namelist() if name.endswith(BILL))
            error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(wheel.read(bill).decode())
        if error is not None:
            faults.append(f"{bill}: {error}")
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        faults.append(done.stdout + done.stderr)
    print("\n".join(faults) or "every file is right, and a second build gives the same bytes")
    return 1 if faults else 0
