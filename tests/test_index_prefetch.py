"""Prefetching requests what a solve will need, once; errors are raised when they matter."""

from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path

import pytest

from gpuenv.index.cache import Cache
from gpuenv.index.http import Transport
from gpuenv.model import Host, Python
from gpuenv.requirements.target import TargetEnvironment, parse_requirement
from index_server import IndexServer
from indexes import Asked, combined_index, simple_index, simple_source

HOST = Host(
    os="linux",
    machine="x86_64",
    glibc=(2, 39),
    python=Python(version=(3, 12), full_version="3.12.3"),
    gpus=(),
)
ENVIRONMENT = TargetEnvironment(HOST)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr("gpuenv.index.http.BACK_OFF", 0.001)


@pytest.fixture
def server() -> Iterator[IndexServer]:
    with IndexServer() as one:
        one.add(
            "top",
            "2.0",
            ["middle>=1", "extra; extra == 'more'", "elsewhere; sys_platform == 'win32'"],
        )
        one.add("top", "3.0rc1", ["of-a-prerelease"])
        one.add("middle", "1.5", ["low"])
        one.add("middle", "1.9", ["of-a-newer"], yanked="bad")
        one.add("low", "1.0")
        one.add("extra", "1.0")
        yield one


def open_multi_index(server: IndexServer, tmp_path: Path) -> Asked:
    transport, cache = Transport(read=5.0), Cache(str(tmp_path / "cache"))
    return simple_index(server.url, transport, cache)


def prefetch(index: Asked, *texts: str, constraints: tuple[str, ...] = ()) -> None:
    """Prefetch what the requirements need, and wait until all jobs are done."""
    index.start_prefetch(
        [parse_requirement(text) for text in texts],
        [parse_requirement(text) for text in constraints],
        ENVIRONMENT,
        lambda name: False,
        lambda name: True,
    )
    prefetcher = index._prefetcher
    assert prefetcher is not None
    while not all(job.done() for job in prefetcher.jobs):  # a job starts others
        wait(prefetcher.jobs, 10)
    index.stop_prefetch()


@pytest.mark.parametrize(
    ("texts", "constraints", "asked"),
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
def test_likely_choices_are_requested_once(
    server: IndexServer,
    tmp_path: Path,
    texts: tuple[str, ...],
    constraints: tuple[str, ...],
    asked: set[str],
) -> None:
    index = open_multi_index(server, tmp_path)
    prefetch(index, *texts, constraints=constraints)
    files = [path for path in server.paths() if path.startswith("/files/")]
    assert sorted(files) == sorted(f"/files/{one}-py3-none-any.whl.metadata" for one in asked)
    pages_asked = [path for path in server.paths() if path.startswith("/simple/")]
    assert len(pages_asked) == len(set(pages_asked))
    known = len(server.asked)
    for one in asked:
        name, _, version = one.rpartition("-")
        index.dependencies(next(wheel for wheel in index.wheels(name) if wheel.version == version))
    assert len(server.asked) == known


def test_the_snapshot_hides_no_release_where_the_index_is_asked_anyway(
    server: IndexServer, tmp_path: Path
) -> None:
    transport, cache = Transport(read=5.0), Cache(str(tmp_path / "cache"))
    with IndexServer() as older:  # stands for the snapshot
        older.add("low", "0.9")
        older.add("middle", "1.4")

        def newest(*texts: str) -> dict[str, str]:
            index = combined_index(
                transport,
                cache,
                default=simple_source(server.url, transport, cache),
                snapshot=simple_source(older.url, transport, cache),
            )
            index.start_prefetch(
                [parse_requirement(text) for text in texts],
                [],
                ENVIRONMENT,
                lambda name: name == "middle",
                lambda name: True,
            )
            index.stop_prefetch()
            return {name: index.wheels(name)[0].version for name in ("low", "middle")}

        assert newest("low", "middle") == {"low": "0.9", "middle": "1.4"}
        # The snapshot does not have top. The compatibility data has all builds of middle.
        assert newest("low", "top") == {"low": "1.0", "middle": "1.4"}
