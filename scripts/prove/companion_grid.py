"""Solve companions beside frameworks, and compare each lock with what its wheels say.

    tools.py prove companion-grid --cache DIR [--jobs N] [--only NAME ...] [--output FILE]

Each of 40 companions is solved with each of 12 releases of its framework on 4 hosts, with the
default index of this machine. The judge does not know the compatibility data. It reads the wheels
of the companions and of the framework in each lock:

- the libraries that they link or open (CUDA, cuDNN) must be those of the NVIDIA wheels in the lock;
- the symbols that they need of torch or TensorFlow must be exported by the release in the lock;
- an extension with the headers of NumPy 1 must not meet NumPy 2;
- Requires-Dist, the table of torch releases in torchcodec's METADATA, and the CUDA version that
  torchaudio and torchvision compare at import must hold;
- the names that pure Python imports from jax must be in the release of jax in the lock.

What a wheel of the PyTorch index says cannot be read everywhere: the symbols of torch are those of
the default index's build of the same release, and the record names the wheels that were not read.
Libraries of more than 80 MB, compressed, are not read either.

The record (docs/records/companion-grid.json) has the counts by outcome and each contradiction. The
results of solves and what was read are kept in the cache folder. Exit status: 0 no contradiction.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.version import Version

import gpuenv
from common import write_record
from data.compile import DATA
from data.scan_companions import (
    CUDA,
    CUDNN,
    LINKED,
    OPTIONAL,
    OWN,
    STANDARD,
    Scanner,
    documented,
    majors,
)
from gpuenv.atomic_write import write_whole
from gpuenv.binaries.wheel import opened, unpacked
from gpuenv.errors import GpuEnvError
from gpuenv.index.pages import linked_files
from gpuenv.model import EVERY_PACKAGE, Host, IndexOptions, Request, Wheel
from gpuenv.requirements.target import TargetEnvironment

FRAMEWORKS = {
    "torch": "2.2.2 2.3.1 2.4.1 2.5.1 2.6.0 2.7.1 2.8.0 2.9.1 2.10.0 2.11.0 2.13.0 2.15.0",
    "tensorflow": """2.13.1 2.14.0 2.14.1 2.15.0 2.15.1 2.16.1 2.16.2 2.17.1 2.18.1 2.19.1 2.20.0
        2.21.0""",
    "jax": "0.4.23 0.4.26 0.4.28 0.4.31 0.4.35 0.4.38 0.5.3 0.6.2 0.7.2 0.8.3 0.10.0 0.12.0",
}
PYTHONS = {"torch": "3.12", "tensorflow": "3.11", "jax": "3.12"}
COMPANIONS = {
    "torch": """torchvision torchaudio torchcodec torchtext torchdata xformers bitsandbytes torchao
        vllm xgrammar ctranslate2 faster-whisper whisperx onnxruntime-gpu opencv-python
        opencv-python-headless opencv-contrib-python faiss-cpu faiss-gpu-cu12 cupy-cuda12x
        sgl-kernel sglang-kernel triton numba-cuda spconv-cu126 warp-lang flashinfer-python timm
        ultralytics sentence-transformers""",
    "tensorflow": "tensorflow-text tf-keras tensorflow-probability tensorflow-hub",
    "jax": "flax optax orbax-checkpoint equinox chex numpyro",
}
HOSTS = {
    "T4, driver 550.54.15": ("T4", "550.54.15"),
    "RTX 3090, driver 560.35.03": ("RTX 3090", "560.35.03"),
    "H100, driver 580.65.06": ("H100", "580.65.06"),
    "RTX 5080, driver 580.95.05": ("RTX 5080", "580.95.05"),
}
JUDGED = {name for names in COMPANIONS.values() for name in names.split()} | {*FRAMEWORKS}
NVIDIA = re.compile(r"nvidia-[\w-]+-cu(\d\d)|cuda-toolkit|nvidia-(?:cuda-runtime|cublas)")
MINOR_COMPARED = "compiled with different CUDA versions"  # not: different CUDA major versions
CHECKS = re.compile(r"torchaudio/_extension/utils\.py|torchvision/extension\.py")
IS_FRAMEWORK = re.compile(r"(torch|tensorflow|jax)-\d")
Case = tuple[str, str, str, str]  # companion, framework, its release, host
Pins = dict[str, dict[str, str]]  # name -> version, file, source


def host_of(name: str, framework: str) -> Host:
    """Return one of HOSTS, with a Python that the releases of a framework have."""
    gpu, driver = HOSTS[name]
    python = PYTHONS[framework]
    return gpuenv.describe(
        gpus=(gpu,), driver=driver, platform="linux-x86_64", python=python, glibc="2.39"
    )


def solved(case: Case) -> dict[str, Any]:
    """Return {"outcome", "pins" or "text"} of a case. This runs in a process of its own."""
    companion, framework, release, host = case
    request = Request(
        requirements=(companion, f"{framework}=={release}"), no_build=(EVERY_PACKAGE,)
    )
    try:
        plan = gpuenv.solve(request, host_of(host, framework), IndexOptions(), changes=False)
    except GpuEnvError as error:
        return {"outcome": error.code, "text": str(error)[:200]}
    pins = {
        pin.wheel.name: {
            "version": pin.wheel.version,
            "file": pin.wheel.filename,
            "source": f"{pin.wheel.url}#sha256={pin.wheel.sha256}",
        }
        for pin in plan.pins
    }
    return {"outcome": "locked", "pins": pins}


def solve_all(cases: list[Case], folder: str, jobs: int) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Yield the result of each case, from the cache folder if it has it."""
    path = os.path.join(folder, "solves.json")
    kept = json.loads(Path(path).read_text("utf-8")) if os.path.exists(path) else {}
    todo = [case for case in cases if " ".join(case) not in kept]
    with ProcessPoolExecutor(jobs) as pool:
        for number, (case, result) in enumerate(zip(todo, pool.map(solved, todo), strict=True), 1):
            kept[" ".join(case)] = result
            if number % 50 == 0 or number == len(todo):
                write_whole(path, json.dumps(kept).encode())
                print(f"{number} of {len(todo)}", file=sys.stderr, flush=True)
    for case in cases:
        yield case, kept[" ".join(case)]


class Judge:
    """Compares the pins of a lock with what their wheels say."""

    def __init__(self, scanner: Scanner, target: TargetEnvironment) -> None:
        """Read wheels with a scanner. Markers are those of the target."""
        self.scanner, self.target = scanner, target
        self.unread: set[str] = set()
        self.unreachable: set[str] = set()
        self.table: dict[str, str] = {}
        for wheel in scanner.lines("torchcodec").values():
            texts = scanner.read(wheel, re.compile("$"))[0]
            self.table |= dict(documented(texts["description"]))

    @cache  # noqa: B019  - there is one judge
    def wheel(self, source: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]] | None:
        """Return the name, version and texts of a wheel, and its libraries; None: it is unreadable.

        Of torch the library counts that NumPy is used by; its symbols are `Scanner.exports`.
        """
        file, site = source.rpartition("/")[2], urlsplit(source).netloc
        pattern = re.compile(r"torch/lib/libtorch_python\.so")
        try:
            if site in self.unreachable:
                raise OSError(site)
            wheel = wheel_at(source)
            only = pattern if IS_FRAMEWORK.match(file) else None
            texts, libraries = self.scanner.read(wheel, only)
            return {"name": wheel.name, "version": wheel.version, **texts}, libraries
        except (GpuEnvError, OSError, ValueError):
            self.unreachable.add(site)
            self.unread.add(file.partition("#")[0])
            return None

    def contradictions(self, pins: Pins) -> Iterator[str]:
        """Yield a sentence for each fact that does not hold in a lock."""
        provided = self.provided_cuda(pins)
        for name in sorted(JUDGED & {*pins}):
            pin = pins[name]
            parts = self.wheel(pin["source"])
            if parts is None:
                continue
            head, libraries = parts
            for text in (
                *self.unmet_requirements(head, pins),
                *self.foreign_libraries(libraries, pins, provided),
                *self.missing_symbols(name, pins),
                *self.stated(head, pins),
            ):
                yield f"{pin['file']}: {text}"

    def provided_cuda(self, pins: Pins) -> set[int]:
        """Return the CUDA majors whose libraries the NVIDIA wheels of a lock bring."""
        majors_ = set()
        for name, pin in pins.items():
            if match := NVIDIA.fullmatch(name):
                majors_.add(int(match[1] or Version(pin["version"]).major))
        return majors_

    def unmet_requirements(self, head: dict[str, Any], pins: Pins) -> Iterator[str]:
        for text in head["requires"]:
            requirement = Requirement(text)
            if requirement.marker and not self.target.marker(str(requirement.marker), ()):
                continue
            pin = pins.get(re.sub(r"[-_.]+", "-", requirement.name).lower())
            if pin is None or not requirement.specifier.contains(pin["version"], prereleases=True):
                yield f"requires {text}, the lock has {pin['version'] if pin else 'none'}"

    def foreign_libraries(
        self, libraries: dict[str, dict[str, Any]], pins: Pins, provided: set[int]
    ) -> Iterator[str]:
        own = {path.rpartition("/")[2] for path in libraries}
        # One library for each CUDA version: the program loads one of them.
        alternatives = [path for path in libraries if re.search(r"_cuda\d{2,3}\.so$", path)]
        if alternatives:
            fits = [p for p in alternatives if {*majors(CUDA, libraries[p]["needs"])} <= provided]
            if not fits:
                yield f"has no library for CUDA {sorted(provided)}"
        cudnn = {Version(p["version"]).major for n, p in pins.items() if "nvidia-cudnn-cu" in n}
        for path, facts in libraries.items():
            if path in alternatives or OPTIONAL.match(path):
                continue
            for what, pattern, have in (("CUDA", CUDA, provided), ("cuDNN", CUDNN, cudnn)):
                linked = majors(pattern, {*facts["needs"]} - own) or majors(pattern, facts["opens"])
                if linked and not {*linked} & have:
                    yield f"{path} needs {what} {linked}, the lock has {sorted(have)}"
            if (
                facts["numpy"] == 1
                and Version(pins.get("numpy", {"version": "1"})["version"]).major > 1
            ):
                yield f"{path} has the headers of NumPy 1, the lock has {pins['numpy']['version']}"

    def missing_symbols(self, name: str, pins: Pins) -> Iterator[str]:
        for framework in LINKED:
            if framework in pins and name != framework:
                release = pins[framework]["version"].partition("+")[0]
                minor = ".".join(release.split(".")[:2])
                yield from self.not_exported(pins[name]["source"], framework, minor)

    @cache  # noqa: B019
    def not_exported(self, source: str, framework: str, minor: str) -> list[str]:
        """Return one sentence for each library with symbols that a release does not export."""
        parts, exports = self.wheel(source), self.scanner.exports[framework].get(minor)
        if parts is None or exports is None:
            return []
        libraries, texts = parts[1], []
        own = {symbol for facts in libraries.values() for symbol in facts["defined"]}
        for path, facts in libraries.items():
            if any(map(LINKED[framework].match, facts["needs"])):
                known = self.known[framework]
                lacking = [
                    symbol
                    for symbol in sorted({*facts["undefined"]} - own - exports)
                    if not STANDARD.match(symbol)
                    and (symbol in known or (framework == "torch" and OWN.search(symbol)))
                ]
                if lacking:
                    text = f"{path} needs {lacking[0]}"
                    texts.append(f"{text}, which {framework} {minor} does not export")
        return texts

    @cached_property
    def known(self) -> dict[str, set[str]]:
        """Return the symbols that any release of a framework exports."""
        return {
            name: set().union(*tables.values()) for name, tables in self.scanner.exports.items()
        }

    def stated(self, head: dict[str, Any], pins: Pins) -> Iterator[str]:
        """Yield what tables, checks at import and imports say."""
        name, version = head["name"], head["version"]
        torch = pins.get("torch", {"version": "0"})
        if name == "torchcodec":
            for line in (version, ".".join(version.split(".")[:2])):
                specifier = self.table.get(line, "")
                if not Requirement(f"torch{specifier}").specifier.contains(torch["version"]):
                    yield f"its table says torch{specifier}, the lock has {torch['version']}"
        if name in ("torchaudio", "torchvision"):
            mine = self.cuda_version(pins[name])
            theirs = self.cuda_version(torch)
            default = self.scanner.releases(name)[Version(version.partition("+")[0])]
            text = self.text(f"{default.url}#sha256={default.sha256}", CHECKS)
            compared = 2 if MINOR_COMPARED in text else 1
            if mine and theirs and mine.split(".")[:compared] != theirs.split(".")[:compared]:
                yield f"it was built for CUDA {mine}, torch {torch['version']} for {theirs}"
        if "jax" in pins and name in COMPANIONS["jax"].split():
            for dotted in self.not_in_jax(pins[name]["source"], pins["jax"]["source"]):
                yield f"imports {dotted}, which jax {pins['jax']['version']} has not"

    @cache  # noqa: B019
    def not_in_jax(self, source: str, jax_source: str) -> list[str]:
        """Return the names that a companion imports and a release of jax does not have."""
        jax = self.modules(jax_source)
        return [name for name in self.imports(source) if not has_name(jax, name)]

    @cache  # noqa: B019
    def imports(self, source: str) -> list[str]:
        """Return the names of jax that a companion imports."""
        return sorted(imported(self.modules(source)))

    def cuda_version(self, pin: dict[str, str]) -> str:
        """Return the CUDA version of a build of torch or of a companion: "13.0"; "" for none."""
        named = re.search(r"\+cu(\d\d)(\d)", pin["version"])
        if not named:
            text = self.text(pin["source"], re.compile(r"\w+/version\.py"))
            named = re.search(r"\+cu(\d\d)(\d)", text)
            named = re.search(r"^cuda\b[^=]*= '(\d+)\.(\d+)'", text, re.MULTILINE) or named
        return f"{named[1]}.{named[2]}" if named else ""

    def text(self, source: str, pattern: re.Pattern[str]) -> str:
        """Return the texts of a wheel whose paths match."""
        return "\n".join(self.texts(source, pattern).values())

    def modules(self, source: str) -> dict[str, str]:
        """Return the Python modules of a wheel by their paths."""
        return self.texts(source, re.compile(r"(?!.*(tests?|testing|examples)/).*\.py"))

    @cache  # noqa: B019
    def texts(self, source: str, pattern: re.Pattern[str]) -> dict[str, str]:
        """Return the texts of a wheel whose paths match, by path; none if it cannot be read."""
        texts = {}
        try:
            wheel = wheel_at(source)
            with self.scanner.index.open(wheel) as file, opened(file) as archive:
                for member in archive.infolist():
                    if pattern.fullmatch(member.filename):
                        with unpacked(archive, member) as content:
                            texts[member.filename] = content.read().decode(errors="replace")
        except (GpuEnvError, OSError, ValueError):
            self.unread.add(source.rpartition("/")[2].partition("#")[0])
            return {}
        return texts


def wheel_at(source: str) -> Wheel:
    """Return the wheel at a URL that ends in #sha256=..."""
    (wheel,) = linked_files([source], "url")
    return wheel


def imported(texts: dict[str, str]) -> set[str]:
    """Return the names of jax that modules import when they are imported: "jax.core.Tracer"."""
    names: set[str] = set()
    for text in texts.values():
        statements: list[ast.stmt] = []
        with suppress(SyntaxError):  # a text for a template
            statements += ast.parse(text).body
        while statements:
            statement = statements.pop()
            if isinstance(statement, ast.ClassDef):
                statements += statement.body
            elif isinstance(statement, ast.ImportFrom) and not statement.level:
                module = statement.module or ""
                names |= {f"{module}.{alias.name}" for alias in statement.names}
            elif isinstance(statement, ast.Import):
                names |= {alias.name for alias in statement.names}
    return {name for name in names if name.startswith("jax.") and not name.endswith("*")}


def has_name(texts: dict[str, str], dotted: str) -> bool:
    """Return whether a release of jax has a module, or a module whose text has the name.

    A name of the table of removed names, `"name": (message, None)`, is not there.
    """
    module, _, name = dotted.rpartition(".")
    path = dotted.replace(".", "/")
    if any(text in texts for text in (f"{path}.py", f"{path}/__init__.py")):
        return True
    path = module.replace(".", "/")
    text = texts.get(f"{path}.py", texts.get(f"{path}/__init__.py"))
    if text is None:
        return any(known.startswith(f"{path}/") for known in texts)
    removed = re.search(rf'"{re.escape(name)}":\s*\((?:[^()]|\([^()]*\))*?,\s*None,?\s*\)', text)
    is_imported = re.search(rf"^\s+{re.escape(name)} as {re.escape(name)}", text, re.MULTILINE)
    if removed and not is_imported:
        return False
    return bool(re.search(rf"\b{re.escape(name)}\b", text)) or "import *" in text


def main(words: list[str]) -> int:
    """Solve, judge and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", required=True, help="folder for solves and what was read")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="*", help="companions; default: all")
    parser.add_argument("--output", help="where the record goes")
    options = parser.parse_args(words)
    cases = [
        (companion, framework, release, host)
        for framework, names in COMPANIONS.items()
        for companion in names.split()
        for release in FRAMEWORKS[framework].split()
        for host in HOSTS
        if not options.only or companion in options.only
    ]
    outcomes: dict[str, Counter[str]] = {}
    found: dict[str, list[Case]] = {}
    scanner = Scanner(DATA)
    judges = {
        name: Judge(scanner, TargetEnvironment(host_of(next(iter(HOSTS)), name)))
        for name in FRAMEWORKS
    }
    locks: dict[str, list[str]] = {}  # the judged pins of a lock -> its contradictions
    for case, result in solve_all(cases, options.cache, options.jobs):
        outcomes.setdefault(case[0], Counter())[result["outcome"]] += 1
        if result["outcome"] == "locked":
            key = json.dumps(result["pins"])
            if key not in locks:
                locks[key] = list(judges[case[1]].contradictions(result["pins"]))
            for text in locks[key]:
                found.setdefault(text, []).append(case)
    record = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "gpuenv": gpuenv.__version__,
        "companions": len(outcomes),
        "releases": {name: text.split() for name, text in FRAMEWORKS.items()},
        "hosts": list(HOSTS),
        "cases": len(cases),
        "outcomes": dict(sum(outcomes.values(), Counter())),
        "outcomes_by_companion": {name: dict(counts) for name, counts in outcomes.items()},
        "different_locks": len(locks),
        "wheels_not_read": sorted(set().union(*(judge.unread for judge in judges.values()))),
        "contradictions": {
            text: [len(where), " ".join(where[0])] for text, where in sorted(found.items())
        },
    }
    write_record(record, options.output)
    return 1 if found else 0
