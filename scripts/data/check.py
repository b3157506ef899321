"""Check the compatibility data: against itself, the scans, recipes and public lock files.

    python scripts/tools.py data check [--json] [FOLDER]

Counts the rows, and names contradictions, rows without a source, releases that nobody scanned, and
builds whose cuDNN has no code for a target that they carry. Exit status: 0 the data is consistent,
1 it is not.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from common import ROOT
from gpuenv.compat import data as matrix
from gpuenv.compat.architectures import parse_target
from gpuenv.compat.catalog import Wheels, platform_of
from gpuenv.compat.conda_records import Carriers, Record, describes
from gpuenv.compat.data import CompatibilityData
from gpuenv.compat.evaluate import serves
from gpuenv.compat.rows import decode, read_scopes
from gpuenv.errors import DataError
from gpuenv.index.snapshot import Snapshot
from gpuenv.model import (
    Build,
    Code,
    CudaVersion,
    Library,
    Value,
    Wheel,
    parse_pair,
    show_pair,
)
from gpuenv.requirements.target import PLATFORMS, is_prerelease, version_key
from gpuenv.serialize import read_toml

HAND_WRITTEN = (
    "drivers.toml", "families.toml", "toolkits.toml", "gpus.toml", "libraries.toml",
    "companions.toml", "indexes.toml",
)  # fmt: skip
Row = Mapping[str, Any]
Json = dict[str, Any]
_CONDA_FORGE = "conda-forge"
DEFAULT = "default"  # the index whose wheels are scanned
ANY_PLATFORM = "linux-x86_64"  # wheels for any platform have their rows here
_RECORD_FIELDS = frozenset({"version", "file", "sha256", "libraries"})
_LOCKED_PACKAGES = ("torch", "torchvision", "torchaudio")
_KEY_FIELDS = (
    "name", "local", "version", "platform", "cuda", "branch", "folder", "versions", "capability",
)  # fmt: skip


class Audit(Value):
    """What `check` found.

    `counts` is (kind, rows of device code) for scanned, documented and unknown. `contradictions`
    are facts that cannot all be true. `narrowed` are builds whose cuDNN lacks code for a target
    that they carry. `unsourced` are rows of any file without a source.

    In a checkout, which has the scans: `records` is (distribution, wheels scanned); `unscanned` are
    releases in scope without a scan; `unlisted` are distributions in scope that the index snapshot
    does not have, so that their releases are not known.
    """

    counts: tuple[tuple[str, int], ...]
    contradictions: tuple[str, ...]
    narrowed: tuple[str, ...]
    unsourced: tuple[str, ...] = ()
    records: tuple[tuple[str, int], ...] = ()
    unscanned: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()


def check(data: CompatibilityData, wheels: Wheels | None = None) -> Audit:
    """Read every row of the data and compare it with the others.

    Rows without a source cannot be read as values: while there are some, the rest is not compared.

    Args:
        data: the compatibility data.
        wheels: gives the wheels of a distribution in the index snapshot; without it `unscanned` and
            `unlisted` stay empty.

    Raises:
        DataError: a row is damaged.
    """
    rows = list(_all_rows(data.folder))
    counts = _count_evidence(row for _, row in rows)
    unsourced = [f"{where}: {_row_name(row)}" for where, row in rows if not row.get("source")]
    if unsourced:
        return Audit(counts=counts, contradictions=(), narrowed=(), unsourced=tuple(unsourced))
    contradictions = [
        *(
            f"{where}: {_row_name(row)} was scanned and names no file or sha256"
            for where, row in rows
            if row.get("evidence") == "scanned" and not (row.get("file") and row.get("sha256"))
        ),
        *(f"{where}: {name} is there twice" for where, name in _doubled(rows)),
        *_check_tables(data),
        *_check_libraries(data),
    ]
    narrowed: list[str] = []
    builds, pinning = list(_all_builds(data)), _distributions_with_rows(data)
    for build in builds:
        contradictions += _check_build(data, build)
        wrong, less = _check_cudnn(data, build, pinned=build.name in pinning)
        contradictions += wrong
        narrowed += less
    contradictions += _check_documents(builds)
    contradictions += lock_contradictions(data, wheels)
    contradictions += recipe_contradictions(data)
    scans = Scans.beside(data)
    if scans is None:
        return Audit(counts=counts, contradictions=tuple(contradictions), narrowed=tuple(narrowed))
    contradictions += scans.contradictions(wheels)
    return Audit(
        counts=counts,
        contradictions=tuple(contradictions),
        narrowed=tuple(narrowed),
        records=scans.counts(),
        unscanned=tuple(scans.missing(wheels)) if wheels else (),
        unlisted=tuple(scans.unlisted(wheels)) if wheels else (),
    )


# ---- rows ----------------------------------------------------------------------------------------


def _count_evidence(rows: Iterable[Row]) -> tuple[tuple[str, int], ...]:
    counts = {"scanned": 0, "documented": 0, "unknown": 0}
    for row in rows:
        if "platform" not in row:
            continue
        kind = row.get("evidence")
        if row.get("sass") is None or kind not in counts:
            kind = "unknown"
        counts[kind] += 1
    return tuple(counts.items())


def _all_rows(folder: str) -> Iterator[tuple[str, Row]]:
    """Yield every row of every file that states a fact, with its file and table."""
    for kind in ("frameworks", "libraries"):
        path = os.path.join(folder, kind)
        names = sorted(os.listdir(path)) if os.path.isdir(path) else []
        for name in names:
            where, file = f"{kind}/{name}", os.path.join(path, name)
            if name.endswith(".json"):
                yield from _rows_of_tables(where, decode(file, Json))
            elif name.endswith(".toml"):
                content = read_toml(file)
                yield where, content
                tables = {key: content.get(key) for key in ("build", "companion")}
                yield from _rows_of_tables(where, tables)
    for name in HAND_WRITTEN:
        yield from _rows_of_tables(name, read_toml(os.path.join(folder, name)))


def _rows_of_tables(where: str, tables: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    for table, rows in tables.items():
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict):
                yield f"{where} {table}", row


def _row_name(row: Row) -> str:
    """Return what distinguishes a row from the others of its table."""
    return " ".join(str(row[key]) for key in _KEY_FIELDS if key in row) or "a row"


# ---- tables --------------------------------------------------------------------------------------


def _doubled(rows: Iterable[tuple[str, Row]]) -> Iterator[tuple[str, str]]:
    """Yield the file and the name of each build of which there are several rows."""
    builds = Counter(
        (where, f"{row['local']} of {row['index']} on {row['platform']}")
        for where, row in rows
        if "local" in row and "platform" in row
    )
    yield from (build for build, count in builds.items() if count > 1)


def _check_tables(data: CompatibilityData) -> Iterator[str]:
    cudas = [data.branches[branch] for branch in sorted(data.branches)]
    if cudas != sorted(cudas):
        yield "a newer driver branch supports an older CUDA"
    yield from _check_compilers(data)
    yield from _check_toolkits(data)
    compiled: set[tuple[int, int]] = set()
    for targets in _compilers(data.folder).values():
        compiled.update(parse_target(target)[0] for target in targets)
    for capability in data.capabilities():
        if capability not in compiled:
            pair = show_pair(capability)
            yield f"there are GPUs of compute capability {pair}, which no toolkit compiles for"


@cache
def _compilers(folder: str) -> dict[CudaVersion, list[str]]:
    """Return {toolkit: the targets that it compiles for}."""
    tables = decode(os.path.join(folder, "tables.json"), Json)
    return {parse_pair(cuda): targets for cuda, targets in tables["compilers"].items()}


def _check_compilers(data: CompatibilityData) -> Iterator[str]:
    """Within a major, a newer toolkit compiles for all targets of an older one."""
    compilers = _compilers(data.folder)
    for old, new in itertools.pairwise(sorted(compilers)):
        new_targets = set(map(parse_target, compilers[new]))
        lost = set(map(parse_target, compilers[old])) - new_targets
        if lost and old[0] == new[0]:
            pair, suffix = min(lost)
            target = f"sm_{pair[0]}{pair[1]}{suffix}"
            yield f"CUDA {show_pair(new)} cannot compile {target}, which {show_pair(old)} can"


def _check_toolkits(data: CompatibilityData) -> Iterator[str]:
    """The driver that came with a toolkit supports it."""
    for version, row in decode(os.path.join(data.folder, "tables.json"), Json)["toolkits"].items():
        cuda = parse_pair(".".join(version.split(".")[:2]))
        if cuda not in _compilers(data.folder):
            yield f"CUDA {version} has a driver and no compiler row"
        driver = row.get("driver_linux")
        supported = data.driver_cuda(driver) if driver else None
        if supported is not None and supported < cuda:
            newest = show_pair(supported)
            yield f"CUDA {version} came with driver {driver}, which supports CUDA {newest} only"


# ---- libraries -----------------------------------------------------------------------------------


def _check_libraries(data: CompatibilityData) -> Iterator[str]:
    for name in data.libraries():
        for library in data.releases(name):
            subject = f"{name} {library.version} on {library.platform}"
            major, cuda = library.cuda_major, library.cuda
            if cuda is not None and cuda[0] != major:
                yield f"{subject} is of CUDA {major} and was built with {show_pair(cuda)}"
            yield from _check_code(data, subject, library.code, _possible_toolkits(data, library))


def _possible_toolkits(data: CompatibilityData, library: Library) -> list[CudaVersion]:
    """Return the toolkits that may have built a library: all of its major if it is not known."""
    if library.cuda is not None:
        return [library.cuda]
    return [cuda for cuda in sorted(_compilers(data.folder)) if cuda[0] == library.cuda_major]


def _check_code(
    data: CompatibilityData, subject: str, code: Code, toolkits: Sequence[CudaVersion]
) -> Iterator[str]:
    """Check that one of the toolkits can have made the code. Toolkits without a row say nothing."""
    known = _compilers(data.folder)
    compilers = [known[cuda] for cuda in toolkits if cuda in known]
    # Targets of few fat binaries do not count: nvidia-cudnn-cu13 has two engines for sm_70 that an
    # older compiler made.
    for target in (*(code.sass or ()), *(code.ptx or ())):
        if compilers and not any(target in compiler for compiler in compilers):
            toolkit_text = f"no CUDA {toolkits[0][0]} can"
            if len(toolkits) == 1:
                toolkit_text = f"CUDA {show_pair(toolkits[0])} cannot"
            yield f"{subject} has {target}, which {toolkit_text} compile"
            break
    if code.made_by is not None and toolkits and code.made_by > max(toolkits):
        made_by, newest = show_pair(code.made_by), show_pair(max(toolkits))
        yield f"{subject} has PTX of CUDA {made_by} and was built with {newest}"


# ---- builds --------------------------------------------------------------------------------------


def _all_builds(data: CompatibilityData) -> Iterator[Build]:
    """Yield every build of every framework: its rows, and each way to install each release."""
    for framework in data.all_frameworks():
        for platform in PLATFORMS:
            for way in framework.ways:
                if way.variant == "*":
                    yield from data.builds(framework.distribution, platform)
                    continue
                for version in _versions(data, way.carriers, platform):
                    build = data.variant(framework, way, version, platform)
                    if build is not None:
                        yield build


def _versions(
    data: CompatibilityData, distributions: Iterable[str], platform: str
) -> Iterable[str]:
    """Return the versions of libraries on a platform, each once."""
    versions: dict[str, None] = {}
    for name in distributions:
        for library in data.releases(name, platform):
            versions[library.version] = None
    return versions


def _distributions_with_rows(data: CompatibilityData) -> set[str]:
    """Return the distributions whose builds are rows; other variants have their carriers' code."""
    names = set()
    for framework in data.all_frameworks():
        if any(way.variant == "*" for way in framework.ways):
            names.add(framework.distribution)
    return names


def _check_build(data: CompatibilityData, build: Build) -> Iterator[str]:
    subject = _subject(build)
    if build.cuda is not None:
        yield from _check_code(data, subject, build.code, [build.cuda])
    elif build.code.sass or build.code.ptx:
        yield f"{subject} is a CPU build with device code"


def _check_cudnn(
    data: CompatibilityData, build: Build, *, pinned: bool
) -> tuple[list[str], list[str]]:
    """Check the cuDNN releases that a build admits: the one that it pins, or those since that one.

    Returns:
        Contradictions (nothing is known of the cuDNN), and narrowed builds (no admitted release has
        code for a target of the build).
    """
    if build.cuda is None or build.cudnn is None:
        return [], []
    name, since = f"nvidia-cudnn-cu{build.cuda[0]}", version_key(build.cudnn)
    admitted = []
    for release in data.releases(name, build.platform):
        newer = not pinned and version_key(release.version) > since
        if newer or release.version == build.cudnn:
            admitted.append(release)
    if not admitted:
        verb = "pins" if pinned else "asks for"
        return [f"{_subject(build)} {verb} {name} {build.cudnn}, of which nothing is known"], []
    for target in build.code.sass or ():
        capability = parse_target(target)[0]
        if not any(serves(release.code, capability) for release in admitted):
            release_text = build.cudnn if pinned else f"since {build.cudnn}"
            return [], [
                f"{_subject(build)} has sm_{target}, {name} {release_text} has no code for it"
            ]
    return [], []


def _check_documents(builds: Sequence[Build]) -> Iterator[str]:
    """Compare documented builds with the same builds that were read on another index."""
    scanned = {_identity(build): build for build in builds if build.code.evidence == "scanned"}
    for build in builds:
        other = scanned.get(_identity(build))
        if other is None or build.code.evidence == "scanned" or build.code.sass is None:
            continue
        read_targets = other.code.sass or ()
        if set(build.code.sass) != set(read_targets):
            documented, seen = " ".join(build.code.sass), " ".join(read_targets)
            subject = _subject(build)
            yield f"{subject} is documented with {documented}; {seen} were read from {other.local}"


def lock_contradictions(data: CompatibilityData, wheels: Wheels | None) -> Iterator[str]:
    """Yield how the builds of public lock files (pytorch_index.json) contradict the data.

    A contradiction is a hash that differs from the snapshot's, or a build without a row.

    Args:
        data: the compatibility data.
        wheels: gives the wheels of a distribution in the index snapshot; None compares no hashes.
    """
    path = os.path.join(data.folder, "pytorch_index.json")
    if not os.path.exists(path):
        return
    listed: dict[str, str | None] = {}
    if wheels is not None:
        known = itertools.chain.from_iterable(map(wheels, _LOCKED_PACKAGES))
        listed = {wheel.filename: wheel.sha256 for wheel in known if wheel.index != DEFAULT}
    for row in decode(path, Json)["wheels"]:
        filename = row["file"].rpartition("/")[2]
        source = row["sources"][0]
        if listed.get(filename, row["sha256"]) != row["sha256"]:
            yield f"{filename} has another sha256 in the snapshot than in {source}"
        distribution, version = filename.split("-")[:2]
        platform = platform_of(filename)
        is_build = distribution == "torch" and "+cu" in version
        if is_build and data.build(distribution, version, platform) is None:
            yield f"{filename} is in {source}, and {version} on {platform} has no row"


# ---- conda's recipes -----------------------------------------------------------------------------


def recipe_contradictions(data: CompatibilityData) -> Iterator[str]:
    """Yield how conda-forge's recipes (conda/recipes.json) contradict the data.

    A recipe names targets that its toolkit cannot compile, or others than carriers.json and
    scans/conda have for its builds; or a row of carriers.json has no recipe. A difference that the
    row of a recipe explains is none.
    """
    path = os.path.join(data.folder, "conda", "recipes.json")
    if not os.path.exists(path):
        return
    carriers = Carriers(data.folder)
    without_recipe = [row for row in carriers.code_rows if row.channel == _CONDA_FORGE]
    named: dict[tuple[str, str, str, str], list[Row]] = {}
    for recipe in decode(path, Json)["recipes"]:
        for build, subdir in itertools.product(recipe["builds"], recipe["subdirs"]):
            record = _recipe_record(recipe, build, subdir)
            cuda = parse_pair(build["cuda"])
            named.setdefault(_record_key(record, build["cuda"]), []).append(recipe)
            yield from _recipe_differences(data, carriers, recipe, record, cuda)
            without_recipe = [row for row in without_recipe if not describes(row, record, cuda)]
    for row in without_recipe:
        subject = f"{row.carrier} {row.versions} for CUDA {row.cuda}"
        yield f"{subject} is in carriers.json, and recipes.json has no build of it"
    yield from _record_differences(data, named)


def _recipe_record(recipe: Row, build: Row, subdir: str) -> Record:
    """Return the record that a recipe gives a build."""
    return {
        "name": recipe["package"],
        "version": build["version"],
        "build": "",
        "build_number": build["number"],
        "subdir": subdir,
        "channel": _CONDA_FORGE,
    }


def _record_key(record: Record, cuda: str) -> tuple[str, str, str, str]:
    return record["name"], record["version"], record["subdir"], cuda


def _recipe_differences(
    data: CompatibilityData, carriers: Carriers, recipe: Row, record: Record, cuda: CudaVersion
) -> Iterator[str]:
    """Compare what a recipe says of a build with the toolkit and with carriers.json."""
    name, version = record["name"], record["version"]
    subject = f"the recipe of {name} {version} for CUDA {show_pair(cuda)} on {record['subdir']}"
    targets = Code(
        sass=_targets(recipe["sass"]), ptx=_targets(recipe["ptx"]), source=recipe["source"]
    )
    yield from _check_code(data, subject, targets, [cuda])
    if name not in carriers.carriers.values():
        return  # a companion: gpuenv has no rows of its conda builds
    code = carriers.code(record, cuda)
    if code.sass is not None and code.made_by != cuda:
        made_by = show_pair(code.made_by) if code.made_by else "an unknown CUDA"
        yield f"{subject} differs from carriers.json, which has CUDA {made_by}"
    same = (code.sass, code.ptx) == (targets.sass, targets.ptx)
    if same and "explained" in recipe:
        yield f"{subject} explains a difference from carriers.json, and there is none"
    elif not same and "explained" not in recipe:
        has = "no row" if code.sass is None else _listed(code.sass, code.ptx)
        names = _listed(targets.sass, targets.ptx)
        yield f"{subject} names {names}, and carriers.json has {has}"


def _record_differences(
    data: CompatibilityData, named: Mapping[tuple[str, str, str, str], Sequence[Row]]
) -> Iterator[str]:
    """Compare the rows of scans/conda with the recipes of the same release."""
    folder = os.path.join(data.folder, "scans", "conda")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        for row in decode(os.path.join(folder, name), Json)["rows"]:
            if row.get("sass") is None or not row["cuda"]:
                continue
            recipes = named.get(_record_key(row, row["cuda"]), ())
            if not recipes or any("explained" in recipe for recipe in recipes):
                continue
            if not any(recipe["sass"] == row["sass"] for recipe in recipes):
                names = _listed(recipes[0]["sass"], recipes[0]["ptx"])
                has = _listed(row["sass"], row["ptx"])
                yield f"{row['file']} has {has}, and its recipe names {names}"


def _targets(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _listed(sass: Iterable[str] | None, ptx: Iterable[str] | None) -> str:
    """Return targets as text: sm_80 sm_90 compute_90."""
    names = [
        *(f"sm_{target}" for target in sass or ()),
        *(f"compute_{target}" for target in ptx or ()),
    ]
    return " ".join(names) or "no targets"


def _identity(build: Build) -> tuple[str, str, str, str]:
    return build.name, build.version, build.variant, build.platform


def _subject(build: Build) -> str:
    variant = "" if "+" in build.local else f" ({build.variant})"
    return f"{build.name} {build.local}{variant} on {build.platform}"


# ---- scans ---------------------------------------------------------------------------------------


class Scans:
    """The records of scans/, and the [[scan]] rows (scopes) that say which wheels need one.

    Raises DataError for a damaged file.
    """

    def __init__(self, data: CompatibilityData) -> None:
        self._data, self._folder = data, data.folder
        self.records: dict[str, list[dict[str, Any]]] = {}
        for name in _names_in(os.path.join(self._folder, "scans"), ".json"):
            self.records[name] = self._read_records(name)

    @classmethod
    def beside(cls, data: CompatibilityData) -> Scans | None:
        """Return the scans of a checkout; None for an installed package, which has none."""
        for name in ("scans", "scans.toml"):
            if not os.path.exists(os.path.join(data.folder, name)):
                return None
        return cls(data)

    def _read_records(self, name: str) -> list[dict[str, Any]]:
        path = os.path.join(self._folder, "scans", f"{name}.json")
        records = decode(path, Json).get("scans")
        if not isinstance(records, list) or not all(map(_is_record, records)):
            fields = ", ".join(sorted(_RECORD_FIELDS))
            raise DataError(f"{path}: scans is not a list of records with {fields}")
        return records

    @cached_property
    def scopes(self) -> list[dict[str, Any]]:
        """Every [[scan]] row."""
        return read_scopes(self._folder)

    def counts(self) -> tuple[tuple[str, int], ...]:
        """Return (distribution, number of scanned wheels), in alphabetical order."""
        return tuple((name, len(records)) for name, records in sorted(self.records.items()))

    # ---- against the rows

    def contradictions(self, wheels: Wheels | None) -> Iterator[str]:
        """Yield where a row differs from the record of its wheel, or the index has another file."""
        tables: dict[str, list[dict[str, Any]]] = {}
        for framework in self._data.all_frameworks():
            rows = self._rows("frameworks", framework.name, "builds")
            tables[framework.distribution] = rows
        for name in self._data.libraries():
            tables[name] = self._rows("libraries", name, "releases")
        for name, rows in tables.items():
            records = {record["file"]: record for record in self.records.get(name, [])}
            for row in rows:
                if row["evidence"] == "scanned":
                    yield from self._differences(name, row, records.get(row["file"]))
        for name, records_of_name in self.records.items():
            yield from self._without_row(name, records_of_name, tables.get(name, []))
            yield from _against_index(records_of_name, wheels(name) if wheels else ())

    def _rows(self, folder: str, name: str, table: str) -> list[dict[str, Any]]:
        path = os.path.join(self._folder, folder, f"{name}.json")
        return decode(path, Json)[table] if os.path.exists(path) else []

    def _differences(self, name: str, row: Row, record: Row | None) -> Iterator[str]:
        subject, file = f"{name} {row['version']} on {row['platform']}", row["file"]
        if record is None:
            yield f"{subject} was scanned from {file}, which has no record"
            return
        if row["sha256"] != record["sha256"]:
            yield f"{subject} has another sha256 than the record of {file}"
        if row["version"] != record["version"]:
            yield f"{subject} was scanned from {file}, which is {record['version']}"
        sass, ptx = self._targets(name, record)
        row_sass = {*(row["sass"] or ()), *row.get("some", ())}
        for target in sorted(row_sass - sass):
            yield f"{subject} has sm_{target}, which the record of {file} lacks"
        for target in sorted(sass - row_sass):
            yield f"{subject} lacks sm_{target}, which the record of {file} has"
        for target in sorted({*(row["ptx"] or ())} - ptx):
            yield f"{subject} has compute_{target}, which the record of {file} lacks"

    def _targets(self, name: str, record: Row) -> tuple[set[str], set[str]]:
        """Return the SASS and PTX targets in any fat binary of the libraries in scope."""
        patterns = self._patterns(name, platform_of(record["file"]))
        sass: set[str] = set()
        ptx: set[str] = set()
        for library in record["libraries"]:
            if _any_matches(library["paths"], patterns):
                sass.update(library["sass"])
                ptx.update(entry[0] for entry in library["ptx"])
        return sass, ptx

    def _patterns(self, name: str, platform: str) -> Sequence[str]:
        """Return the patterns of the files that count for a distribution on a platform."""
        for scope in self.scopes:
            if name in scope["distributions"] and scope["platform"] == platform:
                patterns: Sequence[str] = scope.get("files", ["*"])
                return patterns
        return ["*"]

    def _without_row(self, name: str, records: Sequence[Row], rows: Sequence[Row]) -> Iterator[str]:
        """Yield records of device code without a row, or with a row that a document made."""
        evidence: dict[tuple[str, str], str] = {}
        for row in rows:
            if row.get("index", DEFAULT) == DEFAULT:
                evidence[row["version"], row["platform"]] = row["evidence"]
        for record in records:
            platform = platform_of(record["file"]) or ANY_PLATFORM
            kind = evidence.get((record["version"], platform))
            if kind != "scanned" and any(self._targets(name, record)):
                problem = "has no row" if kind is None else "has a documented row"
                yield f"{record['file']} was scanned and {problem}: run scripts/data/derive_rows.py"

    # ---- against the index

    def missing(self, wheels: Wheels) -> Iterator[str]:
        """Yield the releases of the index in scope without a record: "torch 2.15.0 on ..."."""
        for scope in self.scopes:
            platform = scope["platform"]
            for name in scope["distributions"]:
                scanned = self._scanned_versions(name, platform)
                for version in _versions_in_scope(scope, wheels(name)):
                    # The index may have a newer release of the line than this list of wheels.
                    superseded = scope.get("lines") and _has_newer_of_line(scanned, version)
                    if version not in scanned and not superseded:
                        yield f"{name} {version} on {platform}"

    def _scanned_versions(self, name: str, platform: str) -> set[str]:
        records = self.records.get(name, [])
        return {record["version"] for record in records if platform_of(record["file"]) == platform}

    def unlisted(self, wheels: Wheels) -> list[str]:
        """Return the distributions in scope that the index does not have."""
        names: set[str] = set()
        for scope in self.scopes:
            names.update(scope["distributions"])
        return sorted(name for name in names if not wheels(name))


def _is_record(record: object) -> bool:
    return isinstance(record, dict) and record.keys() >= _RECORD_FIELDS


def _any_matches(paths: Iterable[str], patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for path in paths for pattern in patterns)


def _versions_in_scope(scope: Row, wheels: Iterable[Wheel]) -> list[str]:
    """Return the versions that need a record, newest first."""
    since = version_key(scope["since"])
    in_scope: set[str] = set()
    for wheel in wheels:
        right_file = wheel.index == DEFAULT and platform_of(wheel.filename) == scope["platform"]
        if not right_file or is_prerelease(wheel.version):
            continue
        if version_key(wheel.version) >= since:
            in_scope.add(wheel.version)
    versions = sorted(in_scope, key=version_key, reverse=True)
    if scope.get("lines"):  # only the newest of each major.minor
        newest: dict[tuple[str, ...], str] = {}
        for version in versions:
            newest.setdefault(_line(version), version)
        versions = list(newest.values())
    return versions


def _line(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


def _has_newer_of_line(versions: Iterable[str], version: str) -> bool:
    same_line = [other for other in versions if _line(other) == _line(version)]
    return any(version_key(other) > version_key(version) for other in same_line)


def _against_index(records: Iterable[Row], wheels: Iterable[Wheel]) -> Iterator[str]:
    hashes = {wheel.filename: wheel.sha256 for wheel in wheels if wheel.index == DEFAULT}
    for record in records:
        if hashes.get(record["file"], record["sha256"]) != record["sha256"]:
            yield f"{record['file']} was scanned with another sha256 than the index has"


def _names_in(folder: str, suffix: str) -> list[str]:
    names = sorted(os.listdir(folder))
    return [name.removesuffix(suffix) for name in names if name.endswith(suffix)]


# ---- the command ---------------------------------------------------------------------------------


def audit_ok(audit: Audit) -> bool:
    """Return whether no facts contradict one another and every row has a source.

    An unknown fact contradicts nothing.
    """
    return not audit.contradictions and not audit.unsourced


def audit_lines(audit: Audit, most: int = 20) -> list[str]:
    """Return how much is known, and then what is wrong, at most `most` lines of each kind."""
    counts = ", ".join(f"{count} {kind}" for kind, count in audit.counts)
    lines = [f"rows of device code: {counts}"]
    if audit.records:
        total = sum(count for _, count in audit.records)
        lines.append(f"wheels scanned: {total} of {len(audit.records)} distributions")
        lines += [f"  {name} {count}" for name, count in audit.records]
    if audit.unlisted:
        names = ", ".join(audit.unlisted)
        lines.append(f"not in the index snapshot, so gaps cannot be found: {names}")
    kinds = (
        ("releases in scope that were not scanned", audit.unscanned),
        ("targets that a build has and its cuDNN lacks", audit.narrowed),
        ("rows without a source", audit.unsourced),
        ("contradictions", audit.contradictions),
    )
    for title, findings in kinds:
        lines.append(f"{title}: {len(findings)}")
        lines += [f"  {finding}" for finding in findings[:most]]
        if len(findings) > most:
            lines.append(f"  and {len(findings) - most} more (--json lists all)")
    verdict = "the data has errors: correct the rows above"
    if audit_ok(audit):
        verdict = "the data is consistent"
    return [*lines, verdict]


def audit_json(audit: Audit) -> dict[str, Any]:
    """Return the document of --json."""
    return {
        "ok": audit_ok(audit),
        "counts": dict(audit.counts),
        "records": dict(audit.records),
        "unscanned": list(audit.unscanned),
        "unlisted": list(audit.unlisted),
        "narrowed": list(audit.narrowed),
        "unsourced": list(audit.unsourced),
        "contradictions": list(audit.contradictions),
    }


def main(words: list[str]) -> int:
    """Check the data. Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", help="the data (default: this checkout's)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--since", metavar="YYYY-MM-DD", help="fail if the data is older")
    options = parser.parse_args(words)
    data = matrix.load(options.folder or os.path.join(ROOT, "matrix_data"))
    snapshot = Snapshot(os.path.join(data.folder, "snapshot"), "")
    for name, version in ("rows", data.version), ("index snapshot", snapshot.version):
        if options.since and version[:10] < options.since:
            print(f"{name} of {version[:10]}: older than {options.since}; update the data")
            return 1
    audit = check(data, snapshot.files)
    if options.json:
        print(json.dumps(audit_json(audit), indent=2))
    else:
        print("\n".join(audit_lines(audit)))
    return 0 if audit_ok(audit) else 1
