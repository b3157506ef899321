"""Build the documentation site of docs/ into a folder; no network is used.

    pip install ".[docs]"
    python scripts/tools.py docs site [--to build/site]

The references of the command line and of the Python API are generated from the parser and from the
docstrings. Open index.html of the folder in a browser, or serve the folder with any web server.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import tomli_w

import gpuenv
from common import GPUENV, ROOT, own_code, read_toml
from docs.agents import first_sentence
from docs.man_page import arguments_of
from gpuenv.cli import all_commands, command_parser, load_command

SOURCES = ROOT / "build" / "site-sources"
DOCS = SOURCES / "docs"
PAGES_BESIDE_DOCS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
EXPLORER = "what-runs.html"


def copy_pages() -> None:
    """Copy docs/ and the pages of the repository's root beside it, with links that work there."""
    shutil.copytree(ROOT / "docs", DOCS, ignore=shutil.ignore_patterns("zensical.toml"))
    for page in DOCS.rglob("*.md"):
        text = page.read_text()
        for name in PAGES_BESIDE_DOCS:
            text = text.replace(f"](../{name}", f"]({name}")
        if sentence := first_sentence(page):  # search engines show it below the title
            text = f"---\ndescription: {json.dumps(sentence)}\n---\n\n{text}"
        page.write_text(text)
    for name in PAGES_BESIDE_DOCS:
        (DOCS / name).write_text((ROOT / name).read_text().replace("](docs/", "]("))


def write_commands() -> dict[str, object]:
    """Write the page of each command, from its parser. Return their entry of the navigation."""
    (DOCS / "reference" / "commands").mkdir(parents=True)
    entries = []
    for name in all_commands():
        command, parser = load_command(name), command_parser(name)
        lines = [f"# gpuenv {name}", "", command.DESCRIPTION, ""]
        lines += ["", "```", parser.format_usage().rstrip(), "```", "", "## Examples", ""]
        for example, purpose in command.EXAMPLES:
            lines += [f"{purpose[0].upper()}{purpose[1:]}:", "", f"    {example}", ""]
        lines += ["## Arguments", ""]
        for names, meaning in arguments_of(parser):
            lines += [f"`{names}`", f":   {meaning.replace('<', '&lt;')}", ""]
        path = f"reference/commands/{name}.md"
        (DOCS / path).write_text("\n".join(lines))
        entries.append({name: path})
    return {"Flags of each command": entries}


def write_api() -> list[dict[str, object]]:
    """Write the pages of gpuenv's public names. Return their entries of the navigation."""
    groups: dict[str, list[str]] = {"functions": [], "values": [], "errors": []}
    for name in gpuenv.__all__:
        member = getattr(gpuenv, name)
        if isinstance(member, type):
            groups["errors" if issubclass(member, Exception) else "values"].append(name)
        elif callable(member):
            groups["functions"].append(name)
    entries: list[dict[str, object]] = []
    for group, names in groups.items():
        title, path = f"API: {group}", f"reference/api-{group}.md"
        lines = [f"# {title}", "", *(f"::: gpuenv.{name}\n" for name in names)]
        (DOCS / path).write_text("\n".join(lines))
        entries.append({title: path})
    return entries


ARGUMENTS = {
    "--to": {"type": Path, "default": ROOT / "build" / "site", "help": "a folder"},
}


def main(arguments: Namespace) -> int:
    """Write what the generator reads, and run it. The old content of the folder is removed."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    copy_pages()
    explorer = [*GPUENV, "matrix", "html", "-o", str(DOCS / EXPLORER)]
    subprocess.run(explorer, env=own_code(), check=True)
    config = read_toml("docs/zensical.toml")
    sections = {title: part for entry in config["project"]["nav"] for title, part in entry.items()}
    sections["Reference"] += [write_commands(), *write_api()]
    sections["Start"].insert(2, {"Compatibility explorer": EXPLORER})
    handler = config["project"]["plugins"]["mkdocstrings"]["handlers"]["python"]
    handler["paths"] = [str(ROOT / "resolver")]
    (SOURCES / "zensical.toml").write_text(tomli_w.dumps(config))
    zensical = Path(sys.executable).with_name("zensical")
    subprocess.run([zensical, "build", "--clean", "--strict"], cwd=SOURCES, check=True)
    shutil.rmtree(arguments.to, ignore_errors=True)
    shutil.copytree(SOURCES / "site", arguments.to)
    (arguments.to / "404.html").unlink()  # it needs a server whose root is the site
    return 0
