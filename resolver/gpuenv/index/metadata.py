"""What files say of themselves: their requirements, their Requires-Python, their variants.

Sources, in this order: the metadata file that the index serves beside the wheel (PEP 658, 714); the
end of the wheel, by range requests (a zip file has its directory there); the whole wheel. A source
distribution is always read whole, for its PKG-INFO; if that leaves dependencies open, a build tells
them. A project that compiles code for a framework cannot be built before that is installed: what
its source distribution states counts. Results are cached by the file's sha256 without a limit of
time, since the content of a hash does not change; those of a build also by the interpreter. Without
a hash the URL is the key.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import parse_qsl, urlsplit

from packaging.version import Version

from ..compat.data import compatibility_data
from ..compat.extensions import may_describe_itself_as
from ..errors import InputError, OfflineError, PackageIndexError, Reason, UnusableFileError
from ..model import Requirement, Value, Wheel
from ..requirements import source_urls
from ..requirements.parse import shortened
from ..requirements.pyproject import static_metadata
from ..requirements.target import SDIST_SUFFIXES, split_label
from ..requirements.versions import normalize_name, parse_requirement
from ..serialize import file_digest, parse_toml
from . import source_trees
from .cache import KeyedMemo
from .http import GONE, OK, PARTIAL, Transport
from .pages import (
    OFFLINE_HINT,
    PageReader,
    linked_files,
    parse_requires_python,
    repair_specifiers,
)
from .protocol import DIRECT_URL, Metadata
from .source_builds import (
    DAMAGED_ARCHIVE,
    BuildFailedError,
    SourceBuilder,
    archive_files,
    unpack,
)
from .urls import file_url_to_path, is_http_url, last_part, redact_url
from .variants import WHEEL_FILE, ReleaseVariants, combine, parse, split_variant_marker

if TYPE_CHECKING:
    from packaging.metadata import RawMetadata

BLOCK = 1 << 16  # the least bytes of a range request
WHEEL_BLOCK = 8 << 20  # the same of a wheel that is read as a whole
MAX_METADATA_BYTES = 64 << 20  # protects against zip bombs
MAX_VARIANT_BYTES = 16 << 20  # a release with thousands of variants has less

_PROJECT_FILES = ("pyproject.toml", "setup.py")
_CACHE_KIND = "metadata"
_SIZES_KIND = "sizes"
_HASHES_KIND = "hashes"  # of files without one on their page
_VARIANTS_KIND = "variants"
_CONTENT_RANGE = r"bytes (\d+)-(\d+)/(\d+)"
_built_trees: KeyedMemo[tuple[str, ...], bytes] = KeyedMemo()
_STATIC_METADATA = Version("2.2")  # the first version that has the field Dynamic (PEP 643)
_RELEVANT_FIELDS = frozenset({"requires-dist", "provides-extra", "requires-python"})


class _Stored(Value):
    """What the cache has of a file: its metadata, or why the file of this name is of no use."""

    metadata: Metadata | None = None
    filename: str = ""
    reason: Reason | None = None


class FileReader:
    """Reads files over HTTP or from disk, through the cache. Each is asked for once.

    Args:
        pages: reads pages. Files have the same transport, cache and options.
        builder: builds source distributions.
    """

    def __init__(self, pages: PageReader, builder: SourceBuilder) -> None:
        self._transport, self._cache, self._options = pages.transport, pages.cache, pages.options
        self._builder = builder
        self._known: dict[str, list[bytes]] = {}
        for text in self._options.known_metadata:
            content = text.encode()
            name = normalize_name(_header_fields(content)[0].get("name", ""))
            self._known.setdefault(name, []).append(content)
        self._metadata: KeyedMemo[tuple[str, str | None], Metadata] = KeyedMemo()
        self._at_urls: KeyedMemo[str, Wheel] = KeyedMemo()

    def end_builds(self, seconds: float) -> None:
        """Set how many seconds are left to build metadata (see Index.limit_builds)."""
        self._builder.deadline = time.monotonic() + seconds

    # ---- metadata

    def known(self, wheel: Wheel) -> Metadata | None:
        """Return the metadata that the user gave instead of that of a file; None if there is none.

        Raises:
            UnusableFileError: a requirement in it cannot be read.
        """
        for content in self._known.get(wheel.name, ()):
            if _header_fields(content)[0].get("version", wheel.version) == wheel.version:
                return parse_metadata(content, wheel)
        return None

    def metadata(self, wheel: Wheel) -> Metadata:
        """Return the metadata of a file.

        Raises:
            PackageIndexError: the file cannot be fetched or read, or has the wrong hash.
            OfflineError: nothing about it is cached, and requests are not allowed.
            UnusableFileError: it is an sdist that cannot be built, or its metadata is of no use.
        """
        return self._metadata.get((wheel.url, wheel.sha256), lambda: self._find(wheel))

    def _find(self, wheel: Wheel) -> Metadata:
        key, built_key, built_with = wheel.sha256, None, None
        if wheel.is_sdist and key is not None:
            built_key = f"{key} {self._builder.key_of(wheel.name)}"
        if key is None and is_http_url(wheel.url) and not wheel.is_sdist:
            key = wheel.url  # a file of a page without hashes; --refresh reads it again
        is_stale = wheel.sha256 is None and self._options.refresh
        for known_key in () if is_stale else filter(None, (key, built_key)):
            stored = self._cache.get(_CACHE_KIND, known_key, _Stored) or _Stored()
            if stored.reason is not None and stored.filename == wheel.filename:
                raise UnusableFileError(stored.reason)
            if stored.metadata is not None:
                return stored.metadata
        if wheel.is_sdist:
            content, is_built, built_with = self._read_sdist(wheel)
            key = built_key if is_built else key
        elif wheel.is_local:
            content = _read_local(file_url_to_path(wheel.url))
        else:
            content = self._fetch(wheel)
        try:
            metadata = _built_with(parse_metadata(content, wheel), built_with)
        except UnusableFileError as error:
            if key is not None:
                refused = _Stored(filename=wheel.filename, reason=error.reason)
                self._cache.put(_CACHE_KIND, key, refused)
            raise
        if key is not None:
            self._cache.put(_CACHE_KIND, key, _Stored(metadata=metadata))
        return metadata

    def _require_network(self, subject: str) -> None:
        if self._options.offline:
            message = f"{subject} not in the cache and --offline is on"
            raise OfflineError(message, hint=OFFLINE_HINT)

    def _get(self, url: str, subject: str, sha256: str | None, wheel: Wheel) -> bytes | None:
        """Return a file that is beside a wheel, after a check of its hash; None if it is gone."""
        reply = self._transport.get(url, subject)
        if reply.status in GONE:
            return None
        if reply.status != OK:
            raise PackageIndexError(
                f"{subject}: {redact_url(url)} answered with status {reply.status}"
            )
        if sha256:
            _check_hash(last_part(url), sha256, hashlib.sha256(reply.body).hexdigest(), wheel)
        return reply.body

    def _fetch(self, wheel: Wheel) -> bytes:
        """Return the metadata of a wheel on an index."""
        self._require_network(f"the dependencies of {wheel.filename} are")
        if wheel.metadata is not None:
            # The metadata file is beside the wheel (PEP 658): .metadata after the path.
            parts = urlsplit(wheel.url)
            url = parts._replace(path=parts.path + ".metadata", fragment="").geturl()
            content = self._get(url, f"metadata of {wheel.filename}", wheel.metadata, wheel)
            if content is not None:  # some mirrors announce one that they do not have
                return content
        return self._read_remote(wheel, "METADATA")

    def _read_remote(self, wheel: Wheel, member: str) -> bytes:
        """Return a file of a wheel's .dist-info folder by range requests, or of the whole wheel."""
        try:
            remote = RemoteFile(self._transport, wheel)
            content = read_wheel_metadata(remote, wheel.filename, member)
        except NoRangesError:
            with tempfile.TemporaryFile() as file:
                self._download(wheel, file)
                return read_wheel_metadata(file, wheel.filename, member)
        if wheel.size is None and wheel.sha256 is not None:
            self._cache.put(_SIZES_KIND, wheel.sha256, remote.length)
        return content

    def _download(self, wheel: Wheel, file: BinaryIO) -> str:
        """Write a file of an index to an open file. Return its sha256, which was checked."""
        reply, digest = self._transport.download(wheel.url, wheel.filename, file, wheel.size)
        if reply.status != OK:
            raise PackageIndexError(
                f"{wheel.filename}: {redact_url(wheel.url)} answered with status {reply.status}"
            )
        if wheel.sha256 is not None:
            _check_hash(wheel.filename, wheel.sha256, digest, wheel)
        return digest

    def _read_sdist(self, wheel: Wheel) -> tuple[bytes, bool, Requirement | None]:
        """Return the metadata of a source distribution, whether a build made it, and `built_with`.

        Raises:
            UnusableFileError: it is no readable archive, or its build fails.
        """
        row = compatibility_data().compiled_against(wheel.name, wheel.version)
        framework = self._builder.compiles_for(wheel.name) if row is None else str(row.value)
        if not framework:
            self._builder.require_hope(wheel)  # before a download
        with tempfile.TemporaryDirectory(prefix="gpuenv-") as folder:
            if wheel.is_local:
                path = file_url_to_path(wheel.url)
            else:
                self._require_network(f"the dependencies of {wheel.filename} are")
                path = os.path.join(folder, wheel.filename)
                with open(path, "w+b") as file:
                    self._download(wheel, file)
            files = _read_members(path, wheel.filename)
            content = files.get("PKG-INFO")
            why = "it has no PKG-INFO" if content is None else _why_dynamic(content)
            may_build = self._builder.may_build(wheel.name)
            if framework and content is not None and (may_build or not why):
                stated = _stated(content, files)
                return stated, row is None, _framework_of_build(framework, files)
            if content is not None and not why:
                return content, False, None
            if not may_build:
                need, have = "a build to tell its dependencies", f"nothing is built here, and {why}"
                error = _unusable(wheel.filename, need, have, "PEP 643", code="needs-build")
                self._builder.remember(wheel.name, error)
                raise error
            too_late = PackageIndexError(f"{wheel.filename}: no time is left to build its metadata")
            if time.monotonic() >= self._builder.deadline:
                raise too_late
            try:
                why = f"no wheel fits, and {why}"
                return self._builder.metadata(wheel, path, why), True, None
            except BuildFailedError as error:
                if time.monotonic() >= self._builder.deadline:
                    raise too_late from None
                # What a release requires is there when `sync` builds it.
                module = _distribution_of(error.missing_module)
                if module and content is not None:
                    stated = _stated(content, files)
                    required = {need.name for need in parse_metadata(stated, wheel).dependencies}
                    if module in required or compatibility_data().framework(module) is not None:
                        return stated, True, _framework_of_build(module, files)
                self._builder.remember(wheel.name, error)
                raise

    def size(self, wheel: Wheel) -> int | None:
        """Return the bytes of a file of an index that does not give them.

        The response to a range request of one byte has the length. None if the server does not
        tell; a lock can do without. The answer is cached by hash.
        """
        key = wheel.sha256 or ""
        size = self._cache.get(_SIZES_KIND, key, int)
        if size is None and not self._options.offline:
            try:
                reply = self._transport.get_range(wheel.url, wheel.filename, 0, 0)
            except PackageIndexError:
                return None
            length = reply.headers.get("content-range", "").rpartition("/")[2]
            size = int(length) if length.isdigit() else None
            if size is not None and key:
                self._cache.put(_SIZES_KIND, key, size)
        return size

    def open(self, wheel: Wheel) -> BinaryIO:
        """Open a file to read its content (see open_wheel)."""
        return open_wheel(wheel, self._transport, lambda _: None)

    # ---- files at URLs

    def direct(self, name: str, url: str) -> Wheel:
        """Return the file of a package at a URL that a requirement names. Each is read once.

        The file must have the sha256 of the URL's fragment. Without one the whole file is
        downloaded to compute its hash, as pip does when it locks.

        Raises:
            InputError: the URL names no wheel or sdist, or one of another package.
            OfflineError: the hash is not known, and requests are not allowed.
            PackageIndexError: the file cannot be downloaded.
        """
        url = source_trees.absolute(url, self._options.folder)
        if source_urls.is_tree(url):
            return self._at_urls.get(f"{name} @ {url}", lambda: self._read_tree(name, url))
        wheel = self._at_urls.get(url, lambda: self._read_direct(name, url))
        if wheel.name != (name or wheel.name):
            raise InputError(f"{name} @ {redact_url(url)}: the file belongs to {wheel.name}")
        return wheel

    def _read_tree(self, name: str, url: str) -> Wheel:
        """Return what stands for a source tree: a source distribution with its name and version."""
        url = source_trees.locked(url, offline=self._options.offline)
        folder = source_trees.folder_of(url, offline=self._options.offline)
        tree = Wheel(
            name=name,
            version="",
            filename=f"{name}.tar.gz",
            url=url,
            sha256=source_urls.key_of(url),
            index=DIRECT_URL,
        )
        return self._named(tree, folder)

    def _named(self, tree: Wheel, folder: str) -> Wheel:
        """Return a source tree with the name and version that its folder tells."""
        name, framework = tree.name, ""
        known = (content for content in self._known.get(name, ()) if b"\nVersion:" in content)
        content = next(known, None)
        if content is None:
            bound = {text.partition("=")[0] for text in self._options.package_indexes}
            above = self._options.folder
            is_asked_for = bool(above) and os.path.samefile(folder, above)
            content = static_metadata(folder, bound, requires=not is_asked_for)
        if content is None:
            if not any(os.path.isfile(os.path.join(folder, file)) for file in _PROJECT_FILES):
                place = redact_url(tree.url).partition("#")[0]
                hint = ""
                if not os.listdir(folder):
                    hint = "git submodule update --init fills a submodule"
                raise InputError(
                    f"{place}: has neither pyproject.toml nor setup.py, so it is no project",
                    hint=hint,
                )
            if not self._builder.may_build(name):
                need, have = "a build to tell its dependencies", "nothing is built here"
                raise _unusable(redact_url(tree.url), need, have, code="needs-build")
            content, framework = self._build_tree(tree, folder)
        fields, _ = _header_fields(content)
        version = str(Version(fields.get("version", "")))
        own_name = normalize_name(fields.get("name", ""))
        if own_name != (name or own_name):
            message = f"{name} @ {redact_url(tree.url)}: the project there is {fields.get('name')}"
            raise InputError(message)
        filename = f"{own_name}-{version}{_suffix(tree.url)}"
        tree = tree.replace(name=own_name, version=version, filename=filename)
        built_with = Requirement(name=framework) if framework else None
        metadata = _built_with(parse_metadata(content, tree), built_with)
        self._metadata.get((tree.url, tree.sha256), lambda: metadata)
        return tree

    def _read_archive(self, name: str, url: str) -> Wheel:
        """Return the archive of a source tree, whose file name does not tell its release."""
        url, _, fragment = url.partition("#")
        with tempfile.TemporaryDirectory(prefix="gpuenv-") as folder:
            path = os.path.join(folder, f"archive{_suffix(url)}")
            wanted = dict(parse_qsl(fragment)).get("sha256")
            tree = Wheel(
                name=name,
                version="",
                filename=os.path.basename(path),
                url=url,
                sha256=wanted,
                index=DIRECT_URL,
            )
            self._require_network(f"what {redact_url(url)} requires is")
            with open(path, "w+b") as file:
                tree = tree.replace(sha256=self._download(tree, file), size=file.tell())
            try:
                return self._named(tree, unpack(path, os.path.join(folder, "tree")))
            except DAMAGED_ARCHIVE as error:
                raise _unusable(redact_url(url), "a readable archive", f"none ({error})") from None

    def _build_tree(self, tree: Wheel, folder: str) -> tuple[bytes, str]:
        """Return the metadata of a source tree by a build, and the package it is built with.

        A setup.py that imports a framework gets one, as uv's extra-build-dependencies would give
        it: nothing else tells what the project requires.
        """
        name = tree.name
        row = compatibility_data().compiled_against(name, tree.version)
        framework = self._builder.compiles_for(name)
        requires = ["ninja", "packaging"]
        why = "its pyproject.toml does not tell its version and dependencies"
        if row is not None:
            framework, requires = str(row.value), [*row.requires]
        elif not framework:
            # Profiles of a project ask for the same.
            key = (folder, source_trees.project_digest(folder), self._builder.key_of(name))
            try:
                build = partial(self._builder.metadata, tree, folder, why)
                return _built_trees.get(key, build), ""
            except BuildFailedError as error:
                framework = _distribution_of(error.missing_module)
                if compatibility_data().framework(framework) is None:
                    raise
        why = f"{why}, and it compiles code for {framework}"
        return self._builder.metadata(tree, folder, why, [framework, *requires]), framework

    def _read_direct(self, name: str, url: str) -> Wheel:
        wheels = linked_files([url], DIRECT_URL)
        is_remote = not url.startswith("file:")
        if not wheels and is_remote and urlsplit(url).path.endswith(SDIST_SUFFIXES):
            return self._read_archive(name, url)
        if not wheels:
            raise InputError(
                f"{redact_url(url)} names no wheel and no source distribution "
                "(NAME-VERSION-TAGS.whl)"
            )
        wheel = wheels[0]
        if wheel.is_local:
            path = file_url_to_path(wheel.url)
            if os.path.exists(path) and not os.path.isfile(path):  # a pipe may never end
                raise InputError(f"{path} is not a regular file")
            try:
                sha256 = file_digest(path)
            except OSError as error:
                raise InputError(f"{path} cannot be read: {error.strerror}") from None
            if wheel.sha256 not in (None, sha256):
                raise InputError(
                    f"{path} has the sha256 {sha256}; the requirement names {wheel.sha256}"
                )
            return wheel.replace(sha256=sha256, size=os.path.getsize(path))
        return self.hashed(wheel)

    def hashed(self, wheel: Wheel) -> Wheel:
        """Return a remote file with its sha256. Without one the file is downloaded, once.

        Raises:
            OfflineError: the hash is not known, and requests are not allowed.
            PackageIndexError: the file cannot be downloaded.
        """
        if wheel.sha256 is not None or not is_http_url(wheel.url):
            return wheel
        known = self._cache.get(_HASHES_KIND, wheel.url, tuple[str, int])
        if known is not None and not self._options.refresh and wheel.index != DIRECT_URL:
            return wheel.replace(sha256=known[0], size=known[1])
        if self._options.offline:
            raise OfflineError(
                f"{wheel.filename}: its URL has no #sha256=, and --offline is on",
                hint=OFFLINE_HINT,
            )
        with tempfile.TemporaryFile() as file:
            known = self._download(wheel, file), file.seek(0, os.SEEK_END)
        self._cache.put(_HASHES_KIND, wheel.url, known)
        return wheel.replace(sha256=known[0], size=known[1])

    # ---- variants

    def variants(
        self, wheels: Sequence[Wheel], listed: tuple[str, str | None] | None = None
    ) -> ReleaseVariants:
        """Return the metadata of the variants of a release.

        Args:
            wheels: the variant wheels of the release.
            listed: (URL, sha256) of the file that describes all of them; None if there is none.
                Then one wheel of each label is read.

        Raises:
            PackageIndexError, OfflineError: as `metadata`.
            UnusableFileError: the metadata does not follow PEP 825.
        """
        name, subject = wheels[0].name, f"{wheels[0].name} {wheels[0].version}"
        try:
            if listed is not None:
                subject = listed[0].rpartition("/")[2]
                return parse(self._read_variants_file(*listed, wheels[0]), name)
            parts = []
            for wheel in {split_label(wheel.filename)[1]: wheel for wheel in wheels[::-1]}.values():
                subject, label = wheel.filename, split_label(wheel.filename)[1]
                parts.append(parse(self._read_variant_of_wheel(wheel), name))
                if [variant.label for variant in parts[-1].variants] != [label]:
                    raise ValueError(f"it does not describe the variant {label} alone")
            subject = f"{name} {wheels[0].version}"
            return combine(parts)
        except ValueError as error:
            need, have = (
                "variant metadata as PEP 825 defines it",
                f"metadata with a mistake: {error}",
            )
            raise _unusable(subject, need, have, "PEP 825") from None

    def _read_variants_file(self, url: str, sha256: str | None, wheel: Wheel) -> bytes:
        """Return the file at a URL. A release may get more variants, so a hash decides its age.

        Raises:
            ValueError: the index does not have the file.
        """
        if url.startswith("file:"):
            with open(file_url_to_path(url), "rb") as file:
                return file.read(MAX_VARIANT_BYTES)
        cached = self._cache.get(_VARIANTS_KIND, url, bytes)
        if cached is not None:
            is_same = sha256 is not None and hashlib.sha256(cached).hexdigest() == sha256
            if is_same or self._options.offline:
                return cached
        filename = url.rpartition("/")[2]
        self._require_network(f"{filename} is")
        content = self._get(url, filename, sha256, wheel)
        if content is None:
            raise ValueError("the index lists a file that it does not have")
        self._cache.put(_VARIANTS_KIND, url, content)
        return content

    def _read_variant_of_wheel(self, wheel: Wheel) -> bytes:
        if wheel.is_local:
            return _read_local(file_url_to_path(wheel.url), WHEEL_FILE)
        cached = self._cache.get(_VARIANTS_KIND, wheel.sha256, bytes) if wheel.sha256 else None
        if cached is not None:
            return cached
        self._require_network(f"the variant of {wheel.filename} is")
        content = self._read_remote(wheel, WHEEL_FILE)
        if wheel.sha256 is not None:
            self._cache.put(_VARIANTS_KIND, wheel.sha256, content)
        return content


def _unusable(
    subject: str, need: str, have: str, source: str = "", *, code: str = "bad-metadata"
) -> UnusableFileError:
    reason = Reason(code, subject, need, have, source=source)
    return UnusableFileError(reason)


def _check_hash(filename: str, expected: str, actual: str, wheel: Wheel) -> None:
    if expected != actual:
        origin = redact_url(wheel.index) or redact_url(wheel.url)
        raise PackageIndexError(
            f"{filename} of {origin} has the wrong hash: expected sha256 {expected}, got {actual}",
            hint="the file was changed in transit or on the index; do not install it",
        )


# ---- archives ------------------------------------------------------------------------------------


def requires_python_of(path: str) -> str | None:
    """Return Requires-Python of a wheel on disk.

    Raises:
        PackageIndexError: the file cannot be read or has no metadata.
    """
    fields, _ = _header_fields(_read_local(path))
    return parse_requires_python(fields.get("requires_python"))


def _read_local(path: str, member: str = "METADATA") -> bytes:
    try:
        with open(path, "rb") as file:
            return read_wheel_metadata(file, path, member)
    except OSError as error:
        raise PackageIndexError(f"{path} cannot be read: {error.strerror}") from None


def read_wheel_metadata(file: BinaryIO | io.RawIOBase, filename: str, member: str) -> bytes:
    """Return NAME-VERSION.dist-info/METADATA of an open wheel, or another file of that folder.

    Args:
        file: the wheel.
        filename: its name, for messages.
        member: the name of the file in the folder.

    Raises:
        PackageIndexError: the file is not a wheel, or it does not have exactly one such member.
        UnusableFileError: it is a variant wheel that lacks the description of its variant.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            folders = {name.partition("/")[0] for name in archive.namelist() if "/" in name}
            infos = [name for name in folders if name.endswith(".dist-info")]
            members = [
                info
                for info in archive.infolist()
                if info.filename in [f"{folder}/{member}" for folder in infos]
            ]
            if not members and member == WHEEL_FILE:
                need = f"a file {member} in its .dist-info folder"
                raise _unusable(filename, need, "none", "PEP 825")
            for count, kind in (
                (len(members), f"{member} files"),
                (len(infos), ".dist-info folders"),
            ):
                if count != 1:
                    message = f"{filename}: it has {count} {kind}; a wheel has exactly one"
                    raise PackageIndexError(message)
            if members[0].file_size > MAX_METADATA_BYTES:
                raise PackageIndexError(
                    f"{filename}: its {member} is larger than {MAX_METADATA_BYTES >> 20} MiB"
                )
            return archive.read(members[0])
    except DAMAGED_ARCHIVE as error:
        raise PackageIndexError(f"{filename}: it is not a readable wheel ({error})") from None


def _read_members(path: str, filename: str) -> dict[str, bytes]:
    """Return the files of a source distribution that tell what it requires.

    Returns:
        {"PKG-INFO", "pyproject.toml" or "requires.txt": content}, as far as it has them. The last
        one is the requirements that setuptools writes beside PKG-INFO.

    Raises:
        UnusableFileError: it is no readable archive.
    """
    contents: dict[str, bytes] = {}
    try:
        with open(path, "rb") as file:
            for member, size, read in archive_files(file, filename):
                folder, _, name = member.removeprefix("./").partition("/")
                if name.endswith(".egg-info/requires.txt"):
                    name = "requires.txt"
                is_one = name in ("PKG-INFO", "pyproject.toml", "requires.txt")
                if folder and is_one and size <= MAX_METADATA_BYTES and name not in contents:
                    contents[name] = read()
    except DAMAGED_ARCHIVE as error:
        raise _unusable(filename, "a readable archive", f"none ({error})") from None
    return contents


def _stated(content: bytes, files: Mapping[str, bytes]) -> bytes:
    """Return a PKG-INFO with the requirements that setuptools wrote beside it.

    Old releases of setuptools write these into requires.txt only: sections are [extra:marker].
    """
    if b"\nRequires-Dist:" in content:
        return content
    lines, extra, marker = [], "", ""
    for text in files.get("requires.txt", b"").decode(errors="replace").splitlines():
        line = text.strip()
        if line.startswith("["):
            extra, _, marker = line.strip("[]").partition(":")
        elif line:
            parts = [f"({marker})"] * bool(marker) + [f'extra == "{extra}"'] * bool(extra)
            lines.append(f"Requires-Dist: {line}" + (f"; {' and '.join(parts)}" if parts else ""))
    return "".join(f"{line}\n" for line in lines).encode() + content


def _framework_of_build(name: str, files: Mapping[str, bytes]) -> Requirement:
    """Return what the build of a project requires of the framework that it compiles code for."""
    with suppress(ValueError, InputError, AttributeError, TypeError):
        text = files.get("pyproject.toml", b"").decode()
        for line in parse_toml(text).get("build-system", {}).get("requires", ()):
            requirement = parse_requirement(line)
            if requirement.name == name and not requirement.url:
                return requirement.replace(marker=None)
    return Requirement(name=name)


def _distribution_of(module: str) -> str:
    """Return the distribution that has a module, as far as it has the name or is a framework's."""
    for framework in compatibility_data().all_frameworks():
        if module == framework.import_name:
            return framework.distribution
    return normalize_name(module) if module else ""


def _built_with(metadata: Metadata, framework: Requirement | None) -> Metadata:
    """Return metadata with a package that must be installed before the file can be built."""
    if framework is None:
        return metadata
    required = {need.name for need in metadata.dependencies if need.marker is None}
    needs = () if framework.name in required and not framework.specifier else (framework,)
    return metadata.replace(
        dependencies=(*metadata.dependencies, *needs), built_with=framework.name
    )


def _suffix(url: str) -> str:
    """Return how the file name of the archive of a source tree ends."""
    return ".zip" if urlsplit(url).path.endswith(".zip") else ".tar.gz"


# ---- fields --------------------------------------------------------------------------------------


def _header_fields(content: bytes) -> tuple[RawMetadata, dict[str, list[str]]]:
    """Return the fields of METADATA or PKG-INFO, and those that packaging does not know."""
    from packaging.metadata import parse_email  # a solve from the snapshot reads no such file

    return parse_email(content)


def parse_metadata(content: bytes, wheel: Wheel) -> Metadata:
    """Return the metadata in METADATA or PKG-INFO, after a check of the name and the version.

    pip checks these, too.

    Raises:
        PackageIndexError: it is no metadata.
        UnusableFileError: it is the metadata of another release, or a requirement cannot be read.
    """
    fields, unreadable = _header_fields(content)
    name, version = fields.get("name", ""), fields.get("version", "")
    is_same = not name or normalize_name(name) == wheel.name
    if not is_same or (version and not may_describe_itself_as(wheel.version, version)):
        need = f"metadata of {wheel.name} {wheel.version}"
        raise _unusable(wheel.filename, need, f"metadata of {name} {version}")
    if not name and "metadata_version" not in fields:
        raise PackageIndexError(
            f"{wheel.filename}: what its index serves as its metadata is not metadata"
        )
    dependencies = []
    texts = [*fields.get("requires_dist", ()), *unreadable.get("requires-dist", ())]
    for text in texts:
        # packaging does not know the markers about the variant of a wheel (PEP 825).
        plain, variant_marker = split_variant_marker(text)
        try:
            try:
                requirement = parse_requirement(plain)
            except InputError:
                requirement = parse_requirement(repair_specifiers(plain))
        except InputError:
            have = f"the unreadable requirement {shortened(text)}"
            raise _unusable(wheel.filename, "readable requirements", have, "PEP 508") from None
        if variant_marker is not None:
            requirement = requirement.replace(marker=variant_marker)
        dependencies.append(requirement)
    return Metadata(
        dependencies=tuple(dependencies),
        requires_python=parse_requires_python(fields.get("requires_python")),
    )


def _why_dynamic(content: bytes) -> str:
    """Return why a wheel built from an sdist may not have the dependencies of its PKG-INFO.

    That is: fields that matter are dynamic, or its version of the metadata does not say which
    fields are (PEP 643). "" if the PKG-INFO is as good as the metadata of a wheel.
    """
    fields, _ = _header_fields(content)
    dynamic = {field.strip().lower() for field in fields.get("dynamic", ())} & _RELEVANT_FIELDS
    if dynamic:
        return f"it has dynamic {', '.join(sorted(dynamic))}"
    version = fields.get("metadata_version", "")
    try:
        is_static = Version(version) >= _STATIC_METADATA
    except ValueError:
        is_static = False
    return "" if is_static else f"its metadata is of version {version or 'unknown'}"


# ---- range requests ------------------------------------------------------------------------------


class NoRangesError(Exception):
    """The server does not answer range requests as RFC 9110 requires."""


class RemoteFile(io.RawIOBase):
    """A wheel on a server as a seekable file. Keeps the block that was read last.

    Raises NoRangesError if the server does not support range requests.
    """

    def __init__(self, transport: Transport, wheel: Wheel, block: int = BLOCK) -> None:
        """Read the end of a wheel. A request is for `block` bytes or more."""
        super().__init__()
        self._transport, self._wheel, self._size = transport, wheel, block
        self._position = 0
        self._block_start, self._block = 0, b""
        # Not every server knows "the last N bytes"; with a known size it is not needed.
        if wheel.size:
            self.length = self._read_block(max(0, wheel.size - BLOCK), wheel.size - 1)
        else:
            self.length = self._read_block(None, BLOCK)  # bytes of the whole file

    def _read_block(self, first: int | None, last: int) -> int:
        """Request a block. Return the bytes of the whole file."""
        filename = self._wheel.filename
        reply = self._transport.get_range(self._wheel.url, filename, first, last)
        if reply.status in GONE:
            raise PackageIndexError(
                f"{filename}: the index lists it, but {redact_url(self._wheel.url)} "
                f"answered with status {reply.status}"
            )
        content_range = re.fullmatch(_CONTENT_RANGE, reply.headers.get("content-range", ""))
        if reply.status != PARTIAL or content_range is None:
            raise NoRangesError
        start, end, length = map(int, content_range.groups())
        if len(reply.body) != end - start + 1 or end >= length:
            raise NoRangesError
        self._block_start, self._block = start, reply.body
        return length

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        origins = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.length}
        self._position = max(0, origins[whence] + offset)
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        end = self.length
        if size >= 0:
            end = min(end, self._position + size)
        if end <= self._position:
            return b""
        block_end = self._block_start + len(self._block)
        if not self._block_start <= self._position <= end <= block_end:
            last = min(max(end, self._position + self._size), self.length) - 1
            length = self._read_block(self._position, last)
            if length != self.length or self._block_start != self._position:
                raise NoRangesError
        start = self._position - self._block_start
        data = self._block[start : end - self._block_start]
        self._position += len(data)
        return data


def open_wheel(wheel: Wheel, transport: Transport, progress: Callable[[str], None]) -> BinaryIO:
    """Open a wheel by range requests, or as a whole if its server has none.

    Raises:
        PackageIndexError: it could not be read, or has another sha256 than the index says.
    """
    if wheel.is_local:
        return open(file_url_to_path(wheel.url), "rb")
    try:
        return RemoteFile(transport, wheel, WHEEL_BLOCK)  # type: ignore[return-value]
    except NoRangesError:
        pass
    progress(f"{wheel.filename}: the server has no ranges: downloading the whole file")
    file = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
    _, digest = transport.download(wheel.url, wheel.filename, file, wheel.size)
    if digest != wheel.sha256:
        file.close()
        raise PackageIndexError(f"the download has sha256 {digest}, the index {wheel.sha256}")
    file.seek(0)
    return file
