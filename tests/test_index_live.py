"""The live index against a server on loopback: pages, dependencies, failures, cache, binding."""

import hashlib
import os
import shutil
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_wheels
from gpuenv.errors import GpuEnvError, InputError, OfflineError, PackageIndexError
from gpuenv.index.http import Transport
from gpuenv.index.metadata import parse_metadata
from gpuenv.index.multi_index import open_indexes
from gpuenv.index.pages import parse_page
from gpuenv.index.protocol import Metadata
from gpuenv.index.snapshot import Snapshot
from gpuenv.index.sources import FindLinks
from gpuenv.index.urls import redact_url, split_credentials
from gpuenv.model import IndexOptions, Python, Requirement, Wheel
from index_server import IndexServer, make_wheel
from indexes import combined_index, find_links, readers, simple_index, simple_source
from tables import data_file, each

TABLES = data_file("tables/index_live.json")

PAGES = data_file("index_pages.json")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setattr("gpuenv.index.http.BACK_OFF", 0.001)


# ---- pages ---------------------------------------------------------------------------------------


@each("case", PAGES, ids=lambda case: case["case"])
def test_pages_are_read_as_the_peps_say(case):
    body = case["body"].encode("latin-1" if case.get("latin") else "utf-8")
    if "error" in case:
        with pytest.raises(ValueError, match=case["error"]):
            parse_page(body, case["type"], case["url"])
        return
    found = parse_page(body, case["type"], case["url"])
    if case["rows"] is None:
        assert found is None
        return
    assert len(found.files()) == len(case["rows"])
    for row in case["rows"]:
        assert row in [{key: getattr(file, key) for key in row} for file in found.files()]


@each("style", ["json", "html", "plain"])
def test_wheels_come_newest_first_with_all_that_the_page_says(server, style, index_of):
    server.style = style
    server.add("demo", "1.9")
    newest = server.add(
        "demo",
        "1.10",
        requires_python=">=3.9",
        yanked="bad & worse",
        upload_time="2026-01-02T03:04:05Z",
    )
    server.add("demo", "1.10rc1")
    server.add("demo", "1.10", tag="cp312-cp312-win_amd64")
    server.add_file("demo", "demo-3.0.tar.gz")
    server.add_file("demo", "other-9.0-py3-none-any.whl")
    wheels = index_of().wheels("demo")
    assert [wheel.version for wheel in wheels] == ["1.10", "1.10", "1.10rc1", "1.9"]
    assert wheels[1] == Wheel(
        name="demo",
        version="1.10",
        filename=newest.filename,
        url=f"{server.base}/files/{newest.filename}",
        sha256=hashlib.sha256(newest.data).hexdigest(),
        size=len(newest.data) if style == "json" else None,
        requires_python=">=3.9",
        yanked="bad & worse",
        upload_time="2026-01-02T03:04:05Z",
        index=server.url,
        metadata=wheels[1].metadata,
    )
    assert server.paths() == ["/simple/demo/"]


def test_names_that_the_index_does_not_have(server, index_of):
    server.faults["/simple/bucket/"] = ["denied", "always"]
    index = index_of()
    for name in ("nothing", "bucket"):
        assert (index.has(name), index.wheels(name)) == (False, ())
    assert index.wheels("../escape") == ()
    assert server.paths() == ["/simple/nothing/", "/simple/bucket/", "/simple/-/escape/"]


# ---- dependencies --------------------------------------------------------------------------------

REQUIRES = (
    "Numpy>=1.26 ; python_version>='3.9'",
    "nvidia_cudnn.cu12[Extra_A, b] == 9.10.2.21",
    "x @ https://h.example/x",
)
EXPECTED = (
    Requirement(name="numpy", specifier=">=1.26", marker='python_version >= "3.9"'),
    Requirement(name="nvidia-cudnn-cu12", extras=("b", "extra-a"), specifier="==9.10.2.21"),
    Requirement(name="x", url="https://h.example/x"),
)


@each("way", TABLES["dependencies_are_found_with_the_least_traffic"])
def test_dependencies_are_found_with_the_least_traffic(server, way, index_of):
    server.metadata, server.ranges, server.sizes, padding, requests, most = way
    file = server.add("demo", "1.0", REQUIRES, padding=padding)
    (wheel,) = index_of().wheels("demo")
    before = server.sent
    assert index_of().dependencies(wheel) == EXPECTED
    assert server.paths()[1:] == [f"/files/{file.filename}{end}" for end in requests]
    assert server.sent - before <= most
    asked = len(server.asked)
    assert index_of(offline=True).dependencies(wheel) == EXPECTED  # kept by its hash
    assert len(server.asked) == asked


@each("part", [".metadata", ""], ids=["metadata file", "wheel"])
def test_a_wrong_hash_is_refused(server, cache, part, index_of):
    server.metadata, server.ranges = "hashed" if part else None, False
    file = server.add("demo", "1.0", REQUIRES)
    server.faults[f"/files/{file.filename}{part}"] = ["tampered", "always"]
    index = index_of()
    (wheel,) = index.wheels("demo")
    with pytest.raises(PackageIndexError) as caught:
        index.dependencies(wheel)
    expected = wheel.metadata if part else wheel.sha256
    assert (
        f"{file.filename}{part} of {server.url} has the wrong hash: "
        f"expected sha256 {expected}, got " in str(caught.value)
    )
    assert cache.get("metadata", wheel.sha256 or "", object) is None


@each("data message", TABLES["damaged"])
def test_damaged_wheels_are_named(server, index_of, data, message):
    """`data` is that of the file, or options of a wheel."""
    server.metadata = None
    data = make_wheel("demo", "1.0", **data)[1] if isinstance(data, dict) else data.encode()
    server.add_file("demo", "demo-1.0-py3-none-any.whl", data)
    index = index_of()
    with pytest.raises(PackageIndexError, match=r"^demo-1.0-py3-none-any.whl: ") as caught:
        index.dependencies(index.wheels("demo")[0])
    assert message in str(caught.value)


def test_requirements_of_old_wheels_are_read_as_they_were_meant():
    data = b"Metadata-Version: 2.1\nName: a\n"
    data += b"Requires-Dist: numpy (>=1.16.*)\nRequires-Dist: six (==1.*)\n"
    wheel = Wheel(name="a", version="1", filename="a.whl", url="", sha256=None)
    assert parse_metadata(data, wheel).dependencies == (
        Requirement(name="numpy", specifier=">=1.16"),
        Requirement(name="six", specifier="==1.*"),
    )


# ---- failures ------------------------------------------------------------------------------------

GOOD = "GOOD"


@each("case", TABLES["faults"])
def test_failures_are_tried_again_where_that_helps_and_said_in_one_line(server, case, index_of):
    faults, tries, outcome = case
    server.add("demo", "1.0")
    server.faults["/simple/demo/"] = list(faults)
    server.headers = {"Retry-After": "0"}
    index = index_of(url=server.url_with("me:hunter2"))
    if outcome == GOOD:
        assert [wheel.version for wheel in index.wheels("demo")] == ["1.0"]
    elif not outcome:
        assert index.wheels("demo") == ()
    else:
        with pytest.raises(PackageIndexError) as caught:
            index.wheels("demo")
        message = str(caught.value)
        assert message.startswith(f"index {server.url} failed for demo: {server.url}/demo/ ")
        assert outcome in message
        assert "\n" not in message
        assert "hunter2" not in message + caught.value.hint + repr(caught.value.context)
        with pytest.raises(PackageIndexError):  # remembered, not asked again
            index.wheels("demo")
    assert len(server.asked) == tries


def test_an_index_that_sends_nothing_is_asked_once(server, cache):
    server.add("demo", "1.0")
    server.faults["/simple/demo/"] = ["slow", "always"]
    refusal = pytest.raises(PackageIndexError, match=r"sent nothing for 0\.1 s")
    with Transport(read=0.1) as transport, refusal:
        simple_index(server.url, transport, cache).wheels("demo")
    assert len(server.asked) == 1


def test_a_dead_index(transport, cache):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/simple"
        with pytest.raises(PackageIndexError) as caught:
            simple_index(url, transport, cache).wheels("demo")
    assert (
        str(caught.value)
        == f"index {url} failed for demo: {url}/demo/ cannot be reached (Connection refused)"
    )


def test_redirects_that_lead_nowhere(server, index_of):
    server.faults["/simple/demo/"] = ["302", "always"]
    server.headers = {"Location": f"{server.url}/demo/"}
    with pytest.raises(PackageIndexError, match=r"cannot be requested: TooManyRedirects"):
        index_of().wheels("demo")


# ---- credentials ---------------------------------------------------------------------------------


def test_credentials_are_sent_and_kept_out_of_everything(server, cache, index_of):
    server.user = ("me@work", "p:w/d")
    server.metadata = None
    server.add("demo", "1.0", REQUIRES)
    index = index_of(url=server.url_with("me%40work:p%3Aw%2Fd"))
    (wheel,) = index.wheels("demo")
    assert index.dependencies(wheel) == EXPECTED
    assert wheel.index == server.url
    assert "work" not in repr(wheel)
    kept = b"".join(path.read_bytes() for path in Path(cache.folder).rglob("*") if path.is_file())
    assert kept
    assert not any(secret in kept for secret in (b"me@work", b"me%40", b"p:w/d", b"p%3A"))


def test_credentials_of_netrc(server, monkeypatch, tmp_path, index_of):
    server.user = ("joe", "secret")
    server.add("demo", "1.0")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login joe password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert len(index_of().wheels("demo")) == 1


def test_credentials_go_to_no_other_host(server, index_of):
    with IndexServer(metadata=None) as other:
        other.add("demo", "1.0", REQUIRES)
        page = other.answer("/simple/demo/")
        server.raw["/simple/demo/"] = (page[0], page[1].replace(b"../..", other.base.encode()))
        index = index_of(url=server.url_with("me:hunter2"))
        assert index.dependencies(index.wheels("demo")[0]) == EXPECTED
        assert "authorization" in server.asked[0][1]
        assert all("authorization" not in headers for _, headers in other.asked)


secret = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=12)


@given(secret, secret, secret)
def test_no_url_is_shown_with_its_secrets(user, password, token):
    text = redact_url(f"https://{user}:{password}@index.example:8080/simple/?token={token}#{token}")
    assert text == "https://****@index.example:8080/simple/"
    assert split_credentials(f"https://{user}:{password}@h/simple") == (
        "https://h/simple",
        (user, password),
    )


# ---- cache, offline, dates -----------------------------------------------------------------------


@each("case", TABLES["pages_are_kept_as_long_as_they_are_fresh"])
def test_pages_are_kept_as_long_as_they_are_fresh(server, case, index_of):
    headers, refresh, asks = case
    server.headers = headers
    server.add("demo", "1.0")
    first = index_of().wheels("demo")
    second = index_of(refresh=refresh).wheels("demo")
    assert first == second
    assert len(server.asked) == 1 + asks
    if asks:
        assert ("if-none-match" in server.asked[1][1]) == (
            headers.get("Cache-Control") != "no-store"
        )


def test_offline_asks_nobody(server, index_of):
    server.metadata = None
    server.add("demo", "1.0")
    online = index_of()
    (wheel,) = online.wheels("demo")
    assert online.wheels("missing") == ()
    asked = len(server.asked)
    offline = index_of(offline=True)
    assert offline.wheels("demo") == (wheel,)
    assert (offline.wheels("missing"), offline.has("missing")) == ((), False)
    with pytest.raises(OfflineError, match="for other: its page is not in the cache and offline"):
        offline.wheels("other")
    with pytest.raises(
        OfflineError, match=f"dependencies of {wheel.filename} are not in the cache"
    ):
        offline.dependencies(wheel)
    assert len(server.asked) == asked


@each("cutoff versions", TABLES["newer_files_and_those_of_unknown_age_are_left_out"])
def test_newer_files_and_those_of_unknown_age_are_left_out(server, cutoff, versions, index_of):
    server.add("demo", "1", upload_time="2026-01-01T00:00:00.123456Z")
    server.add("demo", "2", upload_time="2026-01-02T03:04:05Z")
    server.add("demo", "3")
    server.add("dated", "1", upload_time="2026-01-01T00:00:00Z")
    index = index_of(exclude_newer=cutoff)
    assert [one.version for one in index.wheels("demo")] == versions
    assert index.has("demo")  # so no later index may supply the name
    assert [one.version for one in index.wheels("dated")] == (["1"] if versions else [])


# ---- folders -------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A folder of wheels, a folder in the layout of PEP 503, and a page."""
    flat, simple = tmp_path / "flat one", tmp_path / "simple"
    (simple / "demo").mkdir(parents=True)
    flat.mkdir()
    for version in ("1.0", "2.0+local"):
        small_wheels.make_wheel(flat, "demo", version, REQUIRES, requires_python=">=3.9")
    (flat / "demo-3.0.tar.gz").write_bytes(b"")
    small_wheels.make_wheel(flat, "other", "1.0")
    links = [
        f'<a href="../../flat%20one/demo-{version}-py3-none-any.whl">'
        for version in ("1.0", "2.0%2Blocal", "9")
    ]
    (simple / "demo" / "index.html").write_text("".join(links))
    (tmp_path / "page.html").write_text("".join(link.replace("../../", "") for link in links))
    (tmp_path / "bare" / "demo").mkdir(parents=True)
    shutil.copy(flat / "demo-1.0-py3-none-any.whl", tmp_path / "bare" / "demo")
    return tmp_path


@each("place versions", TABLES["find_links_reads_folders_pages_and_wheels"])
def test_find_links_reads_folders_pages_and_wheels(folder, cache, monkeypatch, place, versions):
    monkeypatch.chdir(folder)
    links = find_links([place.format(folder)], cache=cache)
    wheels = links.wheels("demo")
    assert [wheel.version for wheel in wheels] == versions
    for wheel in wheels:
        data = next(folder.rglob(wheel.filename)).read_bytes()
        assert (wheel.sha256, wheel.size, wheel.index) == (
            hashlib.sha256(data).hexdigest(),
            len(data),
            "",
        )
        assert wheel.url.startswith("file:///")
    assert wheels[-1].requires_python == ">=3.9"
    assert links.dependencies(wheels[-1]) == EXPECTED
    assert (links.has("demo"), links.has("nothing"), links.wheels("nothing")) == (True, False, ())


def test_find_links_over_http(server, transport, cache):
    server.metadata = None
    files = [server.add("demo", "1.0", REQUIRES), server.add("other", "2.0")]
    anchors = "".join(f'<a href="files/{file.filename}">x</a>' for file in files)
    server.raw["/links.html"] = ("text/html", anchors.encode())

    def found_at(path):
        return find_links([f"{server.base}/{path}"], transport=transport, cache=cache)

    links = found_at("links.html")
    assert [one.url for one in links.wheels("demo")] == [f"{server.base}/files/{files[0].filename}"]
    assert [one.version for one in links.wheels("other")] == ["2.0"]
    assert links.dependencies(links.wheels("demo")[0]) == EXPECTED
    assert server.paths().count("/links.html") == 1
    direct = found_at(f"files/{files[0].filename}")
    assert [one.version for one in direct.wheels("demo")] == ["1.0"]
    nothing = found_at("nothing.html")
    assert not nothing.has("demo")  # as a page of folders, which projects name, too


@each("place message", TABLES["places_that_cannot_be_used"])
def test_places_that_cannot_be_used(folder, cache, place, message):
    (folder / "bad.whl").write_bytes(b"")
    (folder / "notes.txt").write_bytes(b"")
    (folder / "future.html").write_text('<meta name="pypi:repository-version" content="3.0">')
    with pytest.raises(InputError) as caught:
        find_links([place.format(folder)], cache=cache).has("demo")
    assert caught.value.message.startswith("--find-links ")
    assert message in caught.value.message


def test_a_damaged_wheel_of_a_folder_is_named_when_its_package_is_needed(folder, cache):
    (folder / "flat one" / "other-2.0-py3-none-any.whl").write_bytes(b"torn")
    links = find_links([str(folder / "flat one")], cache=cache)
    assert len(links.wheels("demo")) == 2
    with pytest.raises(
        PackageIndexError, match=r"other-2.0-py3-none-any.whl: it is not a readable"
    ):
        links.wheels("other")


# ---- several indexes -----------------------------------------------------------------------------


class Shipped(Snapshot):
    """Stands for the snapshot."""

    def __init__(self, *names):
        self.names = names

    def has(self, name):
        return name in self.names

    def files(self, name, environment=None):
        filename = f"{name}-1.0-py3-none-any.whl"
        wheel = Wheel(name=name, version="1.0", filename=filename, url="", sha256=None)
        return (wheel,) * self.has(name)

    def metadata(self, wheel):
        return None if wheel.url else Metadata()


@pytest.fixture
def combined(server, folder, transport, cache):
    """(combined, default server, extra server): who has what is in the table below."""
    with IndexServer() as extra:
        for name in ("demo", "both", "theirs"):
            extra.add(name, "1.0", REQUIRES)
        extra.add_file("sources", "sources-1.0.tar.gz", b"")
        for name in ("demo", "ours", "both", "sources", "public"):
            server.add(name, "99.0")
        index = combined_index(
            transport,
            cache,
            default=simple_source(server.url, transport, cache),
            find_links=FindLinks([str(folder / "flat one")], readers(transport, cache)[0]),
            snapshot=Shipped("demo", "ours"),
            extra=[simple_source(extra.url, transport, cache)],
        )
        yield index, server, extra


@each("name want", TABLES["bindings"].items())
def test_a_name_is_bound_to_one_index(combined, name, want):
    index, server, extra = combined
    urls = {"default": server.url, "extra": extra.url}
    who, version, default_asked, extra_asked = want
    assert index.has(name) == bool(who)
    found = [(wheel.version, wheel.index) for wheel in index.wheels(name)][:1]
    assert found == ([(version, urls.get(who, ""))] if version else [])
    assert (bool(server.asked), bool(extra.asked)) == (default_asked, extra_asked)


def test_the_snapshot_is_not_for_interpreters_whose_wheels_it_leaves_out():
    for python, has_snapshot in {(3, 8): False, (3, 9): True, (3, 14): True}.items():
        _, index = open_indexes(IndexOptions(offline=True), python=Python(version=python))
        assert index.is_local("torch") is has_snapshot


def test_the_index_of_a_framework_supplies_its_own_packages_only(server):
    with IndexServer() as default:
        for name in ("torch", "numpy"):
            server.add(name, "1.0")
            default.add(name, "2.0")
        options = IndexOptions(index_url=default.url, extra_index_urls=(server.url,))
        _, index = open_indexes(options, {server.url: {"torch"}})
        indexes = [index.files(name)[0].index for name in ("torch", "numpy")]
        assert indexes == [server.url, default.url]


@each("status", ["401", "403", "500", "503"])
@each("name", ["ours", "both", "theirs", "public"])
def test_a_broken_extra_index_does_not_leave_its_names_to_others(combined, name, status):
    index, server, extra = combined
    extra.faults["/simple/"] = [status, "always"]
    with pytest.raises(GpuEnvError, match=rf"answered with status {status}"):
        index.files(name)
    assert server.asked == []
