"""The cache of this user."""

from __future__ import annotations

import os

from ..errors import InputError


def cache_folder() -> str:
    """Return the folder of the cache; it need not exist."""
    from ..index import cache

    return cache.cache_folder()


def cache_size() -> tuple[int, int]:
    """Return how many files the cache has, and their bytes."""
    files = total = 0
    for folder, _, names in os.walk(cache_folder()):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:  # another process removed it
                continue
            files += 1
    return files, total


def clean_cache() -> None:
    """Remove what gpuenv has written into the cache folder; another file in it stays.

    Raises:
        InputError: something cannot be removed.
    """
    import shutil  # slow, and every command imports this module

    folder = cache_folder()
    if not os.path.isdir(folder):
        return
    for name in filter(_is_own, os.listdir(folder)):
        try:
            shutil.rmtree(os.path.join(folder, name))
        except OSError as error:
            message = f"{error.filename}: cannot be removed: {error.strerror}"
            raise InputError(message) from None


def _is_own(name: str) -> bool:
    """Return whether gpuenv writes a folder of that name into its cache."""
    return name in ("builds", "scripts") or (name[:1] == "v" and name[1:].isdecimal())
