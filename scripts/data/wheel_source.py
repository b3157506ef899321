"""Open wheels for scan_wheel.py: files on disk, and files at a URL by range requests."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, TypeVar

import requests

from data.device_code import DamagedFileError
from data.registry import RangeFile

CHUNK = 1 << 20
PIECE = (
    1 << 16
)  # of what comes over a connection; where it breaks, the piece that was coming is lost
ATTEMPTS = 5
PAUSE = 2.0  # seconds before the second attempt; each time twice as long
BUSY = (429, 500, 502, 503, 504)
BROKEN = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
Result = TypeVar("Result")


class RangesIgnoredError(DamagedFileError):
    """A file store sends the whole file where a part is asked for."""


def ask(session: requests.Session, url: str, wanted: str = "") -> requests.Response:
    """Return the response for a range ("bytes=0-9") or the whole file. Its body is not read yet."""
    headers = {"Accept-Encoding": "identity", **({"Range": wanted} if wanted else {})}
    reply = session.get(url, headers=headers, timeout=120, stream=True)
    if reply.status_code in BUSY:
        reply.close()
        raise requests.ConnectionError(f"the file store answers {reply.status_code} {reply.reason}")
    reply.raise_for_status()
    if wanted and reply.status_code != requests.codes.partial_content:
        reply.close()
        raise RangesIgnoredError("the file store ignores ranges")
    return reply


def retried(call: Callable[[], Result]) -> Result:
    """Return the result of `call`. Try again if the connection breaks."""
    for failures in range(ATTEMPTS - 1):
        try:
            return call()
        except BROKEN:
            time.sleep(PAUSE * 2**failures)
    return call()


class RemoteWheel(RangeFile):
    """A wheel at a URL, read by ranges. RangesIgnoredError if its store has none."""

    def _get(self, wanted: str) -> requests.Response:
        def get() -> requests.Response:
            with ask(self.session, self.url, wanted) as reply:
                sent = reply.headers.get("Content-Range", "")
                match = re.fullmatch(r"bytes (\d+)-(\d+)/\d+", sent)
                # The content is read here, where a broken connection is met.
                if not match or len(reply.content) != int(match[2]) - int(match[1]) + 1:
                    raise DamagedFileError(
                        f"the file store sent {len(reply.content)} bytes and calls them {sent!r}"
                    )
                return reply

        return retried(get)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Seek as files do: the error tells zipfile that the file is too short for a directory."""
        if whence == os.SEEK_END and self.size + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return super().seek(offset, whence)

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from start to end. Continue a broken connection where it broke."""
        failures = 0
        while start < end:
            try:
                with ask(self.session, self.url, f"bytes={start}-{end - 1}") as reply:
                    sent = reply.headers.get("Content-Range", "")
                    if not (sent.startswith(f"bytes {start}-") and sent.endswith(f"/{self.size}")):
                        raise DamagedFileError(
                            f"the file store sent {sent!r} where byte {start} was asked for"
                        )
                    for chunk in reply.iter_content(PIECE):
                        wanted = chunk[: end - start]
                        failures, start = 0, start + len(wanted)
                        yield wanted
                if start < end:
                    raise requests.ConnectionError(f"the connection ended at byte {start} of {end}")
            except BROKEN:
                failures += 1
                if failures == ATTEMPTS:
                    raise
                time.sleep(PAUSE * 2 ** (failures - 1))

    def close(self) -> None:
        """End the connections."""
        self.session.close()
        super().close()


class LocalWheel:
    """A wheel on disk, read as a remote one is."""

    def __init__(self, file: IO[bytes]) -> None:
        """Take an open file, which is closed with the wheel."""
        self.file = file
        self.size = file.seek(0, os.SEEK_END)

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from start to end."""
        self.file.seek(start)
        while start < end and (chunk := self.file.read(min(CHUNK, end - start))):
            start += len(chunk)
            yield chunk

    def sha256(self) -> str:
        """Return the hash of the whole file."""
        digest = hashlib.sha256()
        for chunk in self.stream(0, self.size):
            digest.update(chunk)
        return digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def download(session: requests.Session, url: str, sha256: str) -> LocalWheel:
    """Download a whole file from a store that ignores ranges.

    The file is on disk until it is closed. DamagedFileError if its hash is wrong.
    """

    def get() -> LocalWheel:
        file = tempfile.TemporaryFile()  # noqa: SIM115  - it lives as long as the scan
        try:
            with ask(session, url) as reply:
                for chunk in reply.iter_content(PIECE):
                    file.write(chunk)
            wheel = LocalWheel(file)
            if (actual := wheel.sha256()) != sha256:
                raise DamagedFileError(f"its sha256 is {actual}, not {sha256}")
            return wheel
        except BaseException:
            file.close()
            raise

    return retried(get)
