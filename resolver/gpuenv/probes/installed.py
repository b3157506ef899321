"""Says what is installed: the interpreter, its distributions, who owns which file, and whether files are unchanged.

Options: {"mode": "survey", "imports": [NAME]} or {"mode": "files", "seconds": limit, "threads": n}.

survey -> {"interpreter": {.., "glibc": [major, minor] or null},
           "distributions": [{"name", "version", "folder", "installer", "requires": [name], "glibc": as above}],
           "twice": [[name, [versions in one folder]]], "imports": {NAME: file or null},
           "libraries": [[path, distribution]], "shared": [[path, [[distribution, hash], ...]]],
           "conda": {package: version}}
files  -> {"hashed": n, "hashed_bytes": n, "sized": n, "left": files not reached in time, "missing": [[dist, path]],
           "changed": [[dist, path, why]], "other": [[dist, path, why]], "extra": [path], "links": [path],
           "no_record": [dist], "distributions": [..]}

What is compared: of every distribution whether its files are there and as long as recorded; by sha256 all of NVIDIA's
and what two distributions claim. "other" are files that are missing or changed and that nothing runs: data (cacert.pem,
which administrators add to) and tests, unless NVIDIA's. Not compared: bytecode, which RECORD has no hash of; files
outside of the packages' folder (scripts, configuration), which users and installers write anew; distributions of conda
and of Debian, which change files when they build or install and keep records of their own. "requires" leaves out
extras. "glibc" is that of the interpreter's process, and the oldest that a distribution's wheel is for. "conda" is what
conda-meta of the prefix records; the CUDA libraries of those packages are in "libraries" too.

Runs on Python 3.9 and later; standard library only. File format of RECORD: the binary distribution format (PEP 427).
"""

from __future__ import annotations

import base64
import concurrent.futures
import csv
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import sysconfig
import time
from collections.abc import Iterable
from typing import Any, Optional

CHUNK = 1 << 20
CUDA_LIBRARIES = (
    "libcudnn", "libcublas", "libcudart", "libnccl", "libnvrtc", "libnvJitLink", "libcufft", "libcurand",
    "libcusolver", "libcusparse", "libcupti",
)  # fmt: skip
LEGACY = {"1": [2, 5], "2010": [2, 12], "2014": [2, 17]}  # PEP 600: manylinux1 and so on


Rows = list[list[str]]
Glibc = Optional[list[int]]
Found = tuple[str, str, str, Optional[Rows], str, list[str], Glibc]  # name, version, folder, rows, installer, ..
Job = tuple[str, str, str, str, bool, float]


def normalize(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_library(path: str) -> bool:
    """libx.so, libx.so.9, x.cpython-312-x86_64-linux-gnu.so."""
    return re.search(r"\.so(\.[0-9]+)*$", path) is not None


def distributions() -> tuple[list[Found], list[tuple[str, list[str]]]]:
    """(the first of each name on sys.path, as an import would find it; names that one folder has twice)."""
    seen: dict[str, Found] = {}
    versions: dict[tuple[str, str], set[str]] = {}
    for dist in importlib.metadata.distributions():
        name = dist.metadata["Name"]
        # pip renames what it is about to remove to ~ame; an interrupted one leaves that behind.
        if not name or os.path.basename(str(getattr(dist, "_path", ""))).startswith("~"):
            continue
        folder = os.path.abspath(str(dist.locate_file("")))
        versions.setdefault((normalize(name), folder), set()).add(dist.version)
        if normalize(name) in seen:
            continue
        record = dist.read_text("RECORD")
        rows = None
        if record is not None:
            rows = [[row[0].replace("\\", "/"), *row[1:], "", ""][:3] for row in csv.reader(record.splitlines()) if row]
        installer = (dist.read_text("INSTALLER") or "").strip()
        needs = required(dist.requires or ()) if normalize(name).startswith("nvidia-") else []
        glibc = wanted_glibc(dist.read_text("WHEEL") or "")
        seen[normalize(name)] = (normalize(name), dist.version, folder, rows, installer, needs, glibc)
    twice = sorted((name, sorted(several)) for (name, _), several in versions.items() if len(several) > 1)
    return sorted(seen.values(), key=lambda item: item[0]), twice


def required(texts: Iterable[str]) -> list[str]:
    """The names of requirements that hold without an extra and for every platform."""
    plain = [text for text in texts if ";" not in text]
    return sorted({normalize(re.split(r"[^A-Za-z0-9._-]", text.strip(), maxsplit=1)[0]) for text in plain})


def wanted_glibc(wheel: str) -> Glibc:
    """The oldest glibc that a wheel is for, by the tags in its WHEEL; None if it asks for none (PEP 600)."""
    found = []
    for legacy, major, minor in re.findall(r"(?m)^Tag: \S+-(?:manylinux(1|2010|2014)_|manylinux_(\d+)_(\d+)_|)", wheel):
        found.append(LEGACY[legacy] if legacy else [int(major or 0), int(minor or 0)])
    least = min(found, default=[0, 0])
    return least if least > [0, 0] else None


def own_glibc() -> Glibc:
    """The glibc of this process; None where there is none."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return None
    found = re.match(r"glibc (\d+)\.(\d+)", text)
    return [int(found[1]), int(found[2])] if found else None


def interpreter() -> dict[str, Any]:
    """What runs this script."""
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
    }


def find(name: str) -> str | None:
    """The file that `import name` would run, not run; None if there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None else spec.origin or name


def survey(imports: list[str]) -> dict[str, Any]:
    """The answer of mode "survey"."""
    owners: dict[str, list[list[str]]] = {}
    libraries, listed = [], []
    found, twice = distributions()
    for name, version, folder, rows, installer, needs, glibc in found:
        row = {"name": name, "version": version, "folder": folder, "installer": installer, "requires": needs}
        listed.append({**row, "glibc": glibc})
        for path, digest, _ in rows or ():
            if path.endswith(".pyc") or ".dist-info/" in path:
                continue
            full = os.path.normpath(os.path.join(folder, path))
            owners.setdefault(full, []).append([name, digest])
            if is_library(path):
                libraries.append([full, name])
    packages, theirs = conda_packages(sys.prefix)
    libraries += [[path, name] for path, name in theirs if path not in owners]
    shared = [[path, claims] for path, claims in sorted(owners.items()) if len(claims) > 1]
    answer: dict[str, Any] = {"interpreter": interpreter(), "distributions": listed, "libraries": libraries}
    answer.update(conda=packages, shared=shared, twice=twice, imports={name: find(name) for name in imports})
    return answer


def conda_packages(prefix: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """(version by name of what conda-meta records, CUDA libraries of these packages with the package's name)."""
    packages: dict[str, str] = {}
    found: list[tuple[str, str]] = []
    folder = os.path.join(prefix, "conda-meta")
    for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if not entry.endswith(".json"):
            continue
        try:
            with open(os.path.join(folder, entry), encoding="utf-8") as stream:
                record = json.load(stream)
            name, paths = str(record["name"]), [str(path) for path in record.get("files", ())]
            packages[name] = str(record["version"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        cuda = [path for path in paths if is_library(path) and os.path.basename(path).startswith(CUDA_LIBRARIES)]
        found += [(os.path.normpath(os.path.join(prefix, path)), name) for path in cuda]
    return packages, found


def sha256(path: str, deadline: float) -> str | None:
    """The digest as RECORD spells it; None when the time is over."""
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


def check_file(job: Job) -> tuple[str, str, str, str, int]:
    """(kind, distribution, path, text, bytes) of one row of a RECORD; kind: ok, sized, left, missing, changed."""
    name, path, digest, size, hashed, deadline = job
    try:
        found = os.stat(path).st_size
    except OSError:
        return ("missing", name, path, "", 0)
    if size.isdigit() and found != int(size):
        return ("changed", name, path, f"{found} bytes, not {size}", 0)
    try:
        have = sha256(path, deadline) if hashed else digest
    except OSError as error:
        return ("changed", name, path, f"cannot be read: {error.strerror}", 0)
    if have is not None and have != digest:
        return ("changed", name, path, "its sha256 is not the recorded one", 0)
    return ("left" if have is None else "ok" if hashed else "sized", name, path, "", found)


def jobs_for(found: list[Found], deadline: float) -> tuple[list[Job], set[str], set[str], list[str], list[str]]:
    """(rows to check, folders of NVIDIA's libraries, paths of all RECORDs, distributions checked, those of no RECORD).

    A path that two distributions claim is read for each of them: the one whose hash it has was there last.
    """
    jobs: list[Job] = []
    folders: set[str] = set()
    chosen, bare = [], []
    claims: dict[str, int] = {}
    for _, _, folder, rows, *_ in found:
        for path, _, _ in rows or ():
            full = os.path.normpath(os.path.join(folder, path))
            claims[full] = claims.get(full, 0) + 1
    for name, _, folder, rows, installer, *_ in found:
        nvidia = name.startswith("nvidia-")
        if rows is None:
            if nvidia:
                bare.append(name)
            continue
        if installer == "conda" or folder.startswith("/usr/lib/python3/dist-packages"):
            continue
        chosen.append(name)
        for path, digest, size in rows:
            full = os.path.normpath(os.path.join(folder, path))
            if not digest.startswith("sha256=") or path.startswith(("../", "/")) or path.endswith(".pyc"):
                continue
            if nvidia and is_library(path):
                folders.add(os.path.dirname(full))
            hashed = nvidia or claims[full] > 1
            jobs.append((name, full, digest, size, hashed, deadline))
    return jobs, folders, set(claims), chosen, bare


def matters(name: str, path: str) -> bool:
    """Whether something would run otherwise without this file: NVIDIA's, and the code of others."""
    code = is_library(path) or path.endswith(".py")
    return name.startswith("nvidia-") or (code and not {"test", "tests"} & set(path.split(os.sep)))


def extras(folders: set[str], owned: set[str]) -> tuple[list[str], list[str]]:
    """(files, links into the same folder) that lie beside NVIDIA's libraries and are in nobody's RECORD."""
    extra: list[str] = []
    links: list[str] = []
    for folder in sorted(folders):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            path = os.path.join(folder, name)
            if path in owned or name == "__pycache__" or name.endswith(".pyc"):
                continue
            inside = os.path.islink(path) and os.path.join(folder, os.path.basename(os.readlink(path))) in owned
            (links if inside else extra).append(path)
    return extra, links


def files(options: dict[str, Any]) -> dict[str, Any]:
    """The answer of mode "files"."""
    deadline = time.monotonic() + float(options.get("seconds", 3600))
    jobs, folders, owned, chosen, bare = jobs_for(distributions()[0], deadline)
    # The largest first, so that one big file does not run alone at the end.
    jobs.sort(key=lambda job: -(int(job[3]) if job[3].isdigit() else 0))
    answer: dict[str, Any] = {"hashed": 0, "hashed_bytes": 0, "sized": 0, "left": 0, "missing": [], "changed": []}
    answer["other"] = []
    with concurrent.futures.ThreadPoolExecutor(int(options.get("threads", min(8, os.cpu_count() or 1)))) as pool:
        # What is only measured would cost more in handing it to a thread than in doing it.
        hashing = pool.map(check_file, [job for job in jobs if job[4]])
        sizing = [check_file(job) for job in jobs if not job[4]]
        for kind, name, path, text, size in (*sizing, *hashing):
            if kind == "ok":
                answer["hashed"] += 1
                answer["hashed_bytes"] += size
            elif kind in ("sized", "left"):
                answer[kind] += 1
            elif not matters(name, path):
                answer["other"].append([name, path, text or "missing"])
            elif kind == "missing":
                answer["missing"].append([name, path])
            else:
                answer["changed"].append([name, path, text])
    answer["extra"], answer["links"] = extras(folders, owned)
    answer["no_record"], answer["distributions"] = bare, chosen
    return answer


def main() -> None:
    """Answers as the option "mode" asks."""
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    answer = files(options) if options.get("mode") == "files" else survey(options.get("imports", []))
    sys.stdout.write("\ngpuenv-probe: " + json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
