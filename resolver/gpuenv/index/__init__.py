"""Where releases come from: the embedded snapshot, live indexes, folders of wheels, and all of them as one.

Nothing is imported until it is used: a solve from the snapshot loads no network code.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from .cache import Cache, cache_folder
    from .combined import CombinedIndex, Later, open_index
    from .defaults import DefaultIndex, default_index
    from .links import FindLinks
    from .live import SimpleIndex
    from .transport import Transport

__all__ = [
    "Cache",
    "CombinedIndex",
    "DefaultIndex",
    "FindLinks",
    "Later",
    "SimpleIndex",
    "Transport",
    "cache_folder",
    "default_index",
    "open_index",
]

_HOMES = {
    "Cache": "cache",
    "CombinedIndex": "combined",
    "DefaultIndex": "defaults",
    "FindLinks": "links",
    "Later": "combined",
    "SimpleIndex": "live",
    "Transport": "transport",
    "cache_folder": "cache",
    "default_index": "defaults",
    "open_index": "combined",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
