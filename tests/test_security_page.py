"""SECURITY.md: every line of the threat model names a test that is there.

`tools.py prove protections` takes out what tests/data/protections.toml lists, and writes a record.
"""

import ast
import re

from tables import ROOT, data_file, read_data

LINES = [
    line
    for line in (ROOT / "SECURITY.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| ---") and not line.endswith("| test |")
]


def names_in(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_line_names_a_test_that_is_there():
    assert len(LINES) > 15
    for line in LINES:
        match = re.fullmatch(r"\| .+ \| `(tests/[\w/]+\.py)::(test_\w+)` \|", line)
        assert match is not None, line
        assert match[2] in names_in(match[1]), line


def test_every_protection_is_needed_by_a_test():
    rows = data_file("protections.toml")["protection"]
    record = read_data(ROOT / "docs" / "records" / "protections.json")
    outcomes = {(row["subject"], row["name"]): row["outcome"] for row in record["protections"]}
    assert outcomes.keys() == {(row["subject"], row["name"]) for row in rows}
    assert set(outcomes.values()) == {"noticed"} and len(rows) > 60
    for row in rows:
        code = (ROOT / "resolver" / "gpuenv" / row["file"]).read_text()
        assert code.count(row["old"]) == 1, row["name"]
        path, _, test = row["test"].partition("::")
        assert test in names_in(path), row["test"]
