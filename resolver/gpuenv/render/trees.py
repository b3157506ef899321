"""The text and the JSON documents of `gpuenv tree`, `gpuenv why` and `gpuenv outdated`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..lock.tree import Tree
from ..model import Lock, Plan, quantity_text
from .plans import why_chosen
from .text import table_lines
from .values import download_text, index_lines

REPEATED = "(*)"


def tree_lines(tree: Tree, lock: Lock, depth: int | None, *, invert: bool) -> list[str]:
    """Return every package below those that require it.

    Args:
        tree: the packages.
        lock: the lock.
        depth: how many levels to show; None shows all.
        invert: show it above them, beginning with those that require nothing.
    """
    roots, below = tree.roots, tree.dependencies
    if invert:
        roots = sorted(name for name in tree.pins if not tree.dependencies(name))
        below = tree.dependents
    shown: set[str] = set()

    def branch(name: str, level: int) -> Iterator[str]:
        text = f"{'  ' * level}{_release(tree, name)}"
        others = below(name)
        if others and name in shown:
            yield f"{text} {REPEATED}"
            return
        yield text
        if depth is None or level + 1 < depth:
            shown.add(name)
            for other in others:
                yield from branch(other, level + 1)

    lines = [line for root in roots for line in branch(root, 0)]
    if any(line.endswith(REPEATED) for line in lines):
        lines.append(f"{REPEATED} is shown in full above")
    return [*lines, f"{quantity_text(len(tree.pins), 'package')}, {download_text(lock)}"]


def _release(tree: Tree, name: str) -> str:
    return f"{name} {tree.pins[name].wheel.version}"


def tree_json(tree: Tree) -> dict[str, Any]:
    """Return the document of `tree --json`."""
    packages = [
        {"name": name, "version": pin.wheel.version, "requires": tree.dependencies(name)}
        for name, pin in tree.pins.items()
    ]
    return {"asked": tree.asked, "roots": tree.roots, "packages": packages}


def why_lines(tree: Tree, name: str, paths: Sequence[Sequence[str]]) -> list[str]:
    """Return the shortest path from each package that was asked for."""
    if not paths:
        return [f"{_release(tree, name)}: nothing that was asked for requires it"]
    lines = [f"{_release(tree, name)} is in the lock because of"]
    for path in paths:
        steps = " -> ".join(_release(tree, step) for step in path)
        note = "" if path[0] in tree.asked else " (not asked for)"
        if len(path) == 1:
            note = " (asked for)" if path[0] in tree.asked else " (nothing requires it)"
        lines.append(f"  {steps}{note}")
    return lines


def why_json(tree: Tree, name: str, paths: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the document of `why --json`."""
    return {
        "name": name,
        "version": tree.pins[name].wheel.version,
        "asked": name in tree.asked,
        "paths": paths,
        "required_by": tree.dependents(name),
    }


def outdated_rows(lock: Lock, plan: Plan) -> list[dict[str, str]]:
    """Return the name, the locked and the newest version of the packages that differ.

    A package that is not in the lock, or no longer needed, has "-" there.
    """
    old = lock.versions
    new = plan.versions
    return [
        {"name": name, "locked": old.get(name, "-"), "newest": new.get(name, "-")}
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def outdated_lines(path: str, lock: Lock, plan: Plan) -> list[str]:
    """Return what a new solve of a lock's request would change."""
    rows = outdated_rows(lock, plan)
    age = index_lines(plan.index_date)
    if not rows:
        same = quantity_text(len(lock.pins), "package")
        return [f"{path}: a new solve gives the same {same}", *age]
    skipped = {rejection.name for rejection in plan.skipped}
    table = [["package", "locked", "newest that fits", "why none newer"]]
    for row in rows:
        why = why_chosen(plan, row["name"]) if row["name"] in skipped else ""
        table.append([*row.values(), why])
    changed = quantity_text(len(rows), "package")
    return [f"{path}: a new solve changes {changed}", *table_lines(table), *age]
