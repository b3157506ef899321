"""The record of a wheel (binaries/rows.py) on made-up libraries, and on those of NVIDIA's tools."""

import io
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from fatbin_maker import content, library
from gpuenv.binaries import device_code
from gpuenv.binaries.rows import read_record
from index_server import make_wheel
from processes import run_program
from tables import cases, data_file, each, on_x86_64

CASES = data_file("scan.toml")
EMPTY = {"needs": [], "opens": [], "binaries": 0, "sass": {}, "ptx": []}
pytestmark = on_x86_64


def build(case, folder):
    sections = {name: content(parts) for name, parts in case["sections"].items()}
    data = bytearray(library(folder / "made.so", sections, case.get("flags", ())))
    for change in case.get("set", ()):
        new = bytes.fromhex(change["hex"])
        data[change["at"] : change["at"] + len(new)] = new
    return bytes(data[: case.get("cut", len(data))])


def read(data):
    """What the record of a wheel says of its only library."""
    _, wheel = make_wheel("made", "1", files={"made/made.so": data})
    record = read_record(io.BytesIO(wheel), "made-1-py3-none-any.whl", sha256="", patterns=["*"])
    (row,) = record["libraries"]
    assert row.pop("paths") == ["made/made.so"]
    return dict(row)


@cases(CASES["library"])
def test_what_a_library_says(case, tmp_path):
    data = build(case, tmp_path)
    found = read(data)
    assert found == {**EMPTY, **case["expect"]}
    assert list(found["sass"]) == list(case["expect"].get("sass", {}))  # the order, too


@cases(CASES["damaged"])
def test_a_damaged_library_is_told_in_one_line(case, tmp_path):
    data = build(case, tmp_path)
    with pytest.raises(device_code.DamagedFileError) as caught:
        read(data)
    expected = re.escape(f"made/made.so: {case['error']}").replace(r"\{n\}", r"\d+")
    assert re.fullmatch(expected, str(caught.value)), caught.value


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


def told(image):
    if "sass" in image:
        return device_code.SASS, image["sass"], ""
    return device_code.PTX, image["ptx"], image["language"]


@given(
    st.lists(st.tuples(st.lists(ENTRIES, min_size=1, max_size=4), st.integers(0, 40)), max_size=4)
)
@settings(max_examples=examples(35), deadline=None)
def test_every_image_of_every_fat_binary_is_counted(binaries):
    parts = [part for images, gap in binaries for part in ({"binary": images}, {"zeros": gap})]
    data = content(parts)
    found = device_code.read_ranges(io.BytesIO(data), [(0, len(data))])
    expect = Counter()
    for images, _ in binaries:
        expect.update({told(one) for image in images for one in image.get("several", [image])})
    assert found == device_code.summary(expect, len(binaries))


def test_the_kernels_of_a_folder_are_one_row() -> None:
    kernels = {
        "made/a.fatbin": content([{"binary": [{"sass": "80"}]}]),
        "made/sub/b.fatbin": content([{"binary": [{"sass": "80"}, {"sass": "90"}]}]),
    }
    _, wheel = make_wheel("made", "1", ["torch"], files=kernels)
    record = read_record(io.BytesIO(wheel), "made-1-py3-none-any.whl", sha256="", patterns=["*"])
    assert record["requires"] == ["torch"]
    row = {"paths": ["made/*.fatbin"], **EMPTY, "binaries": 2, "sass": {"80": 2, "90": 1}}
    assert record["libraries"] == [row]


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
def tools(made_once):
    """The folder of ptxas, fatbinary and cuobjdump (47 MB, kept by pip)."""
    made = made_once("tools", fetch_tools)
    return made / "nvidia" / "cu13" / "bin"


def fetch_tools(folder):
    rows = [f"{name}=={TOOLS_VERSION} --hash=sha256:{digest}\n" for name, digest in TOOLS.items()]
    (folder / "tools.txt").write_text("".join(rows))
    download = "download --no-deps --require-hashes --only-binary :all: -q"
    command = f"{sys.executable} -m pip {download} -d {folder} -r {folder}/tools.txt"
    done = run_program(command, status=None)
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


def listed(tools, path):
    """(machine code, PTX) of a library by target, as cuobjdump lists it."""
    done = run_program(f"{tools}/cuobjdump -lelf -lptx {path}")
    found = re.findall(
        r"^(ELF|PTX) file +\d+: .*\.sm_(\w+)\.(?:cubin|ptx)$", done.stdout, re.MULTILINE
    )
    sass, ptx = (
        Counter(name for kind, name in found if kind == wanted) for wanted in ("ELF", "PTX")
    )
    return sass, ptx


@each(
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
def test_what_the_tools_write_is_read_as_they_list_it(options, tools, tmp_path):
    def fatbinary(name, kinds):
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
    assert found["binaries"] == 2
    twice = {"75", "90a", "120f"}
    assert found["sass"] == {target: 1 + (target in twice) for target in TOOL_TARGETS}
    assert found["ptx"] == [[target, "9.3", 1 + (target == "120f")] for target in TOOL_TARGETS]
    sass, ptx = listed(tools, tmp_path / "a.so")
    # cuobjdump names the machine code of a family (sm_100f) like its first GPU; PTX keeps the f.
    named = Counter()
    for target, count in found["sass"].items():
        named[target.removesuffix("f")] += count
    assert sass == named
    assert ptx == Counter({target: count for target, _, count in found["ptx"]})
