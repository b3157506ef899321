"""Write every file that is made from the code and the data.

    python scripts/tools.py docs pages [--check]

These are docs/causes, docs/support.md, docs/gpuenv.1, docs/schemas, docs/llms.txt,
docs/skill/SKILL.md and AGENTS.md. With --check nothing is written; exit status 1 if a file is not
current.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from common import ROOT
from docs import agents, causes, man_page, schemas, support


def texts() -> dict[str, str]:
    """Return the text of each file, by its path in the repository."""
    return {
        path: text
        for module in (agents, causes, man_page, schemas, support)
        for path, text in module.files().items()
    }


def update(root: Path, texts: Mapping[str, str], is_check: bool) -> list[str]:
    """Write the files that are not current below a folder, and remove pages of no cause.

    Args:
        is_check: change nothing.

    Returns:
        The names of these files.
    """
    pages = {path.relative_to(root).as_posix() for path in (root / "docs/causes").glob("*.md")}
    stale = []
    for name in sorted(texts.keys() | pages):
        path, text = root / name, texts.get(name)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if is_check:
            continue
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return stale


ARGUMENTS = {
    "--check": {"action": "store_true", "help": "write nothing; 1 if a file is stale"},
}


def main(arguments: Namespace) -> int:
    """Write the files that are not current; with --check only name them."""
    stale = update(ROOT, texts(), arguments.check)
    print("\n".join(stale) or "every file is current")
    return 1 if stale and arguments.check else 0
