"""Read what companions need of the packages beside them: torch's symbols, CUDA, cuDNN, NumPy.

    python scripts/tools.py data scan-companions [NAME | NAME==VERSION ...]

Each wheel is a line of matrix_data/scans/companions.jsonl, from which companion_rows.py makes rows.
Without a release, what is newer than the lines of each name is read, the newest patch of each minor
release; without a name, of all names. If the index has a newer torch, the lines that reach the
newest torch so far are read again.

The loader binds all symbols of an extension at once (RTLD_NOW), so that one symbol that no library
defines makes the import fail: a missing symbol proves that a release of torch does not fit. That
all are there proves less, because classes and meanings may differ. What was read of each library is
kept in gpuenv's cache; the symbols of torch are 4 GB at first.

Exit status: 0 done, 1 a wheel could not be read.
"""

from __future__ import annotations

import email.parser
import re
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from elftools.elf.elffile import ELFFile
from packaging.version import Version

from data.companion_rows import FRAMEWORKS, SCANNED_ON, after, line_of, scan_lines, write_lines
from data.compile import DATA
from data.index import UNREADABLE, DefaultIndex, say
from data.scan_releases import best, interpreters_of
from gpuenv.binaries import elf
from gpuenv.binaries.environment import is_code_file
from gpuenv.binaries.wheel import opened, unpacked
from gpuenv.compat.catalog import platform_of
from gpuenv.index.cache import Cache
from gpuenv.model import Wheel

TEXT = re.compile(r"\w+/(python/)?(_?version|__init__)\.py")
METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
# Where the symbols are that companions link, and the oldest release of which they are read.
EXPORTERS = {
    "torch": re.compile(r"torch/lib/lib(torch(_cpu|_cuda|_python|_nvshmem)?|c10(_cuda)?|shm)\.so"),
    "tensorflow": re.compile(r"tensorflow/libtensorflow_framework\.so\.2"),
}
LINKED = {"torch": re.compile("lib(torch|c10)"), "tensorflow": re.compile("libtensorflow")}
OLDEST = {"torch": Version("2.0"), "tensorflow": Version("2.11")}
# What only torch defines, and what is libstdc++'s: torch exports some of its templates by chance.
OWN = re.compile(r"(2at|3c10|5torch|6caffe2)[A-Z0-9]|^(aoti_torch|torch_|THP[A-Z]|_aoti)")
STANDARD = re.compile(r"^(_ZN?[KRO]*St|_ZT[ISVT]N?St|_Z(St|N9__gnu_cxx|d[la]|n[wa])|__cxa|__gxx)")
STABLE = re.compile(r"_?aoti_torch|torch_")  # C functions of torch's stable ABI
CUDA = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink)\.so\.(\d+)")
# A front library that the wheel has opens the others of its major: libcudnn-463fd6d5.so.8.9.7.
CUDNN = re.compile(r"libcudnn\w*(?:-[0-9a-f]{8})?\.so\.(\d+)[\d.]*")
OPENED = re.compile(r"lib(cublas|cudart|cudnn)\.so\.\d+")
BUILT = re.compile(r"__version__\b.*\+cu(\d\d)(\d)\b")
TABLE = re.compile(r"^\| *`([\d.]+)` *\| *`(>=)?([\d.]+)` *\|", re.MULTILINE)
REQUIRED = re.compile(r"required_tensorflow_version = '([\d.]+)'")
DEMANDS = re.compile(r"(torch|tensorflow|jax|numpy)\b(?!-)|nvidia-cu")
# Libraries without which the rest works: cupy's module for cuDNN, and the kernels of torchao, whose
# import logs that they are skipped. What they link is no need of the distribution.
OPTIONAL = re.compile(r"cupy_backends/cuda/libs/cudnn\.|torchao/_C")


def read_symbols(file: IO[bytes]) -> dict[str, Any]:
    """Return {"needs", "opens", "undefined", "defined", "numpy"} of a library."""
    undefined, defined = set(), set()
    table = ELFFile(file).get_section_by_name(".dynsym")
    for symbol in table.iter_symbols() if table else ():
        binding = symbol["st_info"]["bind"]
        if symbol["st_shndx"] == "SHN_UNDEF":
            if binding == "STB_GLOBAL":  # a weak one may stay undefined
                undefined.add(symbol.name)
        elif binding != "STB_LOCAL" and symbol["st_other"]["visibility"] != "STV_HIDDEN":
            defined.add(symbol.name)
    library = elf.read_open(file, "", names=True)
    file.seek(0)
    content = file.read()
    return {
        "needs": list(library.needed),
        "opens": list(filter(OPENED.fullmatch, library.names)),
        "undefined": sorted(undefined - {""}),
        "defined": sorted(defined),
        "numpy": numpy_headers(content),
    }


def numpy_headers(content: bytes) -> int | None:
    """Return the major of the NumPy whose headers a library was compiled with.

    `_import_array` is a static function of the headers, so that its texts are in the library. Those
    of NumPy 2 try numpy._core first. pybind11 and nanobind use no headers.
    """
    if b"module compiled against ABI version" not in content:
        return None
    return 2 if b"numpy._core._multiarray_umath" in content else 1


class Scanner:
    """Reads wheels of the default index."""

    def __init__(self, folder: Path) -> None:
        """Take the folder of the data."""
        self.index, self.cache = DefaultIndex(), Cache()
        self.interpreters = interpreters_of(folder)

    def releases(self, name: str) -> dict[Version, Wheel]:
        """Return the wheel of each release that is read, oldest first.

        A wheel for any platform is read where there is none for Linux.
        """
        releases: dict[Version, list[Wheel]] = {}
        for wheel in self.index.wheels(name):
            if platform_of(wheel.filename) in (SCANNED_ON, ""):
                releases.setdefault(Version(wheel.version), []).append(wheel)
        chosen = {}
        for version, wheels in releases.items():
            native = [wheel for wheel in wheels if platform_of(wheel.filename) == SCANNED_ON]
            chosen[version] = best(native or wheels, self.interpreters)
        return chosen

    def lines(self, name: str) -> dict[str, Wheel]:
        """Return the newest wheel of each minor release, oldest first."""
        return {line_of(str(version)): wheel for version, wheel in self.releases(name).items()}

    def to_read(self, text: str, lines: Iterable[dict[str, Any]]) -> list[Wheel]:
        """Return the wheel of NAME==VERSION, or what is newer than the lines of NAME."""
        name, _, release = text.partition("==")
        if release:
            return [self.releases(name)[Version(release)]]
        have = [Version(line["version"]) for line in lines if line["name"] == name]
        newest = max(have, default=Version("0"))
        return [w for w in self.lines(name).values() if Version(w.version) > newest]

    @cached_property
    def exports(self) -> dict[str, dict[str, set[str]]]:
        """Return {framework: {minor release: the symbols that it exports}}, oldest first."""
        tables: dict[str, dict[str, set[str]]] = {}
        for name, pattern in EXPORTERS.items():
            for minor, wheel in self.lines(name).items():
                if Version(minor) >= OLDEST[name]:
                    libraries = self.read(wheel, pattern)[1]
                    names = {text for row in libraries.values() for text in row["defined"]}
                    tables.setdefault(name, {})[minor] = names
        return tables

    def read(
        self, wheel: Wheel, pattern: re.Pattern[str] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Return the texts of a wheel, and the facts of its libraries by their paths.

        The texts are "requires", "description" (of METADATA) and "versions". With a pattern the
        libraries are those whose paths match it.

        One of UNREADABLE is raised for a wheel that cannot be read.
        """
        texts: dict[str, Any] = {"versions": "", "requires": [], "description": ""}
        libraries: dict[str, dict[str, Any]] = {}
        with self.index.open(wheel) as file, opened(file) as archive:
            for member in archive.infolist():
                path = member.filename
                # Of the libraries that auditwheel copied only those of the project itself.
                is_own = (
                    ".libs/" not in path or wheel.name.replace("-", "") in path.rpartition("/")[2]
                )
                is_library = is_own and ".so" in path and is_code_file(path)
                if METADATA.fullmatch(path) or TEXT.fullmatch(path):
                    with unpacked(archive, member) as content:
                        text = content.read().decode(errors="replace")
                    if TEXT.fullmatch(path):
                        texts["versions"] += f"{text}\n"
                        continue
                    message = email.parser.HeaderParser().parsestr(text)
                    texts["requires"] = message.get_all("Requires-Dist") or []
                    texts["description"] = message.get_payload()
                elif pattern.fullmatch(path) if pattern else is_library:
                    key = f"{member.CRC:08x}-{member.file_size}"
                    facts = self.cache.get("symbols", key, dict)
                    if facts is None:
                        with unpacked(archive, member) as content:
                            facts = read_symbols(content)
                        self.cache.put("symbols", key, facts)
                    libraries[path] = facts
        return texts, libraries

    def scan(self, wheel: Wheel) -> dict[str, Any]:
        """Return the line of a wheel; "table" has what METADATA says of other releases."""
        texts, libraries = self.read(wheel)
        line: dict[str, Any] = {"name": wheel.name, "version": wheel.version}
        line |= {"file": wheel.filename, "sha256": wheel.sha256}
        line["requires"] = [
            text for text in texts["requires"] if DEMANDS.match(text) and "extra" not in text
        ]
        rows = [row for path, row in libraries.items() if not OPTIONAL.match(path)]
        if wheel.name not in FRAMEWORKS:
            for framework in FRAMEWORKS:
                line |= fitting(framework, libraries.values(), self.exports.get(framework, {}))
            needs = {name for row in rows for name in row["needs"]}
            opens = {name for row in rows for name in row["opens"]}
            for key, pattern in (("cuda", CUDA), ("cudnn", CUDNN)):
                # A name among the texts may be one of several tries.
                named = majors(pattern, needs) or majors(pattern, opens)
                if named and (len(named) == 1 or majors(pattern, needs)):
                    line[key] = named
            if built := BUILT.search(texts["versions"]):
                line["built"] = f"{built[1]}.{built[2]}"
        if headers := [row["numpy"] for row in libraries.values() if row["numpy"]]:
            line["numpy"] = min(headers)
        if required := REQUIRED.search(texts["versions"]):
            line["says"] = {"tensorflow": f">={required[1]}"}
        if wheel.name == "torchcodec":
            line["table"] = dict(documented(texts["description"]))
        return line


def fitting(
    framework: str, libraries: Iterable[dict[str, Any]], exports: dict[str, set[str]]
) -> dict[str, Any]:
    """Return {framework: [first, last release that has all symbols]}, and "stable" for torch."""
    known = set().union(*exports.values())
    libraries = list(libraries)
    own = {name for row in libraries for name in row["defined"]}
    wanted: set[str] = set()
    for row in libraries:
        is_linked = any(LINKED[framework].match(need) for need in row["needs"])
        for name in {*row["undefined"]} - own:
            is_torch = framework == "torch" and OWN.search(name)
            if not STANDARD.match(name) and (is_torch or (is_linked and name in known)):
                wanted.add(name)
    if not wanted:
        return {}
    fits = [release for release, names in exports.items() if wanted <= names]
    line: dict[str, Any] = {framework: [fits[0], fits[-1]] if fits else []}
    if framework == "torch":
        line["stable"] = all(map(STABLE.match, wanted))
    return line


def majors(pattern: re.Pattern[str], names: Iterable[str]) -> list[int]:
    """Return the majors of the libraries among names, ascending."""
    return sorted({int(match[1]) for name in names if (match := pattern.fullmatch(name))})


def documented(text: str) -> Iterable[tuple[str, str]]:
    """Yield (release, range of torch) of the table in torchcodec's description."""
    for release, sign, torch in TABLE.findall(text):
        yield release, f">={torch}" + ("" if sign else f",<{after(torch)}")


def to_read(scanner: Scanner, names: list[str], lines: list[dict[str, Any]]) -> Iterator[Wheel]:
    """Yield the wheels to read."""
    for text in names or sorted({line["name"] for line in lines}):
        yield from scanner.to_read(text, lines)
    last = max((line["torch"][1] for line in lines if line.get("torch")), key=Version, default="")
    if not names and last and [*scanner.lines("torch")][-1] != last:
        for line in lines:
            if line.get("torch", [""])[-1] == last:
                yield scanner.releases(line["name"])[Version(line["version"])]


ARGUMENTS = {
    "names": {"nargs": "*", "metavar": "NAME", "help": "or NAME==VERSION"},
    "--folder": {"type": Path, "default": DATA},
}


def main(options: Namespace) -> int:
    """Read the wheels, and write the lines. Return the exit status."""
    scanner, failed = Scanner(options.folder), 0
    lines = {line["file"]: line for line in scan_lines(options.folder, "companions.jsonl")}
    tables: dict[str, str] = {}
    for wheel in to_read(scanner, options.names, list(lines.values())):
        try:
            line = scanner.scan(wheel)
        except UNREADABLE as error:
            print(f"error: {wheel.filename}: {error}", file=sys.stderr)
            failed = 1
            continue
        tables |= line.pop("table", {})
        lines[line["file"]] = line
        say(line["file"])
    for line in lines.values():
        if line["name"] == "torchcodec" and line_of(line["version"]) in tables:
            line["says"] = {"torch": tables[line_of(line["version"])]}
    write_lines(options.folder, "companions.jsonl", lines.values())
    return failed
