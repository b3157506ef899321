"""The mutants that scripts/mutate.py makes."""

import ast
from pathlib import Path

import pytest

from script_modules import load_script

SCRIPT = Path(__file__).parent.parent / "scripts" / "mutants.py"


mutants = load_script("mutants")


def changes(text: str) -> list[str]:
    found = []
    for mutant in mutants.mutants("module.py", text):
        assert ast.dump(ast.parse(mutant.applied(text))) != ast.dump(ast.parse(text))
        found.append(mutant.change)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < b", ["a < b -> a <= b", "a < b -> a >= b"]),
        ("a == b", ["a == b -> a != b"]),
        ("a in b", ["a in b -> a not in b"]),
        ("a is None", ["a is None -> a is not None"]),
        ("a and b", ["a and b -> a or b"]),
        ("not a", ["not a -> a"]),
        ("7", []),
        ("a = 7", ["7 -> 6", "7 -> 8"]),
        ("a = 20_000", []),
        ("a = 'driver-floor'", ["'driver-floor' -> 'driver-floorXX'"]),
        ("a = 'two words'", []),
        ("a = True", []),
        ("any(a)", ["any -> all", "any(a) -> pass"]),
        ("a = min(b)", ["min -> max"]),
        ("a.min(b)", ["a.min(b) -> pass"]),
        ("a += b", ["a += b -> pass"]),
        ("raise a", ["raise a -> pass"]),
        ("if a: b = c", ["a -> not a"]),
        ("a = b if c else d", ["c -> not c"]),
        ("for a in b: break", ["break -> continue"]),
        ("for a in b: continue", ["continue -> break"]),
        ("def f() -> bool: return a", ["return a -> return False"]),
        ("def f() -> tuple[str, ...]: return a", ["return a -> return ()"]),
        ("def f() -> A: return a", ["return a -> return None"]),
        ("def f() -> A: return None", []),
        ("def f() -> None: a.b = c", ["a.b = c -> pass"]),
        ("def f(a: 'key' = 'key') -> 'key': 'key'", []),
        ("def __repr__(self): return 'key'", []),
        ("import a\nif TYPE_CHECKING: a = 'key'", []),
        ("a = f'{b + 1}'", []),
        ("assert a == b", []),
        ("A = TypeVar('A')\nopen(a, encoding='ascii')", ["open(a, encoding='ascii') -> pass"]),
    ],
)
def test_the_mutants_of_a_statement(text: str, expected: list[str]) -> None:
    assert changes(text) == expected


def test_a_mutant_names_its_outermost_function() -> None:
    text = "class A:\n    def f(self):\n        def g():\n            return a\nb = 'key'\n"
    found = mutants.mutants("module.py", text)
    assert [(one.function, one.line) for one in found] == [("A.f", 4), (None, 5)]


def test_the_sample_follows_the_lines_of_code_and_the_seed() -> None:
    lines = {"large.py": 70, "middle.py": 25, "small.py": 5}
    assert mutants.shares(lines, 10) == {"large.py": 7, "middle.py": 3, "small.py": 0}
    text = "a = [" + ", ".join(map(str, range(100))) + "]"
    found = {file: mutants.mutants(file, text) for file in lines}
    first, again, other = (list(mutants.sample(found, lines, 10, seed)) for seed in (1, 1, 2))
    assert first == again != other and len(set(first)) == 10
