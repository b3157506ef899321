"""What the scans, the tables and the snapshot say, read anew: nothing of gpuenv is imported here.

The tests hold plans against these facts, so they are read as plainly as can be: the raw counts of
fat binaries in matrix_data/scans, the TOML files that people write, and the snapshot's files as the
JSON that they are. All is of Linux on x86_64.
"""

import fnmatch
import json
import re
import tomllib
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from linux_markers import linux_markers

DATA = Path(__file__).resolve().parent.parent / "matrix_data"
PLATFORM = "linux-x86_64"
RANK = {None: 0, "unknown": 1, "ptx": 2, "sass": 3}
SOME, MOST = 0.1, 0.5  # binaries/rows.py: the share of the fat binaries that makes a target count
TEGRA = {(5, 3), (6, 2), (7, 2), (8, 7)}


def toml(name):
    return tomllib.loads((DATA / name).read_text(encoding="utf-8"))


def pair(text):
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def release(text):
    return tuple(int(part) for part in text.split("."))


LIBRARIES, DRIVERS, TOOLKITS = toml("libraries.toml"), toml("drivers.toml"), toml("toolkits.toml")
FRAMEWORKS = {
    path.stem: {"way": [], "scan": [], **tomllib.loads(path.read_text(encoding="utf-8"))}
    for path in sorted(DATA.glob("frameworks/*.toml"))
}
SCOPES = [
    *toml("scans.toml")["scan"],
    *(scope for one in FRAMEWORKS.values() for scope in one["scan"]),
]
# The toolkit that first writes a PTX language: any driver for it compiles that.
MAKERS = {}
for row in (
    *TOOLKITS["compiler"],
    *({"ptx": row["version"], **row} for row in TOOLKITS.get("ptx", [])),
):
    MAKERS[row["ptx"]] = min(pair(row["cuda"]), MAKERS.get(row["ptx"], (99, 0)))
# Builds that are named by their local version are on no index.
WAYS = [way for one in FRAMEWORKS.values() for way in one["way"] if "local" not in way]
CARRIERS = {name for way in WAYS for name in way["carriers"]}
ON_PATH = CARRIERS | {
    name for scope in SCOPES if scope.get("path") for name in scope["distributions"]
}
FAMILIES = [row for row in toml("families.toml")["family"] if not row.get("tolerated")]
SLOTS = {name: row["path"] for row in FAMILIES for name in row["distributions"]}
FLOORS = {row["cuda"]: row["linux"] for row in DRIVERS["floor"]}


# ---- drivers


def branch_of(driver):
    return release(driver)[0] // 5 * 5


def driver_cuda(driver):
    """The CUDA version of the newest known branch that is not newer than the driver."""
    return pair(
        max(
            (row["branch"], row["cuda"])
            for row in DRIVERS["branch"]
            if row["branch"] <= branch_of(driver)
        )[1]
    )


def majors_of(driver):
    """The CUDA majors whose toolkits run on the driver (R1)."""
    return [str(major) for major, floor in FLOORS.items() if release(driver) >= release(floor)]


def dropped(capability, driver):
    """R7: whether the driver's branch is beyond the last one for the device."""
    rows = [row for row in DRIVERS["last"] if capability in map(pair, row["capabilities"])]
    return any(branch_of(driver) > row["branch"] for row in rows)


def too_new(capability, driver):
    """R9: whether the driver's branch is older than the first one for the device."""
    rows = [row for row in DRIVERS["first"] if capability in map(pair, row["capabilities"])]
    return any(branch_of(driver) < row["branch"] for row in rows)


# ---- device code


@cache
def scans(name):
    """version -> what was read from a wheel of it."""
    path = DATA / "scans" / f"{name}.json"
    rows = json.loads(path.read_text(encoding="ascii"))["scans"] if path.exists() else []
    return {row["version"]: row for row in rows if row["file"].endswith("x86_64.whl")}


@cache
def rows(name):
    """version -> the row of the data, for what was not scanned and for the names of toolkits."""
    path = DATA / "libraries" / f"{name}.json"
    if not path.exists():
        path = DATA / "frameworks" / f"{name}.json"
    data = json.loads(path.read_text(encoding="ascii")) if path.exists() else {}
    found = data.get("releases") or [
        row for row in data.get("builds", ()) if row["index"] == "default"
    ]
    return {row["version"]: row for row in found if row["platform"] == PLATFORM}


def scope_of(name):
    return next(
        (one for one in SCOPES if name in one["distributions"] and one["platform"] == PLATFORM), {}
    )


@cache
def target(text):
    """ "90a" -> ((9, 0), "a"). CUDA 13.0 renamed 10.1 to 11.0."""
    digits = text.rstrip("af")
    made_for = int(digits[:-1]), int(digits[-1])
    return (11, 0) if made_for == (10, 1) else made_for, text[len(digits) :]


def sass_runs(text, device):
    """R2: exactly, or of the same major and older; "a" and Tegra exactly only."""
    made_for, suffix = target(text)
    if made_for == device or suffix == "a" or made_for in TEGRA or device in TEGRA:
        return made_for == device
    return made_for[0] == device[0] and made_for[1] < device[1]


def ptx_reaches(text, device):
    made_for, suffix = target(text)
    if suffix == "a":
        return made_for == device
    return made_for <= device and (not suffix or made_for[0] == device[0])


def matches(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


@cache
def members(name, version):
    """The libraries of a scanned wheel that count, and whether each is a collection of engines."""
    scope = scope_of(name)
    found = []
    for library in scans(name)[version]["libraries"]:
        paths = library["paths"]
        if library["binaries"] and any(matches(path, scope.get("files", ["*"])) for path in paths):
            engines = any(matches(path, scope.get("engines", [])) for path in paths)
            found.append((library, engines))
    return found


def library_serves(library, engines, device):
    """Apply R2 to one library, by the number of its fat binaries that have each target.

    A pair is the newest toolkit whose PTX a driver must compile.
    """
    commonest = max(library["sass"].values(), default=0)
    for text, count in library["sass"].items():
        least = 0 if engines else commonest * (MOST if target(text)[1] else SOME)
        if count >= least and sass_runs(text, device):
            return "sass"
    if not any(ptx_reaches(text, device) for text, _, _ in library["ptx"]):
        return None
    whole = sum(count for _, _, count in library["ptx"]) >= MOST * library["binaries"]
    if not whole or any(language not in MAKERS for _, language, _ in library["ptx"]):
        return "unknown"
    return max(MAKERS[language] for _, language, _ in library["ptx"])


@cache
def libraries_serve(name, version, device):
    """Return `library_serves` for each library of a scanned wheel; PTX also of its [[kernels]]."""
    makers = [
        MAKERS[row["language"]]
        for row in toml("frameworks/tensorflow.toml")["kernels"]
        if name in row["distributions"] and SpecifierSet(row["versions"]).contains(version)
    ]
    found = [library_serves(one, engines, device) for one, engines in members(name, version)]
    return [max(how, *makers) if makers and isinstance(how, tuple) else how for how in found]


def row_serves(row, device, cuda):
    """As `library_serves`, for a documented row."""
    if row["sass"] is not None and any(sass_runs(text, device) for text in row["sass"]):
        return "sass"
    if row["ptx"] is not None and any(ptx_reaches(text, device) for text in row["ptx"]):
        if not row.get("made_by"):
            return "unknown"
        if pair(row["made_by"]) <= cuda:
            return "ptx"
    if row["sass"] is None or (
        row["ptx"] is None and any(target(text)[0] <= device for text in row["sass"])
    ):
        return "unknown"
    return None


@cache
def serves(name, version, device, cuda):
    """R3: how the weakest library of a release serves a device: sass, ptx, unknown or None."""
    if version in scans(name):
        found = []
        for how in libraries_serve(name, version, device):
            by_ptx = "ptx" if isinstance(how, tuple) and how <= cuda else None
            found.append(by_ptx if isinstance(how, tuple) else how)
        # A framework's wheel without device code runs nothing; a library's may be all host code.
        return min(found, key=RANK.__getitem__, default=None)
    return row_serves(rows(name)[version], device, cuda) if version in rows(name) else "unknown"


@cache
def known_bad(name, version, device, cuda):
    """The severities of what is known against a release on a device with a driver."""
    return {
        row["severity"]
        for row in LIBRARIES["bad"]
        if name in row["distributions"]
        and ("capabilities" not in row or device in map(pair, row["capabilities"]))
        and ("driver_cuda" not in row or cuda < pair(row["driver_cuda"]))
        and SpecifierSet(
            row["versions"] if row["versions"][0] in "<>=" else "==" + row["versions"]
        ).contains(version, prereleases=True)
    }


# ---- what a wheel was built with


def said(name, version, what):
    """What a text of the wheel says: its toolkit ("cuda") or its cuDNN ("cudnn")."""
    where, scan = scope_of(name).get(what), scans(name).get(version)
    if where is None or scan is None or where[0] not in scan["texts"]:
        return None
    found = re.search(rf"\b{where[1]}\b(?:\s*:\s*[^=\n]+=)?\W+(\d[\d.]*)", scan["texts"][where[0]])
    return found[1] if found else None


@cache
def cuda_major(name, version):
    """The CUDA major of a distribution: by its name, its texts, or NVIDIA's version numbers."""
    found = re.search(r"-cu(?:da)?(\d\d)x?$|-cuda(\d\d)-", name)
    if found:
        return found[1] or found[2]
    if name in ("nvidia-cublas", "cuda-toolkit"):
        return str(Version(version).major)
    cuda = said(name, version, "cuda") or rows(name).get(version, {}).get("cuda")
    return cuda.split(".")[0] if cuda and name in CARRIERS else None


@cache
def built_cudnn(name, version):
    """The cuDNN that a framework's wheel was built with.

    It is what METADATA pins or requires at least; without that, what a text names.
    """
    if name not in CARRIERS or version not in scans(name):
        return None
    for text in scans(name)[version]["requires"]:
        if text.startswith("nvidia-cudnn-cu"):
            clauses = Requirement(text).specifier
            found = [Version(one.version) for one in clauses if one.operator in ("==", ">=")]
            if found:
                return max(found).major, max(found).minor
    text = said(name, version, "cudnn")
    return (int(text.split(".")[0]), int((text + ".0").split(".")[1])) if text else None


def owned(name, version):
    """The libraries that a wheel installs; () for one that nobody scanned."""
    scan = scans(name).get(version)
    return {path for path in scan["owns"] if not path.endswith("/")} if scan else set()


# ---- the snapshot


class Release:
    """One release of a package with the wheel that fits best."""

    def __init__(self, name, version, wheel, texts):
        self.name, self.version, self.filename, self.sha256 = name, version, wheel[1], wheel[3]
        self.yanked = wheel[6] is not None
        self.requires = [requirement(text) for text in texts]


@cache
def requirement(text):
    return Requirement(text)


@cache
def tags(python):
    """What fits CPython on glibc 2.39, best first: tag -> place."""
    old = {17: "2014", 12: "2010", 5: "1"}
    platforms = [
        name
        for minor in range(39, 4, -1)
        for name in (
            f"manylinux_2_{minor}_x86_64",
            *([f"manylinux{old[minor]}_x86_64"] if minor in old else []),
        )
    ]
    platforms.append("linux_x86_64")
    found = [*cpython_tags(python, platforms=platforms)]
    found += compatible_tags(python, f"cp{python[0]}{python[1]}", platforms)
    return {str(tag): place for place, tag in reversed([*enumerate(found)])}


@cache
def snapshot(name, python):
    """The releases of a package on the default index that fit, newest first; () if unknown."""
    path = DATA / "snapshot" / "default" / f"{name}.json"
    if not path.exists():
        return ()
    data, fits = json.loads(path.read_text(encoding="utf-8")), tags(python)
    best = {}
    for wheel in (wheel for group in data["files"].values() for wheel in group):
        asked = None if wheel[5] is None else data["requires_python"][wheel[5]]
        if asked and not SpecifierSet(asked).contains(f"{python[0]}.{python[1]}.0"):
            continue
        places = [fits[str(tag)] for tag in parse_wheel_filename(wheel[1])[3] if str(tag) in fits]
        rank = (wheel[6] is not None, min(places, default=0))
        if places and (wheel[0] not in best or rank < best[wheel[0]][0]):
            best[wheel[0]] = rank, wheel
    found = [
        Release(name, data["versions"][i], wheel, data["metadata"][wheel[8]])
        for i, (_, wheel) in best.items()
    ]
    assert not any(Version(one.version).is_prerelease for one in found), (
        f"{name} has pre-releases now"
    )
    return tuple(sorted(found, key=lambda one: Version(one.version), reverse=True))


def environment(python):
    return linux_markers(f"{python[0]}.{python[1]}.0")


@cache
def asked_by(one, extra, python):
    """The requirements of a release on the target, for an extra; "" is the release itself."""
    here = environment(python)
    return [
        need
        for need in one.requires
        if need.marker is None or need.marker.evaluate({**here, "extra": extra})
    ]


def normal(name):
    return str(canonicalize_name(name))
