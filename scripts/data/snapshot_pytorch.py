"""Write the builds of the PyTorch index for the snapshot, from collected facts.

The PyTorch index could not be read when this snapshot was made. What stands here comes from lock
files that were made against it (matrix_data/pytorch_index.json, which collect_builds.py writes):
each version carries its source. Reading the index itself replaces this when it can be reached.

The dependencies of a build are the METADATA of the same version on the default index: unchanged
where the default index has the same variant on that platform, else with the CUDA libraries and
triton replaced by the variant's pins. Those pins come from lock files too, so a range
(cuda-bindings) has become the release that was locked. A variant whose pins are not known is left
out, because a guess is not an answer. Windows builds carry CUDA inside and need no pins.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from data.registry import supported

PACKAGES = ("torch", "torchvision", "torchaudio")
INDEX = "https://download.pytorch.org/whl/{variant}"
LINUX = 'platform_system == "Linux"'
PLATFORMS = ("linux_x86_64", "linux_aarch64", "win_amd64")
VARIANT = re.compile(r"\+(cu\d+|cpu)$")


def is_library(name: str) -> bool:
    """Return whether a requirement of torch is one that differs between CUDA variants."""
    return name.startswith(("nvidia-", "cuda-")) or name == "triton"


class Facts:
    """The facts of pytorch_index.json, and the builds in frameworks/torch.json."""

    def __init__(self, folder: str) -> None:
        """Read the two files of the data in a folder."""
        content = json.loads((Path(folder) / "pytorch_index.json").read_text(encoding="ascii"))
        self._rows: list[dict[str, Any]] = content["wheels"]
        self._pins: dict[str, list[str]] = {
            row["version"]: row["requires"] for row in content["pins"]
        }
        builds = json.loads(
            (Path(folder) / "frameworks" / "torch.json").read_text(encoding="ascii")
        )
        self._defaults = {
            (row["version"], row["variant"], row["platform"].replace("-", "_"))
            for row in builds["builds"]
            if row["index"] == "default"
        }
        self._torch: set[str] = set()

    def pins(self) -> list[str]:
        """Return every pinned requirement of a variant, without markers."""
        return sorted({text for requires in self._pins.values() for text in requires})

    def package(
        self, name: str, default: list[dict[str, Any]]
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return (head fields, wheels) for build_snapshot.dump_package.

        `default` has the wheels of the default index. Call this for torch first, because its
        companions need the builds that torch has.
        """
        wheels: list[dict[str, Any]] = []
        sources: dict[str, set[str]] = {}
        for row in self._rows:
            location, _, filename = row["file"].rpartition("/")
            version = filename.split("-")[1]
            if filename.split("-")[0] != name or not VARIANT.search(version):
                continue
            like = self._like(filename, default)
            platform = next(
                (p for p in PLATFORMS if filename[:-4].endswith(p.removeprefix("linux_"))), ""
            )
            requires = self._requires(name, version, platform, like) if like else None
            if like is None or requires is None or not supported(filename):
                continue
            wheels.append({
                "filename": filename, "version": version, "location": location,
                "sha256": row["sha256"], "size": None, "requires": requires,
                "requires_python": like["requires_python"], "yanked": None, "upload_time": None,
            })  # fmt: skip
            sources.setdefault(version, set()).update(row["sources"])
        unique = {wheel["filename"]: wheel for wheel in reversed(wheels)}.values()
        wheels = sorted(
            unique, key=lambda w: (parse_wheel_filename(w["filename"])[1], w["filename"])
        )
        if name == "torch":
            self._torch = {wheel["version"] for wheel in wheels}
        kept = {wheel["version"] for wheel in wheels}
        return {
            "name": name,
            "index": INDEX,
            "sources": {v: ", ".join(sorted(sources[v])) for v in sorted(kept)},
        }, wheels

    @staticmethod
    def _like(filename: str, default: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the default index's wheel of a version, if possible for the same platform."""
        public = str(parse_wheel_filename(filename)[1].public)
        candidates = [wheel for wheel in default if wheel["version"] == public]
        machine = next(m for m in ("aarch64", "x86_64", "win_amd64", "") if m in filename)
        same = [wheel for wheel in candidates if machine and machine in wheel["filename"]]
        return next(iter(same or candidates), None)

    def _requires(
        self, name: str, version: str, platform: str, like: dict[str, Any]
    ) -> list[str] | None:
        if name == "torch":
            return self._torch_requires(version, platform, like)
        variant = version.partition("+")[2]
        parsed = [Requirement(text) for text in like["requires"]]
        pinned = next((r for r in parsed if r.name == "torch"), None)
        if pinned is None:  # torchaudio 2.11.0 fits several releases of torch
            return list(like["requires"])
        torch = f"{str(pinned.specifier).removeprefix('==')}+{variant}"
        if torch not in self._torch:
            return None
        return [str(r) for r in parsed if r.name != "torch"] + [f"torch=={torch}"]

    def _torch_requires(
        self, version: str, platform: str, like: dict[str, Any]
    ) -> list[str] | None:
        """Return the dependencies of a build of torch; None if its variant has no known pins."""
        public, _, variant = version.partition("+")
        parsed = [Requirement(text) for text in like["requires"]]
        if platform == "win_amd64" or (public, variant, platform) in self._defaults:
            return list(like["requires"])  # the pins of Windows wheels have Linux markers
        if version not in self._pins and variant != "cpu":
            return None
        common = [str(requirement) for requirement in parsed if not is_library(requirement.name)]
        # Not every interpreter and platform has these two: the default index's markers say which.
        if variant == "cpu":
            return common
        markers = {
            r.name: str(r.marker)
            for r in parsed
            if r.name in ("triton", "cuda-bindings") and r.marker
        }
        pins = self._pins[version]
        return common + [f"{text}; {markers.get(text.partition('==')[0], LINUX)}" for text in pins]
