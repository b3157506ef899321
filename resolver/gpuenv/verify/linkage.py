"""Check that every library that a CUDA library needs, or opens by name, is in the environment.

Reads, loads nothing.

Which libraries there are and what they open is read from the files (elf.py); no list of cuDNN's
sub-libraries is kept. There are four results: a library is in the environment; it is not found
("missing"); the loader would take it from outside ("outside"); or one framework needs libraries of
two CUDA majors ("mixed").

A library name in the text of a library counts if it is the whole text, and
- it has a version (libnvrtc.so.13): as it stands;
- it has no version and is of the opener's family (libcudnn_ops.so in libcudnn.so.9): the opener
  adds its own major. Other names without a version are optional (libcask_profile_interface.so,
  which no release ships). Libraries of the driver (libcuda.so.1) are no part of an environment.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..binaries import elf
from ..loader_env import is_driver_library
from ..model import Check, Mark
from ..requirements.versions import normalize_name
from .installed import SHOWN, first_texts
from .loader import Origins
from .survey import Survey

# As NVIDIA names its libraries; libcurl, libcurses and libcups are others.
_CUDA = re.compile(r"lib(cu(?!r[ls]|ps)|nv|nccl)")
_VERSIONED = re.compile(r"\.so\.[0-9]")
_MACHINES = ("lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib")
_DEFAULTS = tuple(f"{root}{machine}" for machine in _MACHINES for root in ("/", "/usr/"))
_Finding = tuple[Mark, str]  # for programs, for people


def closure_check(
    survey: Survey,
    modules: Sequence[str],
    origins: Origins,
    deadline: float,
    system: Mapping[str, Sequence[str]],
) -> Check:
    """Return the check "closure".

    It fails for what cuDNN or the frameworks need. What only other CUDA libraries open by name
    leaves it unknown.

    Args:
        modules: import names of the installed frameworks.
        deadline: time.monotonic when reading stops.
        system: {distribution: the libraries that it opens and that the system must have}.
    """
    begin = time.monotonic()
    closure = _Closure(survey, modules, origins, deadline, system)
    status, evidence, marks = closure.judge()
    seconds = round(time.monotonic() - begin, 3)
    return Check("closure", "", status, evidence, seconds=seconds, marks=marks)


def base_stem(name: str) -> str:
    """Return libcudnn_ops for libcudnn_ops.so.9."""
    return name.partition(".so")[0]


def family(name: str) -> str:
    """Return libcudnn for libcudnn_ops.so.9, libnvrtc for libnvrtc-builtins.so.13.2."""
    return re.split(r"[_.-]", name, maxsplit=1)[0]


def suffix(name: str) -> str:
    """Return .9 for libcudnn_ops.so.9, "" for libx.so."""
    return name.partition(".so")[2]


class _Files:
    """The libraries of an environment: their owners, where they are, and what they need."""

    def __init__(self, survey: Survey, deadline: float) -> None:
        self._deadline = deadline
        self.owner = survey.libraries
        self.requires = {row.name: row.requires for row in survey.distributions}
        # The loader also finds libraries beside NVIDIA's that no RECORD has.
        nvidia = {path for path, name in self.owner.items() if name.startswith("nvidia-")}
        beside = []
        for folder in sorted(filter(os.path.isdir, set(map(os.path.dirname, nvidia)))):
            names = [name for name in sorted(os.listdir(folder)) if ".so" in name]
            beside += [os.path.join(folder, name) for name in names]
        self.by_name: dict[str, list[str]] = {}
        for path in dict.fromkeys((*self.owner, *beside)):
            self.by_name.setdefault(os.path.basename(path), []).append(path)
        self._read: dict[str, elf.Library | None] = {}
        self.broken: dict[str, str] = {}
        self.all_read = True  # whether all texts were read in time
        self.cuda = list(filter(os.path.exists, filter(self.is_cuda, self.owner)))
        for path in self.cuda:
            self.library(path)

    def is_cuda(self, path: str) -> bool:
        """Return whether a path is a library of an NVIDIA distribution."""
        of_nvidia = self.owner.get(path, "").startswith("nvidia-")
        return of_nvidia and os.path.basename(path).startswith("lib")

    def library(self, path: str) -> elf.Library | None:
        """Return what a file says, read once; None if it cannot be read.

        Texts are read of NVIDIA's only.
        """
        if path not in self._read:
            self._read[path] = None
            try:
                library = elf.read(path, names=self.is_cuda(path), deadline=self._deadline)
            except elf.NotElfError as error:
                if _VERSIONED.search(os.path.basename(path)):  # libx.so may be a linker script
                    self.broken[path] = str(error)
            except OSError as error:
                self.broken[path] = f"it cannot be read: {error.strerror}"
            else:
                self.all_read = self.all_read and library.whole
                self._read[path] = library
        return self._read[path]

    def find(self, name: str, asker: elf.Library) -> str | None:
        """Return the environment's file of a name, preferably one on the asker's search path."""
        paths = [path for path in self.by_name.get(name, ()) if os.path.exists(path)]
        near = elf.expand_origin(asker.path, (*asker.rpath, *asker.runpath))
        near.append(os.path.dirname(asker.path))
        return min(paths, key=lambda path: os.path.dirname(path) not in near, default=None)

    def opened(self, library: elf.Library) -> Iterator[str]:
        """Return the file names that a library opens by name and cannot do without."""
        own = os.path.basename(library.path)
        for name in library.names:
            if name in (own, library.soname) or is_driver_library(name) or not _CUDA.match(name):
                continue
            if _VERSIONED.search(name):
                yield name
            elif family(name) == family(own) and self._adds_major(own):
                yield name + suffix(own)

    def _adds_major(self, own: str) -> bool:
        """Return whether a family names its members NAME.so and ships them as NAME.so.MAJOR."""
        for path, library in self._read.items():
            file_name = os.path.basename(path)
            if library is None or family(file_name) != family(own):
                continue
            for name in library.names:
                if _VERSIONED.search(name) or base_stem(name) == base_stem(file_name):
                    continue
                if family(name) == family(own) and name + suffix(own) in self.by_name:
                    return True
        return False

    def reach(self, starts: Iterable[str], *, by_name: bool) -> set[str]:
        """Return the environment's files that some need, and what those need, and so on.

        Args:
            by_name: follow also what they open by name.
        """
        reached: set[str] = set()
        queue = list(starts)
        while queue:
            path = queue.pop()
            if path in reached:
                continue
            reached.add(path)
            library = self.library(path)
            if library is None:
                continue
            names = list(library.needed)
            if by_name:
                names += self.opened(library)
            queue += filter(None, [self.find(name, library) for name in names])
        return reached


class _Closure:
    """The judgement on the libraries of an environment."""

    def __init__(
        self,
        survey: Survey,
        modules: Sequence[str],
        origins: Origins,
        deadline: float,
        system: Mapping[str, Sequence[str]],
    ) -> None:
        self._origins = origins
        self._system = system
        self._files = _Files(survey, deadline)
        # The path of a convolution begins at the cuDNN of each major version and at the extension
        # modules of each framework.
        starts: dict[str, list[str]] = {}
        for path in self._files.cuda:
            name = os.path.basename(path)
            if family(name) == "libcudnn":
                major = suffix(name)[1:].partition(".")[0]
                starts.setdefault(f"cuDNN {major}", []).append(path)
        for path in self._files.owner:
            module = os.path.basename(os.path.dirname(path))
            if module in modules and os.path.exists(path):
                starts.setdefault(module, []).append(path)
        self._groups = {}
        for title in sorted(starts):
            self._groups[title] = self._files.reach(starts[title], by_name=True)
        self._reached = set().union(*self._groups.values())
        # What loading alone needs: there a system library that is missing is a failure, too. A
        # plug-in that is opened by name (libcufile_rdma.so.1, which needs InfiniBand's libraries)
        # may lack its own and is left out.
        loaded = itertools.chain.from_iterable(starts.values())
        self._loaded = self._files.reach(loaded, by_name=False)

    def judge(self) -> tuple[str, str, tuple[Mark, ...]]:
        """Return status, evidence and marks."""
        failures, doubts = self._findings()
        if failures:
            texts = [text for _, text in failures]
            return "fail", first_texts(texts), tuple(mark for mark, _ in failures)
        if doubts or not self._files.all_read:
            texts = [text for _, text in doubts]
            if not self._files.all_read:
                texts.append("not all files were read in time")
            return "unknown", first_texts(texts), tuple(mark for mark, _ in doubts)
        cuda = self._files.cuda
        if not cuda:
            return "pass", "no CUDA library of a distribution is installed", ()
        notes = ["all that they need or open by name is in the environment"]
        unneeded = set().union(*_several_majors(cuda).values())
        if unneeded:
            names = ", ".join(sorted({self._files.owner[path] for path in unneeded})[:SHOWN])
            notes.append(f"two CUDA majors are installed, and nothing needs both: {names}")
        count = len(self._reached & set(cuda))
        summary = f"{len(cuda)} CUDA libraries read, {count} of them on the path of cuDNN"
        return "pass", f"{summary} or a framework: {first_texts(notes)}", ()

    def _findings(self) -> tuple[list[_Finding], list[_Finding]]:
        """Return what fails, and what only other CUDA libraries open by name."""
        failures = [
            (("broken", path, reason), f"broken: {path}: {reason}")
            for path, reason in sorted(self._files.broken.items())
        ]
        doubts: list[_Finding] = []
        for (name, required), askers in sorted(self._requested().items()):
            lacking = [asker for asker in askers if self._files.find(name, asker) is None]
            finding = self._absence(name, lacking) if lacking else None
            if finding is not None and required:
                failures.append(finding)
            elif finding is not None:
                doubts.append(finding)
        # R5: no framework reaches two CUDA majors. It cannot use libcublas.so.12 and .13 in one
        # process.
        for title, files_of_title in self._groups.items():
            for files in _several_majors(files_of_title & set(self._files.cuda)).values():
                owners = " and ".join(sorted({self._files.owner[path] for path in files}))
                names = " and ".join(sorted({os.path.basename(path) for path in files}))
                text = f"mixed: {title} reaches {names} (of {owners})"
                failures.append((("mixed", title, names), text))
        return failures, doubts

    # ---- missing and outside --------------------------------------------------------------------

    def _requested(self) -> dict[tuple[str, bool], list[elf.Library]]:
        """Return who asks for each (file name, whether it is required)."""
        askers: dict[tuple[str, bool], list[elf.Library]] = {}
        # Whether the loader's folders are where they are expected: then libc is found there.
        sees_system = self._outside("libc.so.6", elf.Library(path="/")) is not None
        for path in {*self._files.cuda, *self._reached}:
            library = self._files.library(path)
            if library is None:
                continue
            check_system = sees_system and path in self._loaded
            for name in library.needed:
                if not is_driver_library(name) and (_CUDA.match(name) or check_system):
                    askers.setdefault((name, True), []).append(library)
            for name in self._files.opened(library):
                askers.setdefault((name, path in self._reached), []).append(library)
        for distribution, names in self._system.items():
            for name in names:
                askers.setdefault((name, True), []).append(elf.Library(path=distribution))
        return askers

    def _absence(self, name: str, askers: list[elf.Library]) -> _Finding | None:
        taken = self._outside(name, askers[0])
        of_system = any(name in self._system.get(asker.path, ()) for asker in askers)
        if taken is not None and (of_system or not _CUDA.match(name)):
            return None  # the system's own library, as intended
        relation = "opened by name"
        if any(name in asker.needed for asker in askers):
            relation = "needed"
        files = sorted({os.path.basename(asker.path) for asker in askers})
        by = ", ".join(files[:SHOWN])
        cause = ""  # the distributions that an asker's own requires and that are not installed
        requires = self._files.requires
        for owner in sorted({self._files.owner.get(asker.path, "") for asker in askers}):
            absent = []
            for text in requires.get(owner, ()) if owner.startswith("nvidia-") else ():
                name_required = re.split(r"[^A-Za-z0-9._-]", text.strip(), maxsplit=1)[0]
                if ";" not in text and normalize_name(name_required) not in requires:
                    absent.append(normalize_name(name_required))
            if absent:
                cause = f" ({owner} requires {', '.join(absent)}, not installed)"
                break
        if taken is not None:
            text = f"outside: {name}, {relation} by {by}, is not in the environment"
            return ("outside", name, taken), f"{text}; the loader takes {taken}{cause}"
        return ("missing", name, by), f"missing: {name}, {relation} by {by}, is not found{cause}"

    def _outside(self, name: str, asker: elf.Library) -> str | None:
        """Return the file that the loader would take. Its order: ld.so(8)."""
        before = [] if asker.runpath else elf.expand_origin(asker.path, asker.rpath)
        after = elf.expand_origin(asker.path, asker.runpath)
        paths = [os.path.join(folder, name) for folder in (*before, *self._origins.path, *after)]
        # The loader's cache is not read unless it is needed.
        for path in paths:
            if os.path.exists(path):
                return path
        paths = [path for path in self._origins.cache() if os.path.basename(path) == name]
        paths += [os.path.join(folder, name) for folder in _DEFAULTS]
        return next(filter(os.path.exists, paths), None)


def _several_majors(paths: Iterable[str]) -> Mapping[str, set[str]]:
    """Return the files of the libraries that have several major versions, by stem."""
    files: dict[str, set[str]] = {}
    majors: dict[str, set[str]] = {}
    for path in filter(_VERSIONED.search, paths):
        name = os.path.basename(path)
        files.setdefault(base_stem(name), set()).add(path)
        majors.setdefault(base_stem(name), set()).add(suffix(name).split(".")[1])
    return {stem: files[stem] for stem in sorted(files) if len(majors[stem]) > 1}
