"""Write docs/gpuenv.1, the man page, from the help of the commands.

python scripts/tools.py docs man-page
"""

from __future__ import annotations

from common import ROOT
from docs.generated import write_or_check
from gpuenv.cli import PROGRAM, command_groups, command_parser, load_command
from gpuenv.cli.parser import Parser
from gpuenv.version import __version__

PAGE = ROOT / "docs" / "gpuenv.1"
STATUSES = (
    ("0", "done"),
    ("1", "a check failed, or a lock is stale or does not fit this host"),
    ("2", "bad usage or input; nothing was written"),
    ("3", "no solution; every reason is printed"),
    ("4", "the network, an index or an installer failed"),
    ("130", "interrupted"),
)


def quoted(text: str) -> str:
    """Return a text for roff: no command at the start of a line, no hyphen in place of a minus."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def arguments_of(parser: Parser) -> list[tuple[str, str]]:
    """Return the flags and arguments of a command, each with its help."""
    pairs = []
    for action in parser.shown_actions():
        names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        if action.option_strings and action.nargs != 0:
            names += f" {action.metavar or '|'.join(map(str, action.choices or ()))}"
        pairs.append((names, str(action.help).replace("%%", "%")))
    return pairs


def command_lines(name: str) -> list[str]:
    """Return the section of a command."""
    command = load_command(name)
    lines = [f".SS {quoted(f'gpuenv {name}')}", quoted(command.DESCRIPTION)]
    for names, meaning in arguments_of(command_parser(name)):
        lines += [".TP", f".B {quoted(names)}", quoted(meaning)]
    for example, purpose in command.EXAMPLES:
        lines += [".PP", f"{quoted(purpose)}:", ".br", f".B {quoted(example)}"]
    return lines


def page() -> str:
    """Return the man page."""
    lines = [f'.TH GPUENV 1 "" "gpuenv {__version__}" "User Commands"', ".SH NAME"]
    lines += [quoted(PROGRAM.replace(": ", " - ", 1)), ".SH SYNOPSIS", ".B gpuenv"]
    lines += [".I COMMAND", "[OPTIONS]", ".SH COMMANDS"]
    for names in command_groups().values():
        for name in names:
            lines += command_lines(name)
    lines += [".SH EXIT STATUS"]
    for status, meaning in STATUSES:
        lines += [".TP", f".B {status}", quoted(meaning)]
    lines += [".SH ENVIRONMENT", "Every flag is also a variable, GPUENV_<FLAG>, and a setting of"]
    lines += ["~/.config/gpuenv/config.toml. GPUENV_CACHE_DIR names the cache."]
    return "\n".join([*lines, ""])


def main(words: list[str]) -> int:
    """Write the man page."""
    return write_or_check({PAGE: page}, words)
