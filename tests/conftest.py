"""What tests of several files share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import planting
from gpuenv.errors import InstallError
from gpuenv.index.cache import Cache
from gpuenv.index.http import Transport
from index_server import IndexServer


@pytest.fixture
def server() -> Iterator[IndexServer]:
    with IndexServer() as one:
        yield one


@pytest.fixture
def transport() -> Iterator[Transport]:
    with Transport(read=5.0) as one:
        yield one


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The packages' folder of each real cuDNN release, as it was published, before the first case and after the last.

    Without a package index its tests are skipped.
    """
    folder = tmp_path_factory.mktemp("cudnn")
    try:
        planting.download(folder)
    except InstallError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no package index: {error}")
    before = planting.times(folder)
    yield {version: folder / version / planting.SITE for version in planting.RELEASES}
    assert planting.times(folder) == before


@pytest.fixture(scope="session")
def channel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The local channel of real records; no test changes it."""
    import conda_channel

    return conda_channel.make(tmp_path_factory.mktemp("channel"))
