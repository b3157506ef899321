"""The causes' data and their pages: complete, fresh, and read by the doctor as they say."""

import re

from gpuenv.doctor.catalog import causes
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


def verdicts(look):
    text = VARIES.sub(lambda part: FILLS[part[1]], look)
    return [verdict.cause for verdict in diagnose(read_log([f"{text}\n"]), ()).verdicts]


@together(LOOKS)
def test_what_it_looks_like_leads_to_it(row):
    cause, look = row
    found = verdicts(look)
    assert cause.id in found
    assert cause.log or found[0] == cause.id, found  # where another is as likely, the data say so


def test_what_varies_is_filled_in():
    named = {name for _, look in LOOKS for name in VARIES.findall(look)}
    assert named == set(FILLS)


def test_every_message_is_one_that_programs_print():
    """The logs of tests/data have each message word for word, apart from line breaks."""
    logs = " ".join(re.sub(r"\\n|\s+", " ", path.read_text().replace('\\"', '"')) for path in LOGS)
    assert [cause.message for cause in CAUSES if cause.message not in logs] == []


@together([*PAGES.glob("*.md"), ROOT / "README.md", ROOT / "docs" / "doctor.md"])
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target
