"""The folders of source trees that requirements name: local ones, and commits that git fetches.

requirements/source_urls.py reads their URLs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from urllib.parse import unquote

from ..errors import InputError, OfflineError, PackageIndexError
from ..requirements.source_urls import read_commit
from ..serialize import read_input, text_digest
from .cache import cache_folder
from .urls import file_url_to_path, path_to_file_url, redact_url

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_TIME_LIMIT = 600  # seconds for one command of git


def absolute(url: str, folder: str) -> str:
    """Return the URL of a requirement that may be a path relative to a folder."""
    path, _, fragment = url.partition("#")
    if "://" in path or path.startswith("file:"):
        return url
    path = os.path.abspath(os.path.join(folder, unquote(path)))
    return path_to_file_url(path) + (f"#{fragment}" if fragment else "")


def locked(url: str, *, offline: bool) -> str:
    """Return the URL of a tree with the commit of what was asked for.

    Raises:
        InputError: the folder or the revision does not exist.
        OfflineError: the commit is not known, and requests are not allowed.
        PackageIndexError: git failed.
    """
    if not url.startswith("git+"):
        path = file_url_to_path(url)
        if not os.path.isdir(path):
            raise InputError(f"{path}: is no folder")
        return url
    asked = read_commit(url)
    if _COMMIT.fullmatch(asked.commit):
        return str(asked)
    subject = redact_url(asked.url)
    if asked.commit.startswith("-"):  # git would read an option
        raise InputError(f"{subject}: {asked.commit} is no revision")
    if offline:
        raise OfflineError(f"{subject}: names no commit, and --offline is on")
    wanted = asked.commit or "HEAD"
    rows = _git(["ls-remote", "--", asked.url], subject).splitlines()
    refs = {name: commit for commit, _, name in (row.partition("\t") for row in rows)}
    for ref in (f"refs/tags/{wanted}^{{}}", f"refs/tags/{wanted}", f"refs/heads/{wanted}", wanted):
        if ref in refs:
            return str(asked.replace(commit=refs[ref], revision=asked.commit))
    # It may be the beginning of the id of a commit.
    place = folder_of(str(asked.replace(subdirectory="")))
    commit = _git(["-C", place, "rev-parse", "HEAD"], subject).strip()
    return str(asked.replace(commit=commit, revision=asked.commit))


def folder_of(url: str, *, offline: bool = False) -> str:
    """Return the folder of a tree; a commit is fetched into the cache.

    Raises:
        InputError: the folder does not exist.
        OfflineError: the commit is not in the cache, and requests are not allowed.
        PackageIndexError: git failed.
    """
    if not url.startswith("git+"):
        return file_url_to_path(url)
    commit = read_commit(url)
    key = text_digest(f"{commit.url}@{commit.commit}")
    above, subject = os.path.join(cache_folder(), "git"), redact_url(commit.url)
    place = os.path.join(above, key)
    if not os.path.isdir(place):
        if offline:
            raise OfflineError(f"{subject}: {commit.commit} is not in the cache, offline")
        os.makedirs(above, exist_ok=True)
        new = tempfile.mkdtemp(dir=above)
        try:
            _git(["clone", "--quiet", "--no-checkout", "--", commit.url, new], subject)
            _git(["-C", new, "checkout", "--quiet", "--detach", commit.commit], subject)
            _git(["-C", new, "submodule", "--quiet", "update", "--init", "--recursive"], subject)
            if not os.path.isdir(place):
                os.rename(new, place)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    folder = os.path.normpath(os.path.join(place, commit.subdirectory))
    if not os.path.isdir(folder) or os.path.commonpath((place, folder)) != place:
        raise InputError(f"{subject}: has no folder {commit.subdirectory}")
    return folder


def project_digest(folder: str) -> str:
    """Return the start of the sha256 of the files that describe the project in a folder."""
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "setup.cfg", "setup.py"):
        path = os.path.join(folder, name)
        digest.update(read_input(path) if os.path.isfile(path) else b"")
    return digest.hexdigest()[:16]


def _git(arguments: Sequence[str], subject: str) -> str:
    """Run git without questions, and return what it prints. PackageIndexError if it fails."""
    program = shutil.which("git")
    if program is None:
        raise PackageIndexError(f"{subject}: git is not installed")
    environment = {
        **os.environ,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file",
        "GIT_LFS_SKIP_SMUDGE": "1",
    }
    try:
        done = subprocess.run(
            [program, "-c", "advice.detachedHead=false", *arguments],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=_TIME_LIMIT,
        )
    except subprocess.TimeoutExpired:
        raise PackageIndexError(f"{subject}: git takes longer than its time limit") from None
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "it failed").strip().splitlines()
        # Advice may follow what is wrong.
        reason = next((line for line in lines if line.startswith("fatal: ")), lines[-1])
        raise PackageIndexError(f"{subject}: git: {reason}") from None
    return done.stdout
