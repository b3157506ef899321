"""Time the doctor's reading of logs beside a program that splits them into lines.

    python scripts/tools.py bench doctor [--runs N] [--record FILE] [KIND ...]

log_lines.toml has the kinds of logs. They have a line break at least after every 8 MB.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.pairs import Case, Tools, bench

MEGABYTES = 100
KINDS = tomllib.loads(Path(__file__).with_name("log_lines.toml").read_text())
SPLIT = """
import sys
with open(sys.argv[1], "rb") as file:
    while chunk := file.read(1 << 20):
        b"\\n".join(chunk.split(b"\\n"))
"""


def line_of(kind: str, chance: random.Random) -> str:
    """Return a random line of a kind of log, with its end."""
    facts = KINDS[kind]
    lines = KINDS[facts.get("same-as", kind)]["lines"]
    return (facts.get("start", "") + chance.choice(lines)).format(
        n=chance.randrange(60),
        m=chance.randrange(1_000_000),
        h=f"{chance.getrandbits(8):02x}",
        p=f"{chance.getrandbits(48):012x}",
        q=f"{chance.getrandbits(64):016x}",
        w="".join(chance.choices("abcdefghijklmnop", k=9)),
    ) + facts.get("end", "\n")


def write_log(path: Path, kind: str) -> None:
    """Write a log."""
    chance = random.Random(1)  # noqa: S311  not for secrets
    with path.open("w") as file:
        for megabyte in range(MEGABYTES):
            length = 0
            while length < 1_000_000:
                length += file.write(line_of(kind, chance))
            if megabyte % 8 == 7:
                file.write("\n")


def cases(tools: Tools) -> Iterator[Case]:
    """Yield each kind of log."""
    log = tools.folder / "train.log"
    for kind in KINDS:
        yield Case(
            kind,
            tools.command(
                [tools.gpuenv, "doctor", str(log), "--elsewhere"], "cache", statuses=(0, 1)
            ),
            tools.command([tools.python, "-c", SPLIT, str(log)], "cache"),
            prepare=partial(write_log, log, kind),
        )


def main(words: list[str]) -> int:
    """Run the benchmark."""
    return bench(__doc__ or "", cases, words)
