"""Small made-up package universes: an index in memory, or a loopback index for pip and uv."""

import hashlib
import json
from typing import Any, NamedTuple

from gpuenv.errors import InputError, Reason, UnusableFileError
from gpuenv.index.protocol import Index, Metadata
from gpuenv.index.variants import parse, split_variant_marker
from gpuenv.model import Wheel
from gpuenv.requirements.target import normalize_name, parse_requirement, version_key
from index_server import File, make_sdist, make_wheel
from variant_maker import metadata

BASE = "https://files.test/files/"
Release = dict[str, Any]


class Row(NamedTuple):
    """A file of a universe; `tag` is "" for a source distribution, `label` that of a variant."""

    name: str
    version: str
    tag: str
    release: Release
    label: str = ""

    @property
    def filename(self):
        stem = f"{self.name.replace('-', '_')}-{self.version}"
        parts = [part for part in (stem, self.tag, self.label) if part]
        return f"{'-'.join(parts)}.whl" if self.tag else f"{stem}.tar.gz"

    @property
    def yanked(self):
        return "bad" if self.release.get("yanked") in (True, self.tag or "sdist") else None

    def made(self):
        """The file itself."""
        requires, python = self.release.get("requires", ()), self.release.get("python")
        inner = self.release.get("inner_python", python)
        if self.tag:
            made = make_wheel(
                self.name, self.version, requires, tag=self.tag, requires_python=inner
            )
        else:
            dynamic = ["Requires-Dist"] if self.release["sdist"] == "dynamic" else []
            made = make_sdist(
                self.name, self.version, requires, dynamic=dynamic, requires_python=python
            )
        assert made[0] == self.filename
        return File(*made, python, self.yanked)


def rows(packages):
    """The files of a universe.

    A release has `requires`, `python` (on its page and in its metadata), `inner_python` (in its
    metadata only), `index`, `yanked` (True or the file's tag), `tags` (one wheel each), `variants`
    (the properties of each label; "" is an ordinary wheel), `sdist` (True or "dynamic") and
    `wheel` (False: none).
    """
    for name, releases in packages.items():
        for version, release in releases.items():
            for tag in release.get("tags", ["py3-none-any"]) if release.get("wheel", True) else ():
                for label in release.get("variants", [""]):
                    yield Row(name, version, tag, release, label)
            if release.get("sdist"):
                yield Row(name, version, "", release)


def serve(server, packages):
    """Put a universe on a loopback index."""
    for row in rows(packages):
        server.projects.setdefault(normalize_name(row.name), []).append(row.made())


def parsed(text):
    """The requirement of a file; its marker may be about the variant of the file."""
    text, variant_marker = split_variant_marker(text)
    requirement = parse_requirement(text)
    return requirement.replace(marker=variant_marker) if variant_marker else requirement


class Universe(Index):
    """An index of a universe, without any network. `asked` are the names that it was asked for.

    No file is made: the hash is one of its name.
    """

    def __init__(self, packages, index="https://index.test/simple", base=BASE):
        self.asked = []
        self._files = {normalize_name(name): [] for name in packages}
        for row in rows(packages):
            name = normalize_name(row.name)
            wheel = Wheel(
                name=name,
                version=row.version,
                filename=row.filename,
                url=base + row.filename,
                sha256=hashlib.sha256(row.filename.encode()).hexdigest(),
                size=1,
                requires_python=row.release.get("python"),
                yanked=row.yanked,
                index=row.release.get("index", index),
            )
            self._files[name].append((wheel, row))
        for found in self._files.values():
            found.sort(key=lambda pair: version_key(pair[0].version), reverse=True)

    def has(self, name):
        return name in self._files

    def files(self, name, environment=None):
        self.asked.append(name)
        return [wheel for wheel, _ in self._files.get(name, ())]

    def metadata(self, wheel):
        row = self._row(wheel)
        if row.release.get("sdist") == "dynamic" and not row.tag:
            raise UnusableFileError(
                Reason(
                    code="build-failed",
                    subject=f"{wheel.name} {wheel.version}",
                    need="a build of its source distribution that works",
                    have="an error",
                )
            )
        return Metadata(
            dependencies=tuple(parsed(text) for text in row.release.get("requires", ())),
            requires_python=row.release.get("inner_python", row.release.get("python")),
        )

    def direct(self, name, url):
        bare, _, fragment = url.partition("#")
        for wheel in (wheel for found in self._files.values() for wheel, _ in found):
            if wheel.filename == bare.rpartition("/")[2]:
                if wheel.name != name:
                    raise InputError(f"{name} @ {bare}: the file is one of {wheel.name}")
                sha256 = fragment.removeprefix("sha256=") or wheel.sha256
                return wheel.replace(url=bare, sha256=sha256, index="url", yanked=None)
        raise InputError(f"{bare} is not there")

    def variants(self, wheels):
        properties = dict(self._row(wheels[0]).release["variants"])
        properties.pop("", None)
        return parse(json.dumps(metadata(properties)).encode(), wheels[0].name)

    def _row(self, wheel):
        return next(row for one, row in self._files[wheel.name] if one.filename == wheel.filename)
