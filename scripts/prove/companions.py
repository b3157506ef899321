"""Prove what `gpuenv verify` says of environments that are really installed, on a host without GPU.

    tools.py prove companions --work DIR [--find-links DIR] [--only TEXT] [--record FILE]

Two environments are made with wheels of the default index: torch 2.14.1 with its CUDA libraries,
and torch 2.2.2, whose CUDA libraries are replaced by stubs with their sonames and symbols (they are
3 GB, and no GPU is used). Each case is a copy of one of them by hard links, with one change. A
broken one must not be verified, and a failed check must name the package; a healthy one must be
verified. Cases are read from scripts/companion_cases.toml. DIR needs 12 GB.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from common import ROOT, write_record
from gpuenv.interpreters import find_uv

CASES = tomllib.loads((ROOT / "scripts" / "companion_cases.toml").read_text(encoding="utf-8"))
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
SITE = Path("lib") / f"python{PYTHON}" / "site-packages"
SYMBOL = re.compile(r"^\s*U ((?:__)?(?:cu|nv|nccl)\w+)(?:@(lib\S+))?$", re.MULTILINE)
# What a stub returns: 8.9.2 is cuDNN's number, 100 is cudaErrorNoDevice.
RESULTS = {"cudnnGetVersion": "8902", "cudaGetErrorString": '(long)"a stub"'}


def uv(*words: str) -> None:
    """Run uv."""
    subprocess.run([find_uv() or "uv", *words], check=True)


def add_distribution(site: Path, name: str, version: str, files: dict[str, Path]) -> None:
    """Add a distribution with files, {path in site: where it is now}, and its RECORD."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    (site / info).mkdir(parents=True)
    metadata = site / info / "METADATA"
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    rows = [f"{info}/RECORD,,\n"]
    for path, source in {**files, f"{info}/METADATA": metadata}.items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source != target:
            shutil.copy(source, target)
        digest = base64.urlsafe_b64encode(hashlib.sha256(target.read_bytes()).digest()).decode()
        rows.append(f"{path},sha256={digest.rstrip('=')},{target.stat().st_size}\n")
    (site / info / "RECORD").write_text("".join(rows))


def add_stubs(site: Path, work: Path) -> None:
    """Install stubs of the CUDA libraries, with the functions that torch needs.

    A version of a symbol is the soname of its library. Symbols without one are cuDNN's, or go to
    the first library.
    """
    symbols: dict[str, set[str]] = {}
    for library in (site / "torch" / "lib").glob("*.so*"):
        command = ["nm", "-D", "--undefined-only", str(library)]
        for name, version in SYMBOL.findall(subprocess.check_output(command, text=True)):
            home = version or ("libcudnn.so.8" if name.startswith("cudnn") else "libcudart.so.12")
            symbols.setdefault(home, set()).add(name)
    symbols["libcudnn.so.8"].add("cudnnGetVersion")
    symbols["libcudart.so.12"].add("cudaGetDriverEntryPoint")  # of xformers
    for name, row in CASES["stubs"].items():
        files = {}
        for soname in row["libraries"]:
            functions = [
                f"long {name}(void) {{ return {RESULTS.get(name, 0 if name[0] == '_' else 100)}; }}"
                for name in sorted(symbols.get(soname, ()))
            ]
            (work / "stub.c").write_text("\n".join(functions) + "\n")
            (work / "stub.map").write_text(f"{soname} {{ global: *; }};\n")
            flags = ["-shared", "-fPIC", "-w", "-fno-builtin", "-Wl,--version-script=stub.map"]
            command = ["gcc", *flags, f"-Wl,-soname,{soname}", "-o", soname, "stub.c"]
            subprocess.run(command, cwd=work, check=True)
            files[f"nvidia/{row['folder']}/lib/{soname}"] = work / soname
        add_distribution(site, name, row["version"], files)


def make_base(name: str, work: Path, find_links: list[str]) -> Path:
    """Return an environment of the table "bases"; it is kept for the next run."""
    row, target = CASES["bases"][name], work / name
    if (target / "done").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    uv("venv", "-q", "--python", sys.executable, str(target))
    links = [word for folder in find_links for word in ("--find-links", folder)]
    install = ["pip", "install", "-q", "--python", str(target / "bin" / "python"), *links]
    uv(*install, *row.get("requires", ()))
    if "alone" in row:
        uv(*install, "--no-deps", *row["alone"])
        triton = work / "triton.py"
        triton.write_text("__version__ = '2.2.0'\n")
        add_distribution(target / SITE, "triton", "2.2.0", {"triton/__init__.py": triton})
        add_stubs(target / SITE, work)
    (target / "done").touch()
    return target


def change(case: dict[str, Any], target: Path, find_links: list[str]) -> None:
    """Change an environment as a case says. Files are replaced, never written into."""
    python, site = str(target / "bin" / "python"), target / SITE
    links = [word for folder in find_links for word in ("--find-links", folder)]
    if case.get("uninstall"):
        uv("pip", "uninstall", "-q", "--python", python, *case["uninstall"])
    if case.get("install"):
        flags = [] if case.get("dependencies") else ["--no-deps"]
        uv("pip", "install", "-q", "--python", python, *links, *flags, *case["install"])
    for pattern in case.get("remove", ()):
        for path in list(site.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for pattern, length in case.get("cut", {}).items():
        for path in site.glob(pattern):
            data = path.read_bytes()[:length]
            path.unlink()
            path.write_bytes(data)
    for pattern, text in case.get("append", {}).items():
        for path in site.glob(pattern):
            data = path.read_bytes() + text.encode()
            path.unlink()
            path.write_bytes(data)


def verify(target: Path) -> tuple[int, dict[str, Any], float]:
    """Run `gpuenv verify --no-device --fast --json`: its status, its document, its seconds."""
    flags = ["--no-device", "--fast", "--json"]
    command = [sys.executable, "-m", "gpuenv", "verify", *flags]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "resolver")}
    begin = time.monotonic()
    done = subprocess.run(
        [*command, "--target", str(target)], env=env, capture_output=True, text=True, check=False
    )
    seconds = round(time.monotonic() - begin, 1)
    return done.returncode, json.loads(done.stdout or "{}"), seconds


def main(words: list[str]) -> None:
    """Run the cases and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--find-links", action="append", default=[])
    parser.add_argument(
        "--only",
        default="",
        help="only cases with this text in their name; the record keeps its other rows",
    )
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args(words)
    arguments.work.mkdir(parents=True, exist_ok=True)
    known: dict[str, dict[str, Any]] = {}  # rows that the record has of cases that are left out
    if arguments.only and arguments.record and arguments.record.exists():
        known = {row["case"]: row for row in json.loads(arguments.record.read_text())["cases"]}
    rows: list[dict[str, Any]] = []
    for case in CASES["case"]:
        if arguments.only not in case["name"]:
            rows += [known[case["name"]]] if case["name"] in known else []
            continue
        base = make_base(case["base"], arguments.work, arguments.find_links)
        target = arguments.work / "case"
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(["cp", "-al", str(base), str(target)], check=True)
        change(case, target, arguments.find_links)
        status, document, seconds = verify(target)
        checks = document.get("checks", [])
        failed = [check for check in checks if check["status"] == "fail"]
        texts = [f"{check['name']} {check['subject']}: {check['evidence']}" for check in failed]
        names = case.get("names", "")
        right = (status, bool(texts)) == ((1, True) if names else (0, False))
        right = right and (not names or any(names in text for text in texts))
        texts = [
            text.replace(f"{target / SITE}/", "").replace(str(target), "ENV") for text in texts
        ]
        doubts = [
            check["subject"] or check["name"] for check in checks if check["status"] == "unknown"
        ]
        row = {"case": case["name"], "base": case["base"], "broken": bool(names), "right": right}
        rows.append({**row, "exit": status, "seconds": seconds, "failed": texts, "unknown": doubts})
        print(
            "ok  " if right else "WRONG",
            case["name"],
            status,
            seconds,
            *texts,
            sep=" | ",
            flush=True,
        )
    summary = {
        kind: [
            sum(row["right"] for row in rows if row["broken"] is broken),
            sum(row["broken"] is broken for row in rows),
        ]
        for kind, broken in (("broken", True), ("healthy", False))
    }
    write_record(
        {"bases": CASES["bases"], "right of all": summary, "cases": rows}, arguments.record
    )
