"""SECURITY.md: every line of the threat model names a test that is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINES = [
    line
    for line in (ROOT / "SECURITY.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| ---") and not line.endswith("| test |")
]


def test_every_line_names_a_test_that_is_there() -> None:
    assert len(LINES) > 15
    for line in LINES:
        match = re.fullmatch(r"\| .+ \| `(tests/[\w/]+\.py)::(test_\w+)` \|", line)
        assert match is not None, line
        tree = ast.parse((ROOT / match[1]).read_text())
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert match[2] in names, line
