"""Which names of other packages a wheel or a source distribution needs to be imported.

Python runs the top level of a module whenever it imports it. So a name that is missing there makes
the import fail. Functions, `try` and `if` may not run, and are passed over; so is a module that no
`import` at a top level reaches.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import IO

from ..index.source_builds import DAMAGED_ARCHIVE, archive_files
from .device_code import DamagedFileError

Name = tuple[str, str, str]  # the module, "" or the name in it, and the module that needs it

_MAX_TOTAL = 64 << 20  # of all modules: torch has 40 MB
COMPILED = "globals() of a compiled module"
_PYTHON_FILE = re.compile(
    r"(?P<module>[\w/]+?)(/__init__)?(\.pyi?|\.(cpython|abi3)[\w.-]*\.so|\.so)"
)
_PROGRAM = re.compile(r"^[^=\n]+= *([\w.]+)", re.MULTILINE)
# What may not happen when a module is imported, and the annotations, which may be texts.
_UNCERTAIN = (
    ast.Try, ast.TryStar, ast.If, ast.IfExp, ast.BoolOp, ast.Lambda, ast.With, ast.AnnAssign,
)  # fmt: skip
# What a branch asks before it uses what a release may lack.
_ASKS = re.compile(
    r"version|major|minor|hasattr|getattr|TYPE_CHECKING|suppress|_available|raises|PY2|PY3",
    re.IGNORECASE,
)
_NOT_USED = re.compile(
    r"(^|[._])(tests?|testing|conftest|examples?|benchmarks?|setup|docs)([._]|$)"
)
# `import names`, or `from module import names`
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?import[ \t]*(\([^)]*|(?:.*\\\n)*.*)", re.MULTILINE
)
# How a package tells that its setup.py imports it: __SKLEARN_SETUP__, __SKOPT_SETUP__.
_IN_SETUP = re.compile(r"__\w+_SETUP__")


class PythonFiles:
    """The modules of a wheel or a source distribution.

    Attributes:
        name: the normalized name of the distribution.
        texts: {module: its text}; of compiled modules COMPILED.
        packages: the modules that have others in them.
        tops: its outer modules, as far as it says.
        programs: the modules of its commands.
        given: the names that it gives to modules of other packages, once it is read.
        largest: the bytes of the largest file that is read, which protects against zip bombs.
    """

    largest = 4 << 20

    def __init__(self, file: IO[bytes], filename: str, name: str) -> None:
        """Read an archive. DamagedFileError is raised for one that cannot be read."""
        self.name = name
        self.texts: dict[str, str] = {}
        self.packages: set[str] = set()
        self.tops: list[str] = []
        self.programs: list[str] = []
        self.given: set[str] = set()
        self._size = 0
        try:
            for path, size, read in archive_files(file, filename):
                if size <= self.largest:
                    self.add(_inner(path, filename), read)
        except DAMAGED_ARCHIVE as error:
            raise DamagedFileError(f"it is no complete archive: {error}") from error

    def add(self, path: str, read: Callable[[], bytes]) -> None:
        """Take a file of the archive."""
        if path.endswith("-info/top_level.txt"):
            self.tops = read().decode(errors="replace").split()
        elif path.endswith("-info/entry_points.txt"):
            text = read().decode(errors="replace").partition("[console_scripts]")[2]
            self.programs = _PROGRAM.findall(text.partition("\n[")[0])
        elif found := _PYTHON_FILE.fullmatch(path):
            module = found["module"].replace("/", ".")
            is_text = path.endswith((".py", ".pyi"))
            text = read().decode(errors="replace") if is_text else COMPILED
            self._size += len(text)
            if self._size > _MAX_TOTAL:
                raise DamagedFileError(f"its modules have more than {_MAX_TOTAL} bytes")
            self.texts[module] = self.texts.get(module, "") + text
            while "." in module:
                module = module.rpartition(".")[0]
                self.packages.add(module)
                self.texts.setdefault(module, "")

    def read(self, module: str, reader: type[TopLevel]) -> TopLevel:
        """Return what a reader finds in a module."""
        found = reader(module, is_package=module in self.packages)
        with suppress(RecursionError):  # a sum of a thousand texts
            found.visit(parsed(self.texts[module]))
        return found

    def needs(self, reader: type[TopLevel]) -> Iterator[Name]:
        """Yield the names of other packages that are needed to import this one.

        A package whose import has nothing but its outer module is used by its commands.

        Args:
            reader: how each module is read. Deep yields what using the package needs, too.
        """
        own = self.name.replace("-", "_")
        outer = [module for module in self.texts if "." not in module]
        waiting = [top for top in outer if top.lower() == own]
        waiting = waiting or [top for top in outer if top in self.tops] or [*outer]
        seen: set[str] = set()
        programs = [*self.texts] if reader.reads_all else self.programs
        while waiting or (programs and seen.issubset(outer)):
            if not waiting:
                waiting, programs = [*programs], []
            module = waiting.pop()
            if module in seen or module not in self.texts or reader.skipped.search(module):
                continue
            seen.add(module)
            waiting.append(module.rpartition(".")[0])
            found = self.read(module, reader)
            waiting += found.imports
            self.given |= found.given
            for place, name in found.names:
                if place and place.partition(".")[0] not in outer:
                    yield place, name, module


class TopLevel(ast.NodeVisitor):
    """Collects what the statements of a module name when it is imported.

    Attributes:
        reads_all: whether all modules are read, not only those of commands, if the import of a
            package has nothing but its outer module.
        skipped: the modules that are passed over.
        imports: modules, and names that may be modules.
        names: (module, name) pairs.
        given: the paths of names that it gives to other modules.
    """

    reads_all = False
    skipped = re.compile(r"(?!)")  # none

    def __init__(self, module: str, *, is_package: bool) -> None:
        self.package = module if is_package else module.rpartition(".")[0]
        self.imports: list[str] = []
        self.names: set[tuple[str, str]] = set()
        self.given: set[str] = set()
        self.meanings: dict[str, str] = {}  # {local name: what it stands for}

    def add(self, module: str, name: str) -> None:
        """Take a name that a statement needs."""
        self.imports += [module, f"{module}.{name}"]
        if ".__" not in f"{module}.{name}":  # each module has these
            self.names.add((module, name))

    def bind(self, module: str, name: str, bound: str, meaning: str) -> None:
        """Take an imported name."""
        self.add(module, "")
        self.add(module, name)
        self.meanings[bound] = meaning

    def visit(self, node: ast.AST) -> None:
        """Take a statement; of a function its decorators and defaults."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            defaults = (*node.args.defaults, *filter(None, node.args.kw_defaults))
            for part in (*node.decorator_list, *defaults):
                self.visit(part)
        elif isinstance(node, ast.If) and _IN_SETUP.fullmatch(ast.unparse(node.test)):
            for statement in node.orelse:
                self.visit(statement)
        elif not isinstance(node, _UNCERTAIN):
            super().visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        """Take `import a.b`."""
        for alias in node.names:
            top = alias.name.partition(".")[0]
            meaning = alias.name if alias.asname else top
            self.bind(alias.name, "", alias.asname or top, meaning)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Take `from a.b import c`."""
        module = origin(node, self.package, is_package=True)
        for alias in node.names:
            name = "" if alias.name == "*" else alias.name
            self.bind(module, name, alias.asname or alias.name, f"{module}.{alias.name}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Take `torch.float16`."""
        names, value = [node.attr], node.value
        while isinstance(value, ast.Attribute):
            names.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name) and value.id in self.meanings:
            path = ".".join([self.meanings[value.id], *reversed(names)])
            if isinstance(node.ctx, ast.Load):
                self.add(*path.rpartition(".")[::2])
            else:
                self.given.add(path)
        else:
            self.generic_visit(node)


class Deep(TopLevel):
    """Collects what functions and branches name, too, unless they ask for a release first."""

    reads_all = True
    skipped = _NOT_USED

    def __init__(self, module: str, *, is_package: bool) -> None:
        super().__init__(module, is_package=is_package)
        self._in_function = False

    def bind(self, module: str, name: str, bound: str, meaning: str) -> None:
        """Take an imported name. Imports in functions are followed, but their names do not count.

        Few users may call such a function, and these may have what it needs.
        """
        if self._in_function:
            self.imports += [module, f"{module}.{name}"]
            self.meanings.pop(bound, None)
        else:
            super().bind(module, name, bound, meaning)

    def visit(self, node: ast.AST) -> None:
        """Take a statement that runs sooner or later: no branch for a certain release."""
        if isinstance(node, (ast.Try, ast.TryStar)) and node.handlers:
            for part in (*node.orelse, *node.finalbody):
                self.visit(part)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.visit(node.value)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            outer = self.meanings, self._in_function
            self.meanings, self._in_function = {**self.meanings}, True
            ast.NodeVisitor.visit(self, node)
            self.meanings, self._in_function = outer
        elif not (
            isinstance(node, (ast.If, ast.IfExp, ast.BoolOp, ast.With))
            and _ASKS.search(ast.unparse(getattr(node, "test", None) or node).partition(":\n")[0])
        ):
            ast.NodeVisitor.visit(self, node)


def needed_of(files: PythonFiles, paths: Collection[str], reader: type[TopLevel]) -> dict[str, str]:
    """Return {path: the module of the package that needs it} of the paths that a reader finds.

    A path ("scipy.integrate.simps", "pkg_resources") stands for everything in it. A path that ends
    with a dot ("jax.config.") means the module, and not an object with the same path.
    """
    # Parsing all modules of a package takes a second, and few texts have one of the names.
    by_last: dict[str, list[list[str]]] = {}
    for path in paths:
        parts = path.rstrip(".").split(".")
        by_last.setdefault(parts[-1], []).append(parts)
    tops = {parts[0] for every in by_last.values() for parts in every}

    def may_have(text: str) -> bool:
        words = set(re.findall(r"\w+", text)) if any(top in text for top in tops) else set()
        lasts = words & by_last.keys()
        possible = [one for last in lasts for one in by_last[last] if words.issuperset(one)]
        return bool(possible) and _has_written(text, possible)

    modules = [module for module, text in files.texts.items() if may_have(text)]
    names = chain.from_iterable(files.read(module, reader).names for module in modules)
    if not any(_paths_of(name, paths) for name in names):
        return {}
    found: dict[str, str] = {}
    for module, name, user in files.needs(reader):
        for path in _paths_of((module, name), paths):
            found.setdefault(path, user)
    return {path: user for path, user in found.items() if path not in files.given}


def _has_written(text: str, paths: Iterable[Sequence[str]]) -> bool:
    """Return whether a text may use a path: it imports the last name, or has it after a dot."""
    aliases: dict[str, set[str]] = {}
    for name, alias in re.findall(r"(\w+)\s+as\s+(\w+)", text):
        aliases.setdefault(name, {name}).add(alias)
    taken: dict[str, set[str]] = {"": set()}  # by the last word of the module; "" of no module
    for module, names in _IMPORT.findall(text):
        words = re.findall(r"\w+", names)
        taken.setdefault(module.rpartition(".")[2], set()).update(words)
        taken[""].add(module.partition(".")[0])
    for *above, last in paths:
        parent = above[-1] if above else ""
        if last in taken.get(parent, ()):
            return True
        if parent and any(f"{name}.{last}" in text for name in aliases.get(parent, {parent})):
            return True
    return False


def _paths_of(name: tuple[str, str], paths: Container[str]) -> list[str]:
    """Return the paths that a (module, name) pair is in, or is."""
    parts = [*name[0].split("."), *filter(None, [name[1]])]
    above = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    if not name[1]:
        above += [f"{path}." for path in above]
    return [path for path in above if path in paths]


def origin(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    """Return the module that a `from ... import` in another module names."""
    parts = module.split(".")
    kept = parts[: len(parts) + is_package - node.level] if node.level else []
    return ".".join([*kept, *filter(None, [node.module])])


def parsed(text: str) -> ast.Module:
    """Return the tree of a module; an empty one if it cannot be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return ast.Module([], [])


def _inner(path: str, filename: str) -> str:
    """Return a path as a wheel has it: of a source distribution without its outer folders."""
    if filename.endswith(".whl"):
        return path
    return path.removeprefix("./").partition("/")[2].removeprefix("src/")
