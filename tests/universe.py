"""Small made package universes: as an index in memory, and served from a loopback index for pip and uv."""

import hashlib
from collections.abc import Sequence
from typing import Any

from gpuenv.environment import normalize_name, parse_requirement, version_key
from gpuenv.errors import InputError, Reason, UnusableFileError
from gpuenv.model import Environment, Requirement, Wheel
from index_server import File, IndexServer, make_sdist, make_wheel

BASE = "https://files.test/files/"
Packages = dict[str, dict[str, dict[str, Any]]]


def files(packages: Packages) -> dict[str, list[tuple[str, str, File, dict[str, Any]]]]:
    """{name: [(version, kind, file, release)]} of a universe.

    A release has `requires`, `python` (on its page and in its metadata), `inner_python` (in its metadata only),
    `yanked` (True or the file's tag), `tags` (one wheel each), `sdist` (True, or "dynamic") and `wheel` (False: none).
    """
    found: dict[str, list[tuple[str, str, File, dict[str, Any]]]] = {}
    for name, releases in packages.items():
        rows = found.setdefault(name, [])
        for version, release in releases.items():
            requires, python = release.get("requires", ()), release.get("python")
            inner = release.get("inner_python", python)
            for tag in release.get("tags", ["py3-none-any"]) if release.get("wheel", True) else ():
                filename, data = make_wheel(name, version, requires, tag=tag, requires_python=inner)
                yanked = "bad" if release.get("yanked") in (True, tag) else None
                rows.append((version, "wheel", File(filename, data, python, yanked), release))
            if release.get("sdist"):
                dynamic = ["Requires-Dist"] if release["sdist"] == "dynamic" else []
                filename, data = make_sdist(name, version, requires, dynamic=dynamic, requires_python=python)
                yanked = "bad" if release.get("yanked") is True else None
                rows.append((version, "sdist", File(filename, data, python, yanked), release))
    return found


def serve(server: IndexServer, packages: Packages) -> None:
    """Put a universe on a loopback index."""
    for name, rows in files(packages).items():
        server.projects[normalize_name(name)] = [file for _, _, file, _ in rows]


class Universe:
    """model.Index of a universe, without any network. `asked` are the names that it was asked for."""

    def __init__(self, packages: Packages, index: str = "https://index.test/simple", base: str = BASE) -> None:
        self.asked: list[str] = []
        self._files: dict[str, list[tuple[Wheel, str, dict[str, Any]]]] = {}
        for name, rows in files(packages).items():
            mine = [
                (
                    Wheel(
                        name=normalize_name(name),
                        version=version,
                        filename=file.filename,
                        url=base + file.filename,
                        sha256=hashlib.sha256(file.data).hexdigest(),
                        size=len(file.data),
                        requires_python=file.requires_python,
                        yanked=file.yanked,
                        index=index,
                    ),
                    kind,
                    release,
                )
                for version, kind, file, release in rows
            ]
            self._files[normalize_name(name)] = sorted(mine, key=lambda row: version_key(row[0].version), reverse=True)

    def has(self, name: str) -> bool:
        return name in self._files

    def wheels(self, name: str, environment: Environment | None = None) -> Sequence[Wheel]:
        self.asked.append(name)
        return [wheel for wheel, kind, _ in self._files.get(name, ()) if kind == "wheel"]

    def sdists(self, name: str) -> Sequence[Wheel]:
        return [wheel for wheel, kind, _ in self._files.get(name, ()) if kind == "sdist"]

    def release(self, wheel: Wheel) -> dict[str, Any]:
        return next(release for one, _, release in self._files[wheel.name] if one.filename == wheel.filename)

    def dependencies(self, wheel: Wheel) -> Sequence[Requirement]:
        release = self.release(wheel)
        if release.get("sdist") == "dynamic" and not wheel.filename.endswith(".whl"):
            raise UnusableFileError(
                Reason(code="dynamic-metadata", subject=wheel.filename, need="static dependencies", have="dynamic")
            )
        return [parse_requirement(text) for text in release.get("requires", ())]

    def requires_python(self, wheel: Wheel) -> str | None:
        release = self.release(wheel)
        return release.get("inner_python", release.get("python"))

    def direct(self, name: str, url: str) -> Wheel:
        bare, _, fragment = url.partition("#")
        for wheel in (wheel for rows in self._files.values() for wheel, _, _ in rows):
            if wheel.filename == bare.rpartition("/")[2]:
                if wheel.name != name:
                    raise InputError(f"{name} @ {bare}: the file is one of {wheel.name}")
                sha256 = fragment.removeprefix("sha256=") or wheel.sha256
                return wheel.replace(url=bare, sha256=sha256, index="url", yanked=None)
        raise InputError(f"{bare} is not there")
