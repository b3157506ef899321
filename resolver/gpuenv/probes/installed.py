"""Says what is installed: the interpreter, its distributions, who owns which file, and whether files are unchanged.

Options: {"mode": "survey"} or {"mode": "files", "imports": [NAME], "seconds": limit, "threads": n}.

survey -> {"interpreter": {...}, "distributions": [{"name", "version", "folder", "installer"}],
           "libraries": [[path, distribution]], "shared": [[path, [[distribution, hash], ...]]]}
files  -> {"hashed": n, "hashed_bytes": n, "sized": n, "left": files not reached in time, "missing": [[dist, path]],
           "changed": [[dist, path, why]], "extra": [path], "links": [path], "no_record": [dist], "distributions": [..]}

Runs on Python 3.9 and later; standard library only. File format of RECORD: the binary distribution format (PEP 427).
"""

import base64
import concurrent.futures
import csv
import hashlib
import importlib.metadata
import json
import os
import re
import sys
import sysconfig
import time

CHUNK = 1 << 20


def normalize(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def is_library(path):
    return re.search(r"\.so(\.[0-9]+)*$", path) is not None


def distributions():
    """(name, version, folder, rows, installer), the first of each name on sys.path, as an import would find it."""
    seen = {}
    for dist in importlib.metadata.distributions():
        name = dist.metadata["Name"]
        if not name or normalize(name) in seen:
            continue
        folder = os.path.abspath(str(dist.locate_file("")))
        record = dist.read_text("RECORD")
        rows = None
        if record is not None:
            rows = [(row + ["", ""])[:3] for row in csv.reader(record.splitlines()) if row]
        installer = (dist.read_text("INSTALLER") or "").strip()
        seen[normalize(name)] = (normalize(name), dist.version, folder, rows, installer)
    return sorted(seen.values(), key=lambda item: item[0])


def interpreter():
    return {
        "version": list(sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "purelib": sysconfig.get_path("purelib"),
        "platlib": sysconfig.get_path("platlib"),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    }


def survey():
    owners, libraries, listed = {}, [], []
    for name, version, folder, rows, installer in distributions():
        listed.append({"name": name, "version": version, "folder": folder, "installer": installer})
        for path, digest, _ in rows or ():
            if path.endswith(".pyc") or ".dist-info/" in path:
                continue
            full = os.path.normpath(os.path.join(folder, path))
            owners.setdefault(full, []).append([name, digest])
            if is_library(path):
                libraries.append([full, name])
    shared = [[path, claims] for path, claims in sorted(owners.items()) if len(claims) > 1]
    return {"interpreter": interpreter(), "distributions": listed, "libraries": libraries, "shared": shared}


def sha256(path, deadline):
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


def check_file(job):
    """(kind, distribution, path, text, bytes) of one row of a RECORD; kind: ok, sized, left, missing, changed."""
    name, path, digest, size, hashed, deadline = job
    try:
        found = os.stat(path).st_size
    except OSError:
        return ("missing", name, path, "", 0)
    if size.isdigit() and found != int(size):
        return ("changed", name, path, "%d bytes, not %s" % (found, size), 0)
    if not hashed:
        return ("sized", name, path, "", 0)
    try:
        have = sha256(path, deadline)
    except OSError as error:
        return ("changed", name, path, "cannot be read: %s" % error.strerror, 0)
    if have is None:
        return ("left", name, path, "", 0)
    if have != digest:
        return ("changed", name, path, "its sha256 is not the recorded one", found)
    return ("ok", name, path, "", found)


def jobs_for(found, imports, deadline):
    """The rows to check: whole distributions of NVIDIA's by hash, the shared libraries of frameworks by size."""
    jobs, folders, owned, chosen, bare = [], set(), set(), [], []
    for name, _, folder, rows, _ in found:
        nvidia = name.startswith("nvidia-")
        if rows is None:
            if nvidia:
                bare.append(name)
            continue
        heads = {row[0].split("/", 1)[0] for row in rows}
        if not nvidia and not heads & set(imports):
            continue
        chosen.append(name)
        for path, digest, size in rows:
            full = os.path.normpath(os.path.join(folder, path))
            owned.add(full)
            if not digest.startswith("sha256=") or not (nvidia or is_library(path)):
                continue
            if nvidia and is_library(path):
                folders.add(os.path.dirname(full))
            jobs.append((name, full, digest, size, nvidia, deadline))
    return jobs, folders, owned, chosen, bare


def extras(folders, owned):
    """(files, links into the same folder) that lie beside NVIDIA's libraries and are in nobody's RECORD."""
    extra, links = [], []
    for folder in sorted(folders):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            path = os.path.join(folder, name)
            if path in owned or name == "__pycache__" or name.endswith(".pyc"):
                continue
            inside = os.path.islink(path) and os.path.join(folder, os.path.basename(os.readlink(path))) in owned
            (links if inside else extra).append(path)
    return extra, links


def files(options):
    deadline = time.monotonic() + float(options.get("seconds", 3600))
    jobs, folders, owned, chosen, bare = jobs_for(distributions(), options.get("imports", ()), deadline)
    # The largest first, so that one big file does not run alone at the end.
    jobs.sort(key=lambda job: -(int(job[3]) if job[3].isdigit() else 0))
    answer = {"hashed": 0, "hashed_bytes": 0, "sized": 0, "left": 0, "missing": [], "changed": []}
    with concurrent.futures.ThreadPoolExecutor(int(options.get("threads", 4))) as pool:
        for kind, name, path, text, size in pool.map(check_file, jobs):
            if kind == "ok":
                answer["hashed"] += 1
                answer["hashed_bytes"] += size
            elif kind in ("sized", "left"):
                answer[kind] += 1
            elif kind == "missing":
                answer["missing"].append([name, path])
            else:
                answer["changed"].append([name, path, text])
    answer["extra"], answer["links"] = extras(folders, owned)
    answer["no_record"], answer["distributions"] = bare, chosen
    return answer


def main():
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    answer = files(options) if options.get("mode") == "files" else survey()
    sys.stdout.write("\ngpuenv-probe: " + json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
