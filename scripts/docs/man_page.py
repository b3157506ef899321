"""docs/gpuenv.1, the man page, from the help of the commands."""

from __future__ import annotations

from gpuenv.cli import PROGRAM, command_groups, command_parser, load_command
from gpuenv.cli.parser import Parser
from gpuenv.version import __version__

HEAD = """\
.TH GPUENV 1 "" "gpuenv {version}" "User Commands"
.SH NAME
{program}
.SH SYNOPSIS
.B gpuenv
.I COMMAND
[OPTIONS]
.SH COMMANDS
"""
TAIL = """\
.SH EXIT STATUS
.TP
.B 0
done
.TP
.B 1
a check failed, or a lock is stale or does not fit this host
.TP
.B 2
bad usage or input; nothing was written
.TP
.B 3
no solution; every reason is printed
.TP
.B 4
the network, an index or an installer failed
.TP
.B 130
interrupted
.SH ENVIRONMENT
Every flag is also a variable, GPUENV_<FLAG>, and a setting of
~/.config/gpuenv/config.toml. GPUENV_CACHE_DIR names the cache.
"""


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


def command_text(name: str) -> str:
    """Return the section of a command."""
    command = load_command(name)
    lines = [f".SS {quoted(f'gpuenv {name}')}", quoted(command.DESCRIPTION)]
    for names, meaning in arguments_of(command_parser(name)):
        lines += [".TP", f".B {quoted(names)}", quoted(meaning)]
    for example, purpose in command.EXAMPLES:
        lines += [".PP", f"{quoted(purpose)}:", ".br", f".B {quoted(example)}"]
    return "\n".join([*lines, ""])


def files() -> dict[str, str]:
    """Return the man page."""
    program = quoted(PROGRAM.replace(": ", " - ", 1))
    sections = [command_text(name) for names in command_groups().values() for name in names]
    head = HEAD.format(version=__version__, program=program)
    return {"docs/gpuenv.1": "".join([head, *sections, TAIL])}
