"""Whether every library that a CUDA library needs, or opens by name, is in the environment: read, not loaded.

Which libraries there are and what they open is read from the files (elf.py); no list of cuDNN's sub-libraries is kept.
Four answers are told apart: a library is in the environment; it is nowhere ("missing"); the loader would take it from
outside ("outside"); or what one framework needs is there for two CUDA majors ("mixed").

A name in a library's text binds where it is the whole text, and
- it has a version (libnvrtc.so.13), as it stands;
- it has none and is of the opener's family (libcudnn_ops.so in libcudnn.so.9): the opener puts its own major behind it.
Other names without a version are tried and done without (libcask_profile_interface.so, which no release ships).
What the driver supplies (libcuda.so.1) is no part of an environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..model import Check, Mark
from . import elf
from .loader import Origins

_DRIVERS = re.compile(r"lib(cuda|nvcuvid|nvoptix|cudadebugger|nvidia-[a-z0-9_-]+)\.so")
_CUDA = re.compile(r"lib(cu(?!r[ls]|ps)|nv|nccl)")  # as NVIDIA names its libraries; curl, curses and cups are others
_VERSIONED = re.compile(r"\.so\.[0-9]")
_MACHINES = ("lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib")
_DEFAULTS = tuple(f"{root}{machine}" for machine in _MACHINES for root in ("/", "/usr/"))
SHOWN = 6
_Told = tuple[Mark, str]  # for programs, and in words


def closure_check(survey: dict[str, Any], modules: Sequence[str], origins: Origins, deadline: float) -> Check:
    """The check "closure" of what the survey found; `modules` are the import names of the frameworks that are there.

    Fails for what cuDNN, or the modules themselves, cannot do without; what only other CUDA libraries open by name
    leaves it unknown.
    """
    import time

    begin = time.monotonic()
    found = _Closure(survey, modules, origins, deadline)
    status, evidence, marks = found.judge()
    seconds = round(time.monotonic() - begin, 3)
    return Check(name="closure", subject="", status=status, evidence=evidence, seconds=seconds, marks=marks)


def base_stem(name: str) -> str:
    """libcudnn_ops of libcudnn_ops.so.9."""
    return name.partition(".so")[0]


def family(name: str) -> str:
    """libcudnn of libcudnn_ops.so.9, libnvrtc of libnvrtc-builtins.so.13.2."""
    return re.split(r"[_.-]", name, maxsplit=1)[0]


def suffix(name: str) -> str:
    """.9 of libcudnn_ops.so.9, "" of libx.so."""
    return name.partition(".so")[2]


class _Closure:
    """The libraries of an environment, what each needs, and which of them a convolution reaches."""

    def __init__(self, survey: dict[str, Any], modules: Sequence[str], origins: Origins, deadline: float) -> None:
        self._origins, self._deadline = origins, deadline
        self._owner = {str(path): str(name) for path, name in survey["libraries"]}
        self._requires = {row["name"]: row.get("requires", []) for row in survey["distributions"]}
        self._paths: dict[str, list[str]] = {}
        for path in (*self._owner, *self._beside()):
            self._paths.setdefault(os.path.basename(path), []).append(path)
        self._read: dict[str, elf.Library | None] = {}
        self._broken: dict[str, str] = {}
        self._bound = True  # whether all texts were read in time
        self.cuda = [path for path in self._owner if self._is_cuda(path) and os.path.exists(path)]
        for path in self.cuda:
            self._library(path)
        starts = self._starts(modules)
        self._groups = {title: self._reach(paths, by_name=True) for title, paths in starts.items()}
        # What loading alone brings in: there a library that the system lacks is a failure, too. A plug-in that is
        # opened by name (libcufile_rdma.so.1, which needs InfiniBand's) may find its own missing, and is left out.
        self._loaded = self._reach((path for paths in starts.values() for path in paths), by_name=False)

    def _beside(self) -> Iterator[str]:
        """Libraries that lie beside NVIDIA's and are in no RECORD: the loader takes them all the same."""
        folders = {os.path.dirname(path) for path, name in self._owner.items() if name.startswith("nvidia-")}
        for folder in sorted(folders):
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                path = os.path.join(folder, name)
                if ".so" in name and path not in self._owner:
                    yield path

    def _is_cuda(self, path: str) -> bool:
        return self._owner[path].startswith("nvidia-") and os.path.basename(path).startswith("lib")

    def _library(self, path: str) -> elf.Library | None:
        """What the file says, read once; the texts of NVIDIA's libraries only."""
        if path not in self._read:
            self._read[path] = None
            try:
                names = path in self._owner and self._is_cuda(path)
                library = elf.read(path, names=names, deadline=self._deadline)
                self._bound = self._bound and library.whole
                self._read[path] = library
            except elf.NotElfError as error:
                if _VERSIONED.search(os.path.basename(path)):  # libx.so may be a linker's script
                    self._broken[path] = str(error)
            except OSError as error:
                self._broken[path] = f"it cannot be read: {error.strerror}"
        return self._read[path]

    # ---- what is where ------------------------------------------------------------------------------------------

    def inside(self, name: str, asker: elf.Library) -> str | None:
        """The environment's file of that name that is nearest to who asks for it."""
        there = [path for path in self._paths.get(name, ()) if os.path.exists(path)]
        near = [os.path.normpath(folder) for folder in _expand(asker, (*asker.rpath, *asker.runpath))]
        near.append(os.path.dirname(asker.path))
        return min(there, key=lambda path: os.path.dirname(path) not in near, default=None)

    def outside(self, name: str, asker: elf.Library) -> str | None:
        """The file that the loader would take: ld.so(8) for its order."""
        before = () if asker.runpath else _expand(asker, asker.rpath)
        after = _expand(asker, asker.runpath)
        for folder in (*before, *self._origins.path, *after):
            if os.path.exists(os.path.join(folder, name)):
                return os.path.join(folder, name)
        cached = [path for path in self._origins.cache() if os.path.basename(path) == name]
        folders = [os.path.join(folder, name) for folder in _DEFAULTS]
        return next((path for path in (*cached, *folders) if os.path.exists(path)), None)

    # ---- what is asked for --------------------------------------------------------------------------------------

    def opened(self, library: elf.Library) -> Iterator[str]:
        """The file names that the library opens by name and is bound to find."""
        own = os.path.basename(library.path)
        for name in library.names:
            if name in (own, library.soname) or _DRIVERS.match(name) or not _CUDA.match(name):
                continue
            if _VERSIONED.search(name):
                yield name
            elif family(name) == family(own) and self._suffixed(own):
                yield name + suffix(own)

    def _suffixed(self, own: str) -> bool:
        """Whether the family of a library opens its members as NAME.so and they are there as NAME.so.MAJOR."""
        members = {
            os.path.basename(path): library
            for path, library in self._read.items()
            if library is not None and family(os.path.basename(path)) == family(own)
        }
        return any(
            name + suffix(own) in self._paths and family(name) == family(own)
            for library in members.values()
            for name in library.names
            if not _VERSIONED.search(name) and base_stem(name) != base_stem(os.path.basename(library.path))
        )

    def _starts(self, modules: Sequence[str]) -> dict[str, list[str]]:
        """Where the path of a convolution begins: cuDNN of each major, and each framework's extension modules."""
        starts: dict[str, list[str]] = {}
        for path in self.cuda:
            name = os.path.basename(path)
            if family(name) == "libcudnn":
                starts.setdefault(f"cuDNN {suffix(name)[1:].partition('.')[0]}", []).append(path)
        for path in self._owner:
            module = os.path.basename(os.path.dirname(path))
            if module in modules and os.path.exists(path):
                starts.setdefault(module, []).append(path)
        return dict(sorted(starts.items()))

    def _reach(self, starts: Iterable[str], *, by_name: bool) -> set[str]:
        """The environment's files that these need, and what those need; `by_name`: and open by name."""
        reached: set[str] = set()
        left = list(starts)
        while left:
            path = left.pop()
            if path in reached:
                continue
            reached.add(path)
            library = self._library(path)
            if library is not None:
                names = (*library.needed, *(self.opened(library) if by_name else ()))
                left += filter(None, (self.inside(name, library) for name in names))
        return reached

    # ---- the judgement ------------------------------------------------------------------------------------------

    def judge(self) -> tuple[str, str, tuple[Mark, ...]]:
        """(status, evidence, marks)."""
        path_of = set().union(*self._groups.values())
        bad, doubts = self._absences(path_of)
        broken = [(("broken", path, why), f"broken: {path}: {why}") for path, why in sorted(self._broken.items())]
        bad = [*broken, *bad, *self._mixes()]
        if bad:
            return "fail", _told([text for _, text in bad]), tuple(mark for mark, _ in bad)
        if doubts or not self._bound:
            late = [] if self._bound else ["not all files were read in time"]
            return "unknown", _told([*(text for _, text in doubts), *late]), tuple(mark for mark, _ in doubts)
        count = len(path_of & set(self.cuda))
        if not self.cuda:
            return "pass", "no CUDA library of a distribution is installed", ()
        notes = self._unused_majors()
        what = f"{len(self.cuda)} CUDA libraries read, {count} of them on the path of cuDNN or a framework: "
        return "pass", what + _told(["all that they need or open by name is in the environment", *notes]), ()

    def _absences(self, reached: set[str]) -> tuple[list[_Told], list[_Told]]:
        """What is missing or comes from outside: (what fails, what may be done without)."""
        askers: dict[tuple[str, bool], list[elf.Library]] = {}
        trusted = self._sees_system()
        for path in {*self.cuda, *reached}:
            library = self._library(path)
            if library is None:
                continue
            for name in library.needed:
                plain = not _CUDA.match(name)
                if _DRIVERS.match(name) or (plain and (path not in self._loaded or not trusted)):
                    continue
                askers.setdefault((name, True), []).append(library)
            for name in self.opened(library):
                askers.setdefault((name, path in reached), []).append(library)
        bad: list[_Told] = []
        doubts: list[_Told] = []
        for (name, binding), libraries in sorted(askers.items(), key=lambda item: item[0]):
            lacking = [one for one in libraries if self.inside(name, one) is None]
            found = self._absence(name, lacking) if lacking else None
            if found is not None:
                (bad if binding else doubts).append(found)
        return bad, doubts

    def _absence(self, name: str, askers: list[elf.Library]) -> _Told | None:
        taken = self.outside(name, askers[0])
        if taken is not None and not _CUDA.match(name):
            return None  # the system's own, as it should be
        needed = any(name in one.needed for one in askers)
        by = ", ".join(sorted({os.path.basename(one.path) for one in askers})[:SHOWN])
        how = f"{name}, {'needed' if needed else 'opened by name'} by {by},"
        cause = self._cause(askers)
        if taken is not None:
            text = f"outside: {how} is not in the environment; the loader takes {taken}{cause}"
            return ("outside", name, taken), text
        return ("missing", name, by), f"missing: {how} is nowhere{cause}"

    def _cause(self, askers: list[elf.Library]) -> str:
        """The distributions that the askers' own require and that are not installed."""
        for name in sorted({self._owner[one.path] for one in askers if one.path in self._owner}):
            absent = [other for other in self._requires.get(name, ()) if other not in self._requires]
            if absent:
                return f" ({name} requires {', '.join(absent)}, not installed)"
        return ""

    def _sees_system(self) -> bool:
        """Whether the loader's folders are where they are looked for: then libc itself is seen there."""
        return self.outside("libc.so.6", elf.Library(path="/")) is not None

    def _mixes(self) -> list[_Told]:
        """R5 for CUDA majors: one process cannot use libcublas.so.12 and libcublas.so.13 for one framework."""
        found = []
        for title, reached in self._groups.items():
            for files in _several_majors(reached & set(self.cuda)).values():
                owners = sorted({self._owner[path] for path in files})
                names = " and ".join(sorted({os.path.basename(path) for path in files}))
                text = f"mixed: {title} reaches {names} (of {' and '.join(owners)})"
                found.append((("mixed", title, names), text))
        return found

    def _unused_majors(self) -> list[str]:
        """Libraries that are there for two CUDA majors, and no one needs both."""
        several = _several_majors(self.cuda)
        owners = sorted({self._owner[path] for files in several.values() for path in files})
        return [f"two CUDA majors are there, and nobody needs both: {', '.join(owners[:SHOWN])}"] if owners else []


def _several_majors(paths: Iterable[str]) -> Mapping[str, set[str]]:
    """The libraries that are there with several major versions, by stem."""
    files: dict[str, set[str]] = {}
    for path in filter(_VERSIONED.search, paths):
        files.setdefault(base_stem(os.path.basename(path)), set()).add(path)
    majors = {stem: {suffix(os.path.basename(path)).split(".")[1] for path in same} for stem, same in files.items()}
    return {stem: same for stem, same in sorted(files.items()) if len(majors[stem]) > 1}


def _expand(library: elf.Library, entries: Iterable[str]) -> tuple[str, ...]:
    """Search paths with their $ORIGIN, the folder of the real file."""
    origin = os.path.dirname(os.path.realpath(library.path))
    return tuple(os.path.normpath(entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)) for entry in entries)


def _told(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more
