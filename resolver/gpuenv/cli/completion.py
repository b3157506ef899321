"""`gpuenv completion`: scripts that complete commands, flags and their values in a shell."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence

from .. import api
from .output import print_json
from .parser import Parser, add_common_flags

HELP = "Print a script that completes commands and flags in a shell"
DESCRIPTION = "Print a completion script. The shell reads it when it starts."
EXAMPLES = (
    ("gpuenv completion bash > ~/.local/share/bash-completion/completions/gpuenv", "For bash"),
    ("gpuenv completion zsh > ~/.zfunc/_gpuenv", "For zsh, with ~/.zfunc in fpath"),
    ("gpuenv completion fish > ~/.config/fish/completions/gpuenv.fish", "For fish"),
)

_BASH = """\
# Completion of gpuenv for bash.
_gpuenv() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    local command=${COMP_WORDS[1]} words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "@COMMANDS@" -- "$word"))
        return
    fi
    case "$command $before" in
@VALUES@
    esac
    if [ -z "$words" ]; then
        case "$command" in
@FLAGS@
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _gpuenv gpuenv
"""
_ZSH = """\
#compdef gpuenv
# Completion of gpuenv for zsh.
_gpuenv() {
    local before=${words[CURRENT-1]} name=${words[2]}
    local -a found
    if (( CURRENT == 2 )); then
        found=(@COMMANDS@)
        compadd -a found
        return
    fi
    case "$name $before" in
@VALUES@
    esac
    if (( ! ${#found} )); then
        case "$name" in
@FLAGS@
        esac
    fi
    compadd -a found
    _files
}
compdef _gpuenv gpuenv
"""


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `gpuenv completion`."""
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="The shell")
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Print the script."""
    from . import all_commands, command_parser, load_command

    frameworks = api.compatibility_data().frameworks()
    commands: dict[str, dict[str, Sequence[str]]] = {}
    for name in all_commands():
        commands[name] = _flags(command_parser(name), frameworks)
    if arguments.json:
        print_json(commands)
    elif arguments.shell == "fish":
        helps = {name: load_command(name).HELP for name in commands}
        print("\n".join(_fish_lines(commands, helps)))
    elif arguments.shell == "zsh":
        print(_filled(_ZSH, commands, "found=({})"), end="")
    else:
        print(_filled(_BASH, commands, 'words="{}"'), end="")
    return 0


def _flags(parser: Parser, frameworks: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the flags of a command, each with the values that it may have."""
    flags: dict[str, Sequence[str]] = {}
    for action in parser.shown_actions():
        values = tuple(map(str, action.choices or ()))
        if action.dest == "framework":
            values = tuple(frameworks)
        for flag in action.option_strings:
            flags[flag] = values
        if not action.option_strings:  # a positional argument: its values complete as words
            flags.update(dict.fromkeys(values, ()))
    return flags


def _filled(template: str, commands: Mapping[str, Mapping[str, Sequence[str]]], words: str) -> str:
    values, flags = [], []
    for name, known in commands.items():
        flags.append(f"        {name}) {words.format(' '.join(known))} ;;")
        for flag, choices in known.items():
            if choices:
                values.append(f'        "{name} {flag}") {words.format(" ".join(choices))} ;;')
    filled = template.replace("@COMMANDS@", " ".join(commands))
    return filled.replace("@VALUES@", "\n".join(values)).replace("@FLAGS@", "\n".join(flags))


def _fish_lines(
    commands: Mapping[str, Mapping[str, Sequence[str]]], helps: Mapping[str, str]
) -> list[str]:
    lines = ["# Completion of gpuenv for fish."]
    for name, text in helps.items():
        quoted = text.replace("'", "\\'")
        lines.append(f"complete -c gpuenv -f -n __fish_use_subcommand -a {name} -d '{quoted}'")
    for name, flags in commands.items():
        condition = f"'__fish_seen_subcommand_from {name}'"
        for flag, values in flags.items():
            start = f"complete -c gpuenv -n {condition}"
            if not flag.startswith("-"):
                lines.append(f"{start} -a {flag}")
                continue
            option = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            line = f"{start} {option}"
            if values:
                line += f" -x -a '{' '.join(values)}'"
            lines.append(line)
    return lines
