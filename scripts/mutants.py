"""Mutants of a Python module: small changes that a test should notice (a part of mutate.py)."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}
EMPTY = {
    "bool": "False", "str": "''", "bytes": "b''", "int": "0", "tuple": "()", "list": "[]",
    "dict": "{}", "set": "set()", "frozenset": "frozenset()", "Iterator": "iter(())",
}  # fmt: skip
# A string without white space is a code, a key or a name; one with white space is a message.
KEY = re.compile(r"[\w.\-+:/]*\w[\w.\-+:/]*", re.ASCII)
# A larger number limits an effort or a size; one more or less is the same to users.
LARGEST_NUMBER = 1000
# The text of an error or of a value is for people.
UNTESTED_FUNCTIONS = {"__repr__", "__str__"}
# These calls describe types, and the names that they get serve type checkers only.
TYPE_CALLS = {"TypeVar", "cast", "NewType", "NamedTuple"}
# Every codec that the code names reads the ASCII of our own files alike.
TEXT_ARGUMENTS = {"encoding", "errors"}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one module."""

    file: str  # below resolver/gpuenv
    function: str | None  # qualified name of the outermost function; None: the module's own code
    line: int
    change: str  # "old -> new"
    start: int  # offsets of the replaced part in the module's text
    end: int
    new: str

    def applied(self, text: str) -> str:
        """Return the changed text of the module."""
        return text[: self.start] + self.new + text[self.end :]


class Finder(ast.NodeVisitor):
    """Collects the mutants of a module."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        self.offsets = [0]
        for line in text.splitlines(keepends=True):
            self.offsets.append(self.offsets[-1] + len(line))
        self.names: list[str] = []  # the classes and functions around the node
        self.outermost: str | None = None
        self.returns: ast.expr | None = None  # annotation of the function around the node
        self.found: list[Mutant] = []
        self.visit(ast.parse(text))

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a place; ast counts columns in bytes of UTF-8."""
        start = self.offsets[line - 1]
        text = self.text[start : self.offsets[line]]
        return start + len(text.encode()[:column].decode())

    def add(self, node: ast.expr | ast.stmt, new: str) -> None:
        """Add the mutant that replaces `node`."""
        start = self.offset(node.lineno, node.col_offset)
        end = self.offset(node.end_lineno or 0, node.end_col_offset or 0)
        if isinstance(node, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.IfExp)):
            spliced = f"({new})"
        else:
            spliced = new
        self.found.append(
            Mutant(
                file=self.file,
                function=self.outermost,
                line=node.lineno,
                change=f"{ast.unparse(node)} -> {new}",
                start=start,
                end=end,
                new=spliced,
            )
        )

    def visit_body(self, body: list[ast.stmt]) -> None:
        """Visit statements without the docstring."""
        for statement in body:
            if not is_text(statement):
                self.visit(statement)

    def visit_Module(self, node: ast.Module) -> None:
        self.visit_body(node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.names.append(node.name)
        self.visit_body(node.body)
        self.names.pop()

    def visit_function(self, node: Function) -> None:
        """Visit the body of a function; decorators, defaults and annotations stay."""
        if node.name in UNTESTED_FUNCTIONS:
            return
        outside = self.outermost, self.returns
        self.names.append(node.name)
        self.outermost, self.returns = self.outermost or ".".join(self.names), node.returns
        self.visit_body(node.body)
        self.outermost, self.returns = outside
        self.names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_function(node)

    def visit_Import(self, node: ast.Import) -> None:
        """Leave imports as they are."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Leave imports as they are."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave f-strings as they are: most are messages, and ast misplaces their parts."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave assertions as they are: they tell the type checker what is always true."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Visit the value, not the annotation."""
        if node.value is not None and not is_name(node.annotation, "TypeAlias"):
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Visit the value, and remove assignments to attributes and items."""
        target = node.targets[0]
        if is_name(target, "__all__") or is_name(target, "__slots__"):
            return
        if isinstance(target, (ast.Attribute, ast.Subscript)) and self.outermost:
            self.add(node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Remove the statement."""
        self.add(node, "pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Remove calls; the results of nothing else than a call or a yield are dropped."""
        if isinstance(node.value, ast.Call):
            self.add(node, "pass")
        self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Remove the statement."""
        self.add(node, "pass")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        """Go on with the loop."""
        self.add(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        """Leave the loop."""
        self.add(node, "break")

    def visit_Return(self, node: ast.Return) -> None:
        """Return nothing, or an empty value of the annotated type."""
        if node.value is None:
            return
        empty = EMPTY.get(type_name(self.returns), "None")
        if ast.unparse(node.value) not in {empty, "None"}:
            self.add(node, f"return {empty}")
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        """Negate the condition."""
        if is_name(node.test, "TYPE_CHECKING"):
            return
        if not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
            self.add_negated(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Negate the condition."""
        if not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
            self.add_negated(node.test)
        self.generic_visit(node)

    def add_negated(self, test: ast.expr) -> None:
        """Add the mutant that negates a condition."""
        self.add(test, ast.unparse(ast.UnaryOp(ast.Not(), test)))

    def visit_Compare(self, node: ast.Compare) -> None:
        """Replace each operator."""
        for place, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                operators = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                self.add(node, ast.unparse(ast.Compare(node.left, operators, node.comparators)))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Swap `and` and `or`."""
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add(node, ast.unparse(ast.BoolOp(other, node.values)))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Remove `not`."""
        if isinstance(node.op, ast.Not):
            self.add(node, ast.unparse(node.operand))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Swap min and max, any and all."""
        name = type_name(node.func)
        if name in TYPE_CALLS:
            return
        if isinstance(node.func, ast.Name) and name in OPPOSITES:
            self.add(node.func, OPPOSITES[name])
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        """Visit the value of an argument, unless it names a codec."""
        if node.arg not in TEXT_ARGUMENTS:
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Change an integer by one, and a string that is a code or a key."""
        if type(node.value) is int and node.value <= LARGEST_NUMBER:
            self.add(node, str(node.value + 1))
            self.add(node, str(node.value - 1))
        elif isinstance(node.value, str) and KEY.fullmatch(node.value):
            self.add(node, repr(node.value + "XX"))


def is_name(node: ast.expr, name: str) -> bool:
    """Return whether an expression is this name."""
    return isinstance(node, ast.Name) and node.id == name


def is_text(node: ast.stmt) -> bool:
    """Return whether a statement is a string, as docstrings are."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def type_name(node: ast.expr | None) -> str:
    """Return the name of an annotation or of a called function without its parameters."""
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def mutants(file: str, text: str) -> list[Mutant]:
    """Return all mutants of a module in the order of its text."""
    collected = Finder(file, text).found
    return sorted(collected, key=lambda mutant: (mutant.start, mutant.end, mutant.change))


def shares(lines: dict[str, int], count: int) -> dict[str, int]:
    """Divide `count` in proportion to the lines of each file (largest remainders)."""
    total = sum(lines.values())
    given = {file: count * number // total for file, number in lines.items()}
    remainders = sorted(lines, key=lambda file: (-(count * lines[file] % total), file))
    for file in remainders[: count - sum(given.values())]:
        given[file] += 1
    return given


def sample(
    by_file: dict[str, list[Mutant]], lines: dict[str, int], count: int, seed: int
) -> Iterator[Mutant]:
    """Yield `count` mutants, spread over the files in proportion to their lines of code."""
    for file, number in sorted(shares(lines, count).items()):
        chance = random.Random(f"{seed} {file}")  # noqa: S311  not for secrets
        yield from chance.sample(by_file[file], min(number, len(by_file[file])))
