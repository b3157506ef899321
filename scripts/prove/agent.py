"""Repair broken GPU repositories through the tools of `gpuenv mcp` alone, with a fixed policy.

    python scripts/tools.py prove agent [--record docs/records/agent.json] [NAME ...]

scripts/agent_repositories.toml has the repositories: requirements that do not work on a host, or a
log of a failure. The policy stands for a language model. It does what an answer says and knows
nothing about GPUs:

1. With a log it asks `doctor`, whose first cause must be that of the repository.
2. It asks `explain` about requirements.txt, and applies the edits of the first change that has
   some, until the answer is "possible".
3. `solve` writes the lock, and `explain` is asked whether the lock works on the host.
4. If the repository is for a CPU, `sync` installs the lock, and `verify` proves the environment.

The end of a repository is "verified", or "fits" for a lock on a described host: no GPU is here, and
what a lock cannot show is not claimed. "stuck" is a failure.

Exit status: 0 if no repository is stuck.
"""

from __future__ import annotations

import tempfile
import time
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from common import GPUENV, ROOT, own_code, read_toml

REPOSITORIES = ROOT / "scripts" / "agent_repositories.toml"
MOST_EDITS = 5
Row = dict[str, Any]


class StuckError(Exception):
    """A tool did not answer, or its answer does not help."""


async def ask(client: Client, row: Row, tool: str, **arguments: Any) -> Row:
    """Call a tool, and return its document. Raises StuckError if it has none."""
    row["calls"].append(tool)
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        raise StuckError(f"{tool}: {getattr(result.content[0], 'text', '')}")
    document: Row = result.structured_content
    return document


async def repair(client: Client, repository: Row, folder: Path, row: Row) -> None:
    """Bring a repository to its end, and write into the row how. Raises StuckError."""
    file, lock, target = folder / "requirements.txt", folder / "pylock.toml", folder / "env"
    fields = ("driver", "python", "platform")
    host = {field: repository[field] for field in fields if field in repository}
    host |= {"gpu": [repository["gpu"]]}
    asked = {"requirements": [str(file)], **host}
    if log := repository.get("log"):
        diagnosis = await ask(client, row, "doctor", log=log, elsewhere=True, **host)
        row["causes"] = [verdict["cause"] for verdict in diagnosis["verdicts"]]
        if row["causes"][:1] != [repository["cause"]]:
            raise StuckError("the doctor has another cause")
    lines = list(repository["requirements"])
    for _ in range(MOST_EDITS + 1):
        file.write_text("".join(f"{line}\n" for line in lines))
        answer = await ask(client, row, "explain", **asked)
        row.setdefault("reasons", sorted({reason["code"] for reason in answer["reasons"]}))
        if answer["possible"]:
            break
        usable = [change for change in answer["smallest_changes"] if change.get("edits")]
        if not usable:
            raise StuckError("no change has edits")
        row["edits"].append(usable[0]["change"])
        edits = dict(usable[0]["edits"])
        lines = [new for line in lines if (new := edits.get(line, line))]
    else:
        raise StuckError("too many edits")
    await ask(client, row, "solve", output=str(lock), **asked)
    judged = await ask(client, row, "explain", requirement=[str(lock)], **host)
    if not judged["possible"]:
        raise StuckError("the lock does not fit the host")
    row["end"] = "fits"
    if repository["gpu"] == "none":
        await ask(client, row, "sync", lock=str(lock), target=str(target), no_verify=True, **host)
        verified = await ask(client, row, "verify", target=str(target), no_device=True)
        row["end"] = "verified" if verified["ok"] else "stuck"


async def run(repositories: list[Row]) -> dict[str, Row]:
    """Repair each repository in a folder of its own, and return what happened."""
    rows = {}
    arguments = [*GPUENV[1:], "mcp", "--allow-writes"]
    server = StdioServerParameters(command=GPUENV[0], args=arguments, env=own_code())
    async with Client(server) as client:
        for repository in repositories:
            row: Row = {"end": "stuck", "edits": [], "calls": []}
            begin = time.perf_counter()
            with tempfile.TemporaryDirectory() as name:
                try:
                    await repair(client, repository, Path(name), row)
                except StuckError as error:
                    row |= {"end": "stuck", "failure": str(error)}
            row["seconds"] = round(time.perf_counter() - begin, 1)
            rows[repository["name"]] = row
            told = row.get("failure") or "; ".join(row["edits"]) or "-"
            print(f"{row['end']:8} {repository['name']}: {told}")
    return rows


ARGUMENTS = {
    "names": {"nargs": "*", "metavar": "NAME", "help": "these repositories only"},
}


def prove(arguments: Namespace) -> tuple[Row, list[str]]:
    """Run the repositories. Return what happened, and which of them are stuck."""
    known = read_toml(REPOSITORIES)["repository"]
    names = arguments.names or [row["name"] for row in known]
    rows = anyio.run(run, [row for row in known if row["name"] in names])
    counts = dict(Counter(row["end"] for row in rows.values()))
    stuck = [name for name, row in rows.items() if row["end"] == "stuck"]
    return {"counts": counts, "repositories": rows}, stuck
