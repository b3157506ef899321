"""Read which names packages import from the packages beside them, and which releases lack them.

    python scripts/tools.py data scan-names [NAME | NAME==VERSION ...]

Each wheel is a line of matrix_data/scans/names.jsonl, from which companion_rows.py makes rows: its
`needs` are the ranges of packages of which METADATA admits a release without such a name. The
newest patch of each minor release is read: of a name without a release those that are newer than
its lines; without a name, of all names. Between two releases whose needs differ, those are read
that show where they change.

Python runs the top level of a module whenever it imports it. So a name that is missing there makes
the import fail, and proves that a release beside it does not fit. That all are there proves less.
Functions, `try` and `if` may not run, and are passed over; so is a module that no `import` at a top
level reaches. What functions name, and the arguments that they give, makes the line's `uses`: pairs
of releases to avoid. A branch that asks for a version, and what was gone for a year when the wheel
was uploaded, count for nothing. `pythons` are those that lack what a top level imports of them.

Exit status: 0 done, 1 a wheel could not be read.
"""

from __future__ import annotations

import ast
import email.parser
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, TypeVar

from packaging.version import Version

from data.companion_rows import TARGET, after, line_of, scan_lines, write_lines
from data.compile import DATA
from data.index import UNREADABLE, say
from data.scan_companions import METADATA, Scanner
from gpuenv.binaries.imports import COMPILED, Deep, Name, PythonFiles, TopLevel, origin, parsed
from gpuenv.errors import InputError
from gpuenv.model import Requirement, Wheel
from gpuenv.requirements.versions import contains, parse_requirement, version_key

# The packages whose names are looked up; in BESIDE by the module that has them.
PACKAGES = """
accelerate albucore albumentations anndata chex dask datasets diffusers efficientnet equinox
fastai fastcore flax fsspec gluonts gpytorch gradio gsplat gym gymnasium huggingface-hub jax
jaxtyping jsonargparse keras kornia langchain langchain-community langchain-core librosa
lightning linear-operator matplotlib mediapipe monai moviepy networkx numba numpy omegaconf
onnx optax pandas peft pettingzoo pyarrow pydantic pytorch-lightning rapidfuzz ray scipy
sentence-transformers sktime spacy stable-baselines3 starlette statsmodels supervision
tensorflow tensorflow-addons tensorflow-datasets tensorflow-probability tf-keras thinc timm
tokenizers torch torch-geometric torchaudio torchdata torchmetrics torchtext torchvision
transformers trl ultralytics vllm xarray zarr
"""
BESIDE = {name.replace("-", "_"): name for name in PACKAGES.split()} | {
    "PIL": "pillow", "haiku": "dm-haiku", "hydra": "hydra-core", "skimage": "scikit-image",
    "sklearn": "scikit-learn",
}  # fmt: skip
OLDEST = {
    "jax": Version("0.4.16"), "numpy": Version("1.22"), "tensorflow": Version("2.11"),
    "torch": Version("1.13"), "transformers": Version("4.0"),
}  # fmt: skip
# A module that fills itself when it is asked for a name.
IS_OPEN = re.compile(r"def __getattr__|LazyModule|lazy_loader|globals\(\)|sys\.modules\[")
# How a module of Hugging Face names what it has: in a list, or by what it finds in its files.
EXPORTED = r"""["']{0}["']|\b(?:class|def) {0}\b|^{0} ="""
STAR = re.compile(
    r"^[ \t]*from[ \t]+(\.*)[ \t]*([\w.]*)[ \t]+import[ \t]*\(?[ \t]*\*", re.MULTILINE
)
ALIASES = re.compile(
    r"^ *__path__|sys\.meta_path"
    r"|sys\.modules(\[(?!__name__)[^]\n]*\] *=[^=]|\.update|\.setdefault)",
    re.MULTILINE,
)
# Packages whose patches remove names: each of their releases is compared.
BY_PATCH = ("jax",)
# A name of which jax keeps only the message that it raises.
REMOVED = re.compile(r'"(\w+)": *\(\s*(?:f?"[^"]*"\s*)+,\s*None\s*,?\s*\)')
# Those of which numpy keeps the message, by the module that has them.
NUMPY_REMOVED = {
    "numpy": re.compile(r'^ +\("(object|bool|float|complex|str|int)", ', re.MULTILINE),
    "numpy._expired_attrs_2_0": re.compile(r'^ +"(\w+)":', re.MULTILINE),
}
# torch's own names come from its library; the other files describe them, and leave some out.
TORCH_LIBRARY = "torch.lib.libtorch_python"
TORCH = (
    "torch", "torch._C", "torch._C._VariableFunctions", "torch.functional", "torch.types",
    TORCH_LIBRARY,
)  # fmt: skip

COLLECTIONS = (
    "Callable", "Container", "Hashable", "Iterable", "Iterator", "Mapping", "MutableMapping",
    "MutableSequence", "MutableSet", "Sequence", "Set", "Sized",
)  # fmt: skip
# Modules and names of the standard library, and the first Python without them.
GONE = {
    **{("collections", name): "3.10" for name in COLLECTIONS},
    **{(module, ""): "3.10" for module in ("formatter", "parser", "symbol")},
    ("fractions", "gcd"): "3.9",
    ("inspect", "getargspec"): "3.11", ("asyncio", "coroutine"): "3.11", ("binhex", ""): "3.11",
    **{(module, ""): "3.12" for module in ("asynchat", "asyncore", "imp", "smtpd")},
    ("configparser", "SafeConfigParser"): "3.12", ("typing.io", ""): "3.13",
    **{
        (module, ""): "3.13"
        for module in ("aifc", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "lib2to3",
                       "nntplib", "pipes", "sndhdr", "spwd", "sunau", "telnetlib", "uu", "xdrlib")
    },
}  # fmt: skip

# What METADATA admits of a package, the names of it that the import needs, and that functions name.
Wanted = tuple[list[str], list[Name], list[Name]]


Files = TypeVar("Files", bound=PythonFiles)


class Modules(PythonFiles):
    """The modules of a release, and what they take from each other with a star."""

    def __init__(self, file: IO[bytes], filename: str, name: str) -> None:
        self._starred: dict[str, list[str]] = {}
        super().__init__(file, filename, name)

    @cached_property
    def removed(self) -> set[tuple[str, str]]:
        """Return (module, name) of the names that only have a message."""
        found = [(module, REMOVED.findall(text)) for module, text in self.texts.items()]
        if "__former_attrs__" in self.texts.get("numpy", ""):
            for module, pattern in NUMPY_REMOVED.items():
                found.append(("numpy", pattern.findall(self.texts.get(module, ""))))
        return {(module, name) for module, names in found for name in names}

    def starred(self, module: str) -> list[str]:
        """Return a module and those of which it takes all names."""
        if module in self._starred:
            return self._starred[module]
        found = self._starred[module] = [module]
        for one in found:
            for dots, name in STAR.findall(self.texts.get(one, "")):
                parts = one.split(".")
                kept = parts[: len(parts) + (one in self.packages) - len(dots)] if dots else []
                star = ".".join([*kept, *filter(None, [name])])
                if star not in found:
                    found.append(star)
        return found


class Release(Modules):
    """The modules of a release, and what it requires.

    Attributes:
        requires: its Requires-Dist.
    """

    largest = 1 << 30  # the library of torch

    def __init__(self, file: IO[bytes], filename: str, name: str) -> None:
        self.requires: list[Requirement] = []
        self._bound: dict[str, set[str]] = {}
        self._stored: dict[str, tuple[set[str], set[str] | None]] = {}
        super().__init__(file, filename, name)

    def add(self, path: str, read: Callable[[], bytes]) -> None:
        """Take a file: also METADATA, the requirements of an egg, and the library of torch."""
        if METADATA.fullmatch(path) or path == "PKG-INFO":
            message = email.parser.BytesHeaderParser().parsebytes(read())
            texts = message.get_all("Requires-Dist") or []
            self.requires += [parse_requirement(str(text)) for text in texts]
        elif path.endswith(".egg-info/requires.txt"):  # those of extras follow, by their names
            lines = read().decode(errors="replace").partition("\n[")[0].split("\n")
            self.requires += [parse_requirement(line) for line in lines if line.strip()]
        else:
            super().add(path, read)
            if path.removesuffix(".so").replace("/", ".") == TORCH_LIBRARY:
                self.texts[TORCH_LIBRARY] = read().decode(errors="replace")

    @cached_property
    def is_compiled(self) -> bool:
        """Return whether there are compiled modules, whose names cannot be read."""
        return any(COMPILED in text for text in self.texts.values())

    @cached_property
    def words(self) -> dict[str, set[str]]:
        """Return {word: the modules that have it}."""
        found: dict[str, set[str]] = {}
        for module, text in self.texts.items():
            for word in set(re.findall(r"\w+", text)):
                found.setdefault(word, set()).add(module)
        return found

    def has_word(self, word: str, modules: Iterable[str] | None = None) -> bool:
        """Return whether a word is anywhere in some modules, or in all of them."""
        having = self.words.get(word, set())
        return bool(having) if modules is None else not having.isdisjoint(modules)

    def exports(self, name: str) -> bool:
        """Return whether a module of Hugging Face's lazy kind may name what it has so."""
        pattern = re.compile(EXPORTED.format(name))
        return any(pattern.search(self.texts[module]) for module in self.words.get(name, ()))

    @cached_property
    def has_aliases(self) -> bool:
        """Return whether the package gives modules further names, or a module further folders."""
        return any(map(ALIASES.search, self.texts.values()))

    def lacks(self, module: str, name: str) -> bool:
        """Return whether a module certainly has no such name, or does not exist for "" as name.

        A name that is anywhere in the package may get there in a way that is not read.
        """
        if module not in self.texts:
            parent, _, last = module.rpartition(".")
            if name:
                return bool(parent) and self.lacks(parent, last)
            is_made = COMPILED in self.texts.get(parent, "")  # it may make modules
            return not (is_made or (self.has_aliases and self.has_word(last)))
        if not name or f"{module}.{name}" in self.texts or (module, name) in self.removed:
            return (module, name) in self.removed
        if "_LazyModule(" in self.texts[module]:  # its star imports are for type checkers
            # transformers 5 has what was BertTokenizerFast under both names.
            names = {name, name.removesuffix("Fast")}
            is_given = name in self.bound(module)
            return not (is_given or any(map(self.exports, names)))
        modules = TORCH if module == "torch" else self.starred(module)
        has_more = self.has_aliases and module in self.packages
        takes_others = any(one not in self.texts for one in modules) and module not in TORCH
        if takes_others or self.has_word(name, (one for one in modules if one in self.texts)):
            is_open = IS_OPEN.search(self.texts[module].replace(COMPILED, "")) is not None
            is_open |= takes_others or has_more
            return not is_open and module not in TORCH and self.binds(module, name) is False
        is_open = has_more or any(IS_OPEN.search(self.texts[one]) for one in modules)
        return module in TORCH or not (is_open and (self.is_compiled or self.has_word(name)))

    def binds(self, module: str, name: str) -> bool | None:
        """Return whether a module, or one that it star-imports, binds a name; None if unknown.

        What binds it in a function counts, but a text or a comment does not. A compiled module is
        asked for its stub; without one, it may have the name.
        """
        for one in filter(self.texts.__contains__, self.starred(module)):
            text = self.texts[one].replace(COMPILED, "")
            if not text and self.texts[one]:
                return None
            if not self.has_word(name, [one]):
                continue
            if IS_OPEN.search(text) or "exec(" in text:
                return None
            if one not in self._stored:
                self._stored[one] = stored(text)
            names, exported = self._stored[one]
            if name in names and (one == module or exported is None or name in exported):
                return True
        return False

    def has(self, module: str, name: str) -> bool | None:
        """Return whether a module has a name, or exists for "" as name; None if it may have it."""
        if name.endswith(")"):
            return self.takes(module, *name[:-1].split("("))
        if self.lacks(module, name):
            return False
        if module not in self.texts:
            return None
        is_module = not name or f"{module}.{name}" in self.texts
        return True if is_module or name in self.bound(module) else None

    def bound(self, module: str) -> set[str]:
        """Return the names that a module certainly gets when it is imported."""
        if module in self._bound:
            return self._bound[module]
        found = self._bound[module] = set()
        waiting = parsed(self.texts[module]).body
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.If):
                is_run = "TYPE_CHECKING" not in ast.unparse(node.test)
                waiting += node.orelse + (node.body if is_run else [])
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                found.add(node.name)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [one for target in targets for one in ast.walk(target)]
                found |= {one.id for one in names if isinstance(one, ast.Name)}
        return found

    def beside(self, module: str) -> str:
        """Return the package that a module is of: one in BESIDE, or a required one of its name."""
        top = module.partition(".")[0]
        name = top.lower().replace("_", "-")
        return BESIDE.get(top) or (name if admitted(self, name) is not None else "")

    def definition(self, module: str, name: str, depth: int = 9) -> ast.stmt | None:
        """Return what defines a name that a module has, or takes from another one."""
        for node in parsed(self.texts.get(module, "")).body if depth else ():
            if getattr(node, "name", "") == name:
                return node
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                if name == (alias.asname or alias.name):
                    place = origin(node, module, is_package=module in self.packages)
                    return self.definition(place, alias.name, depth - 1)
        others = self.starred(module)[1:] if module in self.texts else ()
        found = (self.definition(other, name, depth - 1) for other in others)
        return next(filter(None, found), None)

    def takes(self, module: str, function: str, argument: str) -> bool | None:
        """Return whether a function, or a class, certainly has an argument, or has it not."""
        if module.partition(".")[0] in TORCH:  # its functions take the names of NumPy, too
            return None
        node = self.definition(module, function)
        if isinstance(node, ast.ClassDef) and not node.decorator_list:
            made = (part for part in node.body if getattr(part, "name", "") == "__init__")
            node = next(made, None)
        if not isinstance(node, ast.FunctionDef) or node.args.kwarg or node.decorator_list:
            return None
        return any(one.arg == argument for one in (*node.args.args, *node.args.kwonlyargs))


def stored(text: str) -> tuple[set[str], set[str] | None]:
    """Return the names that a module binds anywhere, and those of its __all__, if it is a list."""
    names, exported = set(), None
    tree = parsed(text)
    if not tree.body:
        return set(re.findall(r"\w+", text)), None
    for node in ast.walk(tree):
        names.update(bound_names(node))
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            is_list = isinstance(statement.value, (ast.List, ast.Tuple))
            exported = set(re.findall(r"\w+", ast.unparse(statement.value))) if is_list else None
    if "__all__ +=" in text or "__all__.ex" in text:
        exported = None
    return names, exported


def bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node of a tree binds, without those of its parts."""
    if isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


LATER = "9999"  # an upload time that is not known


class Calls(Deep):
    """Takes the arguments of calls, too."""

    def visit_Call(self, node: ast.Call) -> None:  # noqa: N802
        """Take the arguments that are named."""
        self.generic_visit(node)
        called = ast.unparse(node.func) if node.keywords else ""
        first, _, rest = called.partition(".")
        if first in self.meanings and re.fullmatch(r"[\w.]+", called):
            path = ".".join(filter(None, [self.meanings[first], rest]))
            module, _, name = path.rpartition(".")
            self.names |= {(module, f"{name}({word.arg})") for word in node.keywords if word.arg}


def admitted(release: Release, name: str) -> list[str] | None:
    """Return the ranges that METADATA has of a package; None if it does not require it."""
    return [
        need.specifier
        for need in release.requires
        if need.name == name and (need.marker is None or TARGET.marker(need.marker, ()))
    ] or None


def range_of(lines: Sequence[str], fitting: Sequence[str]) -> str:
    """Return the range of the releases that fit, of those that METADATA admits."""
    first, last = lines.index(fitting[0]), lines.index(fitting[-1])
    parts = [f">={fitting[0]}"] if first else []
    parts += [f"!={line}.*" for line in lines[first:last] if line not in fitting]
    parts += [f"<{after(fitting[-1])}"] if last + 1 < len(lines) else []
    return ",".join(parts)


class SourceScanner(Scanner):
    """Reads source distributions, too."""

    def releases(self, name: str) -> dict[Version, Wheel]:
        """Return the file of each release that is read, oldest first.

        Of the packages in BESIDE, source distributions count if the newest release has nothing
        else: they may not have what is compiled.
        """
        wheels = super().releases(name)
        sources = {Version(file.version): file for file in self.index.sources(name)}
        is_newer = max(sources, default=Version("0")) > max(wheels, default=Version("0"))
        if name not in BESIDE.values() or is_newer:
            wheels = sources | wheels
        return dict(sorted(wheels.items()))

    def between(self, lines: Iterable[dict[str, Any]]) -> Iterator[Wheel]:
        """Yield an unread release between each two adjacent lines whose ranges differ."""
        ordered = sorted(lines, key=lambda line: (line["name"], version_key(line["version"])))
        for line, later in pairwise(ordered):
            name, first, last = line["name"], Version(line["version"]), Version(later["version"])
            if name == later["name"] and ranges_of(line) != ranges_of(later):
                files = self.releases(name).items()
                unread = [file for v, file in files if first < v < last and not v.is_prerelease]
                yield from unread[len(unread) // 2 :][:1]


def ranges_of(line: Mapping[str, Any]) -> dict[str, str]:
    """Return {package: the range that a wheel needs}."""
    return {name: need["range"] for name, need in line["needs"].items()}


def read_release(scanner: Scanner, wheel: Wheel, kind: type[Files]) -> Files:
    """Read a file. One of UNREADABLE or InputError is raised for one that cannot be read."""
    with scanner.index.open(wheel) as file:
        return kind(file, wheel.filename, wheel.name)


class NameScanner:
    """Compares the names that wheels need with those of the releases beside them."""

    def __init__(self, folder: Path) -> None:
        self.scanner = SourceScanner(folder)
        self.failed = False

    def open(self, wheel: Wheel) -> Release | None:
        """Read a wheel; None, and a message, for one that cannot be read."""
        try:
            return read_release(self.scanner, wheel, Release)
        except (*UNREADABLE, InputError) as error:
            print(f"error: {wheel.filename}: {error}", file=sys.stderr)
            self.failed = True
            return None

    def lines(self, wheels: Sequence[Wheel]) -> list[dict[str, Any]]:
        """Return a line for each wheel.

        Its `needs` are what METADATA does not say; `uses` the first releases that lack what a
        function names; `pythons` the first Python that lacks what the import names.
        """
        wanted: dict[str, dict[str, Wanted]] = {}
        made = {wheel.filename: wheel.upload_time or "" for wheel in wheels}
        lines = {
            wheel.filename: {
                "name": wheel.name,
                "version": wheel.version,
                "file": wheel.filename,
                "sha256": wheel.sha256,
                "needs": {},
            }
            for wheel in wheels
        }
        for wheel in wheels:
            release = self.open(wheel)
            needed = set(release.needs(TopLevel)) if release else set()
            used = set(release.needs(Calls)) - needed if release else set()
            for names in (needed, used):
                for name in sorted(names) if release else ():
                    beside = release.beside(name[0])
                    ranges = admitted(release, beside) if beside else None
                    if beside and beside != wheel.name and ".".join(name[:2]) not in release.given:
                        is_used = names is used or ranges is None  # it may not be there
                        of_wheel = wanted.setdefault(beside, {})
                        entry = of_wheel.setdefault(wheel.filename, (ranges or [""], [], []))
                        entry[1 + is_used].append(name)
            if release and (gone := lost_by_python(release, needed)):
                lines[wheel.filename]["pythons"] = gone
            say(wheel.filename)
        for beside, of_wheels in wanted.items():
            for filename, kind, need in self.compared(beside, of_wheels, made):
                lines[filename].setdefault(kind, {})[beside] = need
        return list(lines.values())

    def lost(self, beside: str, asked: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return the names that the newest release lacks."""
        files = [w for v, w in self.scanner.releases(beside).items() if not v.is_prerelease]
        release = self.open(files[-1]) if files else None
        return {name for name in asked if release is not None and release.has(*name) is False}

    def lacking(
        self, beside: str, asked: set[tuple[str, str]]
    ) -> tuple[dict[str, str], dict[str, set[tuple[str, str]]]]:
        """Return {minor release: its newest patch}, and the names that each of these lacks.

        Of the packages in BY_PATCH, each release is one.
        """
        versions: dict[str, str] = {}
        lacking: dict[str, set[tuple[str, str]]] = {}
        present: set[tuple[str, str]] = set()
        removed: set[tuple[str, str]] = set()
        releases = self.scanner.lines(beside)
        if beside in BY_PATCH:
            found = self.scanner.releases(beside).items()
            releases = {str(v): wheel for v, wheel in found if not v.is_prerelease}
        for line, wheel in releases.items():
            is_read = Version(line) >= OLDEST.get(beside, Version("0"))
            release = self.open(wheel) if is_read else None
            if release is not None:
                versions[line] = wheel.version
                states = {name: release.has(*name) for name in asked}
                # What is gone stays away, although a text has the word.
                removed -= {name for name, state in states.items() if state}
                # An argument is known of those only that certainly have it.
                gone = {name for name in asked if states[name] is None and name[1].endswith(")")}
                lacking[line] = {name for name in asked if states[name] is False} | removed | gone
                removed |= lacking[line] & present
                present |= asked - lacking[line]
        return versions, lacking

    def compared(
        self, beside: str, wanted: Mapping[str, Wanted], made: Mapping[str, str]
    ) -> Iterator[tuple[str, str, dict[str, str]]]:
        """Yield (file, "needs" or "uses", finding) for each wheel whose METADATA admits too much.

        Those for which no release fits are left out: what is read there is not what happens. What
        functions name is of the kind "uses". It was gone for a year when nobody can have used it.
        """
        uploads: dict[str, str] = {}
        for version, wheel in self.scanner.releases(beside).items():
            uploads.setdefault(line_of(str(version)), wheel.upload_time or LATER)
        asked = {name[:2] for _, names, _ in wanted.values() for name in names}
        used_names = {name[:2] for _, _, used in wanted.values() for name in used}
        if beside not in BESIDE.values():  # few of these names were ever removed
            asked = self.lost(beside, asked)
        lost = self.lost(beside, used_names - asked)
        versions, lacking = self.lacking(beside, asked | lost) if asked | lost else ({}, {})
        for filename, (ranges, names, used) in wanted.items():
            admits = [
                line
                for line, version in versions.items()
                if all(contains(range_, version) for range_ in ranges)
            ]
            fitting = [line for line in admits if not any(n[:2] in lacking[line] for n in names)]
            if fitting and len(fitting) < len(admits):
                wrong = next(line for line in reversed(admits) if line not in fitting)
                found = next(n for n in names if n[:2] in lacking[wrong])
                yield filename, "needs", named("range", range_of(admits, fitting), found)
            known = [name for name in used if name[:2] in asked | lost]
            firsts = list(first_without(known, fitting, lacking))
            since = {
                place: uploads.get(line_of(versions[fitting[place]]), LATER) for place, _ in firsts
            }
            firsts = [one for one in firsts if year_after(since[one[0]]) > made[filename]]
            if firsts:
                place, found = min(firsts)
                yield filename, "uses", named("from", fitting[place], found)


def first_without(
    names: Iterable[Name], lines: Sequence[str], lacking: Mapping[str, Container[tuple[str, str]]]
) -> Iterator[tuple[int, Name]]:
    """Yield (place, name): the first of some lines since which no line has a name any more."""
    for name in names:
        having = [place for place, line in enumerate(lines) if name[:2] not in lacking[line]]
        if having and having[-1] + 1 < len(lines):
            yield having[-1] + 1, name


def year_after(time: str) -> str:
    """Return the upload time that is a year after another one."""
    return f"{int(time[:4]) + 1}{time[4:]}"


def lost_by_python(release: Release, needed: Iterable[Name]) -> dict[str, str] | None:
    """Return the first Python that lacks a name which an import needs; None if all have it."""
    gone = [(GONE[name[:2]], name) for name in needed if name[:2] in GONE]
    backports = ("standard-", "legacy-", "audioop-")
    if not gone or any(need.name.startswith(backports) for need in release.requires):
        return None
    return named("from", *min(gone, key=lambda one: Version(one[0])))


def named(kind: str, releases: str, name: Name) -> dict[str, str]:
    """Return a finding: the releases, the name, and the module that needs it."""
    return {kind: releases, "name": f"{name[0]}.{name[1]}".rstrip("."), "in": name[2]}


ARGUMENTS = {
    "names": {"nargs": "*", "metavar": "NAME", "help": "or NAME==VERSION"},
    "--folder": {"type": Path, "default": DATA},
}


def main(options: Namespace) -> int:
    """Read the wheels, and write the lines. Return the exit status."""
    scanner = NameScanner(options.folder)
    lines = {line["file"]: line for line in scan_lines(options.folder, "names.jsonl")}
    wheels: list[Wheel] = []
    names = options.names or sorted({line["name"] for line in lines.values()})
    for text in names:
        wheels += scanner.scanner.to_read(text, lines.values())
    while wheels:
        lines |= {line["file"]: line for line in scanner.lines(wheels)}
        write_lines(options.folder, "names.jsonl", lines.values())
        asked = [line for line in lines.values() if line["name"] in names]
        wheels = [wheel for wheel in scanner.scanner.between(asked) if wheel.filename not in lines]
    return int(scanner.failed)
