"""What is installed in an environment: its distributions and their files, and conda's packages.

Read from the folders that the interpreter has on sys.path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, cast

from ..compat.conda_records import Record
from ..distributions import Distribution, read_distributions
from ..errors import InputError
from ..model import Value
from ..prefix import (
    conda_files,
    conda_packages,
    find_interpreter,
    interpreter_of,
    is_conda,
    read_record,
)
from ..probes.answers import Interpreter

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

    def origin(self, module: str) -> str:
        """Return the file of a module that was asked for; "" if there is none."""
        return self.interpreter["imports"][module] or ""

    @property
    def wheels(self) -> list[tuple[str, str]]:
        """(distribution, version), without those that conda builds itself.

        The facts of a wheel of the same version are not theirs.
        """
        return [(row.name, row.version) for row in self.distributions if not row.of_conda]

    @property
    def cudnn_folder(self) -> str:
        """The folder of the first installed libcudnn.so.N; "" if there is no such folder.

        Wheels come before conda packages, by name.
        """
        for path in self.libraries:
            folder, name = os.path.split(path)
            if name.startswith("libcudnn.so.") and os.path.isdir(folder):
                return folder
        return ""


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
    python = interpreter_of(target)
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
    for name, record in conda_packages(prefix).items():
        if record.keys() >= _RECORD_KEYS:
            conda[name] = record
        for path in filter(is_cuda_library, conda_files(prefix, record)):
            libraries.setdefault(path, name)
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


def is_library(path: str) -> bool:
    """Return whether a path ends like libx.so, libx.so.9 or x.cpython-312-x86_64-linux-gnu.so."""
    return re.search(r"\.so(\.[0-9]+)*$", path) is not None


def is_cuda_library(path: str) -> bool:
    """Return whether a path is a library of the CUDA toolkit, cuDNN or NCCL."""
    return is_library(path) and os.path.basename(path).startswith(_CUDA_LIBRARIES)
