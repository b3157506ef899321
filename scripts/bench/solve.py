"""Time solves of the GPU stack beside `uv pip compile`.

    python scripts/tools.py bench solve [--runs N] [--record FILE] [CASE ...]

gpuenv has an empty cache and answers from its index snapshot.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.pairs import TIMING, Case, Tools, run, time_cases

# The case: the frameworks, what uv is asked for, the driver, and what else gpuenv is told.
STACKS = {
    "torch": (["torch"], ["torch"], "580.65.06", []),
    "torch-tensorflow": (
        ["torch", "tensorflow"],
        ["torch", "tensorflow[and-cuda]"],
        "580.65.06",
        [],
    ),
    "all": (
        ["torch", "tensorflow", "jax", "cupy", "onnxruntime"],
        [
            *("torch", "tensorflow[and-cuda]", "jax[cuda12]", "cupy-cuda12x[ctk]"),
            "onnxruntime-gpu[cuda,cudnn]",
        ],
        "550.54.14",
        ["--default-index-only"],
    ),
}


def cases(tools: Tools) -> Iterator[Case]:
    """Yield the stacks beside a warm uv that is offline, and the first solve beside uv online."""
    for name, (frameworks, requirements, driver, flags) in STACKS.items():
        source = tools.folder / f"{name}.in"
        source.write_text("\n".join(requirements))
        asked = [word for framework in frameworks for word in ("--framework", framework)]
        solve = [tools.gpuenv, "solve", *asked, "--gpu", "H100", "--driver", driver, *flags]
        compile_ = [tools.uv, "pip", "compile", "--python", tools.python, str(source)]
        yield Case(
            name,
            tools.command([*solve, "--offline"], "none", empty="none"),
            tools.command([*compile_, "--offline"], "uv"),
            allowed=lambda uv: 6 * uv,
            prepare=partial(run, tools.command(compile_, "uv"), tools.folder),
        )
        if name == "torch":
            yield Case(
                "first-solve",
                tools.command(solve, "none", empty="none"),
                tools.command(compile_, "none", empty="none"),
                allowed=lambda uv: 0.3 * uv,
            )


ARGUMENTS = TIMING


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Time the cases."""
    return time_cases(cases, {}, arguments)
