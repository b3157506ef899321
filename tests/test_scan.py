"""The scanner of wheels (scan_wheel.py, device_code.py) on made-up libraries and file stores."""

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from fatbin_maker import binary, content, library
from gpuenv.binaries import fat_binaries

ROOT = Path(__file__).parents[1]
SCANNER = ROOT / "scripts" / "scan_wheel.py"
sys.path.insert(0, str(SCANNER.parent))

import device_code  # noqa: E402  - the path must be set first
import scan_wheel  # noqa: E402
import wheel_source  # noqa: E402

CASES = tomllib.loads((Path(__file__).parent / "data" / "scan.toml").read_text())
EMPTY = {
    "soname": "",
    "needs": [],
    "runpath": "",
    "opens": [],
    "binaries": 0,
    "sass": {},
    "ptx": [],
    "elsewhere": 0,
}
NAME = "made-1.0-py3-none-manylinux_2_28_x86_64.whl"
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="gcc for x86_64"
)


def cases(kind: str) -> Any:
    return pytest.mark.parametrize("case", CASES[kind], ids=[case["name"] for case in CASES[kind]])


def build(case: Mapping[str, Any], folder: Path) -> bytes:
    if "text" in case:
        return str(case["text"]).encode()
    sections = {name: content(parts) for name, parts in case["sections"].items()}
    data = bytearray(library(folder / "made.so", sections, case.get("flags", ())))
    for change in case.get("set", ()):
        new = bytes.fromhex(change["hex"])
        data[change["at"] : change["at"] + len(new)] = new
    if "grow" in case:
        grow(data, case["grow"])
    return bytes(data[: case.get("cut", len(data))])


def grow(data: bytearray, name: str) -> None:
    """Lets the table of sections say that a section is a gigabyte longer."""
    elf = ELFFile(io.BytesIO(data))
    place = (
        elf["e_shoff"] + elf.get_section_index(name) * elf["e_shentsize"] + 32
    )  # of sh_size in 64 bits
    size = int.from_bytes(data[place : place + 8], "little") + (1 << 30)
    data[place : place + 8] = size.to_bytes(8, "little")


def read(data: bytes) -> dict[str, Any]:
    return device_code.read_library([data], len(data))


@cases("library")
def test_what_a_library_says(case: Mapping[str, Any], tmp_path: Path) -> None:
    data = build(case, tmp_path)
    found = read(data)
    assert found == {"machine": "x86_64", **EMPTY, **case["expect"]}
    assert list(found["sass"]) == list(case["expect"].get("sass", {}))  # the order, too


@cases("damaged")
def test_a_damaged_library_is_told_in_one_line(case: Mapping[str, Any], tmp_path: Path) -> None:
    data = build(case, tmp_path)
    with pytest.raises(device_code.DamagedFileError) as caught:
        read(data)
    assert re.match(re.escape(case["error"]).replace(r"\{n\}", r"\d+"), str(caught.value)), (
        caught.value
    )
    assert "\n" not in str(caught.value)


def test_a_library_that_ends_early_is_damaged(tmp_path: Path) -> None:
    data = build(
        {"sections": {".nv_fatbin": [{"binary": [{"sass": "80", "size": 5000}]}]}}, tmp_path
    )
    with pytest.raises(device_code.DamagedFileError, match=f"it ends at byte 5000 of {len(data)}"):
        device_code.read_library([data[:5000]], len(data))


def test_an_empty_run_path_is_one(tmp_path: Path) -> None:
    flags = ["-Wl,--enable-new-dtags,-rpath,/tmp/0123456789"]
    data = library(tmp_path / "a.so", {".rodata": b"x"}, flags)
    assert read(data)["runpath"] == "/tmp/0123456789"  # noqa: S108  - a text
    # As patchelf leaves it.
    assert read(data.replace(b"/tmp/0123456789", bytes(15)))["runpath"] == ""


def test_the_newer_kind_of_run_path_counts(tmp_path: Path) -> None:
    flags = ["-Wl,-soname,/older", "-Wl,--enable-new-dtags,-rpath,/newer"]
    data = bytearray(library(tmp_path / "a.so", {".rodata": b"x"}, flags))
    section = ELFFile(io.BytesIO(data)).get_section_by_name(".dynamic")
    tags = [tag.entry.d_tag for tag in section.iter_tags()]
    for older, newer in (("DT_SONAME", 15), ("DT_RUNPATH", 29)):  # the first becomes DT_RPATH
        place = section["sh_offset"] + 16 * tags.index(older)
        data[place : place + 8] = newer.to_bytes(8, "little")
    found = read(bytes(data))
    assert (found["soname"], found["runpath"]) == ("", "/newer")


def test_a_name_across_blocks_is_read_once_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = b"\0".join(
        [b"libcuda.so.1", b"/usr/libpath.so.1", b"libnvrtc.so.13", b"wordlibx.so", b"libnccl.so.2"]
    )
    data = library(tmp_path / "a.so", {".rodata": names})
    for block in (1, 2, 5, 7, 11, 13, 64):
        monkeypatch.setattr(device_code, "BLOCK", block)
        assert read(data)["opens"] == ["libcuda.so.1", "libnccl.so.2", "libnvrtc.so.13"]


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library with something of everything."""
    sections: dict[str, list[dict[str, Any]]] = {
        ".nv_fatbin": [
            {"binary": [{"sass": "90a", "size": 900}, {"ptx": "90", "language": "8.7"}]},
            {"zeros": 13},
            {
                "binary": [
                    {"several": [{"sass": "75"}, {"sass": "100f", "named": True}]},
                    {"sass": "80"},
                ]
            },
        ],
        "__nv_relfatbin": [{"binary": [{"sass": "80", "size": 33}]}],
        ".rodata": [
            {"text": "libcuda.so.1"},
            {"hex": "50ed55ba01001000"},
            {"binary": [{"sass": "90"}]},
        ],
        ".text": [{"hex": "50ed55ba01001000"}, {"zeros": 90}],
    }
    made = {name: content(parts) for name, parts in sections.items()}
    return library(tmp_path_factory.mktemp("rich") / "a.so", made, ["-Wl,-soname,liba.so.1", "-lm"])


@given(st.data())
@settings(max_examples=examples(50), deadline=None)
def test_damage_of_any_kind_ends_in_a_record_or_in_one_line(
    rich: bytes, data: st.DataObject
) -> None:
    changed = bytearray(rich[: data.draw(st.integers(len(rich) // 2, len(rich)))])
    interesting = st.one_of(
        st.integers(0, 63), st.integers(0, len(changed) - 1), st.integers(-1500, -1)
    )
    for place in data.draw(st.lists(interesting, max_size=6)):
        changed[place % len(changed)] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    try:
        found = read(bytes(changed))
    except device_code.DamagedFileError as error:
        assert str(error) and "\n" not in str(error)
    else:
        assert json.loads(json.dumps(found)) == found


TARGETS = st.builds("{}{}".format, st.integers(10, 199), st.sampled_from(["", "a", "f"]))
SIZES = st.integers(1, 700)
IMAGES = st.one_of(
    st.fixed_dictionaries({"sass": TARGETS, "size": SIZES, "named": st.booleans()}),
    st.fixed_dictionaries(
        {
            "ptx": TARGETS,
            "size": SIZES,
            "named": st.booleans(),
            "language": st.builds("{}.{}".format, st.integers(1, 30), st.integers(0, 9)),
        }
    ),
)
ENTRIES = st.one_of(
    IMAGES, st.fixed_dictionaries({"several": st.lists(IMAGES, min_size=1, max_size=5)})
)


def told(image: Mapping[str, Any]) -> tuple[int, str, str]:
    if "sass" in image:
        return fat_binaries.SASS, image["sass"], ""
    return fat_binaries.PTX, image["ptx"], image["language"]


@given(
    st.lists(st.tuples(st.lists(ENTRIES, min_size=1, max_size=4), st.integers(0, 40)), max_size=4)
)
@settings(max_examples=examples(35), deadline=None)
def test_every_image_of_every_fat_binary_is_counted(
    binaries: list[tuple[list[dict[str, Any]], int]],
) -> None:
    parts = [part for images, gap in binaries for part in ({"binary": images}, {"zeros": gap})]
    data = content(parts)
    found = fat_binaries.read_ranges(io.BytesIO(data), [(0, len(data))], "the file")
    expect: Counter[tuple[int, str, str]] = Counter()
    for images, _ in binaries:
        expect.update({told(one) for image in images for one in image.get("several", [image])})
    assert found == fat_binaries.summary(expect, len(binaries))


# Wheels.


def wheel(
    members: Mapping[str, bytes], *, name: str = "made", metadata: str = "", stored: bool = False
) -> bytes:
    folder = f"{name}-1.0.dist-info"
    fields = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{metadata}\n"
    tags = b"Wheel-Version: 1.0\nGenerator: made\nRoot-Is-Purelib: false\nTag: py3-none-any\n"
    texts = {f"{folder}/METADATA": f"{fields}Text.\n".encode(), f"{folder}/WHEEL": tags}
    files = {**members, **texts}
    rows = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}\n")
    files[f"{folder}/RECORD"] = "".join([*rows, f"{folder}/RECORD,,\n"]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in files.items():
            info = zipfile.ZipInfo(path)  # its date is always the same
            archive.writestr(info, data, zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Three libraries whose payloads do not compress."""
    folder = tmp_path_factory.mktemp("plain")
    found = {}
    for name, target in (("one", "80"), ("two", "90a"), ("three", "100f")):
        sections = {
            ".nv_fatbin": binary([{"sass": target}]),
            ".rodata": hashlib.shake_128(name.encode()).digest(400_000),
        }
        found[f"made/lib{name}.so"] = library(
            folder / name, sections, [f"-Wl,-soname,lib{name}.so"]
        )
    return found


def test_the_record_of_a_wheel(
    plain: Mapping[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members = {
        **plain,
        "made/libone.so.2": plain["made/libone.so"],
        "made/version.py": b"cuda = '13.0'\n",
        "made/libempty.so": b"",
        "made/libtext.so.txt": b"no library",
        "nvidia/made/lib/libx.so.1": plain["made/libtwo.so"],
    }
    requires = ("six>=1", "nvidia-cublas==13.*; extra == 'x'")
    lines = ["Requires-Python: >=3.9", *(f"Requires-Dist: {text}" for text in requires)]
    metadata = "\n".join(lines)
    data = wheel(members, metadata=metadata)
    (tmp_path / NAME).write_bytes(data)
    assert scan_wheel.main([str(tmp_path / NAME), "--output", str(tmp_path / "out")]) == 0
    record = json.loads((tmp_path / "out").read_text())
    libraries = record.pop("libraries")
    assert record == {
        "name": "made",
        "version": "1.0",
        "file": NAME,
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
        "requires_python": ">=3.9",
        "requires": ["six>=1", "nvidia-cublas==13.*; extra == 'x'"],
        "texts": {"made/version.py": "cuda = '13.0'\n"},
        "owns": {"made/": 7, "nvidia/made/lib/libx.so.1": 1},
    }
    assert [(row["paths"], row["soname"], row["sass"]) for row in libraries] == [
        (["made/libone.so"], "", {"80": 1}),
        (["made/libone.so.2"], "libone.so", {"80": 1}),
        (["made/libthree.so"], "", {"100f": 1}),
        (["made/libtwo.so"], "", {"90a": 1}),
        (["nvidia/made/lib/libx.so.1"], "libtwo.so", {"90a": 1}),
    ]
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith(f"{NAME}: 5 libraries, ")


@pytest.mark.parametrize("stored", [False, True])
def test_a_compressed_and_a_stored_wheel_say_the_same(
    stored: bool, plain: Mapping[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / NAME).write_bytes(wheel(plain, stored=stored))
    assert scan_wheel.main([str(tmp_path / NAME)]) == 0
    assert [row["sass"] for row in json.loads(capsys.readouterr().out)["libraries"]] == [
        {"80": 1},
        {"100f": 1},
        {"90a": 1},
    ]


class Store:
    """`with Store({name: bytes}) as store:` serves files.

    `asked` are the ranges as (name, start, end) in order, `sent` how many bytes went out. `ranges`
    False: they are ignored. `cut`: so many bytes of each body are sent before the connection
    breaks, for the next `cuts` bodies that are longer. `busy`: so many next answers are 503.
    `hang`: a path and a byte; the long answer that reaches the byte stops there until `stop`.
    `wrong`: what Content-Range says. `empty`: nothing comes after the header.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files
        self.ranges, self.cut, self.cuts, self.busy, self.wrong = True, 0, 0, 0, ""
        self.empty = False
        self.hang: tuple[str, int] | None = None
        self.hanging, self.stop = threading.Event(), threading.Event()
        self.asked: list[tuple[str, int, int]] = []
        self.sent = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.store = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    def __enter__(self) -> "Store":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def url(self, name: str) -> str:
        digest = hashlib.sha256(self.files[name]).hexdigest()
        return f"http://127.0.0.1:{self._server.server_address[1]}/files/{name}#sha256={digest}"

    def forget(self) -> None:
        self.asked, self.sent = [], 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        store: Store = self.server.store  # type: ignore[attr-defined]
        name = self.path.rpartition("/")[2]
        if store.busy:
            store.busy -= 1
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if name not in store.files:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = store.files[name]
        start, end = 0, len(data)
        found = (
            re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if store.ranges
            else None
        )
        if found:
            start = int(found[1]) if found[1] else max(0, len(data) - int(found[2]))
            end = min(len(data), int(found[2]) + 1) if found[1] and found[2] else len(data)
        self.send_response(206 if found else 200)
        if found:
            self.send_header("Content-Range", store.wrong or f"bytes {start}-{end - 1}/{len(data)}")
        end = start if store.empty else end
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        store.asked.append((name, start, end))
        self.body(store, name, start, data[start:end])

    def body(self, store: Store, name: str, start: int, data: bytes) -> None:
        limit = len(data)
        if store.cuts and limit > store.cut:
            store.cuts -= 1
            limit, self.close_connection = store.cut, True
        if (
            store.hang
            and store.hang[0] == name
            and start <= store.hang[1] < start + limit
            and limit > 100_000
        ):
            limit, self.close_connection = store.hang[1] - start, True
        store.sent += limit  # before the client can have it, and look at the sum
        try:
            self.wfile.write(data[:limit])
            self.wfile.flush()
        except OSError:  # the client went away
            self.close_connection = True
        if self.close_connection and store.hang:
            store.hanging.set()
            store.stop.wait(60)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_source, "PAUSE", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store(plain: Mapping[str, bytes]) -> Iterator[Store]:
    padding = {"made/large.bin": hashlib.shake_128(b"large").digest(3_000_000)}
    with Store({NAME: wheel({**padding, **plain})}) as store:
        yield store


def local(store: Store, folder: Path) -> dict[str, Any]:
    """What a scan of the same file on disk says."""
    (folder / NAME).write_bytes(store.files[NAME])
    return scan_wheel.scan_source(str(folder / NAME), None)


def places(data: bytes) -> dict[str, tuple[int, int]]:
    """Where the members of a wheel begin and end."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = sorted(archive.infolist(), key=lambda one: one.header_offset)
        ends = [one.header_offset for one in members[1:]] + [archive.start_dir]
        return {
            one.filename: (one.header_offset, end) for one, end in zip(members, ends, strict=True)
        }


def test_by_range_only_what_matters_is_read(store: Store, tmp_path: Path) -> None:
    assert scan_wheel.scan_source(store.url(NAME), None) == local(store, tmp_path)
    start, end = places(store.files[NAME])["made/large.bin"]
    assert not any(first < end and start + 100 < last for _, first, last in store.asked)
    assert store.sent < len(store.files[NAME]) - 2_900_000


def test_a_store_that_ignores_ranges_is_read_to_the_end(store: Store, tmp_path: Path) -> None:
    store.ranges = False
    assert scan_wheel.scan_source(store.url(NAME), None) == local(store, tmp_path)
    whole = (NAME, 0, len(store.files[NAME]))
    assert store.asked == [whole, whole]  # the first answer is not read


def test_a_store_that_ignores_ranges_and_breaks_is_asked_again(
    store: Store, tmp_path: Path
) -> None:
    store.ranges, store.cut, store.cuts = False, 1_000_000, 3
    assert scan_wheel.scan_source(store.url(NAME), None) == local(store, tmp_path)
    assert len(store.asked) == 4


def test_where_the_whole_file_is_read_its_sha256_is_checked(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.ranges = False
    url = re.sub(r"[0-9a-f]{64}$", "0" * 64, store.url(NAME))
    assert scan_wheel.main([url]) == 1
    told = hashlib.sha256(store.files[NAME]).hexdigest()
    assert one_line(capsys) == f"error: {NAME}: its sha256 is {told}, not {'0' * 64}"


def test_a_broken_connection_is_taken_up_where_it_broke(store: Store, tmp_path: Path) -> None:
    expect = local(store, tmp_path)
    whole = scan_wheel.scan_source(store.url(NAME), None)
    once = store.sent
    store.forget()
    store.cut, store.cuts = (
        wheel_source.PIECE + 9,
        12,
    )  # more than fit into one library without an end
    assert scan_wheel.scan_source(store.url(NAME), None) == whole == expect
    assert store.cuts == 0
    assert (
        once <= store.sent <= once + 12 * wheel_source.PIECE
    )  # only the pieces that were coming are read again


def test_a_busy_store_is_asked_again(store: Store, tmp_path: Path) -> None:
    store.busy = wheel_source.ATTEMPTS - 1
    assert scan_wheel.scan_source(store.url(NAME), None) == local(store, tmp_path)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"busy": 99}, "the file store answers 503 Service Unavailable"),
        ({"cut": 0, "cuts": 99}, ""),
        (
            {"wrong": "bytes 0-65535/*"},
            "the file store sent 65536 bytes and calls them 'bytes 0-65535/*'",
        ),
        (
            {"wrong": "bytes 0-9/77777"},
            "the file store sent 65536 bytes and calls them 'bytes 0-9/77777'",
        ),
    ],
)
def test_a_store_that_does_not_answer_well_is_told_in_one_line(
    change: dict[str, Any], error: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, value in change.items():
        setattr(store, key, value)
    assert scan_wheel.main([store.url(NAME)]) == 1
    assert one_line(capsys).startswith(f"error: {NAME}: {error}")


def test_a_store_that_sends_other_bytes_later_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = scan_wheel.open_source(store.url(NAME))[0]
    store.wrong = f"bytes 5-9/{len(store.files[NAME])}"
    with pytest.raises(
        scan_wheel.DamagedFileError, match=r"sent 'bytes 5-9/.*' where byte 100 was asked for"
    ):
        list(remote.stream(100, 200))
    store.wrong, store.empty = "", True
    with pytest.raises(OSError, match="the connection ended at byte 100 of 200"):
        list(remote.stream(100, 200))
    store.empty, store.ranges = False, False
    with pytest.raises(scan_wheel.DamagedFileError, match="the file store ignores ranges"):
        list(remote.stream(100, 200))
    remote.close()


def test_a_missing_file_is_told_in_one_line(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scan_wheel.main([store.url(NAME).replace(NAME, "gone-1.0-py3-none-any.whl")]) == 1
    assert one_line(capsys).startswith(
        "error: gone-1.0-py3-none-any.whl: 404 Client Error: Not Found"
    )


def test_an_interrupted_run_goes_on_where_it_ended(store: Store, tmp_path: Path) -> None:
    where = places(store.files[NAME])
    store.hang = (NAME, where["made/libtwo.so"][1] - 50_000)  # deep in the second library
    command = [sys.executable, str(SCANNER), "--cache", str(tmp_path / "cache"), store.url(NAME)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert store.hanging.wait(60)
        child.kill()
    assert os.listdir(tmp_path / "cache") == ["members"]
    assert len(os.listdir(tmp_path / "cache" / "members")) == 1
    store.hang = None
    store.stop.set()
    store.forget()
    record = scan_wheel.scan_source(store.url(NAME), str(tmp_path / "cache"))
    assert record == local(store, tmp_path)
    start, end = where["made/libone.so"]
    assert not any(first < end and start < last for _, first, last in store.asked)
    rest = sum(
        end - start
        for name, (start, end) in where.items()
        if name in ("made/libtwo.so", "made/libthree.so")
    )
    assert rest <= store.sent < rest + 2 * 64 * 1024 + 1000  # the end of the wheel is read again
    store.forget()
    assert scan_wheel.scan_source(store.url(NAME), str(tmp_path / "cache")) == record
    assert [last - first for _, first, last in store.asked] == [
        64 * 1024
    ]  # the record of the file is there


def test_a_cache_that_was_cut_off_is_made_anew(store: Store, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    record = scan_wheel.scan_source(store.url(NAME), str(cache))
    for path in cache.rglob("*.json"):
        path.write_text(path.read_text()[:30])
    assert scan_wheel.scan_source(store.url(NAME), str(cache)) == record
    assert all(json.loads(path.read_text()) for path in cache.rglob("*.json"))


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The only line on stderr; nothing stands on stdout."""
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return str(line)


def damaged(plain: Mapping[str, bytes], kind: str) -> bytes:
    good = wheel(plain)
    start, end = places(good)["made/libtwo.so"]
    directory = good.index(b"PK\1\2")
    row = good.index(b"made/libtwo.so", directory) - 46
    changes: dict[str, tuple[int, bytes]] = {
        "checksum": (row + 16, b"\1\2\3\4"),
        "size": (row + 24, (len(plain["made/libtwo.so"]) + 1).to_bytes(4, "little")),
        "smaller": (row + 24, (len(plain["made/libtwo.so"]) - 1).to_bytes(4, "little")),
        "method": (row + 10, b"\x0c\0"),
        "content": ((start + end) // 2, bytes(64)),
        "header": (start, b"XXXX"),
        "outside": (row + 42, (len(good) - 20).to_bytes(4, "little")),
        "nameless": (row + 28, b"\0\0"),
    }
    if kind in changes:
        place, new = changes[kind]
        return good[:place] + new + good[place + len(new) :]
    if kind == "truncated":
        return good[:-500]
    if kind == "page":
        return b"<html>404</html>"
    if kind == "no metadata":
        return good.replace(b"made-1.0.dist-info/METADATA", b"made-1.0.dist-info/METADATO")
    member = plain["made/libtwo.so"]
    wrong = {
        "text": b"INPUT(libreal.so)\n",
        "cut library": member[: len(member) // 2],
        "nonsense entry": member.replace(
            binary([{"sass": "90a"}])[:32], binary([{"sass": "90a"}])[:16] + b"\xbe" * 16
        ),
    }
    return wheel({**plain, "made/libtwo.so": wrong[kind]})


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("checksum", "made/libtwo.so: its checksum is not the one in the wheel's directory"),
        ("size", "made/libtwo.so: it has {n} of the {n} bytes of the wheel's directory"),
        ("smaller", "made/libtwo.so: it has more than the {n} bytes of the wheel's directory"),
        ("method", "made/libtwo.so: it is compressed by method 12, which no wheel may use"),
        ("content", "made/libtwo.so: "),
        ("header", "made/libtwo.so: no member begins where the wheel's directory says"),
        ("outside", "made/libtwo.so: it stands outside the wheel by the wheel's directory"),
        ("nameless", "it is no complete wheel ("),
        ("truncated", "it is no complete wheel (File is not a zip file)"),
        ("page", "it is no complete wheel (File is not a zip file)"),
        ("no metadata", "it has 0 files *.dist-info/METADATA"),
        ("text", "made/libtwo.so: it is neither an ELF file nor a PE file"),
        ("cut library", "made/libtwo.so: its ELF structure is damaged ("),
        (
            "nonsense entry",
            "made/libtwo.so: its section .nv_fatbin has something else than a fat binary at byte "
            "{n}",
        ),
    ],
)
def test_a_damaged_wheel_is_told_in_one_line(
    kind: str,
    error: str,
    plain: Mapping[str, bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / NAME).write_bytes(damaged(plain, kind))
    expect = re.escape(f"error: {NAME}: {error}").replace(r"\{n\}", r"\d+")
    with Store({NAME: damaged(plain, kind)}) as store:
        for source in (str(tmp_path / NAME), store.url(NAME)):
            assert scan_wheel.main([source, "--cache", str(tmp_path / "cache")]) == 1
            assert re.match(expect, one_line(capsys))
    assert not (tmp_path / "cache" / "wheels").exists()


def test_a_wrong_checksum_is_told_before_what_follows_from_it(
    plain: Mapping[str, bytes], tmp_path: Path
) -> None:
    data = bytearray(wheel(plain, stored=True))
    place = data.index(b"\x7fELF", places(bytes(data))["made/libtwo.so"][0])
    data[place : place + 4] = b"TEXT"
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(
        scan_wheel.DamagedFileError, match=r"made/libtwo\.so: its checksum is not the one"
    ):
        scan_wheel.scan_source(str(tmp_path / NAME), None)


@given(st.data())
@settings(max_examples=examples(25), deadline=None)
def test_any_damage_to_a_wheel_ends_in_a_record_or_in_one_line(
    rich: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    changed = bytearray(wheel({"made/liba.so": rich}))
    end = len(changed)
    places = st.one_of(st.integers(0, end - 1), st.integers(end - 600, end - 1))
    for place, value in data.draw(
        st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=5)
    ):
        changed[place] = value
    path = tmp_path_factory.mktemp("fuzz") / NAME
    path.write_bytes(
        changed[: data.draw(st.sampled_from([end, end, end, end - 1, end - 30, end // 2]))]
    )
    try:
        record = scan_wheel.scan_source(str(path), None)
    except scan_wheel.DamagedFileError as error:
        assert str(error) and "\n" not in str(error)
    else:
        assert record["file"] == NAME


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("made.zip", "made.zip: "),
        ("some/made-1.0.tar.gz", "some/made-1.0.tar.gz: "),
        ("made-x.y-py3-none-any.whl", "made-x.y-py3-none-any.whl: "),
        ("http://127.0.0.1:9/made-1.0.zip", "http://127.0.0.1:9/made-1.0.zip: "),
        (f"http://127.0.0.1:9/{NAME}", f"http://127.0.0.1:9/{NAME}: a URL must end in #sha256="),
        (
            f"http://127.0.0.1:9/{NAME}#sha256=abc",
            f"http://127.0.0.1:9/{NAME}#sha256=abc: a URL must end in #sha256=",
        ),
        (
            f"http://127.0.0.1:9/{NAME}#md5={'0' * 64}",
            f"http://127.0.0.1:9/{NAME}#md5={'0' * 64}: a URL must end",
        ),
    ],
)
def test_what_can_be_no_source_is_bad_usage(
    source: str,
    error: str,
    plain: Mapping[str, bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / NAME).write_bytes(wheel(plain))
    # Before anything is read.
    assert scan_wheel.main([str(tmp_path / NAME), source, "--cache", str(tmp_path / "cache")]) == 2
    assert one_line(capsys).startswith(f"error: {error}")
    assert not (tmp_path / "cache").exists()


def test_a_path_to_nothing_is_told_and_the_others_are_read(
    plain: Mapping[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / NAME).write_bytes(wheel(plain))
    gone = tmp_path / "gone" / NAME
    assert scan_wheel.main([str(gone), str(tmp_path / NAME)]) == 1
    captured = capsys.readouterr()
    assert (
        f"error: {NAME}: " in captured.err
        and f"No such file or directory: '{gone}'" in captured.err
    )
    assert json.loads(captured.out)["file"] == NAME


# The high-water mark of the process itself: ru_maxrss starts with that of the parent's.
MEMORY = """
import re, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(re.findall(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[0], file=sys.stderr)
"""


def test_memory_does_not_grow_with_the_library(tmp_path: Path) -> None:
    """150 MB: half of the library is the payload of a fat binary, half of it something else."""
    half = 75 << 20
    small = library(tmp_path / "a.so", {".nv_fatbin": binary([{"sass": "80"}])})
    head = binary([{"sass": "90", "size": 0}], length=80 + half)
    path = tmp_path / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("made-1.0.dist-info/METADATA", "Name: made\nVersion: 1.0\n\n")
        with archive.open("made/liblarge.so", "w") as member:
            member.write(small + bytes(-len(small) % 8))
            # The payload's size in the entry's header.
            member.write(head[:24] + half.to_bytes(8, "little") + head[32:])
            for _ in range(150):
                member.write(bytes(1 << 20))
    assert path.stat().st_size < 4 << 20
    command = [sys.executable, "-c", MEMORY, str(SCANNER), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)["libraries"]
    assert (row["sass"], row["elsewhere"]) == ({"80": 1}, 1)
    assert int(done.stderr.split()[-1]) < 120 * 1024  # KiB


@cases("owned")
def test_what_a_wheel_owns(case: Mapping[str, Any]) -> None:
    assert scan_wheel.owned(case["files"]) == case["expect"]


@cases("grouped")
def test_libraries_that_say_the_same_stand_in_one_row(case: Mapping[str, Any]) -> None:
    given = [(path, {"soname": soname, "sass": sass}) for path, soname, sass in case["libraries"]]
    rows = scan_wheel.grouped(given)
    assert [{key: row[key] for key in ("paths", "soname")} for row in rows] == case["expect"]
    assert [path for row in rows for path in row["paths"]] == [
        path for row in case["expect"] for path in row["paths"]
    ]


# NVIDIA's own tools.

TOOLS = {
    "nvidia-cuda-cuobjdump": "38780fee50863252a0b8926357faa91615ca1c8346490563f33a06100cd73f58",
    "nvidia-cuda-nvcc": "f5c4f7ead5d964fb4af42bbf1e6d3ec3c1e6e9d83b53749f691d387e7fcaa3a7",
}
TOOLS_VERSION = "13.5.37"
TOOL_TARGETS = [
    *("75", "80", "86", "87", "88", "89", "90", "90a"),
    *(f"{number}{suffix}" for number in (100, 103, 110, 120, 121) for suffix in ("", "a", "f")),
]
SOURCE = """.version 9.3
.target sm_{target}
.address_size 64
.visible .entry k(.param .u64 p) {{
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [p]; mov.u32 %r1, 7; st.global.u32 [%rd1], %r1; ret;
}}
"""


@pytest.fixture(scope="module")
def tools(made_once: Any) -> Path:
    """The folder of ptxas, fatbinary and cuobjdump (47 MB, kept by pip)."""
    made: Path = made_once("tools", fetch_tools)
    return made / "nvidia" / "cu13" / "bin"


def fetch_tools(folder: Path) -> None:
    rows = [f"{name}=={TOOLS_VERSION} --hash=sha256:{digest}\n" for name, digest in TOOLS.items()]
    (folder / "tools.txt").write_text("".join(rows))
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
    ]
    command += [
        "-q",
        "--disable-pip-version-check",
        "-d",
        str(folder),
        "-r",
        str(folder / "tools.txt"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(f"no package index: {done.stderr.strip().splitlines()[-1:]}")
    assert done.returncode == 0, done.stderr
    for path in folder.glob("*.whl"):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
    found = folder / "nvidia" / "cu13" / "bin"
    for name in ("ptxas", "fatbinary", "cuobjdump"):
        (found / name).chmod(0o755)
    for target in TOOL_TARGETS:
        ptx, cubin = found / f"{target}.ptx", found / f"{target}.cubin"
        ptx.write_text(SOURCE.format(target=target))
        subprocess.run([found / "ptxas", f"-arch=sm_{target}", ptx, "-o", cubin], check=True)


def listed(tools: Path, path: Path) -> tuple[Counter[str], Counter[str]]:
    """(machine code, PTX) of a library by target, as cuobjdump lists it."""
    done = subprocess.run(
        [tools / "cuobjdump", "-lelf", "-lptx", path], capture_output=True, text=True, check=True
    )
    found = re.findall(
        r"^(ELF|PTX) file +\d+: .*\.sm_(\w+)\.(?:cubin|ptx)$", done.stdout, re.MULTILINE
    )
    sass, ptx = (
        Counter(name for kind, name in found if kind == wanted) for wanted in ("ELF", "PTX")
    )
    return sass, ptx


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--compress=false"],
        ["--compress-all"],
        ["--concat"],
        ["--concat", "--compress-all"],
        ["--concat", "--compress-mode=size", "--ident=some/source.cu", "--cmdline=-O3 --verbose"],
        ["--compress-mode=speed", "--device-c", "--ident=some/source.cu"],
    ],
    ids=" ".join,
)
def test_what_the_tools_write_is_read_as_they_list_it(
    options: list[str], tools: Path, tmp_path: Path
) -> None:
    def fatbinary(name: str, kinds: Sequence[tuple[str, str]]) -> bytes:
        images = [
            f"--image3=kind={kind},sm={target},"
            f"file={tools / target}.{'cubin' if kind == 'elf' else kind}"
            for kind, target in kinds
        ]
        subprocess.run(
            [tools / "fatbinary", "-64", f"--create={tmp_path / name}", *options, *images],
            check=True,
        )
        return (tmp_path / name).read_bytes()

    first = fatbinary("all", [(kind, target) for target in TOOL_TARGETS for kind in ("elf", "ptx")])
    second = fatbinary("few", [("elf", "90a"), ("ptx", "120f"), ("elf", "120f"), ("elf", "75")])
    data = library(tmp_path / "a.so", {".nv_fatbin": first + bytes(-len(first) % 8) + second})
    found = read(data)
    assert found["binaries"] == 2 and found["elsewhere"] == 0
    twice = {"75", "90a", "120f"}
    assert found["sass"] == {target: 1 + (target in twice) for target in TOOL_TARGETS}
    assert found["ptx"] == [[target, "9.3", 1 + (target == "120f")] for target in TOOL_TARGETS]
    sass, ptx = listed(tools, tmp_path / "a.so")
    # cuobjdump names the machine code of a family (sm_100f) like its first GPU; PTX keeps the f.
    named: Counter[str] = Counter()
    for target, count in found["sass"].items():
        named[target.removesuffix("f")] += count
    assert sass == named
    assert ptx == Counter({target: count for target, _, count in found["ptx"]})
