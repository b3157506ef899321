"""HTTP for the index modules: time-outs, retries, credentials and one kind of error.

`requests` reads proxies, ~/.netrc and REQUESTS_CA_BUNDLE from the environment. Where the latter is
not set, the CA bundle that pip is configured with or SSL_CERT_FILE is used.
"""

from __future__ import annotations

import hashlib
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, TypeVar
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import DEFAULT_CA_BUNDLE_PATH, HTTPAdapter
from urllib3.util.ssl_ import create_urllib3_context

from ..errors import PackageIndexError
from ..model import Value
from .urls import redact_url, split_credentials

if TYPE_CHECKING:  # these types exist in the stubs only
    from requests.adapters import _HostParams, _PoolKwargs

MAX_TRIES = 3
BACK_OFF = 0.2  # seconds before the second try; doubled before each later one
MAX_RETRY_AFTER = 30.0  # seconds that a Retry-After header can delay a retry
CONNECT_TIMEOUT, READ_TIMEOUT = 10.0, 30.0  # seconds
PAGE_TIMEOUT = 120.0  # seconds for a whole page; a wheel has no limit as long as data arrives
MAX_PAGE_BYTES = 256 << 20  # far above the largest page of any index

OK, PARTIAL, NOT_MODIFIED, UNAUTHORIZED, FORBIDDEN = 200, 206, 304, 401, 403
GONE = (404, 410)

_T = TypeVar("_T")
_CHUNK = 1 << 16
_DOWNLOAD_CHUNK = 1 << 20
_RETRY_STATUSES = frozenset({429, 500, 502, 503, 504})
_HOSTS, _CONNECTIONS_PER_HOST = 8, 32
_HINT = "check the URL and the network, or use --offline to solve from the snapshot and the cache"


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

    def download(self, url: str, subject: str, sink: BinaryIO) -> tuple[Reply, str]:
        """Write the body of a response to `sink`, from its start.

        Returns:
            The reply without its body, and the sha256 of the body.

        Raises:
            PackageIndexError: there is no complete response.
        """

        def request() -> tuple[Reply, str]:
            sink.seek(0)
            sink.truncate()
            digest = hashlib.sha256()
            with self._send(url, {"Accept-Encoding": "identity"}) as response:
                for chunk in response.iter_content(_DOWNLOAD_CHUNK):
                    digest.update(chunk)
                    sink.write(chunk)
                return _reply(response), digest.hexdigest()

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
                return _reply(response, response.content)

        return self._with_retries(url, subject, request)

    def _send(self, url: str, headers: Mapping[str, str]) -> requests.Response:
        response = self._get_session().get(
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
                self._session = requests.Session()
                for scheme in ("http://", "https://"):
                    self._session.mount(scheme, _SharedContextAdapter())
                self._session.headers["User-Agent"] = "gpuenv"
                # requests prefers REQUESTS_CA_BUNDLE to this setting.
                self._session.verify = self._cert or os.environ.get("SSL_CERT_FILE") or True
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
            except (requests.RequestException, OSError) as error:
                problem, retryable = _describe_failure(error, self.timeout)
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


def _retry_delay(attempt: int, requested: float | None) -> float:
    """Return the seconds to wait after a failed try; `requested` is what Retry-After asks for."""
    if requested is not None:
        return min(requested, MAX_RETRY_AFTER)
    jitter = 1 + random.random() / 2  # noqa: S311  spreads the load, hides nothing
    return BACK_OFF * 2.0 ** (attempt - 1) * jitter


def _read_page(response: requests.Response) -> bytes:
    """Read the body of a page, within the limits of size and time."""
    deadline = time.monotonic() + PAGE_TIMEOUT
    body = BytesIO()  # getvalue() shares the buffer: no second copy of megabytes
    for chunk in response.iter_content(_CHUNK):
        body.write(chunk)
        if body.tell() > MAX_PAGE_BYTES:
            raise _FinalError(f"sent more than {MAX_PAGE_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise _FinalError(f"sent no complete response within {PAGE_TIMEOUT:.0f} s")
    return body.getvalue()


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
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


# ---- failures ------------------------------------------------------------------------------------


def _describe_failure(error: Exception, timeout: tuple[float, float]) -> tuple[str, bool]:
    """Return (what to tell the user, whether another try may help).

    Time-outs are not retried: they have waited long enough.
    """
    connect_timeout, read_timeout = timeout
    kinds = requests.exceptions
    causes = list(_causes(error))
    detail = _system_message(causes)
    if any(isinstance(c, (kinds.ReadTimeout, urllib3.exceptions.ReadTimeoutError)) for c in causes):
        problem, retryable = f"sent nothing for {read_timeout:g} s", False
    elif isinstance(error, kinds.ConnectTimeout):
        problem, retryable = f"accepted no connection within {connect_timeout:g} s", False
    elif isinstance(error, kinds.SSLError):
        verdict = _certificate_message(causes) or detail or "the TLS handshake failed"
        problem, retryable = f"cannot be trusted: {verdict}", False
    elif isinstance(error, kinds.ChunkedEncodingError):
        problem, retryable = "closed the connection before the response was complete", True
    elif isinstance(error, kinds.ContentDecodingError):
        problem, retryable = "sent a response that cannot be decoded", True
    elif isinstance(error, kinds.ProxyError):
        detail = detail or "it refused"
        problem, retryable = f"cannot be reached through the proxy ({detail})", True
    elif isinstance(error, kinds.ConnectionError):
        detail = detail or "the connection was closed without a response"
        problem, retryable = f"cannot be reached ({detail})", True
    elif isinstance(error, kinds.RequestException):
        problem, retryable = f"cannot be requested: {type(error).__name__}", False
    else:  # an OSError of the disk, or a missing CA bundle
        problem, retryable = f"cannot be requested: {' '.join(str(error).split())}", False
    return problem, retryable


def _system_message(causes: list[BaseException]) -> str:
    """Return the operating system's message of the innermost error, "" without one."""
    for cause in reversed(causes):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    return ""


def _certificate_message(causes: list[BaseException]) -> str:
    """Return why a certificate was refused, "" if that is not the reason."""
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_message:
            return cause.verify_message
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all errors that it wraps, outermost first.

    requests keeps them in `args`, urllib3 in `reason` and `__cause__`.
    """
    seen: set[int] = set()
    queue: list[object] = [error]
    while queue:
        cause = queue.pop(0)
        if not isinstance(cause, BaseException) or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        queue.extend(cause.args)
        if isinstance(cause, urllib3.exceptions.MaxRetryError):
            queue.append(cause.reason)
        queue.extend((cause.__cause__, cause.__context__))


# ---- TLS -----------------------------------------------------------------------------------------


class _SharedContextAdapter(HTTPAdapter):
    """An HTTPAdapter that reads a CA bundle once.

    requests reads it for each host, which takes 30 ms and a megabyte each time. Certificates are
    verified as HTTPAdapter does.
    """

    def __init__(self) -> None:
        super().__init__(pool_connections=_HOSTS, pool_maxsize=_CONNECTIONS_PER_HOST)
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._contexts_lock = threading.Lock()

    def build_connection_pool_key_attributes(
        self,
        request: requests.PreparedRequest,
        verify: bool | str,
        cert: str | tuple[str, str] | None = None,
    ) -> tuple[_HostParams, _PoolKwargs]:
        """Add the shared SSL context in place of the bundle's path."""
        host, pool = super().build_connection_pool_key_attributes(request, verify, cert)
        context = None
        if host["scheme"] == "https":
            context = self._context(verify)
        if context is not None:
            pool.pop("ca_certs", None)
            pool.pop("ca_cert_dir", None)
            pool["ssl_context"] = context
        return host, pool

    def cert_verify(
        self,
        conn: urllib3.HTTPConnectionPool,
        url: str,
        verify: bool | str,
        cert: str | tuple[str, str] | None,
    ) -> None:
        """Keep urllib3 from loading the bundle into the shared context again."""
        super().cert_verify(conn, url, verify, cert)  # type: ignore[no-untyped-call]
        if not isinstance(conn, urllib3.HTTPSConnectionPool):
            return
        if conn.conn_kw.get("ssl_context") is not None:
            conn.ca_certs = conn.ca_cert_dir = None

    def _context(self, verify: bool | str) -> ssl.SSLContext | None:
        """Return the context of a bundle (a file or a folder; True is the default one).

        None if the bundle does not exist: requests then raises the error.
        """
        path = DEFAULT_CA_BUNDLE_PATH if verify is True else verify
        if not isinstance(path, str) or not os.path.exists(path):
            return None
        with self._contexts_lock:
            if path not in self._contexts:
                context = create_urllib3_context()
                if os.path.isdir(path):
                    context.load_verify_locations(capath=path)
                else:
                    context.load_verify_locations(cafile=path)
                self._contexts[path] = context
            return self._contexts[path]
