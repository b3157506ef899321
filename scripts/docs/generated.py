"""Write files that are made from other files of the repository, or check that they are current."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from common import ROOT


def write_or_check(files: Mapping[Path, Callable[[], str]], words: list[str]) -> int:
    """Write the files that are not current; with --check only name them.

    Returns:
        The exit status: 1 if --check found one.
    """
    is_check = "--check" in words
    stale = []
    for path, text_of in files.items():
        text = text_of()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(path.relative_to(ROOT)))
        if not is_check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print("\n".join(stale) or "every file is current")
    return 1 if stale and is_check else 0
