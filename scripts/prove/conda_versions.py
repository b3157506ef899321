"""Compare gpuenv's own rules of conda's versions with those of py-rattler, pair by pair.

    python scripts/tools.py prove conda-versions [--pairs 500000] [REPODATA.json ...]

The versions and ranges are those of repodata, and variations of them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from pathlib import Path
from typing import Any

from gpuenv.requirements import conda_versions

VERSIONS = "1 1.0 1.2 1.2.0 1.20 1.2b1 1.2_3 1.2.post1 1.2.dev0 1.2rc1 2024a 2024b 2024.1 3.8 3.8_3"
RANGES = (
    "1.* 1.2* 1.2.* =1.2 ==1.2 ==1.2.* >=1.2.* !=1.2 !=1.2.* ~=1.2 ~=1.2.0 2024.* 3.8.* >1.2,<2"
)


def read(paths: list[str]) -> tuple[set[str], set[str]]:
    """Return the versions and the ranges of some repodata, or lists of records."""
    versions, ranges = set(VERSIONS.split()), set(RANGES.split())
    for path in paths:
        document: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        if isinstance(document, dict):
            document = [*document["packages"].values(), *document["packages.conda"].values()]
        for record in document:
            versions.add(record["version"])
            for text in record["depends"]:
                ranges.add(conda_versions.split(text)[1])
    for text in sorted(versions):
        ranges |= {form.format(text) for form in ("{}*", "{}.*", "={}", "=={}.*", ">={}", "!={}.*")}
    return versions, ranges


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the repodata."""
    parser.add_argument("paths", nargs="*", metavar="REPODATA.json")
    parser.add_argument("--pairs", type=int, default=500_000)


def prove(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Compare pairs of a range and a version, in a fixed random order."""
    versions, ranges = read(arguments.paths)
    pairs = list(itertools.product(sorted(ranges), sorted(versions)))
    random.Random(51).shuffle(pairs)  # noqa: S311
    own, rattler = conda_versions.Own(), conda_versions.Rattler()
    compared = 0
    faults = []
    for spec, version in pairs[: arguments.pairs]:
        if spec.strip("=!.*").endswith(".0") and not version.replace(".", "").isdigit():
            continue  # 1.2b1 is of 1.2.0.* to rattler, and is not to conda and to gpuenv
        try:
            expected = rattler.matches(f"package {spec}", "package", version, "0")
        except Exception:  # noqa: S112  rattler cannot read it
            continue
        compared += 1
        if own.matches(f"package {spec}", "package", version, "0") != expected:
            faults.append(f"{spec}  {version}: rattler says {expected}")
    return {"pairs": compared, "differences": len(faults)}, faults
