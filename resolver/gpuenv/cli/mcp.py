"""`gpuenv mcp`: the commands that answer questions, as tools of the Model Context Protocol.

A tool has the arguments of its command, so the help and the schema of a tool have one source. A
call runs the command in a process of its own and returns its JSON document: an agent gets what a
user gets.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Action, Namespace
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..model import Value
from ..version import __version__
from . import command_parser, suggestion
from .parser import Argument, Command

if TYPE_CHECKING:
    from mcp import types
    from mcp.server import Server

INSTRUCTIONS = """\
Finds, proves and repairs the GPU environments of this machine. Ask `detect` first: it shows the
GPUs and the driver. Ask `explain` whether a request is possible on a host, and what the smallest
change is that makes it so; `solve` which releases fit together; `matrix` which GPUs a release has
code for; `doctor` why a program failed, with the text that it printed as `log`; `verify` whether an
environment works. A host that is not this machine is described by `gpu`, `driver`, `python` and
`platform`. Do not guess versions: the answers name their sources."""


class Tool(Value):
    """A command as a tool.

    Without the right to write, a call has the arguments `reading`, too. `writes` says that it needs
    the right. `log` is the text that the command reads from stdin.
    """

    command: str
    writes: bool = False
    reading: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    reads_log: bool = False


TOOLS = {
    "detect": Tool(command="detect"),
    "solve": Tool(command="solve", reading=("--dry-run", "--no-build")),
    "explain": Tool(command="explain", reading=("--no-build",)),
    "verify": Tool(command="verify"),
    "doctor": Tool(command="doctor", reads_log=True),
    "matrix": Tool(command="matrix show"),
    "sync": Tool(command="sync", writes=True, always=("--yes",)),
}
# Flags that print something else than the document, and those that write a file.
_NOT_OFFERED = {"help", "verbose", "quiet", "color", "json", "debug", "format", "hook", "strict"}
_WRITING = {"output", "bundle"}
# A check that fails and a request without a solution are answers.
_ANSWERS = (0, 1, 3)


class Mcp(Command):
    """`gpuenv mcp`: a server for agents, over stdin and stdout."""

    HELP = "Serve these commands to an agent as tools (MCP)"
    DESCRIPTION = (
        "Serve detect, solve, explain, verify, doctor and matrix as tools of the Model Context "
        "Protocol, over stdin and stdout. The tools only read, unless --allow-writes is given."
    )
    EXAMPLES = (
        ("gpuenv mcp", "Answer questions about this machine"),
        ("gpuenv mcp --allow-writes", "Let the agent write locks and install them"),
    )
    ARGUMENTS = (
        Argument("--allow-writes", "Let solve write locks and run builds, and offer sync"),
    )

    def run(self, arguments: Namespace) -> int:
        """Serve until stdin is closed."""
        try:
            import anyio
            import mcp  # noqa: F401
        except ImportError:
            hint = "pip install 'gpuenv[mcp]'"
            raise InputError("the library mcp is not installed", hint=hint) from None
        anyio.run(_serve, arguments.allow_writes)
        return 0


async def _serve(may_write: bool) -> None:
    from mcp.server.stdio import stdio_server

    server = _server(may_write)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def _server(may_write: bool) -> Server[Any]:
    """Return a server with the tools that only read, or with all."""
    from mcp import types
    from mcp.server import Server

    offered = {name: tool for name, tool in TOOLS.items() if may_write or not tool.writes}

    async def list_tools(_context: object, _request: object) -> types.ListToolsResult:
        tools = [_described(name, tool, may_write) for name, tool in offered.items()]
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        _context: object, request: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = offered.get(request.name)
        if tool is None:
            return _failure(f"there is no tool {request.name}")
        return await _call(tool, request.arguments or {}, may_write)

    return Server(
        "gpuenv",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _described(name: str, tool: Tool, may_write: bool) -> types.Tool:
    from mcp import types

    parser = command_parser(*tool.command.split())
    hints = types.ToolAnnotations(
        read_only_hint=not (tool.writes or _WRITING & _actions(tool, may_write).keys()),
        destructive_hint=tool.writes,
    )
    return types.Tool(
        name=name,
        description=" ".join(str(parser.description).split()),
        input_schema=input_schema(tool, may_write),
        annotations=hints,
    )


def _actions(tool: Tool, may_write: bool) -> dict[str, Action]:
    """Return what a call may say, by its name: the arguments of the command."""
    given = {_name(word) for word in (*tool.always, "log")}
    if not may_write:
        given |= {_name(word) for word in tool.reading} | _WRITING
    named = {}
    for action in command_parser(*tool.command.split()).shown_actions():
        long = [flag for flag in action.option_strings if flag.startswith("--")]
        named[_name(long[0] if long else action.dest)] = action
    return {name: action for name, action in named.items() if name not in given | _NOT_OFFERED}


def _name(flag: str) -> str:
    """Return the name of the argument of a tool for a flag."""
    return flag.strip("-").replace("-", "_")


def input_schema(tool: Tool, may_write: bool) -> dict[str, Any]:
    """Return the JSON Schema of the arguments of a tool."""
    actions = _actions(tool, may_write)
    properties = {name: property_of(action) for name, action in actions.items()}
    if tool.reads_log:
        text = "What the program printed: its traceback and all lines around it"
        properties["log"] = {"type": "string", "description": text}
    return {
        "type": "object",
        "properties": properties,
        "required": [
            name
            for name, action in actions.items()
            if not action.option_strings and action.nargs is None
        ],
        "additionalProperties": False,
    }


def property_of(action: Action) -> dict[str, Any]:
    """Return the JSON Schema of the value of an argument."""
    text = " ".join(str(action.help).split())
    kind = "number" if action.type in (int, float) else "string"
    value: dict[str, Any] = {"type": kind}
    if action.nargs == 0:
        value = {"type": "boolean"}
    elif action.choices:
        value = {"enum": list(action.choices)}
    if action.nargs == "*" or isinstance(action.default, list):
        return {"type": "array", "items": value, "description": text}
    return {**value, "description": text}


def words_of(tool: Tool, arguments: dict[str, Any], may_write: bool) -> list[str]:
    """Return the words of the command line for a call.

    No value becomes a flag: a flag and its value are one word, and the rest stands after "--".
    """
    words = [*tool.command.split(), "--json", *tool.always, *(() if may_write else tool.reading)]
    positional = ["-"] if "log" in arguments else []
    for name, action in _actions(tool, may_write).items():
        value = arguments.get(name)
        if value is None or value is False:
            continue
        values = value if isinstance(value, list) else [value]
        if not action.option_strings:
            positional += map(str, values)
        elif action.nargs == 0:
            words.append(action.option_strings[-1])
        else:
            words += [f"{action.option_strings[-1]}={one}" for one in values]
    return [*words, *(["--", *positional] if positional else [])]


async def _call(tool: Tool, arguments: dict[str, Any], may_write: bool) -> types.CallToolResult:
    """Run the command, and return its document; the process ends if the call is cancelled."""
    import anyio
    from mcp import types

    known = input_schema(tool, may_write)["properties"]
    if unknown := sorted(arguments.keys() - known):
        return _failure(f"there is no argument {unknown[0]}{suggestion(unknown[0], [*known])}")
    command = [sys.executable, "-m", "gpuenv", *words_of(tool, arguments, may_write)]
    if log := str(arguments.get("log", "")):
        done = await anyio.run_process(command, input=log.encode(), check=False)
    else:  # stdin of the server has the requests
        done = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False)
    text, errors = done.stdout.decode(), done.stderr.decode()
    if done.returncode not in _ANSWERS or not text:
        return _failure(text or errors)
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=json.loads(text)
    )


def _failure(text: str) -> types.CallToolResult:
    from mcp import types

    return types.CallToolResult(content=[types.TextContent(text=text.strip())], is_error=True)
