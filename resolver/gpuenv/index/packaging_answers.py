"""The answers of packaging about a target, kept in the cache.

They are about wheel tags and markers that the index snapshot does not have. To load packaging takes
a fifth of the time of a solve whose pages and metadata are in the cache.
"""

from __future__ import annotations

import json

from ..model import Host
from ..requirements.target import marker_environment
from ..serialize import canonical_json
from .cache import Cache

_CACHE_KIND = "answers"
_MAX_ANSWERS = 20_000  # with more, an entry is made anew


class PackagingAnswers:
    """What packaging answered about one target, read from the cache when first asked for."""

    def __init__(self, host: Host, cache: Cache) -> None:
        self._host, self._cache = host, cache
        self._answers: dict[str, object] | None = None
        self._has_new = False

    def find(self, question: str) -> object:
        """Return the answer to a question; None if it is not known."""
        if self._answers is None:
            self._answers = self._load()
        return self._answers.get(question)

    def add(self, question: str, answer: object) -> None:
        """Keep an answer that `find` did not know."""
        if self._answers is not None:
            self._answers[question] = answer
            self._has_new = True

    def save(self) -> None:
        """Write the answers to the cache if there are new ones."""
        if self._answers is None or not self._has_new:
            return
        self._has_new = False
        if len(self._answers) <= _MAX_ANSWERS:
            self._cache.put(_CACHE_KIND, self._key(), {}, json.dumps(self._answers).encode())
        else:
            self._cache.remove(_CACHE_KIND, self._key())

    def _key(self) -> str:
        """Return all that the answers depend on."""
        import packaging  # loads nothing else

        python = [self._host.python.version, self._host.python.free_threaded]
        return canonical_json([packaging.__version__, python, marker_environment(self._host)])

    def _load(self) -> dict[str, object]:
        entry = self._cache.get(_CACHE_KIND, self._key())
        answers = json.loads(entry.body) if entry is not None else {}
        return answers if isinstance(answers, dict) else {}
