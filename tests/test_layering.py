"""The star of imports: stages never import one another; only __init__ and the command line compose them."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "resolver" / "gpuenv"
KERNEL = {"digests", "quick", "model", "plain", "errors", "rules", "facts", "elsewhere", "environment", "writing",
          "running", "piping"}  # fmt: skip
ALLOWED = {
    "model": set(),
    "errors": {"model"},
    "plain": {"model", "errors"},
    "writing": set(),
    "running": {"model", "errors"},
    "piping": {"model", "errors", "environment"},
    "digests": set(),
    "quick": set(),
    "rules": {"model", "errors", "quick"},
    "facts": {"model", "errors", "rules"},
    "elsewhere": {"model", "rules"},
    "environment": {"model", "errors", "quick"},
}
# The doctor's examination composes detection, verification, solver and doctor, as __init__ does for the others.
COMPOSERS = {"__init__", "__main__", "cli", "memo", "examination"}
# Modules whose import would cost more than the solve that they serve, seen on every start.
HEAVY = {"dataclasses", "inspect", "pathlib", "tempfile", "logging", "subprocess", "requests", "packaging", "rich",
         "tomllib", "urllib", "pip", "pynvml", "tomli_w", "ctypes", "datetime"}  # fmt: skip


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def stage_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path, *, top_only: bool = False) -> set[str]:
    """The absolute names of what a module imports, wherever in it; type-checking blocks are left out."""
    inside = ["gpuenv", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if top_only and isinstance(node, ast.FunctionDef):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else []
            name = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
            found.update({name} | {f"{name}.{alias.name}" for alias in node.names})
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_form_a_star(path: Path) -> None:
    stage = stage_of(path)
    if stage in COMPOSERS:
        return
    names = {name.split(".")[1] for name in imports(path) if name.startswith("gpuenv.")}
    stages = {stage_of(other) for other in modules()}
    reached = (names & stages) - {stage}
    if stage == "probes":
        assert not any(name.split(".")[0] == "gpuenv" for name in imports(path))
    assert reached <= ALLOWED.get(stage, KERNEL)


@pytest.mark.parametrize(
    "path", [path for path in modules() if stage_of(path) != "probes"], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_nothing_heavy_is_imported_at_start(path: Path) -> None:
    tops = {name.split(".")[0] for name in imports(path, top_only=True)}
    assert not tops & HEAVY


def test_the_reading_of_imports_sees_what_is_forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks above can fail: a module that breaks each rule is read as breaking it."""
    monkeypatch.setattr("test_layering.PACKAGE", tmp_path)
    stage = tmp_path / "solver" / "bad.py"
    stage.parent.mkdir()
    inside = "def f():\n    from .. import index\n    import requests\n"
    stage.write_text(f"import dataclasses\nfrom ..matrix import load\n\n{inside}")
    names = imports(stage)
    assert {"gpuenv.matrix", "gpuenv.index", "requests"} <= names
    assert {name.split(".")[0] for name in imports(stage, top_only=True)} & HEAVY == {"dataclasses"}


def test_a_plain_solve_does_without_most_of_the_standard_library(tmp_path: Path) -> None:
    """What these cost at start is a tenth of a solve. The second of two runs: the first asks pip for the index."""
    words = ["solve", "--framework", "torch", "--gpu", "H100", "--driver", "580.65.06", "--python", "3.12", "--offline"]
    watched = ("argparse", "collections", "enum", "functools", "json", "re", "resolvelib", "tomllib", "typing")
    # What site-packages' .pth files import on every start of this interpreter is not ours.
    script = (
        f"import sys; before = set(sys.modules); from gpuenv.cli import main; status = main({words!r}); "
        f"print('more:', status, *sorted(({set(watched)!r} & set(sys.modules)) - before))"
    )
    path = os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ, "PYTHONPATH": path, "GPUENV_NO_MEMO": "1", "GPUENV_CACHE_DIR": str(tmp_path / "cache")
    }  # fmt: skip
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
    assert done.stdout.splitlines()[-1] == "more: 0"
