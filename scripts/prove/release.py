"""Build the files of a release, so that the same commit gives the same bytes, and check them.

    tools.py prove release build dist    # write the wheel and the source distribution
    tools.py prove release check dist --tag v1.2.3    # build again, compare, validate each file
    tools.py prove release notes    # print what CHANGELOG.md says of this version

`build` takes the files of the last commit, never those of the working copy. Their time is that of
the commit, or SOURCE_DATE_EPOCH. The wheel has a bill of materials
(PEP 770, CycloneDX) of what gpuenv requires. The bytes depend on the commit, on setuptools and on
Python's zlib.

To make a release, change the version in resolver/gpuenv/version.py, CITATION.cff and
scripts/recipes/recipe.yaml and the heading in CHANGELOG.md, and push the tag vX.Y.Z: the workflow
release.yml runs these commands, signs and publishes the files as a trusted publisher of the index,
and makes the release on GitHub. The commands need `pip install '.[release]'`. With
`pip install '.[workflows]'`, actionlint and zizmor check the workflows.
"""

from __future__ import annotations

import argparse
import base64
import csv
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement

from common import ROOT
from gpuenv.lock import sbom
from gpuenv.version import __version__

BILL = "sboms/gpuenv.cdx.json"


def git(*words: str) -> bytes:
    """Return what git prints about the repository."""
    return subprocess.run(
        ["git", "-C", str(ROOT), *words], stdout=subprocess.PIPE, check=True
    ).stdout


def commit_time() -> int:
    """Return the time that every file of the release gets."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct"))


def build(folder: Path) -> list[Path]:
    """Build the files of the last commit into a folder, and return them."""
    folder.mkdir(parents=True, exist_ok=True)
    epoch = commit_time()
    with tempfile.TemporaryDirectory() as name:
        source, made = Path(name) / "source", Path(name) / "made"
        with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD"))) as archive:
            archive.extractall(source, filter="data")
        variables = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
        command = [sys.executable, "-m", "build", "--outdir", str(made), str(source)]
        subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, check=True)
        (sdist,), (wheel,) = made.glob("*.tar.gz"), made.glob("*.whl")
        written = [folder / sdist.name, folder / wheel.name]
        write_sdist(sdist, written[0], epoch)
        write_wheel(wheel, written[1], epoch)
    return written


def write_sdist(source: Path, target: Path, epoch: int) -> None:
    """Copy a source distribution without times, owners and modes of the machine that built it."""
    with (
        tarfile.open(source) as given,
        target.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member in sorted(given.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            archive.addfile(member, given.extractfile(member) if member.isfile() else None)


def write_wheel(source: Path, target: Path, epoch: int) -> None:
    """Copy a wheel with its bill of materials, and without what only the machine says."""
    with zipfile.ZipFile(source) as given:
        files = {name: given.read(name) for name in given.namelist() if not name.endswith("/")}
    (record,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    info = record.removesuffix("RECORD")
    files[info + BILL] = bill_of(files[info + "METADATA"].decode()).encode()
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    for name in sorted(files.keys() - {record}):
        writer.writerow((name, digest(files[name]), len(files[name])))
    writer.writerow((record, "", ""))
    files[record] = rows.getvalue().encode()
    # ZIP knows no time before 1980, and RECORD is the last file.
    when = time.gmtime(max(epoch, 315_532_800))[:6]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name in [*sorted(files.keys() - {record}), record]:
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr = 0o100644 << 16
            entry.create_system = 3
            wheel.writestr(entry, files[name], zipfile.ZIP_DEFLATED)


def digest(data: bytes) -> str:
    """Return the hash of a file as RECORD writes it."""
    value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={value.decode()}"


def bill_of(metadata: str) -> str:
    """Return the bill of what a distribution requires, from its core metadata."""
    message = Parser().parsestr(metadata)
    name, version = str(message["Name"]), str(message["Version"])
    needed = [Requirement(text) for text in message.get_all("Requires-Dist", [])]
    names = sorted({need.name for need in needed if "extra" not in str(need.marker or "")})
    parts = [sbom.Component(name=name, purl=sbom.pypi_purl(name)) for name in names]
    purl = sbom.pypi_purl(name, version)
    root = sbom.Component(name=name, version=version, purl=purl, requires=tuple(names))
    return sbom.text_of(sbom.cyclonedx(root, parts))


def check(folder: Path, tag: str) -> list[str]:
    """Return what is wrong with the files of a release."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    faults = []
    if tag and tag != f"v{__version__}":
        faults.append(f"the tag is {tag}, the version {__version__}")
    files = sorted((*folder.glob("*.tar.gz"), *folder.glob("*.whl")))
    with tempfile.TemporaryDirectory() as name:
        # As on another machine.
        old = os.umask(0o077)
        os.environ |= {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
        try:
            again = build(Path(name))
        finally:
            os.umask(old)
        if {path.name: path.read_bytes() for path in files} != {
            path.name: path.read_bytes() for path in again
        }:
            faults.append("a second build gives other files or other bytes")
    for path in folder.glob("*.whl"):
        with zipfile.ZipFile(path) as wheel:
            (bill,) = (name for name in wheel.namelist() if name.endswith(BILL))
            error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(wheel.read(bill).decode())
        if error is not None:
            faults.append(f"{bill}: {error}")
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return faults + ([done.stdout + done.stderr] if done.returncode else [])


def notes() -> str:
    """Return the section of this version in the changelog."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    (section,) = (part for part in sections if part.split()[0] == __version__)
    return section.partition("\n")[2].strip()


def main(words: list[str]) -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("build", "check"):
        commands.add_parser(name).add_argument("folder", type=Path)
    commands.choices["check"].add_argument("--tag", default="")
    commands.add_parser("notes")
    arguments = parser.parse_args(words)
    if arguments.command == "notes":
        print(notes())
        return 0
    if arguments.command == "build":
        files = build(arguments.folder)
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}" for path in files]
        print("\n".join(lines))
        return 0
    faults = check(arguments.folder, arguments.tag)
    print("\n".join(faults) or "every file is right, and a second build gives the same bytes")
    return 1 if faults else 0
