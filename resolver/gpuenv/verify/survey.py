"""What is installed in an environment: its distributions and their files, and conda's packages.

Read from the folders that the interpreter has on sys.path. File formats: core metadata (PEP 566),
the installed-distributions format (PEP 376, PEP 627), RECORD (PEP 427). importlib.metadata does not
tell the folder of a .dist-info, and it lists what an interrupted pip has left behind.
"""

from __future__ import annotations

import glob
import importlib.metadata
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.parser import HeaderParser
from types import MappingProxyType
from typing import NamedTuple, cast

from ..compat.conda_records import Record
from ..errors import InputError
from ..loader_env import interpreter
from ..model import Value
from ..prefix import find_interpreter, is_conda, read_record
from ..probes.answers import Interpreter
from ..requirements.versions import normalize_name

_CUDA_LIBRARIES = (
    "libcudnn",
    "libcublas",
    "libcudart",
    "libnccl",
    "libnvrtc",
    "libnvJitLink",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcupti",
)
_RECORD_KEYS = {"name", "version", "build", "subdir"}
_DEBIAN = "/usr/lib/python3/dist-packages"


class Distribution(Value):
    """A distribution: its folder on sys.path, and its .dist-info or .egg-info.

    `requires` has the texts of the metadata.
    """

    name: str
    version: str
    requires: tuple[str, ...] = ()
    folder: str = ""
    info: str = ""
    of_conda: bool = False  # conda installed it

    def read_text(self, name: str) -> str:
        """Return the text of a file of the .dist-info; "" if there is none."""
        return _read(os.path.join(self.info, name)) or ""

    @property
    def has_own_record(self) -> bool:
        """Whether its RECORD and its requirements hold.

        They do not for packages of conda and Debian: these change files and keep other records.
        """
        return not self.of_conda and not self.folder.startswith(_DEBIAN)


class RecordedFile(NamedTuple):
    """A row of a RECORD: the distribution, the absolute path, and what may be ""."""

    owner: str
    path: str
    digest: str
    size: str


class Survey(Value):
    """What is installed in an environment.

    Attributes:
        interpreter: what its interpreter says.
        distributions: by name; the first of each name on sys.path, which an import finds.
        twice: (name, versions) of the names that one folder has in several versions.
        files: what the RECORDs of the distributions name.
        libraries: path -> distribution, or conda package of a CUDA library.
        conda: package -> its record.
    """

    interpreter: Interpreter
    distributions: tuple[Distribution, ...] = ()
    twice: tuple[tuple[str, tuple[str, ...]], ...] = ()
    files: tuple[RecordedFile, ...] = ()
    libraries: Mapping[str, str] = MappingProxyType({})
    conda: Mapping[str, Record] = MappingProxyType({})

    @property
    def versions(self) -> dict[str, str]:
        """Distribution -> version."""
        return {row.name: row.version for row in self.distributions}

    @property
    def wheels(self) -> list[tuple[str, str]]:
        """(distribution, version), without those that conda builds itself.

        The facts of a wheel of the same version are not theirs.
        """
        return [(row.name, row.version) for row in self.distributions if not row.of_conda]

    @property
    def cudnn_folder(self) -> str | None:
        """The folder of the first installed libcudnn.so.N; None if there is no such folder.

        Wheels come before conda packages, by name.
        """
        for path in self.libraries:
            folder, name = os.path.split(path)
            if name.startswith("libcudnn.so.") and os.path.isdir(folder):
                return folder
        return None


def is_bare(target: str) -> bool:
    """Return whether a target is a conda environment without Python."""
    return os.path.isdir(target) and is_conda(target) and find_interpreter(target) is None


def bare_survey(prefix: str) -> Survey:
    """Return what is installed in a conda environment without Python."""
    answer = {"prefix": os.path.abspath(prefix), "path": (), "imports": {}}
    return read_survey(cast(Interpreter, answer))


def environment_python(target: str) -> str:
    """Return the interpreter of an environment, given its folder or the interpreter.

    Raises:
        InputError: there is none.
    """
    if not os.path.exists(target):
        raise InputError(f"{target}: does not exist", hint="name an environment: --target DIR")
    python = interpreter(target)
    if not os.path.isdir(target) and not os.access(python, os.X_OK):
        raise InputError(f"{target}: is neither an environment nor an interpreter")
    return python


def read_survey(answer: Interpreter) -> Survey:
    """Return what is installed, by the answer of the probe "interpreter"."""
    first: dict[str, Distribution] = {}
    versions: dict[tuple[str, str], set[str]] = {}
    for distribution in read_distributions(answer["path"]):
        key = distribution.name, distribution.folder
        versions.setdefault(key, set()).add(distribution.version)
        first.setdefault(distribution.name, distribution)
    files = []
    for name, distribution in sorted(first.items()):
        for path, digest, size in read_record(distribution.info):
            path = os.path.normpath(os.path.join(distribution.folder, path))  # noqa: PLW2901
            files.append(RecordedFile(name, path, digest, size))
    libraries = {file.path: file.owner for file in files if is_library(file.path)}
    conda: dict[str, Record] = {}
    prefix = answer["prefix"]
    for entry in sorted(glob.glob(os.path.join(glob.escape(prefix), "conda-meta", "*.json"))):
        try:
            with open(entry, encoding="utf-8") as stream:
                record = json.load(stream)
            name, paths = str(record["name"]), [str(path) for path in record.get("files", ())]
            if record.keys() >= _RECORD_KEYS:
                conda[name] = record
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for path in filter(is_cuda_library, paths):
            libraries.setdefault(os.path.normpath(os.path.join(prefix, path)), name)
    return Survey(
        interpreter=answer,
        distributions=tuple(first[name] for name in sorted(first)),
        twice=tuple(
            (name, tuple(sorted(several)))
            for (name, _), several in sorted(versions.items())
            if len(several) > 1
        ),
        files=tuple(files),
        libraries=libraries,
        conda=conda,
    )


def read_distributions(path: Iterable[str]) -> Iterator[Distribution]:
    """Yield the distributions in the order of a path, also those that an earlier one hides."""
    for folder in path:
        try:
            names = os.listdir(folder)
        except OSError:  # no folder, as python311.zip
            continue
        for name in names:
            lower = name.lower()
            is_egg = folder.endswith(".egg") and lower == "egg-info"
            # pip renames what it is about to remove to ~ame; an interrupted pip leaves that behind.
            if name.startswith("~") or not (is_egg or lower.endswith((".dist-info", ".egg-info"))):
                continue
            distribution = _read_distribution(folder, os.path.join(folder, name))
            if distribution.name:
                yield distribution


def _read_distribution(folder: str, info: str) -> Distribution:
    """Return the distribution that a .dist-info describes.

    A file of it may be missing: with a RECORD, the name of the folder tells which one it is.
    Otherwise its name is "" without metadata.
    """
    metadata = _read(os.path.join(info, "METADATA"))
    if metadata is None:  # of an egg; before setuptools, the .egg-info itself was the file
        metadata = _read(os.path.join(info, "PKG-INFO")) or _read(info) or ""
    headers = HeaderParser().parsestr(metadata)
    requires: Sequence[str] = headers.get_all("Requires-Dist", [])
    if not requires and os.path.isfile(os.path.join(info, "requires.txt")):
        requires = importlib.metadata.Distribution.at(info).requires or ()
    name = version = ""
    if os.path.isfile(os.path.join(info, "RECORD")):
        name, _, version = os.path.basename(info).removesuffix(".dist-info").partition("-")
    return Distribution(
        name=normalize_name(headers.get("Name", name)),
        version=headers.get("Version", version),
        requires=tuple(requires),
        folder=folder,
        info=info,
        of_conda=(_read(os.path.join(info, "INSTALLER")) or "").strip() == "conda",
    )


def _read(path: str) -> str | None:
    """Return the text of a file; None if there is none or it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None


def is_library(path: str) -> bool:
    """Return whether a path ends like libx.so, libx.so.9 or x.cpython-312-x86_64-linux-gnu.so."""
    return re.search(r"\.so(\.[0-9]+)*$", path) is not None


def is_cuda_library(path: str) -> bool:
    """Return whether a path is a library of the CUDA toolkit, cuDNN or NCCL."""
    return is_library(path) and os.path.basename(path).startswith(_CUDA_LIBRARIES)
