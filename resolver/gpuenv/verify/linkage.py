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
from ..loader_env import is_driver_library, library_major
from ..model import Check, Mark, first_texts
from ..requirements.versions import normalize_name
from .installed import SHOWN
from .loader import Origins
from .survey import Survey

# As NVIDIA names its libraries; libcurl, libcurses and libcups are others.
CUDA = re.compile(r"lib(cu(?!r[ls]|ps)|nv|nccl)")
_VERSIONED = re.compile(r"\.so\.[0-9]")
_MACHINES = ("lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib")
_DEFAULTS = tuple(f"{root}{machine}" for machine in _MACHINES for root in ("/", "/usr/"))
_Finding = tuple[Mark, str]  # for programs, for people


def closure_check(libraries: Libraries, modules: Sequence[str]) -> Check:
    """Return the check "closure".

    It fails for what cuDNN or the frameworks need. What only other CUDA libraries open by name
    leaves it unknown.

    Args:
        libraries: those of the environment.
        modules: import names of the installed frameworks.
    """
    begin = time.monotonic()
    cuda, starts = set(libraries.cuda), libraries.starts(modules)
    groups = {title: libraries.reach(starts[title], by_name=True) for title in sorted(starts)}
    failures: list[_Finding] = [
        (("broken", path, reason), f"broken: {path}: {reason}")
        for path, reason in sorted(libraries.broken.items())
    ]
    doubts: list[_Finding] = []
    reached = set().union(*groups.values())
    requests = libraries.requests(itertools.chain.from_iterable(starts.values()), reached)
    for (name, required), askers in sorted(requests.items()):
        lacking = [asker for asker in askers if libraries.find(name, asker) is None]
        finding = libraries.absence(name, lacking) if lacking else None
        if finding is not None:
            (failures if required else doubts).append(finding)
    # R5: no framework reaches two CUDA majors. It cannot use libcublas.so.12 and .13 in one
    # process.
    for title, files_of_title in groups.items():
        for files in _several_majors(files_of_title & cuda).values():
            owners = " and ".join(sorted({libraries.owner[path] for path in files}))
            names = " and ".join(sorted({os.path.basename(path) for path in files}))
            text = f"mixed: {title} reaches {names} (of {owners})"
            failures.append((("mixed", title, names), text))
    status, findings = "fail", failures
    if not failures:
        status, findings = "unknown", doubts
    texts = [text for _, text in findings]
    if not failures and not libraries.all_read:
        texts.append("not all files were read in time")
    if not texts:
        status, texts = "pass", ["no CUDA library of a distribution is installed"]
        if cuda:
            summary = f"{len(cuda)} CUDA libraries read, {len(reached & cuda)} of them on the path"
            within = "all that they need or open by name is in the environment"
            texts = [f"{summary} of cuDNN or a framework: {within}"]
            unneeded = set().union(*_several_majors(cuda).values())
            if unneeded:
                names = ", ".join(sorted({libraries.owner[path] for path in unneeded})[:SHOWN])
                texts.append(f"two CUDA majors are installed, and nothing needs both: {names}")
    seconds = round(time.monotonic() - begin, 3)
    marks = tuple(mark for mark, _ in findings)
    return Check("closure", "", status, first_texts(texts), seconds=seconds, marks=marks)


def base_stem(name: str) -> str:
    """Return libcudnn_ops for libcudnn_ops.so.9."""
    return name.partition(".so")[0]


def family(name: str) -> str:
    """Return libcudnn for libcudnn_ops.so.9, libnvrtc for libnvrtc-builtins.so.13.2."""
    return re.split(r"[_.-]", name, maxsplit=1)[0]


def suffix(name: str) -> str:
    """Return .9 for libcudnn_ops.so.9, "" for libx.so."""
    return name.partition(".so")[2]


class Libraries:
    """The libraries of an environment; those of NVIDIA are read at once.

    Args:
        survey: what is installed.
        origins: where the loader searches.
        deadline: time.monotonic when reading stops.
        system: {distribution: the libraries that it opens and that the system must have}.

    Attributes:
        owner: path -> distribution.
        requires: distribution -> its requirements.
        places: file name -> paths.
        cuda: the paths of the libraries of NVIDIA's distributions.
        broken: path -> why it cannot be read.
        all_read: whether all texts were read in time.
    """

    def __init__(
        self,
        survey: Survey,
        origins: Origins,
        deadline: float,
        system: Mapping[str, Sequence[str]],
    ) -> None:
        self._origins, self._deadline, self._system = origins, deadline, system
        self.owner = survey.libraries
        self.requires = {row.name: row.requires for row in survey.distributions}
        # The loader also finds libraries beside NVIDIA's that no RECORD has.
        nvidia = [path for path, name in self.owner.items() if name.startswith("nvidia-")]
        beside = []
        for folder in sorted(filter(os.path.isdir, set(map(os.path.dirname, nvidia)))):
            names = [name for name in sorted(os.listdir(folder)) if ".so" in name]
            beside += [os.path.join(folder, name) for name in names]
        self.places: dict[str, list[str]] = {}
        for path in dict.fromkeys((*self.owner, *beside)):
            self.places.setdefault(os.path.basename(path), []).append(path)
        self._read: dict[str, elf.Library | None] = {}
        self.broken: dict[str, str] = {}
        self.all_read = True
        named = [path for path in nvidia if os.path.basename(path).startswith("lib")]
        self.cuda = list(filter(os.path.exists, named))
        for path in self.cuda:
            self.library(path)

    def library(self, path: str) -> elf.Library | None:
        """Return what a file says, read once; None if it cannot be read.

        Texts are read of NVIDIA's only.
        """
        if path not in self._read:
            self._read[path] = None
            try:
                library = elf.read(path, names=path in self.cuda, deadline=self._deadline)
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
        paths = [path for path in self.places.get(name, ()) if os.path.exists(path)]
        near = elf.expand_origin(asker.path, (*asker.rpath, *asker.runpath))
        near.append(os.path.dirname(asker.path))
        return min(paths, key=lambda path: os.path.dirname(path) not in near, default=None)

    def opened(self, library: elf.Library) -> Iterator[str]:
        """Return the file names that a library opens by name and cannot do without."""
        own = os.path.basename(library.path)
        for name in library.names:
            if name in (own, library.soname) or is_driver_library(name) or not CUDA.match(name):
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
                if family(name) == family(own) and name + suffix(own) in self.places:
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

    def absent(self, path: str) -> set[str]:
        """Return what loading a library needs and neither the environment nor the system has."""
        reached = map(self.library, self.reach([path], by_name=False))
        return {
            name
            for library in filter(None, reached)
            for name in library.needed
            if self.find(name, library) is None and self._outside(name, library) is None
        }

    def absent_requirements(self, owner: str) -> list[str]:
        """Return what an NVIDIA distribution requires on every platform and is not installed."""
        names = set()
        for text in self.requires.get(owner, ()) if owner.startswith("nvidia-") else ():
            if ";" not in text:
                name = re.split(r"[^A-Za-z0-9._-]", text.strip(), maxsplit=1)[0]
                names.add(normalize_name(name))
        return sorted(names - self.requires.keys())

    def starts(self, modules: Sequence[str]) -> dict[str, list[str]]:
        """Return where the path of a convolution begins.

        It begins at the cuDNN of each major version and at the extension modules of each framework.
        """
        starts: dict[str, list[str]] = {}
        for path in self.cuda:
            name = os.path.basename(path)
            if family(name) == "libcudnn":
                starts.setdefault(f"cuDNN {library_major(name)}", []).append(path)
        for path in self.owner:
            module = os.path.basename(os.path.dirname(path))
            if module in modules and os.path.exists(path):
                starts.setdefault(module, []).append(path)
        return starts

    def requests(
        self, starts: Iterable[str], reached: set[str]
    ) -> dict[tuple[str, bool], list[elf.Library]]:
        """Return who asks for each (file name, whether it is required).

        `starts` are where the path of a convolution begins, `reached` all files on it.
        """
        askers: dict[tuple[str, bool], list[elf.Library]] = {}
        # What loading alone needs: there a system library that is missing is a failure, too. A
        # plug-in that is opened by name (libcufile_rdma.so.1, which needs InfiniBand's libraries)
        # may lack its own and is left out. Where libc is not found, the loader's folders are not as
        # expected.
        loaded: set[str] = set()
        if self._outside("libc.so.6", elf.Library(path="/")) is not None:
            loaded = self.reach(starts, by_name=False)
        for path in {*self.cuda, *reached}:
            library = self.library(path)
            if library is None:
                continue
            for name in library.needed:
                if not is_driver_library(name) and (CUDA.match(name) or path in loaded):
                    askers.setdefault((name, True), []).append(library)
            for name in self.opened(library):
                askers.setdefault((name, path in reached), []).append(library)
        for distribution, names in self._system.items():
            for name in names:
                askers.setdefault((name, True), []).append(elf.Library(path=distribution))
        return askers

    def absence(self, name: str, askers: Sequence[elf.Library]) -> _Finding | None:
        """Return what it means that the environment lacks a library; None if the system has it."""
        taken = self._outside(name, askers[0])
        of_system = any(name in self._system.get(asker.path, ()) for asker in askers)
        if taken is not None and (of_system or not CUDA.match(name)):
            return None  # the system's own library, as intended
        relation = "opened by name"
        if any(name in asker.needed for asker in askers):
            relation = "needed"
        by = ", ".join(sorted({os.path.basename(asker.path) for asker in askers})[:SHOWN])
        cause = ""  # the distributions that an asker's own requires and that are not installed
        for owner in sorted({self.owner.get(asker.path, "") for asker in askers}, reverse=True):
            absent = self.absent_requirements(owner)
            if absent:
                cause = f" ({owner} requires {', '.join(absent)}, not installed)"
        if taken is not None:
            text = f"outside: {name}, {relation} by {by}, is not in the environment"
            return ("outside", name, taken), f"{text}; the loader takes {taken}{cause}"
        return ("missing", name, by), f"missing: {name}, {relation} by {by}, is not found{cause}"

    def _outside(self, name: str, asker: elf.Library) -> str | None:
        """Return the file that the loader would take. Its order: ld.so(8)."""
        before = [] if asker.runpath else elf.expand_origin(asker.path, asker.rpath)
        folders = [*before, *self._origins.path, *elf.expand_origin(asker.path, asker.runpath)]
        paths = itertools.chain(
            (os.path.join(folder, name) for folder in folders),
            (path for path in self._origins.cache if os.path.basename(path) == name),
            (os.path.join(folder, name) for folder in _DEFAULTS),
        )
        return next(filter(os.path.exists, paths), None)


def _several_majors(paths: Iterable[str]) -> Mapping[str, set[str]]:
    """Return the files of the libraries that have several major versions, by stem."""
    files: dict[str, set[str]] = {}
    majors: dict[str, set[str]] = {}
    for path in filter(_VERSIONED.search, paths):
        name = os.path.basename(path)
        files.setdefault(base_stem(name), set()).add(path)
        majors.setdefault(base_stem(name), set()).add(library_major(name))
    return {stem: files[stem] for stem in sorted(files) if len(majors[stem]) > 1}
