"""Check the compatibility data against itself, conda-forge's recipes and public lock files.

    python scripts/tools.py data check [--since YYYY-MM-DD] [FOLDER]

Names each contradiction: facts that cannot all be true, or a file that compile.py would write
anew. That a field is missing or damaged is found when a file is loaded. Exit status: 0 there is no
contradiction, 1 there is one, or the data is older than --since.
"""

from __future__ import annotations

import itertools
import re
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from common import read_json
from data.compile import DATA, compiled, read
from data.toml_files import Companions
from gpuenv.compat import data as matrix
from gpuenv.compat.architectures import show_code
from gpuenv.compat.catalog import platform_of
from gpuenv.compat.conda_records import Record, describes
from gpuenv.compat.data import CompatibilityData
from gpuenv.index.snapshot import Snapshot
from gpuenv.model import Build, Code, CudaVersion, Framework, parse_pair, show_pair
from gpuenv.requirements.target import PLATFORMS, version_key
from gpuenv.requirements.versions import contains

Compilers = Mapping[CudaVersion, Sequence[str]]  # {toolkit: the targets that it compiles for}


def contradictions(data: CompatibilityData) -> list[str]:
    """Return what is wrong with the data, a line each.

    Raises:
        GpuEnvError: a file is missing or damaged.
    """
    folder = Path(data.folder)
    targets_by_cuda = read_json(folder / "tables.json")["compilers"]
    compilers = {parse_pair(cuda): targets for cuda, targets in targets_by_cuda.items()}
    builds = list(all_builds(data))
    found = [*library_faults(data, compilers), *build_faults(data, builds, compilers)]
    found += document_faults([build for _, build in builds])
    found += [*lock_faults(data), *recipe_faults(data, compilers), *dead_rows(folder)]
    stale = [path for path, _, _ in compiled(folder, check=True)]
    return found + [f"{path.name} is stale: run compile" for path in stale]


def dead_rows(folder: Path) -> Iterator[str]:
    """Yield the rows of companions.toml all of whose releases an earlier row has."""
    rows: dict[str, list[str]] = {}
    for row in read(folder / "companions.toml", Companions).row:
        for name in row.distributions:
            earlier = rows.setdefault(name, [])
            bounds = re.findall(r"\d[\d.]*", " ".join([*earlier, row.versions]))
            tried = {"0", *bounds, *(f"{bound}.0.1" for bound in bounds)}
            left = [version for version in tried if contains(row.versions, version)]
            if all(any(contains(one, version) for one in earlier) for version in left):
                yield f"companions.toml: earlier rows of {name} have all of {row.versions}"
            earlier.append(row.versions)


# ---- device code ---------------------------------------------------------------------------------


def code_faults(
    subject: str, code: Code, toolkits: Iterable[CudaVersion], compilers: Compilers
) -> Iterator[str]:
    """Check that one of the toolkits can have made the code. Toolkits without a row say nothing."""
    known = [cuda for cuda in toolkits if cuda in compilers]
    if not known:
        return
    name = " or ".join(map(show_pair, known))
    for target in (*(code.sass or ()), *(code.ptx or ())):
        if not any(target in compilers[cuda] for cuda in known):
            yield f"{subject} has {target}, which CUDA {name} cannot compile"
            break
    if code.made_by is not None and code.made_by > max(known):
        yield f"{subject} has PTX of CUDA {show_pair(code.made_by)} and was built with {name}"


def library_faults(data: CompatibilityData, compilers: Compilers) -> Iterator[str]:
    """Yield the releases of libraries whose code the toolkits of their CUDA cannot have made."""
    for name in data.libraries():
        for library in data.releases(name):
            subject = f"{name} {library.version} on {library.platform}"
            toolkits = [cuda for cuda in compilers if cuda[0] == library.cuda_major]
            if library.cuda is not None:
                toolkits = [library.cuda]
            yield from code_faults(subject, library.code, toolkits, compilers)


def all_builds(data: CompatibilityData) -> Iterator[tuple[Framework, Build]]:
    """Yield every build of every framework: its rows, and each way to install each release."""
    for framework, platform in itertools.product(data.all_frameworks(), PLATFORMS):
        if framework.is_single_distribution:
            for build in data.builds(framework.distribution, platform):
                yield framework, build
            continue
        for way in framework.ways:
            releases = [row for name in way.carriers for row in data.releases(name, platform)]
            for version in dict.fromkeys(row.version for row in releases):
                variant = data.variant(framework, way, version, platform)
                if variant is not None:
                    yield framework, variant


def build_faults(
    data: CompatibilityData, builds: Iterable[tuple[Framework, Build]], compilers: Compilers
) -> Iterator[str]:
    """Yield builds whose toolkit cannot have made their code, or whose cuDNN nobody knows."""
    for framework, build in builds:
        subject = described(build)
        if build.cuda is None:
            continue
        yield from code_faults(subject, build.code, [build.cuda], compilers)
        if build.cudnn is None:
            continue
        name, since = f"nvidia-cudnn-cu{build.cuda[0]}", version_key(build.cudnn)
        versions = {version_key(row.version) for row in data.releases(name, build.platform)}
        # A build that is a row pins its cuDNN; a way admits newer ones.
        pins = framework.is_single_distribution
        if since not in versions and (pins or max(versions, default=since) <= since):
            yield f"{subject} needs {name} {build.cudnn}, of which nothing is known"


def document_faults(builds: Sequence[Build]) -> Iterator[str]:
    """Compare documented builds with the same builds that were read on another index."""
    scanned = {
        (build.name, build.version, build.variant, build.platform): build
        for build in builds
        if build.code.evidence == "scanned"
    }
    for build in builds:
        other = scanned.get((build.name, build.version, build.variant, build.platform))
        if other is None or build.code.evidence == "scanned" or build.code.sass is None:
            continue
        if {*build.code.sass} != {*(other.code.sass or ())}:
            documented, read = show_code(build.code), show_code(other.code)
            yield f"{described(build)} is documented with {documented}; {other.local} has {read}"


def described(build: Build) -> str:
    """Return a build as text."""
    variant = "" if "+" in build.local else f" ({build.variant})"
    return f"{build.name} {build.local}{variant} on {build.platform}"


# ---- public lock files and recipes ---------------------------------------------------------------


def lock_faults(data: CompatibilityData) -> Iterator[str]:
    """Yield the builds of torch that public lock files name (pytorch_index.json), without a row."""
    for row in read_json(Path(data.folder, "pytorch_index.json"), {"wheels": ()})["wheels"]:
        filename = row["file"].rpartition("/")[2]
        distribution, version = filename.split("-")[:2]
        platform = platform_of(filename)
        is_build = distribution == "torch" and "+cu" in version
        if is_build and data.build(distribution, version, platform) is None:
            yield f"{filename} is in {row['sources'][0]}, and {version} on {platform} has no row"


def recipe_faults(data: CompatibilityData, compilers: Compilers) -> Iterator[str]:
    """Yield how conda-forge's recipes (conda/recipes.json) contradict the data.

    A recipe names targets that its toolkit cannot compile, or others than carriers.json has for its
    builds; or a row of carriers.json has no recipe. A difference that the row of a recipe explains
    is none.
    """
    recipes = read_json(Path(data.folder, "conda", "recipes.json"), {}).get("recipes")
    if recipes is None:
        return
    carriers = data.conda
    without_recipe = [row for row in carriers.code_rows if row.channel == "conda-forge"]
    for recipe in recipes:
        named = Code(
            sass=None if recipe["sass"] is None else tuple(recipe["sass"]),
            ptx=None if recipe["ptx"] is None else tuple(recipe["ptx"]),
            source=recipe["source"],
        )
        for build, subdir in itertools.product(recipe["builds"], recipe["subdirs"]):
            cuda = parse_pair(build["cuda"])
            record: Record = {
                "name": recipe["package"],
                "version": build["version"],
                "build": "",
                "build_number": build["number"],
                "subdir": subdir,
                "channel": "conda-forge",
            }
            release = f"{recipe['package']} {build['version']} for CUDA {build['cuda']}"
            subject = f"the recipe of {release} on {subdir}"
            yield from code_faults(subject, named, [cuda], compilers)
            without_recipe = [row for row in without_recipe if not describes(row, record, cuda)]
            if recipe["package"] not in carriers.carriers.values():
                continue  # a companion: gpuenv has no rows of its conda builds
            code = carriers.code(record, cuda)
            if code.sass is not None and code.made_by != cuda:
                yield f"{subject} differs from carriers.json, which has CUDA {code.made_by}"
            is_same = (code.sass, code.ptx) == (named.sass, named.ptx)
            if is_same == ("explained" in recipe):
                has = "no row" if code.sass is None else show_code(code)
                explained = " and explains it" if is_same else ""
                yield f"{subject} names {show_code(named)}{explained}, carriers.json has {has}"
    for row in without_recipe:
        subject = f"{row.carrier} {row.versions} for CUDA {row.cuda}"
        yield f"{subject} is in carriers.json, and recipes.json has no build of it"


# ---- the program ---------------------------------------------------------------------------------


ARGUMENTS = {
    "folder": {"nargs": "?", "type": Path, "default": DATA},
    "--since": {"metavar": "YYYY-MM-DD", "help": "fail if the data is older"},
}


def main(options: Namespace) -> int:
    """Check the data. Return the exit status."""
    data = matrix.load(str(options.folder))
    if options.since:
        snapshot = Snapshot(str(options.folder / "snapshot"), "")
        for name, version in ("rows", data.version), ("index snapshot", snapshot.version):
            if version[:10] < options.since:
                print(f"{name} of {version[:10]}: older than {options.since}; update the data")
                return 1
    found = contradictions(data)
    print(*found, f"{len(found)} contradictions", sep="\n")
    return 1 if found else 0
