"""What is asked ahead changes nothing but the time, and the quick way to read pages reads what the slow one does."""

import re
import string
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuenv.errors import PackageIndexError
from gpuenv.index import filenames, html_links, simple_api
from gpuenv.index.cache import Cache
from gpuenv.index.http import Transport
from gpuenv.index.live import SimpleIndex
from gpuenv.index.multi_index import CombinedIndex
from gpuenv.model import Host, Python
from gpuenv.requirements.target import TargetEnvironment, parse_requirement
from index_server import IndexServer

HOST = Host(os="linux", machine="x86_64", glibc=(2, 39), python=Python(version=(3, 12), full_version="3.12.3"), gpus=())
ENVIRONMENT = TargetEnvironment(HOST)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr("gpuenv.index.http.BACK_OFF", 0.001)


@pytest.fixture
def server() -> Iterator[IndexServer]:
    with IndexServer() as one:
        one.add("top", "2.0", ["middle>=1", "extra; extra == 'more'", "elsewhere; sys_platform == 'win32'"])
        one.add("top", "3.0rc1", ["of-a-prerelease"])
        one.add("middle", "1.5", ["low"])
        one.add("middle", "1.9", ["of-a-newer"], yanked="bad")
        one.add("low", "1.0")
        one.add("extra", "1.0")
        yield one


def combined(server: IndexServer, tmp_path: Path) -> CombinedIndex:
    transport, cache = Transport(read=5.0), Cache(str(tmp_path / "cache"))
    return CombinedIndex(default=SimpleIndex(server.url, transport=transport, cache=cache))


def ahead(index: CombinedIndex, *texts: str, limits: tuple[str, ...] = ()) -> None:
    """Look ahead, and wait until there is nothing more to ask."""
    before = set(threading.enumerate())
    index.look_ahead([parse_requirement(one) for one in texts], [parse_requirement(one) for one in limits], ENVIRONMENT)
    looking = index._ahead
    assert looking is not None
    looking.wait()
    index.look_no_more()
    for thread in set(threading.enumerate()) - before:
        if thread in looking.threads:
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    ("texts", "limits", "asked"),
    [
        (("top",), (), {"top-2.0", "middle-1.5", "low-1.0"}),
        (("top[more]",), (), {"top-2.0", "middle-1.5", "low-1.0", "extra-1.0"}),
        (("middle>=1.6",), (), set()),
        (("top",), ("middle<1",), {"top-2.0"}),
        (("middle; python_version < '3'", "low"), (), {"low-1.0"}),
        (("low", "top @ https://files.test/top-2.0-py3-none-any.whl", "top"), (), {"low-1.0"}),
        (("low", "top"), ("top @ https://files.test/top-2.0-py3-none-any.whl",), {"low-1.0"}),
    ],
)
def test_the_likely_way_is_asked_for_once(
    server: IndexServer, tmp_path: Path, texts: tuple[str, ...], limits: tuple[str, ...], asked: set[str]
) -> None:
    index = combined(server, tmp_path)
    ahead(index, *texts, limits=limits)
    files = [path for path in server.paths() if path.startswith("/files/")]
    assert sorted(files) == sorted(f"/files/{one}-py3-none-any.whl.metadata" for one in asked)
    pages_asked = [path for path in server.paths() if path.startswith("/simple/")]
    assert len(pages_asked) == len(set(pages_asked))
    known = len(server.asked)
    for one in asked:
        name, _, version = one.rpartition("-")
        index.dependencies(next(wheel for wheel in index.wheels(name) if wheel.version == version))
    assert len(server.asked) == known


def test_failures_wait_for_whoever_needs_the_answer(server: IndexServer, tmp_path: Path) -> None:
    server.faults["/simple/low/"] = ["418", "always"]
    server.faults["/files/middle"] = ["418", "always"]
    index = combined(server, tmp_path)
    ahead(index, "low", "middle")
    known = len(server.asked)
    with pytest.raises(PackageIndexError, match=r"/simple/low/ answers 418"):
        index.wheels("low")
    with pytest.raises(PackageIndexError, match=r"metadata of middle-1.5\S+: .* answers 418"):
        index.dependencies(next(wheel for wheel in index.wheels("middle") if wheel.version == "1.5"))
    assert len(server.asked) == known


def test_pages_that_left_memory_are_read_again(server: IndexServer, tmp_path: Path) -> None:
    index = combined(server, tmp_path)
    fitting = index.wheels("top", ENVIRONMENT)
    assert index.wheels("top") == fitting
    assert len(server.asked) == 1
    for path in (tmp_path / "cache").rglob("h-*"):
        path.unlink()
    assert index.wheels("top") == fitting
    assert len(server.asked) == 2


# ---- the quick way to read pages -------------------------------------------------------------------------------

TEXT = st.text(st.sampled_from(string.ascii_letters + string.digits + "-_.+!#=&;<>/'\" \n%\\\u00e9"), max_size=12)
NAME = st.from_regex(r"[A-Za-z0-9._-]{1,8}", fullmatch=True)
VERSION = st.one_of(
    st.from_regex(r"(v|1!)?[0-9]{1,3}(\.[0-9]{1,3}){0,3}((a|rc|-)?[0-9])?(\.post[0-9])?(\.dev[0-9])?", fullmatch=True),
    st.from_regex(r"[0-9]\.[0-9]\+[a-z0-9._-]{1,5}", fullmatch=True),
)  # fmt: skip
TAG = st.sampled_from(
    ["py3-none-any", "py2.py3-none-any", "cp311-cp311-win32", "3.6-none-any", "cp311--any", "1-cp3-abi3-x"]
)
FILE = st.one_of(
    st.builds("{}-{}-{}.whl".format, NAME, VERSION, TAG), st.builds("{}-{}.tar.gz".format, NAME, VERSION), TEXT
)
VALUE = st.one_of(TEXT, st.sampled_from([">=3.8", "&gt;=3.8", "true", "sha256=" + "a" * 64]))
ATTRIBUTES = st.lists(
    st.tuples(st.sampled_from(["data-yanked", "data-requires-python", "rel", "DATA-x"]), VALUE), max_size=3
)
QUOTE = st.sampled_from(['"', "'", ""])


@st.composite
def tags(draw: st.DrawFn) -> str:
    quote, href = (
        draw(QUOTE),
        draw(st.sampled_from(["https://h.test/x/", "../x/", "/", "https://h.test/../"])) + draw(FILE),
    )
    fragment = draw(st.sampled_from(["", "#sha256=" + "b" * 64, "#sha256=B", "?x=1"]))
    rest = "".join(f" {name}={quote}{value}{quote}" for name, value in draw(ATTRIBUTES))
    end = draw(st.sampled_from(["", " ", " data-yanked", "/"]))
    return f"<a href={quote}{href}{fragment}{quote}{rest}{end}>{draw(TEXT)}</a>"


@given(
    st.lists(
        st.one_of(tags(), st.sampled_from(["<!-- <a href='x'> -->", "<base href='https://b.test/'>", "<br>"])),
        max_size=4,
    )
)
def test_pages_are_read_alike_both_ways(parts: list[str]) -> None:
    text = "<title>Links</title>" + "\n".join(parts)
    quick = simple_api.parse(text.encode(), "text/html", "https://i.test/simple/x/")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html_links, "_is_usual", lambda _: False)
        patch.setattr(filenames, "_WHEEL", re.compile("(?!)"))
        patch.setattr(filenames, "_SDIST", re.compile("(?!)"))
        patch.setattr(simple_api, "_usual", lambda *_: None)
        assert simple_api.parse(text.encode(), "text/html", "https://i.test/simple/x/") == quick


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (">=3.5.*", ">=3.5"),
        (">=3.8,<4", ">=3.8,<4"),
        ("snakes", None),
        ("", None),
        (None, None),
        ("!=3.5.*", "!=3.5.*"),
    ],
)
def test_ranges_of_python_that_old_files_give(text: str | None, meant: str | None) -> None:
    assert filenames.python_range(text) == meant
