"""Build the documentation site of docs/ into a folder; no network is used.

    pip install ".[docs]"
    python scripts/tools.py docs site [--to build/site]

The references of the command line and of the Python API are generated from the parser and from the
docstrings. Open index.html of the folder in a browser, or serve the folder with any web server.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import tomli_w

import gpuenv
from common import ROOT
from docs.man_page import arguments_of
from gpuenv.cli import all_commands, command_parser, load_command

DOCS = ROOT / "docs"
PAGES_BESIDE_DOCS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
COMMAND_PAGE = "reference/commands/{}.md"
API_PAGE = "reference/api-{}.md"
EXPLORER = "what-runs.html"  # the page that gpuenv matrix html writes
EXPLORER_LINK = f"**[Open the explorer]({EXPLORER})**, or write it to a file:\n\n"
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


def site_path(path: Path) -> Path:
    """Return where the site has a file of the repository. Pages of the root are beside index.md."""
    path = path.relative_to(ROOT)
    return path.relative_to("docs") if path.parts[0] == "docs" else path


def page_text(page: Path) -> str:
    """Return the text of a page with the links that work in the site."""
    folder = site_path(page).parent

    def moved(match: re.Match[str]) -> str:
        target = site_path((page.parent / match[1]).resolve())
        return f"]({os.path.relpath(target, folder)}{match[2] or ''})"

    return LINK.sub(moved, page.read_text())


def command_text(name: str) -> str:
    """Return the page of a command, from its parser."""
    command = load_command(name)
    parser = command_parser(name)
    lines = [f"# gpuenv {name}", "", command.DESCRIPTION, ""]
    lines += ["", "```", parser.format_usage().rstrip(), "```", "", "## Examples", ""]
    for example, purpose in command.EXAMPLES:
        lines += [f"{purpose[0].upper()}{purpose[1:]}:", "", f"    {example}", ""]
    lines += ["## Arguments", ""]
    for names, meaning in arguments_of(parser):
        lines += [f"`{names}`", f":   {meaning.replace('<', '&lt;')}", ""]
    return "\n".join(lines)


def api_names() -> dict[str, list[str]]:
    """Return the public names of gpuenv: functions, values and errors."""
    groups: dict[str, list[str]] = {"functions": [], "values": [], "errors": []}
    for name in gpuenv.__all__:
        member = getattr(gpuenv, name)
        if isinstance(member, type):
            groups["errors" if issubclass(member, Exception) else "values"].append(name)
        elif callable(member):
            groups["functions"].append(name)
    return groups


def write_explorer(docs: Path) -> list[dict[str, object]]:
    """Write the compatibility explorer. Return its entry for the navigation."""
    words = [sys.executable, "-m", "gpuenv", "matrix", "html", "-o", str(docs / EXPLORER)]
    subprocess.run(words, check=True)
    return [{"Compatibility explorer": EXPLORER}]


def link_explorer(page: Path) -> None:
    """Link the section about the explorer to the explorer, which only the site has."""
    heading = "## The explorer\n\n"
    page.write_text(page.read_text().replace(heading, f"{heading}{EXPLORER_LINK}"))


def write_sources(folder: Path, explorer: list[dict[str, object]]) -> None:
    """Write what the generator reads into a folder. `explorer` is its entry of the navigation."""
    docs = folder / "docs"
    shutil.copytree(DOCS, docs, dirs_exist_ok=True, ignore=shutil.ignore_patterns("zensical.toml"))
    for page in [*DOCS.rglob("*.md"), *(ROOT / name for name in PAGES_BESIDE_DOCS)]:
        (docs / site_path(page)).write_text(page_text(page))
    (docs / "reference" / "commands").mkdir(parents=True)
    reference: list[dict[str, object]] = []
    for group, names in api_names().items():
        lines = [f"# API: {group}", "", *(f"::: gpuenv.{name}\n" for name in names)]
        (docs / API_PAGE.format(group)).write_text("\n".join(lines))
        reference.append({f"API: {group}": API_PAGE.format(group)})
    for name in all_commands():
        (docs / COMMAND_PAGE.format(name)).write_text(command_text(name))
    commands = [{name: COMMAND_PAGE.format(name)} for name in all_commands()]
    reference.append({"Flags of each command": commands})
    config = tomllib.loads((DOCS / "zensical.toml").read_text())
    sections = {title: part for entry in config["project"]["nav"] for title, part in entry.items()}
    sections["Reference"] += reference
    sections["Start"][2:2] = explorer
    handler = config["project"]["plugins"]["mkdocstrings"]["handlers"]["python"]
    handler["paths"] = [str(ROOT / "resolver")]
    (folder / "zensical.toml").write_text(tomli_w.dumps(config))


def build(target: Path) -> None:
    """Build the site into a folder. The old content of the folder is removed."""
    folder = ROOT / "build" / "site-sources"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "docs").mkdir(parents=True)
    write_sources(folder, write_explorer(folder / "docs"))
    link_explorer(folder / "docs" / "data.md")
    zensical = Path(sys.executable).with_name("zensical")
    subprocess.run([zensical, "build", "--clean", "--strict"], cwd=folder, check=True)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder / "site", target)
    (target / "404.html").unlink()  # it needs a server whose root is the site


def main(words: list[str]) -> None:
    """Read the arguments and build the site."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "site", help="a folder")
    build(parser.parse_args(words).to)
