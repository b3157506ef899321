"""Environments of four real cuDNN releases, and the faults that are planted in them.

The releases are downloaded once (2.3 GB together; uv keeps them).
"""

import os
import shutil
from pathlib import Path

from gpuenv.compat import data as matrix
from gpuenv.index.default_index import default_index
from gpuenv.index.snapshot import Snapshot
from gpuenv.install import wheels
from gpuenv.model import Wheel
from native_build import build
from small_wheels import HERE, make_lock, write_record
from tables import data_file

RELEASES = {
    "8.9.7.29": "nvidia-cudnn-cu12",
    "9.10.2.21": "nvidia-cudnn-cu12",
    "9.20.0.48": "nvidia-cudnn-cu13",
    "9.28.0.42": "nvidia-cudnn-cu13",
}
CUDNN = Path("nvidia/cudnn/lib")
LARGE = 8 << 20  # bytes
SITE = Path("lib") / f"python{HERE[0]}.{HERE[1]}" / "site-packages"
# What else an environment has: {distribution: (version, {file: names that it opens})}.
# cuBLAS needs cublasLt.
NEIGHBOURS = data_file("tables/planting.json")["neighbours"]
OF_MAJOR = {
    "nvidia-cudnn-cu12": ("nvidia-cublas-cu12", "nvidia-cuda-nvrtc-cu12"),
    "nvidia-cudnn-cu13": ("nvidia-cublas", "nvidia-cuda-nvrtc"),
}


def lock_of(name, version, wheel=None):
    url = f"file:///{name}.whl"
    wheel = wheel or Wheel(name=name, version=version, filename=name, url=url, sha256=None)
    return make_lock(wheel)


def download(folder):
    """Install each release into its own environment below the folder.

    Raises:
        InstallError: There is no index.
    """
    found = default_index()
    snapshot = Snapshot(
        os.path.join(matrix.load().folder, "snapshot"), found.file_store, default_index=found.url
    )
    for version, name in RELEASES.items():
        wheel = next(
            one
            for one in snapshot.files(name)
            if one.version == version and one.filename.endswith("x86_64.whl")
        )
        wheels.sync(lock_of(name, version, wheel), str(folder / version), installer="uv")


def times(folder):
    """The length of each file, and when it was written to."""
    return {
        path: (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


# ---- making environments -------------------------------------------------------------------------


def link(source, target):
    """Link the file under another name. A file that has this name now keeps its content."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def own_copy(path):
    """The file without its other names, so that it can be written to."""
    beside = path.with_name(f".{path.name}")
    shutil.copy(path, beside)
    os.replace(beside, path)
    return path


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def install(release, site):
    """A release's distribution, over whatever is there."""
    for source in release.rglob("*"):
        relative = source.relative_to(release)
        if relative.parts[0].startswith("nvidia") and source.is_file():
            link(source, site / relative)


def info_of(name, version):
    return f"{name.replace('-', '_')}-{version}.dist-info"


def stand_in(site, name, stubs):
    version, files = NEIGHBOURS[name]
    built = {}
    for path, names in files.items():
        stem, suffix = os.path.basename(path).split(".so")
        flags = ["-Wl,-rpath,$ORIGIN"]
        if stem == "libcublas":
            flags += ["-Wl,--no-as-needed", str(built["libcublasLt"])]
        defines = [f'NAMES="{names}"'] if names else []
        built[stem] = build(
            "library_stub.c", f"{stem}.so{suffix}", stubs, defines=defines, flags=flags
        )
        link(built[stem], site / "nvidia" / path)
    write_record(site, name, version, [f"nvidia/{path}" for path in files])


def uninstall(site, name):
    version, files = NEIGHBOURS[name]
    for path in files:
        (site / "nvidia" / path).unlink()
    shutil.rmtree(site / info_of(name, version))


class Planter:
    """Does to an environment what a case says."""

    def __init__(self, site, release, published, stubs, outside):
        self.site, self.release, self.published, self.stubs, self.outside = (
            site,
            release,
            published,
            stubs,
            outside,
        )
        self.info = site / info_of(RELEASES[release], release)

    def at(self, name):
        return (
            self.site / name if "/" in name or name.endswith(".pth") else self.site / CUDNN / name
        )

    def do(self, step):
        step = dict(step)
        verb, value = next(iter(step.items()))
        del step[verb]
        getattr(self, f"_{verb}")(value, **step)

    def drop_hashes(self):
        """Take the hashes of large files that no step touched out of their RECORD.

        Hashing half a gigabyte that is known to be right is most of the time of a case. Cases
        without a fault keep all hashes.
        """
        for release, site in self.published.items():
            name = Path(info_of(RELEASES[release], release)) / "RECORD"
            record = self.site / name
            if not record.exists() or not record.samefile(site / name):
                continue
            lines = [self._without_hash(line, site) for line in record.read_text().splitlines()]
            put(record, "".join(f"{line}\n" for line in lines).encode())

    def _without_hash(self, line, site):
        path, _, size = line.split(",")
        file = self.site / path
        untouched = file.exists() and (site / path).exists() and file.samefile(site / path)
        return f"{path},,{size}" if untouched and file.stat().st_size > LARGE else line

    def _remove(self, name):
        self.at(name).unlink()

    def _cut(self, name, to):
        path = own_copy(self.at(name))
        os.truncate(path, int(path.stat().st_size * to))

    def _flip(self, name, at):
        with own_copy(self.at(name)).open("r+b") as stream:
            place = int(stream.seek(0, os.SEEK_END) * at)
            stream.seek(place)
            byte = stream.read(1)[0]
            stream.seek(place)
            stream.write(bytes([byte ^ 1]))

    def _append(self, name):
        with own_copy(self.at(name)).open("ab") as stream:
            stream.write(b"x")

    def _write(self, name, text):
        put(self.at(name), text.encode())

    def _rename(self, name, to):
        self.at(name).rename(self.at(to))

    def _link(self, name, to):
        path = self.at(name)
        if to == "outside":
            link(path, self.outside / name)
            to = str(self.outside / name)
        path.unlink(missing_ok=True)
        path.symlink_to(to)

    def _swap(self, name, by, file=None):
        link(self.published[by] / CUDNN / (file or name), self.at(name))

    _extra = _swap

    def _install(self, release):
        install(self.published[release], self.site)

    def _info(self, version):
        write_record(self.site, RELEASES[self.release], version)

    def _version(self, version):
        text = (self.info / "METADATA").read_text()
        put(
            self.info / "METADATA",
            text.replace(f"\nVersion: {self.release}\n", f"\nVersion: {version}\n").encode(),
        )

    def _remove_record(self, _):
        (self.info / "RECORD").unlink()

    def _claim(self, name, **who):
        put(self.site / name, b"another's")
        write_record(self.site, who["for"], "1.0", [name])

    def _stand_in(self, name):
        stand_in(self.site, name, self.stubs)

    def _uninstall(self, name):
        uninstall(self.site, name)


def place_of(entry, site, published, stubs, outside):
    """What an entry of a loader variable stands for."""
    if entry == "own":
        return str(site / CUDNN)
    if entry == "empty":
        (outside / "empty").mkdir(parents=True, exist_ok=True)
        return str(outside / "empty")
    if entry == "cublas":
        stand_in(outside, "nvidia-cublas-cu12", stubs)
        return str(outside / "nvidia" / "cublas" / "lib")
    release, _, name = entry.partition("/")
    return str(published[release] / CUDNN / name) if name else str(published[release] / CUDNN)
