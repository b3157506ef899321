"""What agents read, from the pages and the help that people read.

AGENTS.md is for those who change gpuenv: commands of README.md, and rules of CONTRIBUTING.md.
docs/llms.txt lists the pages of the documentation, with the first sentence of each.
docs/skill/SKILL.md is for those who use gpuenv: the commands and their examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import ROOT, read_toml
from gpuenv.cli import load_command

CONTRIBUTORS = """\
# AGENTS.md

How to change gpuenv. [CONTRIBUTING.md](CONTRIBUTING.md) has the map of the code and the checks, and
[docs/design.md](docs/design.md) says which module decides what; both are written for people and
hold for agents, too.

## Two commands

{commands}

## Rules for code

{rules}
"""
SKILL = """\
---
name: gpuenv
description: >-
  Use to choose, lock, install or repair PyTorch, TensorFlow, JAX, CuPy or ONNX Runtime
  for an NVIDIA GPU, or if CUDA, cuDNN or a GPU fails or is not used.
---

# gpuenv: GPU environments that are known to work

Ask `gpuenv detect --json` first. `--gpu`, `--driver`, `--python` and `--platform`
describe another machine. Do not guess versions: the answers name their sources. Every
command has `--json`, and is a tool of `gpuenv mcp`, too.

## Commands

`gpuenv help COMMAND` has the flags of each.

"""
# What an agent does for a user, in this order.
SKILL_COMMANDS = ("detect", "explain", "solve", "sync", "verify", "doctor", "matrix", "run")


def section(page: str, title: str) -> str:
    """Return the text below a heading of a page, up to the next one of its level."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0].strip()


def first_sentence(page: Path) -> str:
    """Return the first sentence of a page if it begins with one, without links and bold type."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page.read_text(encoding="utf-8"))
    begin = text.split("\n\n")[1].replace("**", "")
    if not begin[0].isalpha():  # a list, a table, an example, another heading
        return ""
    return re.split(r"(?<=[.:])\s", " ".join(begin.split()))[0].rstrip(":")


def page_lines(nav: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each page of a navigation, below the headings of its sections."""
    for entry in nav:
        for title, target in entry.items():
            if isinstance(target, list):
                yield f"\n## {title}\n"
                yield from page_lines(target)
            else:
                # The site has some pages of the repository's root, too.
                link = target if (ROOT / "docs" / target).exists() else f"../{target}"
                sentence = first_sentence(ROOT / "docs" / link)
                yield f"- [{title}]({link}){': ' if sentence else ''}{sentence}"


def files() -> dict[str, str]:
    """Return the three files."""
    contributors = CONTRIBUTORS.format(
        commands=section("README.md", "Two commands"),
        rules=section("CONTRIBUTING.md", "Rules for code"),
    )
    site = read_toml("docs/zensical.toml")["project"]
    pages = "\n".join(page_lines(site["nav"]))
    examples = (load_command(name).EXAMPLES[0] for name in SKILL_COMMANDS)
    commands = "".join(f"    {example}    # {purpose}\n" for example, purpose in examples)
    return {
        "AGENTS.md": contributors,
        "docs/llms.txt": f"# gpuenv\n\n> {first_sentence(ROOT / 'README.md')}\n\n{pages}\n",
        "docs/skill/SKILL.md": f"{SKILL}{commands}",
    }
