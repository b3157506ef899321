"""Time a new environment by `gpuenv sync` beside `uv venv` and `uv pip sync`.

    python scripts/tools.py bench sync [--runs N] [--record FILE] [CASE ...]

The files are in uv's cache. uv links them from there, or copies them, as it does where the cache is
on another file system.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.pairs import TIMING, Case, Tools, run, time_cases

REQUIREMENTS = ("onnxruntime", "scipy", "pandas", "scikit-learn", "matplotlib")


def cases(tools: Tools) -> Iterator[Case]:
    """Yield an environment of linked files, and one of copied files."""
    solve = [tools.gpuenv, "solve", *REQUIREMENTS, "--gpu", "none", "--python", tools.python]
    sync = [tools.gpuenv, "sync", "--target", "env", "--gpu", "none", "--no-verify"]
    plain = f"""set -e
{tools.uv} venv --python {tools.python} plain
{tools.uv} pip sync --offline --preview-features pylock --python plain pylock.toml
"""
    run(tools.command(solve, "cache"), tools.folder)
    for mode in ("hardlink", "copy"):
        ours = tools.command(sync, "cache", empty="env", UV_LINK_MODE=mode)
        uv = tools.command(["sh", "-c", plain], "cache", empty="plain", UV_LINK_MODE=mode)
        yield Case(mode, ours, uv, prepare=partial(run, ours, tools.folder))


ARGUMENTS = TIMING


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Time the cases."""
    return time_cases(cases, {}, arguments)
