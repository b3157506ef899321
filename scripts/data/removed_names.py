"""Find the names that releases of packages do not have any more: matrix_data/removed_names.json.

    python scripts/tools.py data removed-names [NAME ...]

The newest patch of each minor release is read, of the named packages or of all in PACKAGES. A name
is gone if neither a release nor any newer one defines it, imports it from another module of the
package, or has it as a text (`__getattr__` may give such names). In doubt a name is not gone.
Compiled modules may define names: with --python, names that exist in the environment of that
interpreter, which has the newest releases, are left out. A module that is gone stands for all names
in it. A dot at its end means that the package has an object with the same path.

Exit status: 0 done, 1 a package could not be read.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from packaging.version import Version

from common import read_json
from data.companion_rows import line_of, source_of
from data.compile import DATA
from data.index import UNREADABLE, say
from data.scan_names import (
    ALIASES,
    BY_PATCH,
    GONE,
    OLDEST,
    Modules,
    SourceScanner,
    bound_names,
    read_release,
)
from gpuenv.atomic_write import write_whole
from gpuenv.binaries.imports import parsed
from gpuenv.errors import InputError
from gpuenv.model import Wheel

FILE = "removed_names.json"
SINCE = "2018"
PACKAGES = """
accelerate albumentations anndata chex dask datasets diffusers dm-haiku equinox fastai fastcore flax
flask fsspec gensim gradio gym gymnasium huggingface-hub hydra-core imageio importlib-metadata
ipython jax jinja2 keras kornia langchain langchain-community langchain-core librosa lightning
markupsafe matplotlib monai moviepy networkx nltk numba numcodecs numpy omegaconf openai optax
optuna packaging pandas peft pillow protobuf pyarrow pydantic pytorch-lightning ray scikit-image
scikit-learn scipy seaborn sentence-transformers setuptools spacy sqlalchemy stable-baselines3
statsmodels sympy tensorflow tensorflow-addons tensorflow-probability tf-keras timm tokenizers torch
torch-geometric torchaudio torchdata torchmetrics torchtext torchvision transformers trl
typing-extensions werkzeug xarray zarr
"""


class Names:
    """The names in the Python files of a release."""

    def __init__(self, release: Modules) -> None:
        self.release = release
        self._mentioned: dict[str, set[str]] = {}

    @cached_property
    def given(self) -> set[str]:
        """All modules, and the names that they define; of public modules also those imported."""
        release, found = self.release, set()
        for module in release.texts:
            if TESTS.search(module):
                continue
            found.add(module)
            is_private = "._" in f".{module}"
            for one in [module] if is_private else release.starred(module):
                package = "" if is_private else module.partition(".")[0]
                names = defined(release.texts.get(one, ""), package)
                found.update(f"{module}.{name}" for name in names if not name.startswith("__"))
        return found

    def may_have(self, path: str) -> bool:
        """Return whether a module or a name in a module may be there."""
        module, _, name = path.rpartition(".")
        release = self.release
        if self.has_module(path) or (module, name) in release.removed:
            return (module, name) not in release.removed
        if module not in release.texts:
            return bool(module) and self.may_have(module)
        return any({name, ANY} & self._mentions(one) for one in release.starred(module))

    def has_module(self, path: str) -> bool:
        """Return whether a module may be there."""
        return path in self.release.texts or path.rpartition(".")[2] in self._aliases

    @cached_property
    def _aliases(self) -> set[str]:
        """The words in the lines that add modules to the package, such as sys.modules[...] = x."""
        texts = filter(ALIASES.search, self.release.texts.values())
        lines = (line for text in texts for line in text.split("\n") if ALIASES.search(line))
        return {word for line in lines for word in re.findall(r"\w+", line)}

    def _mentions(self, module: str) -> set[str]:
        """Return the names that a module binds at its top level, and the words of short texts.

        If a module changes its own globals, or this Python cannot parse it, all of its words count.
        ANY means that its `__getattr__` takes names from other objects.
        """
        if module not in self._mentioned:
            text = self.release.texts.get(module, "")
            found = self._mentioned[module] = set()
            tree = parsed(text)
            if OPEN.search(text) or not tree.body:
                found.update(re.findall(r"\w+", text))
            else:
                waiting: list[ast.AST] = [tree]
                while waiting:
                    node = waiting.pop()
                    found.update(bound_names(node))
                    if isinstance(node, ast.Constant) and isinstance(node.value, str):
                        found.update(node.value.split() if len(node.value) < 200 else ())
                    is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                    if is_function and node.name == "__getattr__":
                        found.update([ANY] if TAKES.search(ast.unparse(node)) else ())
                    elif is_function:
                        continue
                    waiting += ast.iter_child_nodes(node)
        return self._mentioned[module]


TESTS = re.compile(r"(^|\.)(tests?|conftest|setup|benchmarks)(\.|$)")
ANY = "any name"
TAKES = re.compile(r"\bgetattr\(|import_module|__import__")
OPEN = re.compile(r"globals\(\)|locals\(\)|setattr\(|exec\(|sys\.modules")


def defined(text: str, package: str) -> Iterator[str]:
    """Yield the names that the top level of a module defines, or imports from a package."""
    waiting = parsed(text).body
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.If, ast.Try)):
            waiting += node.body + node.orelse
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            if package and (node.level or (node.module or "").partition(".")[0] == package):
                yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            names = (one for target in node.targets for one in ast.walk(target))
            yield from (one.id for one in names if isinstance(one, ast.Name))


def release_of(file: Wheel) -> str:
    """Return the minor release of a file, or its release if patches remove names."""
    return file.version if file.name in BY_PATCH else line_of(file.version)


class AnyScanner(SourceScanner):
    """Also reads wheels for interpreters that are no longer supported."""

    def lines(self, name: str) -> dict[str, Wheel]:
        """Return the newest file of each minor release, oldest first; each of those in BY_PATCH."""
        files = [file for file in self.index.pages.files(name) if file.filename.endswith(".whl")]
        files = files or self.index.sources(name)
        newest: dict[str, Wheel] = {}
        for file in sorted(files, key=lambda file: Version(file.version)):
            version = Version(file.version)
            is_fit = "win" not in file.filename and "musl" not in file.filename
            is_kept = not version.is_prerelease and version >= OLDEST.get(name, Version("0"))
            is_kept &= (file.upload_time or "9") > SINCE
            if is_kept and is_fit and file.yanked is None:
                newest[release_of(file)] = file
        return newest


def removals(scanner: AnyScanner, name: str, python: str) -> list[dict[str, object]]:
    """Return a row for each release of a package that lost names, oldest first (see Removal)."""
    lines = scanner.lines(name)
    releases = [
        (line, wheel, Names(read_release(scanner, wheel, Modules))) for line, wheel in lines.items()
    ]
    newest = releases[-1][2]
    every = set().union(*(names.given for _, _, names in releases)) - newest.given
    every |= {".".join(pair) for pair in newest.release.removed}
    modules = set().union(*(names.release.texts for _, _, names in releases))
    gone: dict[str, str] = {}
    for path in sorted(every | modules):
        parents = path.split(".")[:-1]
        above = {".".join(parents[:end]) for end in range(1, len(parents) + 1)}
        if above.isdisjoint(gone):
            line = first_without(releases, path, Names.may_have) if path in every else ""
            if line:
                gone[path] = line
            elif path in modules and (line := first_without(releases, path, Names.has_module)):
                gone[f"{path}."] = line
    for path in there(python, list(gone)) if python else ():
        del gone[path]
    first: dict[str, str] = {}
    for file in scanner.index.pages.files(name):
        time = (file.upload_time or "")[:10]
        line = release_of(file)
        first[line] = min(time, first.get(line, time))
    rows = []
    for line, wheel in lines.items():
        names = [path for path, since in gone.items() if since == line]
        source = source_of({"file": wheel.filename, "sha256": wheel.sha256})
        row = {"since": line, "date": first[line], "source": source, "names": names}
        rows += [row] if names else []
    return rows


def first_without(
    releases: Sequence[tuple[str, Wheel, Names]], path: str, has: Callable[[Names, str], bool]
) -> str:
    """Return the first release without a name that no newer release has; "" if there is none."""
    place = len(releases)
    while place and not has(releases[place - 1][2], path):
        place -= 1
    return releases[place][0] if 0 < place < len(releases) else ""


THERE = """
import importlib, json, sys
def is_there(path):
    parts = path.rstrip(".").split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
            for part in () if path.endswith(".") else parts[end:]:
                found = getattr(found, part)
            return end == len(parts) or not path.endswith(".")
        except ImportError:
            pass
        except Exception:
            return False
json.dump(list(filter(is_there, json.load(sys.stdin))), sys.stdout)
"""


def there(python: str, paths: list[str]) -> list[str]:
    """Return the paths that exist in the environment of an interpreter."""
    command = [python, "-W", "ignore", "-c", THERE]
    done = subprocess.run(
        command, input=json.dumps(paths), stdout=subprocess.PIPE, text=True, check=True
    )
    return list(json.loads(done.stdout))


def of_python() -> list[dict[str, object]]:
    """Return the rows of the standard library, in the form of `removals`."""
    dates = {
        "3.9": "2020-10-05",
        "3.10": "2021-10-04",
        "3.11": "2022-10-24",
        "3.12": "2023-10-02",
        "3.13": "2024-10-07",
    }
    rows: dict[str, list[str]] = {"3.12": ["distutils"]}  # setuptools has one, too
    for (module, name), since in GONE.items():
        rows.setdefault(since, []).append(f"{module}.{name}".rstrip("."))
    source = "docs.python.org/3/whatsnew, Removed"
    return [
        {"since": since, "date": dates[since], "source": source, "names": sorted(rows[since])}
        for since in sorted(rows, key=Version)
    ]


ARGUMENTS = {
    "names": {"nargs": "*", "metavar": "NAME"},
    "--python": {"default": "", "help": "an interpreter that has the newest releases, to check"},
    "--folder": {"type": Path, "default": DATA},
}


def main(options: Namespace) -> int:
    """Read the packages, and write the file. Return the exit status."""
    failed, path, scanner = 0, options.folder / FILE, AnyScanner(options.folder)
    tables = read_json(path, {}) | {"python": of_python()}
    for name in options.names or PACKAGES.split():
        try:
            tables[name] = removals(scanner, name, options.python)
        except (*UNREADABLE, InputError) as error:
            print(f"error: {name}: {error}", file=sys.stderr)
            failed = 1
            continue
        say(f"{name}: {sum(len(row['names']) for row in tables[name])} names")
        write_whole(str(path), (json.dumps(dict(sorted(tables.items())), indent=0) + "\n").encode())
    return failed
