"""Prove what `gpuenv verify` says of environments that are really installed, on a host without GPU.

    python scripts/tools.py prove companions --work DIR [--find-links DIR] [--only TEXT]

Two environments are made with wheels of the default index: torch 2.14.1 with its CUDA libraries,
and torch 2.2.2, whose CUDA libraries are replaced by stubs with their sonames and symbols (they are
3 GB, and no GPU is used). Each case is a copy of one of them by hard links, with one change. A
broken one must not be verified, and a failed check must name the package; a healthy one must be
verified. The cases are in tests/data/companion_environments.toml. DIR needs 12 GB.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from common import ROOT, run_gpuenv
from small_wheels import record_of

CASES = tomllib.loads((ROOT / "tests/data/companion_environments.toml").read_text("utf-8"))
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
SITE = Path("lib") / f"python{PYTHON}" / "site-packages"
SYMBOL = re.compile(r"^\s*U ((?:__)?(?:cu|nv|nccl)\w+)(?:@(lib\S+))?$", re.MULTILINE)
# What a stub returns: 8.9.2 is cuDNN's number, 100 is cudaErrorNoDevice.
RESULTS = {"cudnnGetVersion": "8902", "cudaGetErrorString": '(long)"a stub"'}


def uv(*words: str) -> None:
    """Run uv."""
    subprocess.run([find_uv_bin(), *words], check=True)


def add_distribution(site: Path, name: str, version: str, files: dict[str, bytes]) -> None:
    """Add a distribution with files, {path: content}, and its RECORD."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {**files, f"{info}/METADATA": metadata.encode()}
    files[f"{info}/RECORD"] = record_of(files, info).encode()
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)


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
            files[f"nvidia/{row['folder']}/lib/{soname}"] = (work / soname).read_bytes()
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
        files = {"triton/__init__.py": b"__version__ = '2.2.0'\n"}
        add_distribution(target / SITE, "triton", "2.2.0", files)
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
    edits: list[tuple[str, Callable[[bytes], bytes]]] = []
    for pattern, length in case.get("cut", {}).items():
        edits.append((pattern, lambda data, length=length: data[:length]))
    for pattern, text in case.get("append", {}).items():
        edits.append((pattern, lambda data, text=text: data + text.encode()))
    for pattern, edit in edits:
        for path in site.glob(pattern):
            data = path.read_bytes()
            path.unlink()
            path.write_bytes(edit(data))


def verify(case: dict[str, Any], target: Path) -> tuple[dict[str, Any], bool]:
    """Verify an environment. Return the row of the record, and whether the answer is right."""
    begin = time.monotonic()
    done = run_gpuenv("verify", "--no-device", "--fast", "--json", "--target", str(target))
    seconds = round(time.monotonic() - begin, 1)
    checks = json.loads(done.stdout or "{}").get("checks", [])
    failed = [
        f"{check['name']} {check['subject']}: {check['evidence']}"
        for check in checks
        if check["status"] == "fail"
    ]
    names = case.get("names", "")
    is_right = (done.returncode, bool(failed)) == ((1, True) if names else (0, False))
    is_right = is_right and (not names or any(names in text for text in failed))
    shown = [text.replace(f"{target / SITE}/", "").replace(str(target), "ENV") for text in failed]
    unknown = [
        check["subject"] or check["name"] for check in checks if check["status"] == "unknown"
    ]
    row = {"case": case["name"], "base": case["base"], "broken": bool(names), "right": is_right}
    return {**row, "seconds": seconds, "failed": shown, "unknown": unknown}, is_right


ARGUMENTS = {
    "--work": {"type": Path, "required": True, "metavar": "DIR"},
    "--find-links": {"action": "append", "default": [], "metavar": "DIR"},
    "--only": {"default": "", "metavar": "TEXT", "help": "cases with this in the name"},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Verify the environment of each case."""
    arguments.work.mkdir(parents=True, exist_ok=True)
    rows, faults = [], []
    for case in CASES["case"]:
        if arguments.only in case["name"]:
            base = make_base(case["base"], arguments.work, arguments.find_links)
            target = arguments.work / "case"
            shutil.rmtree(target, ignore_errors=True)
            subprocess.run(["cp", "-al", str(base), str(target)], check=True)
            change(case, target, arguments.find_links)
            row, is_right = verify(case, target)
            print("ok   " if is_right else "WRONG", row, flush=True)
            rows.append(row)
            faults += [] if is_right else [f"{case['name']}: {row['failed']}"]
    return {"bases": CASES["bases"], "cases": rows}, faults
