"""`gpuenv help`, `completion` and `cache`: commands about this program."""

from __future__ import annotations

import json
import os
import shutil
from argparse import Namespace
from contextlib import suppress

import shtab

from .. import api
from ..errors import InputError
from ..index.cache import cache_folder
from ..model import quantity_text
from ..render.values import size
from . import PROGRAM, all_commands, command_parser, command_suggestion, load_command, program_lines
from .output import print_json, print_lines, print_report
from .parser import Argument, Command, Parser

# PowerShell calls the block with the word at the cursor and the parsed line. The first word is
# completed to a command, others to its flags, or to the values of the flag before.
POWERSHELL = """\
Register-ArgumentCompleter -Native -CommandName gpuenv -ScriptBlock {{
    param($word, $line, $position)
    $commands = '{commands}' | ConvertFrom-Json
    $given = @($line.CommandElements | Select-Object -Skip 1 | ForEach-Object {{ "$_" }})
    $before = if ($word) {{ @($given | Select-Object -SkipLast 1) }} else {{ $given }}
    if ($before.Count -eq 0) {{
        $offered = $commands.PSObject.Properties.Name
    }} else {{
        $flags = $commands.($before[0])
        $values = $flags.($before[-1])
        $offered = if ($values) {{ $values }} else {{ $flags.PSObject.Properties.Name }}
    }}
    $offered | Where-Object {{ $_ -like "$word*" }} | ForEach-Object {{
        [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)
    }}
}}
"""


class Help(Command):
    """`gpuenv help`: the help of the program, or of a command."""

    HELP = "Print the help of a command"
    DESCRIPTION = "Print the commands, or the arguments and examples of one command."
    EXAMPLES = (
        ("gpuenv help solve", "Print the help of a command"),
        ("gpuenv help matrix show", "Print the help of a command of it"),
    )
    ARGUMENTS = (Argument("[COMMAND ...]", "The command, such as solve or matrix show"),)

    def run(self, arguments: Namespace) -> int:
        """Print the help."""
        name, *below = arguments.command or [None]
        known = all_commands()
        if name is not None and name not in known:
            hint = "gpuenv help lists the commands"
            raise InputError(f"there is no command {name}{command_suggestion(name)}", hint=hint)
        if arguments.json:
            names = known if name is None else [name]
            print_json({command: load_command(command).HELP for command in names})
        elif name is None:
            print_lines(program_lines())
        else:
            print_lines(command_parser(name, *below).format_help().rstrip().split("\n"))
        return 0


class Completion(Command):
    """`gpuenv completion`: scripts that complete commands, flags and their values in a shell."""

    HELP = "Print a script that completes commands and flags in a shell"
    DESCRIPTION = "Print a completion script. The shell reads it when it starts."
    EXAMPLES = (
        ("gpuenv completion bash > ~/.local/share/bash-completion/completions/gpuenv", "For bash"),
        ("gpuenv completion zsh > ~/.zfunc/_gpuenv", "For zsh, with ~/.zfunc in fpath"),
        ("gpuenv completion fish > ~/.config/fish/completions/gpuenv.fish", "For fish"),
        ("gpuenv completion powershell > gpuenv.ps1", "For PowerShell: . ./gpuenv.ps1 in $PROFILE"),
    )
    ARGUMENTS = (Argument("SHELL", "The shell", choices=("bash", "zsh", "fish", "powershell")),)

    def run(self, arguments: Namespace) -> int:
        """Print the script; with --json the flags of each command, with the values of each."""
        program = Parser(prog="gpuenv", description=PROGRAM)
        commands = program.add_commands()
        frameworks = api.compatibility_data().frameworks()
        document: dict[str, dict[str, tuple[str, ...]]] = {}
        for name in all_commands():
            command = load_command(name)
            parser = commands.add_parser(name, help=command.HELP)
            command.add_arguments(parser)
            known = document[name] = {}
            for action in parser.shown_actions():
                if action.dest == "framework":
                    action.choices = frameworks
                values = tuple(map(str, action.choices or ()))
                if not values and action.nargs != 0:
                    vars(action)["complete"] = shtab.FILE
                known.update(dict.fromkeys(action.option_strings, values))
                if not action.option_strings:  # the values of a positional argument are words
                    known.update(dict.fromkeys(values, ()))
        if arguments.json:
            print_json(document)
        elif arguments.shell == "powershell":
            print(POWERSHELL.format(commands=json.dumps(document)), end="")
        else:
            print(shtab.complete(program, arguments.shell))
        return 0


class Cache(Command):
    """`gpuenv cache`: where the cache is, how large it is, and an end to it."""

    HELP = "Show or empty the cache"
    DESCRIPTION = (
        "The cache has pages and metadata of indexes, and the environments of scripts. "
        "GPUENV_CACHE_DIR names another folder."
    )
    EXAMPLES = (
        ("gpuenv cache size", "Show how large the cache is"),
        ("gpuenv cache clean", "Remove everything in it"),
    )
    ARGUMENTS = (
        Argument("dir|size|clean", "What to do", dest="action", choices=("dir", "size", "clean")),
    )

    def run(self, arguments: Namespace) -> int:
        """Print the folder or its size, or remove its content."""
        folder = cache_folder()  # it need not exist
        files = count = 0
        for place, _, names in os.walk(folder):
            for name in names:
                with suppress(OSError):  # another process removed it
                    count += os.lstat(os.path.join(place, name)).st_size
                    files += 1
        if arguments.action == "clean" and os.path.isdir(folder):
            for name in os.listdir(folder):
                # Another file in the folder, which gpuenv has not written, stays.
                is_version = name[:1] == "v" and name[1:].isdecimal()
                if is_version or name in ("builds", "constraints", "scripts"):
                    try:
                        shutil.rmtree(os.path.join(folder, name))
                    except OSError as error:
                        message = f"{error.filename}: cannot be removed: {error.strerror}"
                        raise InputError(message) from None
        print_json({"folder": folder, "files": files, "bytes": count})
        if arguments.action == "dir":
            print_lines([folder])
        elif arguments.action == "size":
            print_lines([f"{folder}: {quantity_text(files, 'file')}, {size(count)}"])
        else:
            print_report([f"removed {quantity_text(files, 'file')}, {size(count)}, from {folder}"])
        return 0
