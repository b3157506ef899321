"""Prefixes of the cases of data/conda_environments.toml."""

import json
import tomllib
from functools import partial
from pathlib import Path

import conda_channel
from gpuenv.install import conda_history
from gpuenv.prefix import conda_packages

DATA = tomllib.loads((Path(__file__).parent / "data" / "conda_environments.toml").read_text())
CASES = DATA["case"]
SOLVES = DATA["solve"]
REPAIRS = DATA["repair"]
HOST = "--gpu H100 --driver 570.86.10 --glibc 2.35 --platform linux-x86_64"


def rows(table):
    """The records of the packages in a table, "packages" or "elsewhere"."""
    for package, depends in DATA[table].items():
        constrains = DATA["constrains"].get(package, [])
        is_noarch = package.split()[0] in DATA["noarch-python"]["names"]
        more = {"subdir": "noarch", "noarch": "python"} if is_noarch else {}
        yield conda_channel.row_of(package, depends, constrains=constrains, **more)


def make_channels(made_once):
    """Make two channels, one of each table of the cases."""
    return [
        made_once(f"environments-{table}", partial(conda_channel.make, rows=rows(table)))
        for table in ("packages", "elsewhere")
    ]


def rows_of(channels):
    """Return {name in the cases: the record of repodata, with its URL} of channels."""
    found = {}
    for folder in channels:
        for subdir in ("linux-64", "noarch"):
            document = json.loads((folder / subdir / "repodata.json").read_text())
            for file, record in document["packages.conda"].items():
                where = {"fn": file, "url": f"{folder.as_uri()}/{subdir}/{file}"}
                record |= {**where, "channel": folder.as_uri(), "subdir": subdir}
                found[label(record)] = record
    return found


def label(record):
    """Return the name of a package in the cases."""
    build = "" if record["build"] == conda_channel.PLAIN_BUILD else f" {record['build']}"
    return f"{record['name']} {record['version']}{build}"


def describe(target, case, rows):
    """Write what another tool leaves beside the packages of a case."""
    meta = target / "conda-meta"
    lines = ["==> 2026-01-01 00:00:00 <==", "# cmd: conda create"]
    lines += [f"+{conda_history._distribution(rows[name])}" for name in case["installed"]]
    lines.append(f"# update specs: {case.get('history', [])}")
    (meta / "history").write_text("\n".join(lines) + "\n")
    if "pinned" in case:
        (meta / "pinned").write_text("\n".join(case["pinned"]) + "\n")
    if "frozen" in case:
        (meta / "frozen").write_text(case["frozen"])
    if "gpuenv-wheels" in case:
        (meta / "gpuenv-wheels").write_text("\n".join(["3.12", *case["gpuenv-wheels"], ""]))
    for wheel, requirements in case.get("wheels", {}).items():
        name, version = wheel.split()
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        folder = target / "lib" / "python3.12" / "site-packages" / info
        folder.mkdir(parents=True)
        (folder / "INSTALLER").write_text("pip\n")
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requirements]
        (folder / "METADATA").write_text("\n".join([*lines, ""]))
        (folder / "RECORD").write_text(f"{info}/METADATA,,\n{info}/INSTALLER,,\n{info}/RECORD,,\n")
    for name in case.get("gone", ()):
        change_record(meta, name, url=f"file:///gone/{name}-0.1-h0_0.conda")
    for name in case.get("unhashed", ()):
        change_record(meta, name, sha256=None, md5=None, size=None)
    if case.get("damaged"):
        (meta / "broken-1.0-0.json").write_text("{")


def change_record(meta, name, **changes):
    (path,) = meta.glob(f"{name}-*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def make_lock(path, packages, rows):
    lines = [f"{rows[name]['url']}#sha256:{rows[name]['sha256']}" for name in packages]
    path.write_text("\n".join(["@EXPLICIT", *lines]) + "\n")


def expected_packages(case):
    """The packages that a case ends with: those of `after` come and go."""
    came = {text[1:] for text in case.get("after", ()) if text[0] == "+"}
    gone = {text[1:] for text in case.get("after", ()) if text[0] == "-"}
    return (set(case["installed"]) - gone) | came


def packages_in(target):
    records = conda_packages(str(target)).values()
    return set(map(label, records))


def contents(target):
    """Return {file: (inode, time of change)} of a prefix."""
    found = {}
    for path in target.rglob("*"):
        status = path.lstat()
        found[str(path.relative_to(target))] = (status.st_ino, status.st_mtime_ns)
    return found
