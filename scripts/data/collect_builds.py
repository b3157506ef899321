"""Collect builds of the PyTorch index from public lock files.

    python scripts/tools.py data collect-builds PATH ... [--name OWNER/REPOSITORY]

A PATH is a lock file, a folder, or a git directory, of which all versions of the lock files are
read. uv.lock, pylock.toml, requirements and hash tables of Nix name the URL of a wheel and its
sha256. Each file of torch, torchvision and torchaudio becomes a row of
matrix_data/pytorch_index.json, with the lock files that name it; wheels of companions that only a
release page has (vllm, flash-attn, flashinfer) become rows of `companions` there. A hash that two
projects give is more certain than a hash that one project gives. Then the builds in the index
snapshot are written anew (pytorch_builds.py).

Exit status: 0 done, 1 two lock files give a file different hashes: nothing is written.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import urllib.parse
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from common import read_json
from data.compile import DATA
from data.pytorch_builds import TABLE
from data.rows import as_text
from data.snapshot import write_pytorch
from gpuenv.atomic_write import write_whole

LOCK = re.compile(
    r"(^|/)([^/]*\.lock|pylock[^/]*\.toml|[^/]*requirements[^/]*\.txt|[^/]*hash[^/]*\.(json|nix))$"
)
# https://download.pytorch.org/whl/cu129/torch-2.13.0%2Bcu129-cp312-cp312-manylinux_2_28_x86_64.whl
WHEEL = re.compile(
    r"https://download(?:-r2)?\.pytorch\.org/whl/"
    r"((?:cu\d+|cpu)/(?:torch|torchvision|torchaudio)-[^\"'\s#]+\.whl)"
)
COMPANION = re.compile(
    r"https://(github\.com/(?:vllm-project/vllm|Dao-AILab/flash-attention|flashinfer-ai/flashinfer"
    r"|mjun0812/flash-attention-prebuild-wheels)/releases/download/[^\"'\s#]+\.whl)"
)
# What follows the URL: a fragment, hash = "sha256:...", hashes = {sha256 = "..."},
# --hash=sha256:..., or a hash of Nix.
SHA256 = re.compile(
    r"""(?:\#sha256=|["',;\s]*\\?\s*"""
    r"""(?:"?hash(?:es)?"?\s*[=:]\s*\{?\s*(?:sha256\s*=\s*)?"(?:sha256:)?|--hash=sha256:))"""
    r"""([0-9a-f]{64})"""
)
NIX = re.compile(r"""["',;\s]*"?hash"?\s*[=:]\s*"sha256-([A-Za-z0-9+/]{43}=)""")


def wheels(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield (file below the index, sha256) of each wheel that a lock file names with a hash."""
    for match in pattern.finditer(text):
        file = urllib.parse.unquote(match[1])
        rest = text[match.end() : match.end() + 200]
        if sha256 := SHA256.match(rest):
            yield file, sha256[1]
        elif nix := NIX.match(rest):
            yield file, base64.b64decode(nix[1]).hex()


def locks(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of each lock file at a path. A git directory gives every version."""
    if path.is_file():
        yield path.name, path.read_text(encoding="utf-8", errors="replace")
    elif (path / "HEAD").exists() and (path / "objects").exists():
        yield from git_locks(path)
    else:
        for file in sorted(path.rglob("*")):
            if file.is_file() and LOCK.search(str(file)):
                yield (
                    str(file.relative_to(path)),
                    file.read_text(encoding="utf-8", errors="replace"),
                )


def git_locks(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of each version of each lock file in a git directory."""
    git = ["git", "-C", str(path)]
    listed = subprocess.run(
        [*git, "rev-list", "--objects", "--all"], stdout=subprocess.PIPE, check=True
    )
    for line in listed.stdout.decode(errors="replace").splitlines():
        blob, _, name = line.partition(" ")
        if LOCK.search(name):
            content = subprocess.run(
                [*git, "cat-file", "blob", blob], capture_output=True, check=False
            )
            yield name, content.stdout.decode(errors="replace")


def merged(rows: list[dict[str, Any]], new: Iterable[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """Return the rows with the (file, sha256, source) of lock files added.

    Raises:
        ValueError: a file has two hashes.
    """
    known = {row["file"]: {**row, "sources": list(row["sources"])} for row in rows}
    for file, sha256, source in new:
        row = known.setdefault(file, {"file": file, "sha256": sha256, "sources": []})
        if row["sha256"] != sha256:
            raise ValueError(
                f"{file}: {row['sha256']} in {row['sources'][0]}, {sha256} in {source}"
            )
        if source not in row["sources"]:
            row["sources"].append(source)
    return [{**row, "sources": sorted(row["sources"])} for _, row in sorted(known.items())]


ARGUMENTS = {
    "paths": {"nargs": "+", "type": Path, "metavar": "PATH"},
    "--name": {"default": "", "help": "the project (default: the name of the folder)"},
    "--folder": {"type": Path, "default": DATA},
}


def main(options: Namespace) -> int:
    """Read lock files. Return the exit status."""
    content = read_json(options.folder / TABLE)
    before = len(content["wheels"])
    named: dict[str, list[tuple[str, str, str]]] = {"wheels": [], "companions": []}
    for path in options.paths:
        for name, text in locks(path):
            source = f"{options.name or path.resolve().name}:{name}"
            for table, pattern in (("wheels", WHEEL), ("companions", COMPANION)):
                named[table] += [(file, sha256, source) for file, sha256 in wheels(text, pattern)]
    try:
        for table, files in named.items():
            content[table] = merged(content[table], files)
    except ValueError as error:
        print(f"contradiction: {error}", file=sys.stderr)
        return 1
    write_whole(str(options.folder / TABLE), as_text(content).encode())
    write_pytorch(options.folder)
    total = len(content["wheels"])
    print(f"{total - before} new of {total} files")
    return 0
