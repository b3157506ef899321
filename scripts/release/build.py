"""Build the wheel and the source distribution, so that the same commit gives the same bytes.

    python scripts/tools.py release build dist

The files are those of the last commit, never those of the working copy. Their time is that of the
commit, or SOURCE_DATE_EPOCH. The wheel has a bill of materials (PEP 770, CycloneDX) of what gpuenv
requires. The bytes depend on the commit, on setuptools and on Python's zlib.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from argparse import Namespace
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement

from common import ROOT
from gpuenv.lock import sbom

BILL = "sboms/gpuenv.cdx.json"  # in the folder .dist-info


def git(*words: str) -> bytes:
    """Return what git prints about the repository."""
    return subprocess.run(
        ["git", "-C", str(ROOT), *words], stdout=subprocess.PIPE, check=True
    ).stdout


def build(folder: Path) -> list[Path]:
    """Build the files of the last commit into a folder, and return them."""
    folder.mkdir(parents=True, exist_ok=True)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as name:
        source, made = Path(name) / "source", Path(name) / "made"
        with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD"))) as archive:
            archive.extractall(source, filter="data")
        variables = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
        command = [sys.executable, "-m", "build", "--outdir", str(made), str(source)]
        subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, check=True)
        (sdist,), (wheel,) = made.glob("*.tar.gz"), made.glob("*.whl")
        write_sdist(sdist, folder / sdist.name, epoch)
        write_wheel(wheel, folder, epoch)
    return [folder / sdist.name, folder / wheel.name]


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


def write_wheel(source: Path, folder: Path, epoch: int) -> None:
    """Copy a wheel into a folder, with its bill of materials and without modes of the machine."""
    command = [sys.executable, "-m", "wheel"]
    variables = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(
            [*command, "unpack", "--dest", name, source], check=True, capture_output=True
        )
        (content,) = Path(name).iterdir()
        (metadata,) = content.glob("*.dist-info/METADATA")
        bill = metadata.with_name("sboms") / Path(BILL).name
        bill.parent.mkdir()
        bill.write_text(bill_of(metadata.read_text(encoding="utf-8")), encoding="utf-8")
        for path in content.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        pack = [*command, "pack", "--dest-dir", str(folder), str(content)]
        subprocess.run(pack, env=variables, check=True, capture_output=True)


def bill_of(metadata: str) -> str:
    """Return the bill of what a distribution requires, from its core metadata."""
    message = Parser().parsestr(metadata)
    name, version = str(message["Name"]), str(message["Version"])
    needed = [Requirement(text) for text in message.get_all("Requires-Dist", [])]
    names = sorted({need.name for need in needed if "extra" not in str(need.marker or "")})
    parts = [sbom.Component(name=name, purl=sbom.package_url("pypi", name)) for name in names]
    purl = sbom.package_url("pypi", name, version)
    root = sbom.Component(name=name, version=version, purl=purl, requires=tuple(names))
    return sbom.text_of(sbom.cyclonedx(root, parts))


ARGUMENTS = {
    "folder": {"type": Path},
}


def main(arguments: Namespace) -> int:
    """Build, and print the hashes."""
    for path in build(arguments.folder):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}")
    return 0
