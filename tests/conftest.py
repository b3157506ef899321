"""What tests of the live index share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuenv.index.cache import Cache
from gpuenv.index.transport import Transport
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
