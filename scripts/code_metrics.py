"""Measure the readability of Python packages, so that two states can be compared.

    python scripts/code_metrics.py NAME=FOLDER [NAME=FOLDER ...]

Each folder becomes one column. A metric per thousand lines counts lines that hold code, not
comments, docstrings or empty lines. The complexity of a function is McCabe's number as radon
counts it: rank D starts at 21, E at 31 and F at 41.
"""

import argparse
import ast
import io
import statistics
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

RANK_D, RANK_E = 21, 31
LONG = 100
SMALL = 60
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.ExceptHandler, ast.Assert)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Metrics:
    """What was counted in one tree of modules."""

    module_lines: list[int] = field(default_factory=list)
    function_lines: list[int] = field(default_factory=list)
    complexities: list[tuple[int, str]] = field(default_factory=list)
    code_lines: int = 0
    docstring_lines: int = 0
    long_lines: int = 0
    conditional_expressions: int = 0
    comprehensions: int = 0
    any_names: int = 0
    importers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    lines_of: dict[str, int] = field(default_factory=dict)

    def single_importers(self) -> int:
        """Return how many small modules have exactly one importer."""
        return sum(
            len(self.importers[name]) == 1
            for name, lines in self.lines_of.items()
            if lines < SMALL and not name.endswith("__init__")
        )

    def one_importer(self) -> int:
        """Return how many modules of any size have exactly one importer."""
        return sum(len(self.importers[name]) == 1 for name in self.lines_of)


def complexity(function: ast.AST) -> int:
    """Return McCabe's number of a function; nested functions count with it."""
    number = 1
    for node in ast.walk(function):
        if isinstance(node, BRANCHES):
            number += 1
        elif isinstance(node, ast.BoolOp):
            number += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            number += 1 + len(node.ifs)
        elif isinstance(node, ast.Match):
            number += len(node.cases)
    return number


def docstring_lines(tree: ast.Module) -> int:
    """Return how many lines the docstrings of a module take."""
    total = 0
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and ast.get_docstring(node):
            first = node.body[0]
            total += (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def code_lines(text: str) -> int:
    """Return how many lines hold a token that is neither a comment nor white space."""
    ignored = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENCODING, tokenize.ENDMARKER,
    }  # fmt: skip
    numbers = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in ignored:
            numbers.update(range(token.start[0], token.end[0] + 1))
    return len(numbers)


def imported(tree: ast.Module, parts: tuple[str, ...], root: str) -> Iterator[str]:
    """Yield the dotted names that a module imports, as absolute names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [root, *parts[: len(parts) - node.level]] if node.level else []
            prefix = ".".join([*base, *((node.module or "").split("."))]).strip(".")
            yield prefix
            yield from (f"{prefix}.{alias.name}" for alias in node.names)


def measure(folder: Path) -> Metrics:
    """Return the metrics of all modules below a folder."""
    metrics = Metrics()
    paths = sorted(path for path in folder.rglob("*.py") if "_vendor" not in path.parts)
    names = {}
    for path in paths:
        parts = path.relative_to(folder).with_suffix("").parts
        names[".".join([folder.name, *parts]).removesuffix(".__init__")] = str(path)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines = text.splitlines()
        metrics.lines_of[str(path.with_suffix(""))] = len(lines)
        metrics.module_lines.append(len(lines))
        metrics.long_lines += sum(len(line) > LONG for line in lines)
        in_docstrings = docstring_lines(tree)
        metrics.docstring_lines += in_docstrings
        metrics.code_lines += code_lines(text) - in_docstrings
        for node in ast.walk(tree):
            metrics.conditional_expressions += isinstance(node, ast.IfExp)
            metrics.comprehensions += isinstance(node, COMPREHENSIONS)
            metrics.any_names += isinstance(node, ast.Name) and node.id == "Any"
            if isinstance(node, FUNCTIONS):
                metrics.function_lines.append((node.end_lineno or node.lineno) - node.lineno + 1)
                place = f"{path.relative_to(folder)}:{node.lineno} {node.name}"
                metrics.complexities.append((complexity(node), place))
        parts = path.relative_to(folder).parts
        for name in imported(tree, parts, folder.name):
            if name in names and names[name] != str(path):
                key = str(Path(names[name]).with_suffix(""))
                metrics.importers[key].add(str(path))
    return metrics


def per_thousand(count: int, metrics: Metrics) -> str:
    """Return a count per thousand lines of code."""
    return f"{1000 * count / metrics.code_lines:.1f}"


def rows(metrics: Metrics) -> dict[str, str]:
    """Return the table's column of one tree."""
    numbers = [number for number, _ in metrics.complexities]
    functions = sorted(metrics.function_lines)
    return {
        "modules": str(len(metrics.module_lines)),
        "lines of code": str(metrics.code_lines),
        "docstring lines": str(metrics.docstring_lines),
        "median module, lines": f"{statistics.median(metrics.module_lines):.0f}",
        "largest module, lines": str(max(metrics.module_lines)),
        "median function, lines": f"{statistics.median(functions):.0f}",
        "function at 95 %, lines": str(functions[int(len(functions) * 0.95)]),
        "longest function, lines": str(functions[-1]),
        "mean complexity": f"{statistics.mean(numbers):.2f}",
        "functions of rank D": str(sum(RANK_D <= number < RANK_E for number in numbers)),
        "functions of rank E or F": str(sum(number >= RANK_E for number in numbers)),
        f"lines over {LONG} columns": str(metrics.long_lines),
        "conditional expressions / 1000": per_thousand(metrics.conditional_expressions, metrics),
        "comprehensions / 1000": per_thousand(metrics.comprehensions, metrics),
        "Any / 1000": per_thousand(metrics.any_names, metrics),
        "modules with one importer": str(metrics.one_importer()),
        f"of these under {SMALL} lines": str(metrics.single_importers()),
    }


def column(word: str) -> tuple[str, Path]:
    """Return the name and the folder of NAME=FOLDER."""
    name, _, folder = word.partition("=")
    if not (name and folder) or not any(Path(folder).rglob("*.py")):
        raise argparse.ArgumentTypeError(f"{word} is not NAME=FOLDER with Python modules")
    return name, Path(folder)


def main() -> None:
    """Print the table, and the most complex functions of the first column."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("columns", nargs="+", metavar="NAME=FOLDER", type=column)
    columns = {name: measure(folder) for name, folder in parser.parse_args().columns}
    tables = {name: rows(metrics) for name, metrics in columns.items()}
    labels = list(next(iter(tables.values())))
    print("| metric | " + " | ".join(tables) + " |")
    print("| --- |" + " ---: |" * len(tables))
    for label in labels:
        print(f"| {label} | " + " | ".join(table[label] for table in tables.values()) + " |")
    first = next(iter(columns.values()))
    complex_ones = sorted(first.complexities, reverse=True)
    print()
    for number, place in complex_ones[:15]:
        if number >= RANK_D:
            print(f"{number} {place}")


if __name__ == "__main__":
    main()
