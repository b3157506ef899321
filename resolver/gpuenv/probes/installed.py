"""Report what is installed.

The interpreter, its distributions, which distribution owns which file, changed files.

Options: {"mode": "survey", "imports": [NAME]} or
{"mode": "files", "seconds": limit, "threads": n, "fast": true to compare sizes only}.
Answers with answers.SurveyAnswer or answers.FilesAnswer.

What is compared: for every distribution whether its files exist, are as long as recorded and have
the recorded sha256. "other" are missing or changed files that no code runs, unless NVIDIA's: data
(cacert.pem, which administrators extend), scripts (which other installers rewrite) and tests.
Not compared: bytecode, which has no hash in RECORD; distributions of conda and of Debian, which
change files when they build or install and keep their own records. "requires" leaves out extras;
"requirements" are the texts of the metadata.
"glibc" is that of the interpreter's process, or the oldest that a distribution's wheel is for.
"variant" is the label of a variant wheel (PEP 825).
"conda" is what conda-meta of the prefix records; the CUDA libraries of those packages are in
"libraries", too.

Runs on Python 3.9 and later; standard library only. File format of RECORD: the binary distribution
format (PEP 427).
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import platform
import re
import sys
import sysconfig
import time
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, TypedDict

from ._common import write_answer
from ._distributions import InstalledDistribution, distributions, normalize
from .answers import Distribution, FilesAnswer, Interpreter, SurveyAnswer

CHUNK = 1 << 20  # bytes
FEW_BYTES = 16 << 20  # are read in less time than it takes to import and to start threads
CUDA_LIBRARIES = (
    "libcudnn",
    "libcublas",
    "libcudart",
    "libnccl",
    "libnvrtc",
    "libnvJitLink",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcupti",
)
LEGACY = {"1": [2, 5], "2010": [2, 12], "2014": [2, 17]}  # PEP 600: manylinux1 and so on
LONG_AGO = [0, 0]  # less than any glibc
DEBIAN = "/usr/lib/python3/dist-packages"


class Options(TypedDict, total=False):
    """The options of this probe. `seconds`, `threads` and `fast` are for mode "files"."""

    mode: str
    imports: list[str]
    seconds: float
    threads: int
    fast: bool


class Row(NamedTuple):
    """One line of a RECORD; `digest` and `size` may be empty."""

    path: str
    digest: str
    size: str


class Installed(NamedTuple):
    """A distribution; `rows` is None if it has no RECORD, or an empty one."""

    name: str
    version: str
    folder: str
    rows: list[Row] | None
    installer: str
    requires: list[str]
    requirements: list[str]
    glibc: list[int] | None
    of_wheel: bool
    variant: str | None


class Job(NamedTuple):
    """A file to compare with its row. `hashed` reads it; otherwise only its size is compared."""

    name: str
    path: str
    digest: str
    size: str
    hashed: bool
    deadline: float


class FileResult(NamedTuple):
    """What a job found; `kind`: ok, sized, left, missing, changed.

    `size` counts the bytes of a file that exists.
    """

    kind: str
    name: str
    path: str
    reason: str
    size: int


# ---- distributions ------------------------------------------------------------------------------


def is_library(path: str) -> bool:
    """Return whether a path ends like libx.so, libx.so.9 or x.cpython-312-x86_64-linux-gnu.so."""
    return re.search(r"\.so(\.[0-9]+)*$", path) is not None


def read_rows(record: str) -> list[Row]:
    """Return the lines of a RECORD."""
    rows = []
    for cells in csv.reader(record.splitlines()):
        if cells:
            path, digest, size = [*cells, "", ""][:3]
            rows.append(Row(path.replace("\\", "/"), digest, size))
    return rows


def read_distribution(distribution: InstalledDistribution) -> Installed:
    """Return what the files of a distribution say."""
    name, requirements = distribution.name, distribution.requires
    return Installed(
        name=name,
        version=distribution.version,
        folder=distribution.folder,
        rows=read_rows(distribution.read_text("RECORD") or "") or None,
        installer=(distribution.read_text("INSTALLER") or "").strip(),
        requires=required(requirements) if name.startswith("nvidia-") else [],
        requirements=requirements,
        glibc=wheel_glibc(distribution.read_text("WHEEL") or ""),
        of_wheel=distribution.info.endswith(".dist-info"),
        variant=variant_label(distribution.read_text("variant.json")),
    )


def read_distributions() -> tuple[list[Installed], list[tuple[str, list[str]]]]:
    """Return the first distribution of each name on sys.path, which an import finds.

    The second value is (name, versions) of the names that one folder has in several versions.
    """
    first: dict[str, Installed] = {}
    versions: dict[tuple[str, str], set[str]] = {}
    for distribution in distributions():
        name = distribution.name
        versions.setdefault((name, distribution.folder), set()).add(distribution.version)
        if name not in first:
            first[name] = read_distribution(distribution)
    twice = []
    for (name, _), several in versions.items():
        if len(several) > 1:
            twice.append((name, sorted(several)))
    return sorted(first.values(), key=lambda installed: installed.name), sorted(twice)


def full_path(folder: str, row: Row) -> str:
    """Return the absolute path of a row."""
    return os.path.normpath(os.path.join(folder, row.path))


def required(texts: Iterable[str]) -> list[str]:
    """Return the names of the requirements that hold without an extra and on every platform."""
    names = set()
    for text in texts:
        if ";" not in text:
            name = re.split(r"[^A-Za-z0-9._-]", text.strip(), maxsplit=1)[0]
            names.add(normalize(name))
    return sorted(names)


def wheel_glibc(wheel: str) -> list[int] | None:
    """Return the oldest glibc that a wheel is for, by the tags in its WHEEL.

    None if it needs none (PEP 600).
    """
    versions = []
    tags = r"(?m)^Tag: \S+-(?:manylinux(1|2010|2014)_|manylinux_(\d+)_(\d+)_|)"
    for legacy, major, minor in re.findall(tags, wheel):
        if legacy:
            versions.append(LEGACY[legacy])
        else:
            versions.append([int(major or 0), int(minor or 0)])
    oldest = min(versions, default=LONG_AGO)
    return oldest if oldest > LONG_AGO else None


def variant_label(metadata: str | None) -> str | None:
    """Return the label in the variant.json of a variant wheel (PEP 825); None without one."""
    try:
        variants = json.loads(metadata or "{}")["variants"]
        return next(iter(variants)) if len(variants) == 1 else None
    except (ValueError, KeyError, TypeError):
        return None


def own_glibc() -> list[int] | None:
    """Return the glibc of this process; None if there is none."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return None
    match = re.match(r"glibc (\d+)\.(\d+)", text)
    return [int(match[1]), int(match[2])] if match else None


# ---- mode "survey" ------------------------------------------------------------------------------


def interpreter() -> Interpreter:
    """Return what runs this script."""
    return {
        "glibc": own_glibc(),
        "version": list(sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "purelib": sysconfig.get_path("purelib"),
        "platlib": sysconfig.get_path("platlib"),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "markers": marker_variables(),
    }


def marker_variables() -> dict[str, str]:
    """Return the variables of environment markers (PEP 508)."""
    version = sys.implementation.version
    own_version = f"{version.major}.{version.minor}.{version.micro}"
    if version.releaselevel != "final":
        own_version += version.releaselevel[0] + str(version.serial)
    return {
        "implementation_name": sys.implementation.name,
        "implementation_version": own_version,
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "sys_platform": sys.platform,
    }


def module_file(name: str) -> str | None:
    """Return the file that `import name` would run, without running it; None if there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None else spec.origin or name


def owners_and_libraries(
    installed: list[Installed],
) -> tuple[dict[str, list[tuple[str, str]]], list[tuple[str, str]]]:
    """Return the (distribution, hash) of each path, and (path, distribution) of the libraries."""
    owners: dict[str, list[tuple[str, str]]] = {}
    libraries: list[tuple[str, str]] = []
    for distribution in installed:
        for row in distribution.rows or ():
            if row.path.endswith(".pyc") or ".dist-info/" in row.path:
                continue
            path = full_path(distribution.folder, row)
            owners.setdefault(path, []).append((distribution.name, row.digest))
            if is_library(row.path):
                libraries.append((path, distribution.name))
    return owners, libraries


def as_row(installed: Installed) -> Distribution:
    """Return the distribution as the survey lists it."""
    return {
        "name": installed.name,
        "version": installed.version,
        "folder": installed.folder,
        "installer": installed.installer,
        "requires": installed.requires,
        "requirements": installed.requirements if is_compared(installed) else [],
        "glibc": installed.glibc,
        "variant": installed.variant,
    }


def survey(imports: list[str]) -> SurveyAnswer:
    """Return the answer of mode "survey"."""
    installed, twice = read_distributions()
    owners, libraries = owners_and_libraries(installed)
    packages, conda_libraries = conda_packages(sys.prefix)
    libraries += [(path, name) for path, name in conda_libraries if path not in owners]
    return {
        "interpreter": interpreter(),
        "distributions": [as_row(distribution) for distribution in installed],
        "libraries": libraries,
        "conda": packages,
        "shared": [(path, claims) for path, claims in sorted(owners.items()) if len(claims) > 1],
        "twice": twice,
        "imports": {name: module_file(name) for name in imports},
    }


def conda_packages(prefix: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the versions of the packages in conda-meta, and (path, package) of CUDA libraries."""
    packages: dict[str, str] = {}
    libraries: list[tuple[str, str]] = []
    folder = os.path.join(prefix, "conda-meta")
    entries = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for entry in entries:
        if not entry.endswith(".json"):
            continue
        try:
            with open(os.path.join(folder, entry), encoding="utf-8") as stream:
                record = json.load(stream)
            name, paths = str(record["name"]), [str(path) for path in record.get("files", ())]
            packages[name] = str(record["version"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for path in filter(is_cuda_library, paths):
            full = os.path.normpath(os.path.join(prefix, path))
            libraries.append((full, name))
    return packages, libraries


def is_cuda_library(path: str) -> bool:
    """Return whether a path is a library that conda's CUDA packages have."""
    return is_library(path) and os.path.basename(path).startswith(CUDA_LIBRARIES)


# ---- mode "files" -------------------------------------------------------------------------------


def sha256(path: str, deadline: float) -> str | None:
    """Return the digest as RECORD spells it; None when the time is over."""
    import base64
    import hashlib

    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as stream:
        while True:
            if time.monotonic() > deadline:
                return None
            chunk = stream.read(CHUNK)
            if not chunk:
                break
            digest.update(chunk)
    return "sha256=" + base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")


def check_file(job: Job) -> FileResult:  # noqa: PLR0911  one for each kind of result
    """Compare one file with its row of RECORD."""
    try:
        size = os.stat(job.path).st_size
    except OSError:
        return FileResult("missing", job.name, job.path, "", 0)
    if job.size.isdigit() and size != int(job.size):
        return FileResult("changed", job.name, job.path, f"{size} bytes, not {job.size}", 0)
    if not job.hashed:
        return FileResult("sized", job.name, job.path, "", size)
    try:
        digest = sha256(job.path, job.deadline)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        return FileResult("changed", job.name, job.path, reason, 0)
    if digest is None:
        return FileResult("left", job.name, job.path, "", size)
    if digest != job.digest:
        return FileResult("changed", job.name, job.path, "its sha256 is not the recorded one", 0)
    return FileResult("ok", job.name, job.path, "", size)


def recorded_paths(installed: list[Installed]) -> set[str]:
    """Return the paths of all RECORDs."""
    paths = set()
    for distribution in installed:
        for row in distribution.rows or ():
            paths.add(full_path(distribution.folder, row))
    return paths


def own_sites() -> set[str]:
    """Return the folders of packages whose files all have RECORDs.

    Those of conda and of Debian have other records.
    """
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")) or sys.prefix == sys.base_prefix:
        return set()
    return {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}


def is_compared(distribution: Installed) -> bool:
    """Return whether the RECORD of a distribution holds.

    It does not for packages of conda and Debian: these change files and keep other records.
    """
    return distribution.installer != "conda" and not distribution.folder.startswith(DEBIAN)


def has_hash(row: Row) -> bool:
    """Return whether a row is compared: it has a hash and is no bytecode."""
    return row.digest.startswith("sha256=") and not row.path.endswith(".pyc")


def jobs_for(installed: list[Installed], deadline: float, *, fast: bool) -> list[Job]:
    """Return the files to compare.

    A path with two owners is read for each: the one whose hash it has wrote last.
    """
    jobs: list[Job] = []
    for distribution in installed:
        if not is_compared(distribution):
            continue
        for row in filter(has_hash, distribution.rows or ()):
            path = full_path(distribution.folder, row)
            jobs.append(Job(distribution.name, path, row.digest, row.size, not fast, deadline))
    # The largest first, so that one big file does not run alone at the end.
    jobs.sort(key=recorded_size, reverse=True)
    return jobs


def recorded_size(job: Job) -> int:
    """Return the size of a file in its RECORD; 0 without one."""
    return int(job.size) if job.size.isdigit() else 0


def needs_file(name: str, path: str) -> bool:
    """Return whether a file matters to what runs: all of NVIDIA's, and the code of others."""
    if name.startswith("nvidia-"):
        return True
    is_code = is_library(path) or path.endswith(".py")
    return is_code and not {"test", "tests"} & set(path.split(os.sep))


def library_folders(sites: Iterable[str]) -> Iterator[str]:
    """Return the folders with libraries below `nvidia` in the folders of packages.

    What an uninstallation has left there belongs to no distribution.
    """
    for site in sites:
        for folder, _, names in os.walk(os.path.join(site, "nvidia")):
            if any(map(is_library, names)):
                yield folder


def unrecorded_files(
    jobs: list[Job], owned: Collection[str], sites: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return the files beside CUDA libraries that no RECORD has, and the links among them.

    A link counts if it leads to a recorded file of the same folder.
    """
    folders = set(library_folders(sites))
    for job in jobs:
        of_cuda = job.name.startswith("nvidia-") or is_cuda_library(job.path)
        if of_cuda and is_library(job.path):
            folders.add(os.path.dirname(job.path))
    extra: list[str] = []
    links: list[str] = []
    for folder in sorted(filter(os.path.isdir, folders)):
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if path in owned or os.path.isdir(path) or name.endswith(".pyc"):
                continue
            if os.path.islink(path) and beside(path, os.readlink(path)) in owned:
                links.append(path)
            else:
                extra.append(path)
    return extra, links


def beside(path: str, name: str) -> str:
    """Return the path of a file name in the folder of another path."""
    return os.path.join(os.path.dirname(path), os.path.basename(name))


def check_files(jobs: list[Job], threads: int) -> list[FileResult]:
    """Compare files, in threads if there is much to hash."""
    if sum(recorded_size(job) for job in jobs if job.hashed) < FEW_BYTES:
        return list(map(check_file, jobs))
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(check_file, jobs))


def files(options: Options) -> FilesAnswer:
    """Return the answer of mode "files"."""
    deadline = time.monotonic() + float(options.get("seconds", 3600))
    installed, _ = read_distributions()
    owned = recorded_paths(installed)
    jobs = jobs_for(installed, deadline, fast=bool(options.get("fast")))
    extra, links = unrecorded_files(jobs, owned, own_sites())
    answer: FilesAnswer = {
        "hashed": 0, "hashed_bytes": 0, "sized": 0, "left": 0,
        "missing": [], "changed": [], "other": [],
        "extra": extra,
        "links": links,
        "no_record": [],
        "distributions": [],
        "libraries": {},
    }  # fmt: skip
    for distribution in installed:
        if not is_compared(distribution):
            continue
        if distribution.rows is not None:
            answer["distributions"].append(distribution.name)
        elif distribution.of_wheel:
            answer["no_record"].append(distribution.name)
    threads = int(options.get("threads", min(8, os.cpu_count() or 1)))
    digests = {(job.name, job.path): job.digest for job in jobs if job.hashed}
    for result in check_files(jobs, threads):
        add_result(answer, result)
        if result.kind == "ok" and is_cuda_library(result.path):
            answer["libraries"][result.path] = digests[result.name, result.path]
    return answer


def add_result(answer: FilesAnswer, result: FileResult) -> None:
    """Count or list what was found of one file."""
    if result.kind == "ok":
        answer["hashed"] += 1
        answer["hashed_bytes"] += result.size
    elif result.kind == "sized":
        answer["sized"] += 1
    elif result.kind == "left":
        answer["left"] += 1
    elif not needs_file(result.name, result.path):
        answer["other"].append((result.name, result.path, result.reason or "missing"))
    elif result.kind == "missing":
        answer["missing"].append((result.name, result.path))
    else:
        answer["changed"].append((result.name, result.path, result.reason))


def main() -> None:
    """Write the answer of the mode that the options name."""
    options: Options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    if options.get("mode") == "files":
        write_answer(files(options))
    else:
        write_answer(survey(options.get("imports", [])))


if __name__ == "__main__":
    main()
