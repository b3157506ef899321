"""Write what agents read, from the pages and the help that people read.

    python scripts/tools.py docs agents [--check]

AGENTS.md is for those who change gpuenv: commands of README.md, and rules of CONTRIBUTING.md.
docs/llms.txt lists the pages of the documentation, with the first sentence of each.
docs/skill/SKILL.md is for those who use gpuenv: the commands, their help and their examples.

With --check nothing is written; exit status 1 if a file is not current. A test runs this.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from common import ROOT
from docs.generated import write_or_check
from gpuenv.cli import load_command

DOCS = ROOT / "docs"


SUMMARY = "GPU environments that are known to work"
# What an agent does for a user, in this order.
SKILL_COMMANDS = ("detect", "explain", "solve", "sync", "verify", "doctor", "matrix", "run")


def section(page: str, title: str) -> str:
    """Return the text below a heading of a page, up to the next one of its level."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (body,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return str(body).strip()


def for_contributors() -> str:
    """Return AGENTS.md."""
    return f"""\
# AGENTS.md

How to change gpuenv. [CONTRIBUTING.md](CONTRIBUTING.md) has the map of the code and the checks, and
[docs/design.md](docs/design.md) says which module decides what; both are written for people and
hold for agents, too.

## Two commands

{section("README.md", "Two commands")}

## Rules for code

{section("CONTRIBUTING.md", "Rules for code")}
"""


def first_sentence(page: Path) -> str:
    """Return the first sentence of a page if it begins with one, without links."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page.read_text(encoding="utf-8"))
    begin = text.split("\n\n")[1]
    if not begin[0].isalpha():  # a list, a table, an example, another heading
        return ""
    return re.split(r"(?<=[.:])\s", " ".join(begin.split()))[0].rstrip(":")


def page_lines(nav: list[dict[str, Any]], lines: list[str]) -> list[str]:
    """Append a line for each page of a navigation, below its sections."""
    for entry in nav:
        for title, target in entry.items():
            if isinstance(target, list):
                lines += ["", f"## {title}", ""]
                page_lines(target, lines)
            else:
                beside = not (DOCS / target).exists()
                page = ROOT / target if beside else DOCS / target
                told = first_sentence(page)
                where = f"../{target}" if beside else target
                lines.append(f"- [{title}]({where}){': ' if told else ''}{told}")
    return lines


def of_pages() -> str:
    """Return llms.txt."""
    nav = tomllib.loads((DOCS / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    head = ["# gpuenv", "", f"> {first_sentence(ROOT / 'README.md')}", ""]
    return "\n".join(page_lines(nav, head)) + "\n"


def for_users() -> str:
    """Return the skill file."""
    lines = [
        "---",
        "name: gpuenv",
        "description: >-",
        "  Use to choose, lock, install or repair PyTorch, TensorFlow, JAX, CuPy or ONNX Runtime",
        "  for an NVIDIA GPU, or if CUDA, cuDNN or a GPU fails or is not used.",
        "---",
        "",
        f"# gpuenv: {SUMMARY}",
        "",
        "Ask `gpuenv detect --json` first. `--gpu`, `--driver`, `--python` and `--platform`",
        "describe another machine. Do not guess versions: the answers name their sources. Every",
        "command has `--json`, and is a tool of `gpuenv mcp`, too.",
        "",
        "## Commands",
        "",
        "`gpuenv help COMMAND` has the flags of each.",
        "",
    ]
    for name in SKILL_COMMANDS:
        examples = load_command(name).EXAMPLES
        lines += [f"    {example}    # {why}" for example, why in examples[:1]]
    return "\n".join(lines) + "\n"


FILES = {
    ROOT / "AGENTS.md": for_contributors,
    DOCS / "skill" / "SKILL.md": for_users,
    DOCS / "llms.txt": of_pages,
}


def main(words: list[str]) -> int:
    """Write the files; with --check name those that are not current."""
    return write_or_check(FILES, words)
