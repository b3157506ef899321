"""Endless responses, files and outputs all end in time, with one line and without a traceback.

tests/data/limits.toml has the cases.
"""

import gzip
import io
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from gpuenv.cli.output import print_errors
from gpuenv.errors import PackageIndexError
from gpuenv.index import http
from gpuenv.index.http import describe_failure, refuse_insecure_redirect
from gpuenv.render.text import Line, visible
from processes import run_program
from tables import ROOT, cases, data_file, each
from test_cli import contents, run

CASES = data_file("limits.toml")
BLOCK = b"x" * (1 << 16)
PAUSE = 0.05  # seconds between two bytes


class Hostile(BaseHTTPRequestHandler):
    """Sends responses without an end. The path chooses the kind."""

    protocol_version = "HTTP/1.1"
    stopped = threading.Event()

    def log_message(self, format, *args):
        """Say nothing."""

    def do_GET(self):
        self.close_connection = True
        try:
            getattr(self, self.path.strip("/").replace("-", "_"))()
        except OSError:  # the client closed the connection
            pass

    def _begin(self, status=200, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": "text/html", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _repeat(self, data):
        while not self.stopped.wait(PAUSE):
            self.wfile.write(data)

    def drip(self):
        self._begin(Content_Length="1000000")
        self._repeat(b"x")

    def drip_head(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        self._repeat(b"X")

    def drip_chunks(self):
        self._begin(206, Transfer_Encoding="chunked", Content_Range="bytes 0-65535/100000")
        self._repeat(b"1\r\nx\r\n")

    def endless(self):
        self._begin(206 if "Range" in self.headers else 200)
        while True:
            self.wfile.write(BLOCK)

    def bomb(self):
        body = gzip.compress(gzip.compress(b"0" * 1_000_000))
        self._begin(Content_Encoding="gzip, gzip", Content_Length=str(len(body)))
        self.wfile.write(body)

    def loop(self):
        self._begin(302, Location=self.path, Content_Length="0")


@pytest.fixture(scope="module")
def hostile():
    """Yield the URL of the server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        Hostile.stopped.set()
        server.shutdown()
        thread.join()


def receive(transport, method, url):
    if method == "get":
        return transport.get(url, "it")
    if method == "get_range":
        return transport.get_range(url, "it", None, 65536)
    sink = io.BytesIO(b"the begin" if method == "resume" else b"")
    return transport.download(url, "it", sink)[0]


@each("case", CASES["server"], ids=lambda case: f"{case['mode']}-{case['method']}")
def test_a_response_without_end(case, hostile, transport, monkeypatch):
    monkeypatch.setattr(http, "PAGE_TIMEOUT", 1.0)
    monkeypatch.setattr(http, "MAX_PAGE_BYTES", 300_000)
    monkeypatch.setattr(http, "MAX_FILE_BYTES", 300_000)
    url = f"{hostile}/{case['mode']}"
    if "bytes" in case:
        low, high = case["bytes"]
        assert low <= len(receive(transport, case["method"], url).body) <= high
        return
    with pytest.raises(PackageIndexError) as error:
        receive(transport, case["method"], url)
    assert case["says"] in error.value.message


def test_a_file_that_is_longer_than_the_index_says(hostile, transport):
    sink = io.BytesIO()
    with pytest.raises(PackageIndexError, match="sent more than 100000 bytes"):
        transport.download(f"{hostile}/endless", "it", sink, 100_000)
    assert len(sink.getvalue()) <= 100_000


def test_a_part_that_is_too_large_is_not_requested(hostile, transport):
    with pytest.raises(PackageIndexError, match="more than 64 MiB"):
        transport.get_range(f"{hostile}/endless", "it", 0, 99999999999)


def test_a_handshake_that_fails_is_tried_again():
    error = requests.exceptions.SSLError("TLSV1_ALERT_DECODE_ERROR")
    problem, may_help = describe_failure(error, (1, 1))
    assert problem.startswith("failed in the TLS handshake") and may_help


@each("location", ["http://host.example/x", "//host.example/x", "/x", "file:///x"])
def test_a_redirect_from_https(location):
    response = requests.Response()
    response.status_code, response.url = 302, "https://host.example/simple/"
    response.headers["location"] = location
    if location.startswith(("/", "https")):
        refuse_insecure_redirect(response)
        return
    with pytest.raises(Exception, match="redirects from https to another scheme"):
        refuse_insecure_redirect(response)


def write(case, folder):
    file = case["file"]
    path = folder / file["name"]
    if file.get("pipe"):
        os.mkfifo(path)
        return
    text = file.get("before", "") + file["repeat"] * file["times"] + file.get("after", "")
    path.write_text(text)


@cases(CASES["input"])
def test_an_input_without_end(case, tmp_path, monkeypatch):
    monkeypatch.setattr("gpuenv.serialize.MAX_INPUT_BYTES", 1 << 20)
    monkeypatch.setattr("gpuenv.serialize._WRITER_SECONDS", 0.05)
    folder = tmp_path / "work"
    folder.mkdir()
    if "file" in case:
        write(case, folder)
    before = contents(folder)
    command = case["command"].replace("{digits}", "9" * 5000).replace("{folder}", str(folder))
    lines = run(command, folder, status=2).stderr.splitlines()
    assert len(lines) == 1
    assert case["says"] in lines[0] and lines[0].isprintable() and len(lines[0]) < 10_500
    assert contents(folder) == before


@each("case", CASES["output"], ids=lambda case: str(case["shell"]))
def test_outputs_that_take_nothing(case, tmp_path):
    command = case["shell"].replace("{gpuenv}", f"{sys.executable} -m gpuenv")
    done = run_program(
        ["/bin/bash", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "resolver")},
        timeout=60,
        status=case["status"],
    )
    assert case.get("says", "") in done.stderr
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr


def test_control_characters_are_visible(capsys):
    print_errors("a\x1b[2J")
    assert capsys.readouterr().err == "a\\x1b[2J\n"
    line = Line("a\x1b[2J\u202eb\r", "bad", marked=1)
    assert visible(line) == "a\\x1b[2J\\u202eb\\r"
    assert isinstance(visible(line), Line)
    assert visible("a\tb") == "a\tb"
    assert len(visible("x" * 100_000)) < 11_000
