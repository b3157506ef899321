"""HTTP for the index modules: time-outs, retries, credentials and one kind of error."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, TypeVar
from urllib.parse import urlsplit

from .. import activity
from ..errors import PackageIndexError
from ..model import Value
from .urls import redact_url, split_credentials

if TYPE_CHECKING:  # a solve that needs no network does not load requests
    import requests

MAX_TRIES = 3
BACK_OFF = 0.2  # seconds before the second try; doubled before each later one
MAX_RETRY_AFTER = 30.0  # seconds that a Retry-After header can delay a retry
CONNECT_TIMEOUT, READ_TIMEOUT = 10.0, 30.0  # seconds
PAGE_TIMEOUT = 120.0  # seconds for a whole response; a file gets more for the data that arrives
MIN_SPEED = 16 << 10  # bytes per second that a file must reach after PAGE_TIMEOUT seconds
MAX_PAGE_BYTES = 256 << 20  # far above the largest page of any index
MAX_RANGE_BYTES = 64 << 20
MAX_FILE_BYTES = 256 << 20  # limit for a file whose size neither the index nor the server states

OK, PARTIAL, NOT_MODIFIED, UNAUTHORIZED, FORBIDDEN = 200, 206, 304, 401, 403
UNSATISFIABLE = 416
GONE = (404, 410)

_T = TypeVar("_T")
_CHUNK = 1 << 16
_DOWNLOAD_CHUNK = 1 << 20
_RETRY_STATUSES = frozenset({429, 500, 502, 503, 504})
_HINT = "check the URL and the network; with --offline, a solve uses the snapshot and the cache"


class Reply(Value):
    """A response: `headers` have lower-case names; `url` is the one after redirects."""

    status: int
    headers: Mapping[str, str]
    url: str
    body: bytes = b""


class Transport:
    """One pool of connections, shared by all threads and indexes.

    Args:
        connect: seconds to wait for a connection.
        read: seconds to wait for data.
        cert: path of a CA bundle, used unless REQUESTS_CA_BUNDLE names one.
    """

    def __init__(
        self,
        *,
        connect: float = CONNECT_TIMEOUT,
        read: float = READ_TIMEOUT,
        cert: str | None = None,
    ) -> None:
        self.timeout = (connect, read)
        self._cert = cert
        self._lock = threading.Lock()
        self._session: requests.Session | None = None
        self._credentials: list[tuple[str, tuple[str, str]]] = []  # (base URL, (user, password))

    def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def __enter__(self) -> Transport:
        """Return the transport itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def login(self, url: str) -> str:
        """Store the credentials of a URL, to send them to its host. Return the URL without them."""
        bare, credentials = split_credentials(url)
        if credentials is not None and (bare, credentials) not in self._credentials:
            self._credentials.append((bare, credentials))
        return bare

    def get(self, url: str, subject: str, headers: Mapping[str, str] | None = None) -> Reply:
        """Send a GET request and read the whole body.

        Args:
            url: what to request.
            subject: the start of error messages.
            headers: additional request headers.

        Returns:
            The reply with any status, except those that are retried (429 and some 5xx).

        Raises:
            PackageIndexError: there is no complete response.
        """

        def request() -> Reply:
            with self._send(url, headers or {}) as response:
                return _reply(response, _read_page(response))

        return self._with_retries(url, subject, request)

    def download(
        self, url: str, subject: str, sink: BinaryIO, size: int | None = None
    ) -> tuple[Reply, str]:
        """Write the body of a response to `sink`, from its start.

        Args:
            url: what to request.
            subject: the start of error messages.
            sink: an open file.
            size: the size of the file in bytes, if it is known.

        Returns:
            The reply without its body, and the sha256 of the body.

        Raises:
            PackageIndexError: there is no complete response.
        """

        def request() -> tuple[Reply, str]:
            sink.seek(0)
            sink.truncate()
            digest = hashlib.sha256()
            with self._send(url, {"Accept-Encoding": "identity"}, MIN_SPEED) as response:
                for chunk in _read_file(response, size):
                    digest.update(chunk)
                    sink.write(chunk)
                return _reply(response), digest.hexdigest()

        return self._with_retries(url, subject, request)

    def resume(self, url: str, subject: str, sink: BinaryIO, size: int | None = None) -> Reply:
        """Write the part of a body that `sink` does not have yet, or the whole body.

        Args: see `download`.

        Returns:
            The reply without its body; 206 if what `sink` had was kept.

        Raises:
            PackageIndexError: there is no complete response; what has arrived is in `sink`.
        """

        def request() -> Reply:
            start = sink.seek(0, os.SEEK_END)
            headers = {"Accept-Encoding": "identity"}
            if start:
                headers["Range"] = f"bytes={start}-"
            with self._send(url, headers, MIN_SPEED) as response:
                span = response.headers.get("Content-Range", "")
                if response.status_code != PARTIAL or not span.startswith(f"bytes {start}-"):
                    start = 0
                    sink.seek(0)
                    sink.truncate()
                if response.status_code == UNSATISFIABLE:
                    raise _RetryableError("has no more of the file", None)
                for chunk in _read_file(response, None if size is None else size - start):
                    sink.write(chunk)
                return _reply(response)

        return self._with_retries(url, subject, request)

    def get_range(self, url: str, subject: str, span: str) -> Reply:
        """Send a GET request with `Range: bytes=<span>`.

        Returns:
            The reply. It has a body if its status is 206 (PARTIAL); otherwise none was read.

        Raises:
            PackageIndexError: there is no complete response.
        """

        def request() -> Reply:
            headers = {"Accept-Encoding": "identity", "Range": f"bytes={span}"}
            with self._send(url, headers) as response:
                if response.status_code != PARTIAL:
                    return _reply(response)
                return _reply(response, _read_range(response, wanted))

        wanted = _range_length(span)
        if wanted > MAX_RANGE_BYTES:
            message = f"{subject}: its metadata needs more than {MAX_RANGE_BYTES >> 20} MiB of it"
            raise PackageIndexError(message, url=redact_url(url))
        return self._with_retries(url, subject, request)

    def _send(
        self, url: str, headers: Mapping[str, str], speed: float | None = None
    ) -> requests.Response:
        """Send a GET request. The whole response must arrive in time; see `set_time_limit`."""
        activity.current.note_request(_last_part(url))
        session = self._get_session()
        from .http_session import set_time_limit

        set_time_limit(PAGE_TIMEOUT, speed)
        response = session.get(
            url,
            headers=dict(headers),
            auth=self._find_credentials(url),
            timeout=self.timeout,
            stream=True,
        )
        if response.status_code in _RETRY_STATUSES:
            response.close()
            delay = _parse_retry_after(response.headers.get("Retry-After"))
            raise _RetryableError(f"answered with status {response.status_code}", delay)
        return response

    def _get_session(self) -> requests.Session:
        with self._lock:
            if self._session is None:
                from .http_session import open_session

                self._session = open_session(self._cert)
            return self._session

    def _find_credentials(self, url: str) -> tuple[str, str] | None:
        """Return the stored credentials for the same scheme, host and port.

        Several paths of one host can have credentials: a base URL that the URL starts with is
        preferred, then the longest base URL.
        """
        origin = urlsplit(url)[:2]
        best: tuple[bool, int] | None = None
        credentials: tuple[str, str] | None = None
        for base, known in self._credentials:
            closeness = (url.startswith(base), len(base))
            if urlsplit(base)[:2] == origin and (best is None or closeness > best):
                best, credentials = closeness, known
        return credentials

    def _with_retries(self, url: str, subject: str, request: Callable[[], _T]) -> _T:
        """Call `request` up to MAX_TRIES times, while another try may help."""
        problem = ""
        for attempt in range(1, MAX_TRIES + 1):
            delay: float | None = None
            try:
                return request()
            except _FinalError as error:
                problem = str(error)
                break
            except _RetryableError as error:
                problem, delay = str(error), error.delay
            except OSError as error:  # those of requests, too
                from .http_session import describe_failure

                problem, retryable = describe_failure(error, self.timeout)
                if not retryable:
                    break
            if attempt < MAX_TRIES:
                time.sleep(_retry_delay(attempt, delay))
        shown = redact_url(url)
        raise PackageIndexError(f"{subject}: {shown} {problem}", hint=_HINT, url=shown)


class _RetryableError(Exception):
    """A response that asks for another try, `delay` seconds later if it names a time."""

    def __init__(self, problem: str, delay: float | None) -> None:
        super().__init__(problem)
        self.delay = delay


class _FinalError(Exception):
    """A failure that another try would not change."""


def _last_part(url: str) -> str:
    """Return what a request is about: the package of a page, or a file."""
    return url.partition("?")[0].partition("#")[0].rstrip("/").rpartition("/")[2]


def _retry_delay(attempt: int, requested: float | None) -> float:
    """Return the seconds to wait after a failed try; `requested` is what Retry-After asks for."""
    if requested is not None:
        return min(requested, MAX_RETRY_AFTER)
    import random  # heavy, and few requests are repeated

    jitter = 1 + random.random() / 2  # noqa: S311  spreads the load, hides nothing
    return BACK_OFF * 2.0 ** (attempt - 1) * jitter


def _read_page(response: requests.Response) -> bytes:
    """Read the body of a page. A body above the size limit is an error."""
    encoding = response.headers.get("Content-Encoding", "")
    if "," in encoding:  # 64 KiB could expand to gigabytes
        raise _FinalError("sent a response that is compressed several times")
    body = BytesIO()  # getvalue() shares the buffer: no second copy of megabytes
    for chunk in response.iter_content(_CHUNK):
        body.write(chunk)
        if body.tell() > MAX_PAGE_BYTES:
            raise _FinalError(f"sent more than {MAX_PAGE_BYTES >> 20} MiB")
    return body.getvalue()


def _read_file(response: requests.Response, size: int | None) -> Iterator[bytes]:
    """Yield the body of a file. A body that is longer than `size` is an error.

    Args:
        response: the response.
        size: the number of bytes; None means Content-Length, which the HTTP client enforces.
    """
    if response.status_code not in (OK, PARTIAL):
        return
    if size is None and "Content-Length" not in response.headers:
        size = MAX_FILE_BYTES
    received = 0
    for chunk in response.iter_content(_DOWNLOAD_CHUNK):
        received += len(chunk)
        if size is not None and received > size:
            raise _FinalError(f"sent more than {size} bytes")
        yield chunk


def _read_range(response: requests.Response, wanted: int) -> bytes:
    """Read a part of a file. A result longer than `wanted` shows that the server sent too much."""
    body = BytesIO()
    for chunk in response.iter_content(_CHUNK):
        body.write(chunk)
        if body.tell() > wanted:
            break
    return body.getvalue()


def _range_length(span: str) -> int:
    """Return how many bytes "FIRST-LAST" or "-LENGTH" requests."""
    first, _, last = span.rpartition("-")
    return int(last) - int(first) + 1 if first else int(last)


def _reply(response: requests.Response, body: bytes = b"") -> Reply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    url = split_credentials(response.url)[0]
    return Reply(status=response.status_code, headers=headers, url=url, body=body)


def _parse_retry_after(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date (RFC 9110, 10.2.3)."""
    if not text:
        return None
    if text.strip().isdigit():
        return float(text)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None
