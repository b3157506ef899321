"""Repair broken GPU repositories through the tools of `gpuenv mcp` alone, with a fixed policy.

    python scripts/tools.py prove agent [--record docs/records/agent.json] [--offline] [NAME ...]
    python scripts/tools.py prove agent --transcript docs/records/agent-transcript.json

scripts/agent_repositories.toml has the repositories: requirements that do not work on a host, or a
log of a failure. The policy stands for a language model. It does what an answer says and knows
nothing about GPUs:

1. With a log it asks `doctor`.
2. It asks `explain` about requirements.txt, and applies the edits of the first change that has
   some, until the answer is "possible".
3. `solve` writes the lock, and `explain` is asked whether the lock works on the host.
4. If the repository is for a CPU, `sync` installs the lock, and `verify` proves the environment.

The end of a repository is "verified", or "fits" for a lock on a described host: no GPU is here, and
what a lock cannot show is not claimed. "stuck" is a failure.

The transcript has the calls and the answers of three tasks.

Exit status: 0 if no repository is stuck.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import tomllib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from packaging.requirements import Requirement

from common import ROOT

REPOSITORIES = ROOT / "scripts" / "agent_repositories.toml"
MOST_EDITS = 5
SERVER = StdioServerParameters(
    command=sys.executable,
    args=["-m", "gpuenv", "mcp", "--allow-writes"],
    env={**os.environ, "PYTHONPATH": str(ROOT / "resolver")},
)


class RefusedError(Exception):
    """A tool did not answer."""


class Agent:
    """A policy that has the tools and one folder."""

    def __init__(self, client: Client, repository: dict[str, Any], offline: bool) -> None:
        self.client = client
        self.repository = repository
        self.calls: list[dict[str, Any]] = []
        fields = ("driver", "python", "platform")
        self.host = {field: repository[field] for field in fields if field in repository}
        self.host["gpu"] = [repository["gpu"]]
        self.offline = {"offline": True} if offline else {}

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool, and return its document."""
        given = {**self.host, **arguments}
        result = await self.client.call_tool(tool, given)
        if result.is_error:
            raise RefusedError(f"{tool}: {getattr(result.content[0], 'text', '')}")
        document: dict[str, Any] = result.structured_content
        self.calls.append({"tool": tool, "arguments": given, "answer": document})
        return document

    async def repair(self, folder: Path) -> dict[str, Any]:
        """Bring the repository to its end, and return how."""
        file, lock = folder / "requirements.txt", str(folder / "pylock.toml")
        lines = list(self.repository["requirements"])
        row: dict[str, Any] = {"end": "stuck", "edits": []}
        if "log" in self.repository:
            diagnosis = await self.ask("doctor", log=self.repository["log"], elsewhere=True)
            row["causes"] = [verdict["cause"] for verdict in diagnosis["verdicts"]]
        answer: dict[str, Any] = {"possible": False}
        while len(row["edits"]) <= MOST_EDITS:
            file.write_text("".join(f"{line}\n" for line in lines))
            answer = await self.ask("explain", requirements=[str(file)], **self.offline)
            row.setdefault("reasons", sorted({reason["code"] for reason in answer["reasons"]}))
            usable = [change for change in answer["smallest_changes"] if change.get("edits")]
            if answer["possible"] or not usable:
                break
            row["edits"].append(usable[0]["change"])
            edits = {Requirement(old): new for old, new in usable[0]["edits"]}
            lines = [new for line in lines if (new := edits.get(Requirement(line), line))]
        if not answer["possible"]:
            return row
        await self.ask("solve", requirements=[str(file)], output=lock, **self.offline)
        judged = await self.ask("explain", requirement=[lock], **self.offline)
        if not judged["possible"]:
            return row
        row["end"] = "fits"
        if self.repository["gpu"] == "none" and not self.offline:
            target = str(folder / "env")
            await self.ask("sync", lock=lock, target=target, no_verify=True)
            self.host = {}  # verify detects it
            if (await self.ask("verify", target=target, no_device=True))["ok"]:
                row["end"] = "verified"
        return row


async def run(repositories: list[dict[str, Any]], offline: bool) -> dict[str, dict[str, Any]]:
    """Repair each repository in a folder of its own, and return what happened."""
    rows = {}
    async with Client(SERVER) as client:
        for repository in repositories:
            agent, begin = Agent(client, repository, offline), time.perf_counter()
            with tempfile.TemporaryDirectory() as name:
                try:
                    row = await agent.repair(Path(name))
                except RefusedError as error:
                    row = {"end": "stuck", "edits": [], "failure": str(error)}
            row["calls"] = [call["tool"] for call in agent.calls]
            row["seconds"] = round(time.perf_counter() - begin, 1)
            if "log" in repository and repository["cause"] not in row.get("causes", [])[:1]:
                row["end"] = "stuck"
            rows[repository["name"]] = row
            told = row.get("failure") or "; ".join(row["edits"]) or "-"
            print(f"{row['end']:8} {repository['name']}: {told}")
    return rows


async def transcript(known: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls of three tasks, with their answers."""
    tasks = []
    async with Client(SERVER) as client:
        agent = Agent(client, known["blackwell-with-torch-2.5"], offline=True)
        await agent.ask("solve", framework=["torch"], dry_run=True, offline=True)
        agent.host = {}
        await agent.ask("matrix", name="torch", version="2.15.0")
        tasks.append({"task": "What runs on a 5090?", "calls": agent.calls})
        agent = Agent(client, known["numpy-2-with-torch-2.2"], offline=True)
        await agent.ask("doctor", log=agent.repository["log"], elsewhere=True)
        tasks.append({"task": "Why does this log fail?", "calls": agent.calls})
        agent = Agent(client, known["newest-torch-on-volta"], offline=True)
        with tempfile.TemporaryDirectory() as folder:
            await agent.repair(Path(folder))
        text = json.dumps(agent.calls).replace(folder, "FOLDER")
        tasks.append({"task": "Make this repository work on a V100.", "calls": json.loads(text)})
    return tasks


def main(words: list[str]) -> int:
    """Run the repositories that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", nargs="*")
    parser.add_argument("--offline", action="store_true", help="only what the snapshot answers")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--transcript", type=Path)
    arguments = parser.parse_args(words)
    known = tomllib.loads(REPOSITORIES.read_text(encoding="utf-8"))["repository"]
    chosen = [row for row in known if not arguments.name or row["name"] in arguments.name]
    if arguments.transcript:
        tasks = anyio.run(transcript, {row["name"]: row for row in known})
        arguments.transcript.write_text(json.dumps(tasks, indent=1) + "\n", encoding="utf-8")
        return 0
    rows = anyio.run(run, chosen, arguments.offline)
    counts = dict(Counter(row["end"] for row in rows.values()))
    print(counts)
    if arguments.record:
        day = datetime.now(UTC).date().isoformat()
        record = {"date": day, "counts": counts, "repositories": rows}
        arguments.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if "stuck" in counts else 0
