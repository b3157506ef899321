"""The frameworks that a request names, and requests that ask for versions of them."""

from gpuenv.model import Request
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.resolve.requested import read_request
from tables import data_file, each
from test_resolution import DATA, HOST


def ways(*texts):
    """What each text of a request leaves of its framework, and its other requirements."""
    request = Request(requirements=texts)
    rows, others = read_request(request, DATA, TargetEnvironment(HOST))
    found = [
        f"{framework.name}: {', '.join(' '.join(way.requires) for way in framework.ways)}"
        for framework, _ in rows
    ]
    return found + [f"other: {requirement}" for requirement in others]


@each("texts expected", data_file("tables/requested.json"))
def test_the_ways_that_texts_leave(texts, expected):
    assert ways(*texts) == expected
