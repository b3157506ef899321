"""The builds of the PyTorch index for the snapshot, from collected facts (a part of build_snapshot.py).

The PyTorch index could not be read when this snapshot was made. What stands here comes from lock files that were
made against it: each version carries its source. Reading the index itself replaces this when it can be reached.

The dependencies of a build are the METADATA of the same version on the default index: unchanged where the default
index has the same variant on that platform, else with the CUDA libraries and triton replaced by the variant's pins.
Those pins come from lock files too, so a range (cuda-bindings) has become the release that was locked. A variant whose
pins are not known is left out, because a guess is not an answer. Windows builds carry CUDA inside and need no pins.
"""

from __future__ import annotations

import csv
import json
import os
import re
import urllib.parse
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

PACKAGES = ("torch", "torchvision", "torchaudio")
INDEX = "https://download.pytorch.org/whl/{variant}"
LINUX = 'platform_system == "Linux"'
PLATFORMS = ("linux_x86_64", "linux_aarch64", "win_amd64")
VARIANT = re.compile(r"\+(cu\d+|cpu)$")


def is_library(name: str) -> bool:
    """Whether a requirement of torch is one that differs between CUDA variants."""
    return name.startswith(("nvidia-", "cuda-")) or name == "triton"


class Facts:
    """variant_pins.json, pytorch_index_wheels.tsv and torch.tsv of a folder."""

    def __init__(self, folder: str) -> None:
        """Reads the three files."""
        with open(os.path.join(folder, "variant_pins.json"), encoding="utf-8") as file:
            self._pins = json.load(file)
        self._rows = [
            row for row in self._table(folder, "pytorch_index_wheels.tsv") if row["sha256"]
        ]
        self._defaults = {
            (row["version"], row["variant"], row["platform"])
            for row in self._table(folder, "torch.tsv")
            if row["channel"] == "pypi-default"
        }
        self._torch: set[str] = set()

    @staticmethod
    def _table(folder: str, name: str) -> list[dict[str, str]]:
        with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file, delimiter="\t"))

    def pins(self) -> list[str]:
        """Every pinned requirement of a variant, without markers."""
        return sorted({text for version in self._pins for text in self._pins_of(version)})

    def _pins_of(self, version: str) -> list[str]:
        deps = self._pins[version]["deps"]
        return [
            f"{name}[{','.join(extras)}]=={pin}" if extras else f"{name}=={pin}"
            for name, (pin, extras) in sorted(deps.items())
        ]

    def package(
        self, name: str, default: list[dict[str, Any]]
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """(head fields, wheels) as build_snapshot.dump_package takes them; `default`: the default index's wheels.

        Call it for torch first: its companions follow the builds that torch has.
        """
        wheels, sources = [], {}
        for row in self._rows:
            variant = VARIANT.search(row["version"])
            if row["package"] != name or not variant:
                continue
            filename = urllib.parse.unquote(row["url"].rpartition("/")[2])
            like = self._like(filename, default)
            platform = next(
                (p for p in PLATFORMS if row["platform"].endswith(p.removeprefix("linux_"))), ""
            )
            requires = self._requires(name, row["version"], platform, like) if like else None
            if like is None or requires is None:
                continue
            path = urllib.parse.urlsplit(row["url"]).path.removeprefix("/whl/")
            wheels.append({
                "filename": filename, "version": row["version"], "location": os.path.dirname(path),
                "sha256": row["sha256"].removeprefix("sha256:"), "size": None, "requires": requires,
                "requires_python": like["requires_python"], "yanked": None, "upload_time": None,
            })  # fmt: skip
            sources[row["version"]] = row["source"]
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
            "sources": {v: sources[v] for v in sorted(kept)},
        }, wheels

    @staticmethod
    def _like(filename: str, default: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The default index's wheel of the same version, for the same platform if there is one."""
        public = str(parse_wheel_filename(filename)[1].public)
        candidates = [wheel for wheel in default if wheel["version"] == public]
        machine = next(m for m in ("aarch64", "x86_64", "win_amd64", "") if m in filename)
        same = [wheel for wheel in candidates if machine and machine in wheel["filename"]]
        return next(iter(same or candidates), None)

    def _requires(
        self, name: str, version: str, platform: str, like: dict[str, Any]
    ) -> list[str] | None:
        public, _, variant = version.partition("+")
        parsed = [Requirement(text) for text in like["requires"]]
        if name == "torch":
            if platform == "win_amd64" or (public, variant, platform) in self._defaults:
                return list(like["requires"])  # the pins of Windows wheels have Linux markers
            if version not in self._pins and variant != "cpu":
                return None
            common = [
                str(requirement) for requirement in parsed if not is_library(requirement.name)
            ]
            # Not every interpreter and platform has these two: the default index's markers say which.
            if variant == "cpu":
                return common
            markers = {
                r.name: str(r.marker)
                for r in parsed
                if r.name in ("triton", "cuda-bindings") and r.marker
            }
            pins = self._pins_of(version)
            return common + [
                f"{text}; {markers.get(text.partition('==')[0], LINUX)}" for text in pins
            ]
        pinned = next((r for r in parsed if r.name == "torch"), None)
        # torchaudio shares torch's version, also where its METADATA has no pin.
        torch = f"{str(pinned.specifier).removeprefix('==') if pinned else public}+{variant}"
        if torch not in self._torch:
            return None
        return [str(r) for r in parsed if r.name != "torch"] + [f"torch=={torch}"]
