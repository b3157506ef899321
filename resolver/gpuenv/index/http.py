"""HTTP for the index modules: limits of time and size, retries, credentials and one kind of error.

requests reads proxies, ~/.netrc and REQUESTS_CA_BUNDLE from the environment. Where the latter is
not set, the CA bundle that pip is configured with or SSL_CERT_FILE is used. CacheControl is not
used: it has no offline mode, and it stores pages as they were sent, while a solve needs few of the
releases of a page (see pages).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from urllib.parse import urljoin, urlsplit

from .. import activity
from ..errors import PackageIndexError, error_text
from ..model import Value
from .default_index import default_index
from .urls import redact_url, split_credentials

if TYPE_CHECKING:  # heavy, and a solve that needs no network does not use it
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
MAX_THREADS = 10  # requests at once; more need more than 200 MiB for large pages

OK, PARTIAL, NOT_MODIFIED, UNAUTHORIZED, FORBIDDEN = 200, 206, 304, 401, 403
UNSATISFIABLE = 416
GONE = (404, 410)

_T = TypeVar("_T")
_HOSTS = 8
_CHUNK = 1 << 16
_RETRY_STATUSES = frozenset({429, 500, 502, 503, 504})
_HINT = "check the URL and the network; with --offline, a solve uses the snapshot and the cache"


class Reply(Value):
    """A response: the names of `headers` have any case; `url` is the one after redirects."""

    status: int
    headers: Mapping[str, str]
    url: str
    body: bytes = b""


class _ResponseError(Exception):
    """A response that cannot be used. `delay` is the seconds until a retry; None for no retry."""

    def __init__(self, problem: str, delay: float | None = None) -> None:
        super().__init__(problem)
        self.delay = delay


class Transport:
    """One pool of connections, shared by all threads and indexes.

    Args:
        connect: seconds to wait for a connection.
        read: seconds to wait for data.
        tries: how often a request is sent. With one try, a host that cannot be reached is asked for
            nothing else.
    """

    def __init__(
        self,
        *,
        connect: float = CONNECT_TIMEOUT,
        read: float = READ_TIMEOUT,
        tries: int = MAX_TRIES,
    ) -> None:
        self.timeout = (connect, read)
        self._tries = tries
        self._unreachable: dict[str, str] = {}  # host -> why
        self._pool = ThreadPoolExecutor(MAX_THREADS)
        self._opening = Lock()
        self._session: requests.Session | None = None
        self._credentials: list[tuple[str, tuple[str, str]]] = []  # (base URL, (user, password))

    def close(self) -> None:
        """Close the connections."""
        self._pool.shutdown(wait=False)
        if self._session is not None:
            self._session.close()

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

    def credentials(self, url: str) -> tuple[str, str] | None:
        """Return the stored credentials for the same scheme, host and port.

        Several paths of one host can have credentials: a base URL that the URL starts with is
        preferred, then the longest base URL.
        """
        of_origin = [row for row in self._credentials if urlsplit(row[0])[:2] == urlsplit(url)[:2]]
        if not of_origin:
            return None
        return max(of_origin, key=lambda row: (url.startswith(row[0]), len(row[0])))[1]

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

        def read(response: requests.Response, end: float) -> Reply:
            if "," in response.headers.get("Content-Encoding", ""):
                # 64 KiB could expand to gigabytes
                raise _ResponseError("sent a response that is compressed several times")
            body = _body(response, end, MAX_PAGE_BYTES)
            if len(body) > MAX_PAGE_BYTES:
                raise _ResponseError(f"sent more than {MAX_PAGE_BYTES >> 20} MiB")
            return _reply(response, body)

        return self._request(url, subject, lambda: headers or {}, read)

    def get_range(self, url: str, subject: str, first: int | None, last: int) -> Reply:
        """Request the bytes of a file from `first` to `last`; the last ones without `first`.

        Returns:
            The reply. It has a body if its status is 206 (PARTIAL); otherwise none was read. A
            body that is longer than what was asked for was not read to its end.

        Raises:
            PackageIndexError: there is no complete response.
        """
        wanted = last if first is None else last - first + 1
        if wanted > MAX_RANGE_BYTES:
            message = f"{subject}: its metadata needs more than {MAX_RANGE_BYTES >> 20} MiB of it"
            raise PackageIndexError(message, url=redact_url(url))
        span = f"bytes={'' if first is None else first}-{last}"

        def read(response: requests.Response, end: float) -> Reply:
            is_partial = response.status_code == PARTIAL
            return _reply(response, _body(response, end, wanted) if is_partial else b"")

        headers = {"Accept-Encoding": "identity", "Range": span}
        return self._request(url, subject, lambda: headers, read)

    def download(
        self, url: str, subject: str, sink: BinaryIO, size: int | None = None
    ) -> tuple[Reply, str]:
        """Write a body to an open file: the part that the file does not have yet, or the whole.

        Args:
            url: what to request.
            subject: the start of error messages.
            sink: a file to read and write; what it has is kept if the server sends the rest.
            size: the size of the file in bytes, if it is known.

        Returns:
            The reply without its body, and the sha256 of all that the file has.

        Raises:
            PackageIndexError: there is no complete response; what has arrived is in `sink`.
        """
        start = 0

        def headers() -> Mapping[str, str]:
            nonlocal start
            start = sink.seek(0, os.SEEK_END)
            rest = {"Range": f"bytes={start}-"} if start else {}
            return {"Accept-Encoding": "identity", **rest}

        def read(response: requests.Response, end: float) -> Reply:
            span = response.headers.get("Content-Range", "")
            known = 0
            if response.status_code == PARTIAL and span.startswith(f"bytes {start}-"):
                known = start
            sink.seek(known)
            sink.truncate()
            if response.status_code == UNSATISFIABLE:
                raise _ResponseError("has no more of the file", BACK_OFF)
            if response.status_code not in (OK, PARTIAL):
                return _reply(response)
            most = size
            if most is None and "Content-Length" not in response.headers:
                most = MAX_FILE_BYTES
            for chunk in _chunks(response, end, MIN_SPEED):
                if most is not None and sink.tell() + len(chunk) > most:
                    raise _ResponseError(f"sent more than {most} bytes")
                sink.write(chunk)
            return _reply(response)

        reply = self._request(url, subject, headers, read)
        sink.seek(0)
        return reply, hashlib.file_digest(sink, "sha256").hexdigest()  # type: ignore[arg-type]

    def _request(
        self,
        url: str,
        subject: str,
        headers: Callable[[], Mapping[str, str]],
        read: Callable[[requests.Response, float], _T],
    ) -> _T:
        """Send a GET request up to `tries` times, while another try may help.

        Args:
            url: what to request.
            subject: the start of error messages.
            headers: returns the headers of a try.
            read: reads a response until a time of the monotonic clock.
        """
        import requests
        import urllib3

        with self._opening:
            if self._session is None:
                self._session = open_session()
        host = urlsplit(url).netloc
        problem = self._unreachable.get(host, "")
        for attempt in range(0 if problem else self._tries):
            end = time.monotonic() + PAGE_TIMEOUT
            activity.current.note_request(urlsplit(url).path.rstrip("/").rpartition("/")[2])
            try:
                with self._send(self._session, url, headers(), end) as response:
                    if response.status_code not in _RETRY_STATUSES:
                        return read(response, end)
                    retry_after = response.headers.get("Retry-After", "")
                    problem = f"answered with status {response.status_code}"
                    raise _ResponseError(problem, _retry_delay(attempt, retry_after))
            except _ResponseError as error:
                problem, delay = str(error), error.delay
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                problem, may_help = describe_failure(error, self.timeout)
                delay = _retry_delay(attempt) if may_help else None
                if self._tries == 1:
                    self._unreachable[host] = problem
            if delay is None:
                break
            if attempt + 1 < self._tries:
                time.sleep(delay)
        shown = redact_url(url)
        raise PackageIndexError(f"{subject}: {shown} {problem}", hint=_HINT, url=shown)

    def _send(
        self, session: requests.Session, url: str, headers: Mapping[str, str], end: float
    ) -> requests.Response:
        """Send a request. The headers must arrive in time, however slowly the server sends them.

        The time-outs of requests apply to each read, and a server can send single bytes for ever.
        So another thread waits for the headers.
        """
        future: Future[requests.Response] = self._pool.submit(
            session.get,
            url,
            headers=dict(headers),
            auth=self.credentials(url),
            timeout=self.timeout,
            stream=True,
        )
        try:
            return future.result(end - time.monotonic())
        except TimeoutError:
            raise _too_slow() from None


def open_session() -> requests.Session:
    """Return a session.

    Its connections share one TLS context: each would read the CA bundle again, which takes 10 ms of
    processor time.

    Raises:
        InputError: pip's configuration cannot be read.
        PackageIndexError: the CA bundle cannot be read.
    """
    import requests
    from requests.adapters import HTTPAdapter
    from requests.utils import DEFAULT_CA_BUNDLE_PATH
    from urllib3.util import create_urllib3_context

    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    bundle = bundle or default_index().cert or os.environ.get("SSL_CERT_FILE")
    bundle = bundle or DEFAULT_CA_BUNDLE_PATH
    context = create_urllib3_context()
    try:
        context.load_verify_locations(*((None, bundle) if os.path.isdir(bundle) else (bundle,)))
    except OSError as error:
        problem = f"the CA bundle {bundle} cannot be read: {error.strerror or error}"
        raise PackageIndexError(problem, hint="correct REQUESTS_CA_BUNDLE") from None

    class Adapter(HTTPAdapter):
        """Verifies servers by the context above."""

        def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
            super().init_poolmanager(*arguments, ssl_context=context, **options)

        def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
            options |= {"ssl_context": context, "proxy_ssl_context": context}
            return super().proxy_manager_for(proxy, **options)

        def cert_verify(self, conn: Any, *_: object) -> None:
            conn.cert_reqs = "CERT_REQUIRED"

    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, Adapter(_HOSTS, MAX_THREADS))
    session.headers["User-Agent"] = "gpuenv"
    session.hooks["response"].append(refuse_insecure_redirect)
    return session


def refuse_insecure_redirect(response: requests.Response, **_: object) -> None:
    """Refuse a redirect from https to another scheme, as a hook of requests."""
    target = response.headers.get("Location", "") if response.is_redirect else ""
    scheme = urlsplit(urljoin(response.url, target)).scheme
    if response.url.startswith("https:") and scheme != "https":
        raise _ResponseError("redirects from https to another scheme, which is not followed")


def _chunks(response: requests.Response, end: float, speed: float | None = None) -> Iterator[bytes]:
    """Yield the decoded body of a response as it arrives.

    Args:
        response: the response.
        end: when it must be complete, by the monotonic clock.
        speed: data that arrives with so many bytes per second extends the time; None: no data does.
    """
    while chunk := response.raw.read1(_CHUNK, decode_content=True):
        if speed:
            end += len(chunk) / speed
        if time.monotonic() > end:
            raise _too_slow()
        yield chunk


def _body(response: requests.Response, end: float, most: int) -> bytes:
    """Return the body of a response; of one with more than `most` bytes, a few more than these."""
    body = BytesIO()
    for chunk in _chunks(response, end):
        body.write(chunk)
        if body.tell() > most:
            break
    return body.getvalue()


def _too_slow() -> _ResponseError:
    return _ResponseError(f"sent no complete response within {PAGE_TIMEOUT:.0f} s")


def _reply(response: requests.Response, body: bytes = b"") -> Reply:
    url = split_credentials(response.url)[0]
    return Reply(status=response.status_code, headers=response.headers, url=url, body=body)


def _retry_delay(attempt: int, retry_after: str = "") -> float:
    """Return the seconds to wait after a failed try: what Retry-After asks for, within a limit."""
    import urllib3

    try:
        return min(urllib3.Retry().parse_retry_after(retry_after), MAX_RETRY_AFTER)
    except urllib3.exceptions.InvalidHeader:
        return BACK_OFF * 2.0**attempt


def describe_failure(error: Exception, timeout: tuple[float, float]) -> tuple[str, bool]:
    """Return (what to tell the user, whether another try may help).

    Time-outs are not retried: they have waited long enough.

    Args:
        error: an error of requests, of urllib3 or of the system.
        timeout: the seconds to wait for a connection and for data.
    """
    import requests
    import urllib3

    own, kinds = requests.exceptions, urllib3.exceptions
    causes = list(_causes(error))
    details = [cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror]
    detail = details[-1] if details else ""  # that of the operating system
    verdicts = [cause.verify_message for cause in causes if hasattr(cause, "verify_message")]
    may_help = False
    if any(isinstance(cause, (own.ReadTimeout, kinds.ReadTimeoutError)) for cause in causes):
        problem = f"sent nothing for {timeout[1]:g} s"
    elif isinstance(error, own.ConnectTimeout):
        problem = f"accepted no connection within {timeout[0]:g} s"
    elif verdicts:
        problem = f"cannot be trusted: {verdicts[0]}"
    elif isinstance(error, (own.SSLError, kinds.SSLError)):
        problem, may_help = f"failed in the TLS handshake ({detail or 'no reason'})", True
    elif isinstance(error, kinds.DecodeError):
        problem, may_help = "sent a response that cannot be decoded", True
    elif isinstance(error, kinds.ProtocolError):
        problem, may_help = "closed the connection before the response was complete", True
    elif isinstance(error, own.ProxyError):
        detail = detail or "it refused"
        problem, may_help = f"cannot be reached through the proxy ({detail})", True
    elif isinstance(error, own.ConnectionError):
        detail = detail or "the connection was closed without a response"
        problem, may_help = f"cannot be reached ({detail})", True
    elif isinstance(error, (own.RequestException, kinds.HTTPError)):
        problem = f"cannot be requested: {type(error).__name__}"
    else:  # an OSError of the disk, or a missing CA bundle
        problem = f"cannot be requested: {error_text(error)}"
    return problem, may_help


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all errors that it wraps, outermost first.

    requests keeps them in `args`, urllib3 in `reason` and `__cause__`.
    """
    seen: list[BaseException] = []
    queue: list[object] = [error]
    while queue:
        cause = queue.pop(0)
        if isinstance(cause, BaseException) and cause not in seen:
            seen.append(cause)
            yield cause
            reason = getattr(cause, "reason", None)
            queue.extend((*cause.args, reason, cause.__cause__, cause.__context__))
