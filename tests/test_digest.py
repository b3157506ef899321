"""Digests of texts, with each of the modules that can have SHA-256."""

import hashlib
import importlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuenv import digest

TEXTS = ("", "a", "\u00e9\ud800\n" * 99)


def expected(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@given(st.text())
def test_a_digest_is_that_of_hashlib(text: str) -> None:
    assert digest.text_digest(text) == expected(text)


@pytest.mark.parametrize("missing", [(), ("_sha2",), ("_sha256",), ("_sha2", "_sha256")])
def test_each_module_gives_the_same(
    missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for name in missing:
            patch.setitem(sys.modules, name, None)
        importlib.reload(digest)
        assert list(map(digest.text_digest, TEXTS)) == list(map(expected, TEXTS))
    importlib.reload(digest)
