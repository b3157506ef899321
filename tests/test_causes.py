"""The causes' data and their pages: complete, fresh, and read by the doctor as they say."""

import re
from pathlib import Path

from gpuenv.doctor.catalog import Cause, causes
from gpuenv.doctor.judge import diagnose
from gpuenv.doctor.log_reader import read_log
from tables import ROOT, data_file, together

PAGES = ROOT / "docs" / "causes"
CAUSES = list(causes().values())
FILLS = data_file("causes_looks.toml")
VARIES = re.compile(r"<([^<>]+)>")
LOOKS = [(cause, look) for cause in CAUSES for look in (cause.message, *cause.looks)]
LOGS = [
    *(ROOT / "tests/data/doctor").glob("*.toml"),
    *(ROOT / "tests/data/situations").glob("*.json"),
]


def verdicts(look: str) -> list[str]:
    text = VARIES.sub(lambda part: FILLS[part[1]], look)
    return [verdict.cause for verdict in diagnose(read_log([f"{text}\n"]), ()).verdicts]


@together(LOOKS)
def test_what_it_looks_like_leads_to_it(row: tuple[Cause, str]) -> None:
    cause, look = row
    found = verdicts(look)
    assert cause.id in found
    assert cause.log or found[0] == cause.id, found  # where another is as likely, the data say so


def test_what_varies_is_filled_in() -> None:
    named = {name for _, look in LOOKS for name in VARIES.findall(look)}
    assert named == set(FILLS)


def test_every_message_is_one_that_programs_print() -> None:
    """The logs of tests/data have each message word for word, apart from line breaks."""
    logs = " ".join(re.sub(r"\\n|\s+", " ", path.read_text().replace('\\"', '"')) for path in LOGS)
    assert [cause.message for cause in CAUSES if cause.message not in logs] == []


@together(CAUSES)
def test_every_cause_is_described(cause: Cause) -> None:
    assert 1 <= len(cause.looks) <= 3
    assert cause.proves and cause.refutes and cause.fix
    for one in (*cause.proves, *cause.refutes, cause.fix, *filter(None, [cause.log])):
        assert one.isascii() and one.endswith(".") and one.count("`") % 2 == 0, one
    for one in (*cause.proves, *cause.refutes):
        assert len(one) <= 160, one
        assert not re.search(r"->|!=|==|\bw/|&|\u2026", re.sub(r"`[^`]*`", "", one)), one
    assert len(re.findall(r"\.(?:\s|$)", cause.fix)) <= 2, cause.fix


@together(CAUSES)
def test_every_page_says_what_the_data_say(cause: Cause) -> None:
    text = (PAGES / f"{cause.id}.md").read_text(encoding="utf-8")
    title, _, start = text.replace("\\`", "`").partition("\n\n")
    shared = [other for other in CAUSES if other.message == cause.message] != [cause]
    assert title == f"# {cause.message}" + f": {cause.title}" * shared
    assert start.startswith(f"**{cause.title}.**") and text.endswith(f"`{cause.id}`\n")
    assert all(f"\n    {look}\n" in text for look in cause.looks)


def test_the_index_names_every_cause_once() -> None:
    text = (PAGES / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^- \[.*\]\((\w+)\.md\)$", text, re.MULTILINE)) == sorted(causes())
    assert {path.stem for path in PAGES.iterdir()} == {*causes(), "README"}


@together([*PAGES.glob("*.md"), ROOT / "README.md", ROOT / "docs" / "doctor.md"])
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target
