"""The scanner of wheels (scan_wheel.py, device_code.py) on made-up libraries and file stores."""

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from fatbin_maker import binary, content, library
from gpuenv.binaries import fat_binaries
from index_server import IndexServer

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


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_source, "PAUSE", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def data(plain: Mapping[str, bytes], server: IndexServer) -> bytes:
    """The file that the server has."""
    padding = {"made/large.bin": hashlib.shake_128(b"large").digest(3_000_000)}
    server.add_file("made", NAME, wheel({**padding, **plain}))
    return server.projects["made"][0].data


def url(server: IndexServer) -> str:
    digest = hashlib.sha256(server.projects["made"][0].data).hexdigest()
    return f"{server.base}/files/{NAME}#sha256={digest}"


def local(data: bytes, folder: Path) -> dict[str, Any]:
    """What a scan of the same file on disk says."""
    (folder / NAME).write_bytes(data)
    return scan_wheel.scan_source(str(folder / NAME), None)


def places(data: bytes) -> dict[str, tuple[int, int]]:
    """Where the members of a wheel begin and end."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = sorted(archive.infolist(), key=lambda one: one.header_offset)
        ends = [one.header_offset for one in members[1:]] + [archive.start_dir]
        return {
            one.filename: (one.header_offset, end) for one, end in zip(members, ends, strict=True)
        }


def test_by_range_only_what_matters_is_read(
    data: bytes, server: IndexServer, tmp_path: Path
) -> None:
    assert scan_wheel.scan_source(url(server), None) == local(data, tmp_path)
    start, end = places(data)["made/large.bin"]
    asked = [re.findall(r"\d+", headers.get("range", "")) for _, headers in server.asked]
    ranges = [tuple(map(int, one)) for one in asked if len(one) == 2]
    assert ranges and not any(first < end and start + 100 < last for first, last in ranges)
    assert server.sent < len(data) - 2_900_000


def test_a_store_that_ignores_ranges_is_read_to_the_end(
    data: bytes, server: IndexServer, tmp_path: Path
) -> None:
    server.ranges = False
    assert scan_wheel.scan_source(url(server), None) == local(data, tmp_path)


def test_a_broken_connection_is_taken_up_where_it_broke(
    data: bytes, server: IndexServer, tmp_path: Path
) -> None:
    server.faults["/files/"] = ["cut", ""] * 4
    assert scan_wheel.scan_source(url(server), None) == local(data, tmp_path)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("503", "the file store answers 503 Service Unavailable"),
        ("404", "404 Client Error: Not Found"),
        ("drop", ""),
    ],
)
def test_a_store_that_does_not_answer_well_is_told_in_one_line(
    fault: str, error: str, data: bytes, server: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.faults["/files/"] = [fault, "always"]
    assert scan_wheel.main([url(server)]) == 1
    assert one_line(capsys).startswith(f"error: {NAME}: {error}")


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The only line on stderr; nothing stands on stdout."""
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return str(line)


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
