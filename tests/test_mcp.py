"""`gpuenv mcp`: what an agent gets through the library's own client, over stdin and stdout."""

import json
import sys

import anyio
from jsonschema import Draft202012Validator

from gpuenv.cli.mcp import TOOLS
from script_modules import load_script
from small_wheels import make_wheel
from tables import data_file, read_data
from test_cli import command_environment, run

CALLS = data_file("tables/mcp_calls.json")


def session(folder, calls, *flags):
    """Start a server in a folder, and return its tools and the results of these calls."""
    from mcp import Client, StdioServerParameters  # a second, which only these tests take

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "gpuenv", "mcp", *flags],
        env=command_environment(folder, {}),
        cwd=folder,
    )

    async def talk():
        async with Client(server) as client:
            tools = (await client.list_tools()).tools
            return tools, [await client.call_tool(name, asked) for name, asked in calls]

    return anyio.run(talk)


def text(result):
    (content,) = result.content
    assert content.type == "text"
    return content.text


def test_the_tools_answer_as_the_commands(tmp_path):
    """Each call beside the words of the command line; nothing is written."""
    (tmp_path / "train.log").write_text(CALLS[-1]["arguments"]["log"])
    before = sorted(tmp_path.iterdir())
    tools, results = session(tmp_path, [(case["tool"], case["arguments"]) for case in CALLS])
    assert [tool.name for tool in tools] == [name for name in TOOLS if not TOOLS[name].writes]
    for tool in tools:
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.annotations is not None and tool.annotations.read_only_hint
    for case, result in zip(CALLS, results, strict=True):
        done = run(case["words"], tmp_path, status=None)
        assert not result.is_error, text(result)
        assert result.structured_content == done.document, case["tool"]
        assert json.loads(text(result)) == result.structured_content
    assert sorted(tmp_path.iterdir()) == before


def test_a_policy_repairs_a_repository(monkeypatch):
    """`scripts/prove/agent.py --record docs/records/agent.json` runs all of them."""
    bench = load_script("prove.agent")
    monkeypatch.setenv("GPUENV_OFFLINE", "1")
    known = read_data(bench.REPOSITORIES)["repository"]
    names = ("numpy-2-with-torch-2.2", "cupy-13-with-driver-550")
    cupy, numpy = anyio.run(bench.run, [row for row in known if row["name"] in names]).values()
    assert "cupy instead of cupy-cuda13x" in cupy["edits"] and cupy["end"] == numpy["end"] == "fits"


REFUSED = data_file("tables/mcp_refused.json")


def test_calls_that_are_refused(tmp_path):
    """What only a server with the right to write has; values that look like flags; bad usage."""
    _, results = session(tmp_path, [(name, arguments) for name, arguments, _ in REFUSED])
    for (name, _, message), result in zip(REFUSED, results, strict=True):
        assert result.is_error and message in text(result), name
    assert list(tmp_path.iterdir()) == []


def test_an_agent_that_may_write(tmp_path):
    make_wheel(tmp_path, "alpha", "1.0")
    folders = {"find_links": [str(tmp_path)], "no_index": True}
    target = {"target": "env", "no_device": True}
    solve = {"requirement": ["alpha"], "gpu": ["none"], "output": "pylock.toml", **folders}
    sync = {"lock": "pylock.toml", "target": "env", "gpu": ["none"], "no_verify": True, **folders}
    calls = [("solve", solve), ("sync", sync), ("verify", target)]
    tools, (solved, synced, verified) = session(tmp_path, calls, "--allow-writes")
    hints = {tool.name: tool.annotations for tool in tools}
    writing = {name for name, hint in hints.items() if hint and not hint.read_only_hint}
    assert writing == {"detect", "solve", "verify", "sync"}
    assert solved.structured_content["lock"] == "pylock.toml", text(solved)
    assert not synced.is_error, text(synced)
    assert verified.structured_content["ok"], text(verified)
