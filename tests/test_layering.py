"""The structure of the code: imports go from the API's callers down to the model; local names."""

import ast
import os
import sys
from functools import cache

import gpuenv
import gpuenv.commands
from processes import run_program
from tables import ROOT, each, together

RESOLVER = ROOT / "resolver"
PACKAGE = RESOLVER / "gpuenv"
# Packages of the same distribution that add commands; the explorer shows documents of the fleet.
ADDED = {"gpuenv_fleet": set(), "gpuenv_explorer": {"gpuenv_fleet"}}
# A package imports packages of lower layers only. Packages of one layer do not import each other.
LAYERS = (
    {"version", "model", "activity"},
    {"errors", "process_identity"},
    {"atomic_write", "distributions", "documents", "prefix", "serialize"},
    {"interpreters", "loader_env", "requirements"},
    {"compat"},
    {"index", "detect"},
    {"binaries"},
    {"resolve", "project"},
    {"lock"},
    {"install", "verify"},
    {"doctor"},
    {"render"},
    {"api"},
    {"cli", "conda_plugin"},
    {"commands"},
    {"__main__", "__init__"},
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# Imports that cost more than 30 ms: a module imports these where it uses them.
HEAVY = {
    "requests",
    "rich",
    "pip",
    "pynvml",
    "python_discovery",
    "rattler",
    "conda",
    "yaml",
    "tomlkit",
    "jinja2",
    "distributed",
}


def modules():
    return sorted(path for path in PACKAGE.rglob("*.py"))


def package_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path, root=PACKAGE, *, top_only=False):
    """Return the absolute names that a module imports; blocks for type checkers count, too."""
    inside = ["gpuenv", *path.relative_to(root).parts[:-1]]
    found = set()

    def visit(node):
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

    visit(parsed(path))
    return frozenset(found)


def imported_packages(path):
    names = {name.split(".")[1] for name in imports(path) if name.startswith("gpuenv.")}
    return (names & LEVEL.keys()) - {package_of(path)}


@together(modules())
def test_imports_go_to_lower_layers(path):
    package = package_of(path)
    if package == "probes":
        ours = {name for name in imports(path) if name.split(".")[0] == "gpuenv"}
        assert all(name.startswith("gpuenv.probes") for name in ours)
        return
    assert {name for name in imported_packages(path) if LEVEL[name] >= LEVEL[package]} == set()


@each("package", [*ADDED])
def test_an_added_package_imports_public_names_only(package):
    public = {"gpuenv": {*gpuenv.__all__}, "gpuenv.commands": {*gpuenv.commands.__all__}}
    for path in (RESOLVER / package).rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Import):
                ours = {alias.name for alias in node.names if alias.name.startswith("gpuenv")}
                assert ours <= {"gpuenv"}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                module = str(node.module)
                if module in public:
                    assert {alias.name for alias in node.names} <= public[module]
                else:
                    assert not module.startswith("gpuenv") or module in ADDED[package]
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "gpuenv":
                assert node.attr in gpuenv.__all__


def test_only_evaluate_calls_the_rules():
    rules, caller = PACKAGE / "compat" / "rules.py", PACKAGE / "compat" / "evaluate.py"
    importers = {path for path in modules() if "gpuenv.compat.rules" in imports(path)}
    assert importers - {rules} == {caller}


def test_modules_have_no_import_cycle():
    names = {
        ".".join(["gpuenv", *path.relative_to(PACKAGE).with_suffix("").parts]): path
        for path in modules()
        if path.name != "__init__.py"
    }
    edges = {name: (imports(path) & names.keys()) - {name} for name, path in names.items()}
    done = set()

    def visit(name, trail):
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for other in sorted(edges[name]):
                visit(other, (*trail, name))
            done.add(name)

    for name in names:
        visit(name, ())


@together(modules())
def test_heavy_libraries_are_imported_where_they_are_used(path):
    light = package_of(path) in ("cli", "api", "compat", "resolve", "lock", "model", "errors")
    tops = {name.split(".")[0] for name in imports(path, top_only=True)}
    assert not (light and tops & HEAVY)


def test_a_solve_does_not_load_what_it_does_not_use():
    code = "import sys, gpuenv.cli.solving; print(*sys.modules)"
    done = run_program(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(RESOLVER)}
    )
    unused = ("install.", "verify.", "project.", "doctor.", "api.conda", "api.installing")
    names = tuple(f"gpuenv.{name}" for name in unused)
    assert [name for name in done.stdout.split() if name.startswith(names)] == []


def test_the_checks_can_fail(tmp_path):
    module = tmp_path / "resolve" / "bad.py"
    module.parent.mkdir()
    module.write_text(
        "import requests\nfrom ..cli import main\n\ndef f():\n    from .. import api\n"
    )
    found = imports(module, tmp_path)
    assert {"gpuenv.cli", "gpuenv.api", "requests"} <= found
    assert "gpuenv.api" not in imports(module, tmp_path, top_only=True)
