"""What the data says of companions: scan_companions.py reads wheels, companion_rows.py compiles."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gpuenv.api.data import compatibility_data
from gpuenv.compat.rows import convert
from gpuenv.model import Wheel
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.requirements.versions import parse_requirement
from index_server import IndexServer
from processes import run_program
from script_modules import load_script, tool
from tables import each

LINUX, WINDOWS = "linux-x86_64", "win-amd64"
# Of each wheel: the functions that its library defines and calls, and what it links.
TORCH = {
    "2.0.1": "torch_a _ZN2at1oEv",
    "2.1.0": "torch_a torch_b _ZN2at1oEv",
    "2.2.0": "torch_a torch_b _ZN2at1nEv",
}
# What its library calls and links, Requires-Dist, and texts.
COMPANIONS = {
    ("stable", "1.0"): ("torch_b", "libcudart.so.12", ["torch>=2.0"], {}),
    ("stable", "1.2.1"): ("torch_b", "libcudart.so.13", [], {"stable/version.py": "1.2.1+cu130"}),
    ("cxx", "0.5.0"): ("_ZN2at1nEv", "", [], {}),
    ("cxx", "0.6.0"): ("_ZN2at1oEv", "", ["torch==2.1.*"], {}),
    ("front", "3.0"): ("", "libcudnn-0123abcd.so.9.1.0", [], {}),
    ("arrays", "1.0"): ("", "", ["numpy>=1.20"], {}),
    ("arrays", "1.2"): ("", "", [], {}),
}
EXPECTED = {
    "stable": [
        (">=1.0,<1.1", {"frameworks": [["torch", ">=2.1"]], "cuda": [12]}),
        (
            ">=1.2,<1.3",
            {"frameworks": [["torch", ">=2.1"]], "cuda": [13], "cuda_versions": ["13.0"]},
        ),
    ],
    "cxx": [
        (">=0.5,<0.6", {"frameworks": [["torch", ">=2.2,<2.3"]]}),
        (">=0.6,<0.7", {"frameworks": [["torch", ""]]}),
    ],
    "front": [(">=3.0,<3.1", {"cudnn": [9]}), (">=9", {"numpy": [1]})],
    "arrays": [("<1.1", {"numpy": [1]}), (">=1.2", {})],
}
DOCUMENT = {
    "row": [{"distributions": ["front"], "versions": ">=9", "numpy": [1], "source": "a page"}],
    "compares_cuda": [{"distributions": ["stable"], "versions": ">=1.2", "source": "a page"}],
}


def library(folder, defines, calls, links, text):
    """A shared library, linked with an empty one that has the name `links`."""
    lines = [f"void {name}(void) {{}}" for name in defines.split()]
    lines += [f"void {name}(void);" for name in calls.split()]
    lines.append(f"void start(void) {{ {''.join(f'{name}();' for name in calls.split())} }}")
    lines.append(f"const char *text = {json.dumps(text)};")
    (folder / "x.c").write_text("\n".join(lines))
    gcc = ["gcc", "-shared", "-fPIC", "-w"]
    needed = []
    if links:
        subprocess.run(
            [*gcc, f"-Wl,-soname,{links}", "-xc", "/dev/null", "-o", folder / links], check=True
        )
        needed = ["-Wl,--no-as-needed", str(folder / links)]
    subprocess.run([*gcc, folder / "x.c", "-o", folder / "x.so", *needed], check=True)
    return (folder / "x.so").read_bytes()


TAG = "py3-none-manylinux_2_28_x86_64"


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="gcc")
def test_wheels_become_rows(tmp_path):
    data = tmp_path / "matrix_data"
    (data / "scans").mkdir(parents=True)
    for name in ("frameworks", "libraries"):
        (data / name).mkdir()
    (data / "scans.toml").write_text('interpreters = ["py3"]')
    builds = [{"version": version} for version in TORCH]
    (data / "frameworks" / "torch.json").write_text(json.dumps({"builds": builds}))
    with IndexServer("html", metadata=None) as server:
        for version, defines in TORCH.items():
            content = library(tmp_path, defines, "", "", "")
            files = {"torch/lib/libtorch_cpu.so": content}
            server.add("torch", version, files=files, tag=TAG)
        server.add("tensorflow", "2.20.0", tag=TAG)
        for (name, version), (calls, links, requires, texts) in COMPANIONS.items():
            text = "module compiled against ABI version" if name == "arrays" else ""
            text += "numpy._core._multiarray_umath" if version == "1.2" else ""
            content = library(tmp_path, "", calls, links, text)
            files = {
                f"{name}/x.so": content,
                **{p: f"__version__ = '{t}'" for p, t in texts.items()},
            }
            server.add(name, version, requires, files=files, tag=TAG)
        command = tool("data", "scan-companions", "--folder", str(data))
        environment = {**os.environ, "PIP_INDEX_URL": server.url}
        environment["GPUENV_CACHE_DIR"] = str(tmp_path / "cache")
        for names in (["stable", "cxx", "front", "arrays"], []):  # the second time nothing is new
            done = run_program([*command, *names], env=environment)
            assert done.stderr.count(".whl") == (len(COMPANIONS) if names else 0), done.stderr
    document = convert(DOCUMENT, load_script("data.toml_files").Companions, "companions.toml")
    rows = load_script("data.companion_rows").companion_rows(document, data)
    found = {}
    for name, listed in json.loads(json.dumps(rows)).items():
        assert all(fields.pop("source") for _, fields, _ in listed)
        found[name] = sorted((versions, fields) for versions, fields, _ in listed)
    assert found == {name: sorted(expected) for name, expected in EXPECTED.items()}


@each(
    "name version platform expected",
    [
        # torch, CUDA majors, CUDA versions, cuDNN and NumPy majors
        ("torchaudio", "2.11.0", LINUX, (">=2.11", (13,), ("13.0",), (), ())),
        ("torchaudio", "2.11.0+cu126", LINUX, (">=2.11", (12,), ("13.0",), (), ())),
        ("torchaudio", "2.11.0", WINDOWS, (">=2.11", (), (), (), ())),
        ("torchaudio", "2.11.1", LINUX, (">=2.13", (13,), (), (), ())),
        ("torchaudio", "2.12.0", LINUX, None),  # newer than what was read
        ("torchcodec", "0.7.0", LINUX, (">=2.8,<2.9", (), (), (), ())),
        ("torchcodec", "0.10.0", WINDOWS, (">=2.10,<2.11", (), (), (), ())),
        ("torchcodec", "0.17.0", LINUX, (">=2.11", (13,), (), (), ())),
        ("torchcodec", "0.17.0+cu126", LINUX, (">=2.11", (12,), (), (), ())),
        ("xformers", "0.0.33", LINUX, ("", (13,), (), (), ())),
        ("xformers", "0.0.33.post1", LINUX, ("", (12,), (), (), ())),
        ("onnxruntime-gpu", "1.20.2", LINUX, ("", (12,), (), (9,), ())),
        ("onnxruntime-gpu", "1.17.0", LINUX, ("", (11,), (), (8,), (1,))),
        ("ctranslate2", "4.4.0", LINUX, ("", (12,), (), (8,), ())),
        ("ctranslate2", "4.6.1", LINUX, ("", (12,), (), (9,), ())),
        ("ctranslate2", "4.7.0", LINUX, ("", (12,), (), (), ())),
        ("torch", "2.2.2+cu118", WINDOWS, ("", (11,), (), (), (1,))),
        ("opencv-python", "4.9.0.80", "linux-aarch64", ("", (), (), (), (1,))),
        ("tensorflow-probability", "0.25.0", LINUX, (">=2.18", (), (), (), ())),
        ("flax", "0.10.7", LINUX, (">=0.6,<0.8", (), (), (), ())),
        (
            "bitsandbytes",
            "0.43.0",
            LINUX,
            ("", (11, 12), ("11.7", "11.8", "12.0", "12.1", "12.2", "12.3", "none"), (), ()),
        ),
        ("requests", "2.32.0", LINUX, None),
    ],
)
def test_needs_of_releases(name, version, platform, expected):
    links = compatibility_data().links(name, version, platform)
    if links is not None:
        specifiers = ",".join(specifier for _, specifier in links.frameworks)
        found = specifiers, links.cuda, links.cuda_versions, links.cudnn, links.numpy
        assert (found, bool(links.source)) == (expected, True)
    assert (links is None) == (expected is None)


def test_the_snapshot_holds_what_a_solve_may_end_with():
    scope = load_script("data.snapshot_scope")
    pages = {}
    requires = {}

    def add(name, releases):
        for version, texts in releases.items():
            file = f"{name}-{version}-py3-none-any.whl"
            wheel = Wheel(name=name, version=version, filename=file, url=file, sha256=file)
            pages.setdefault(name, []).append(wheel)
            requires[file] = tuple(map(parse_requirement, texts))

    many = {f"1.{number}": [f"base=={number}"] for number in range(40)}
    add("root", many)
    add("dep", {**many, "1.0": []})
    add("base", {str(number): [] for number in range(40)})
    chooser = scope.Chooser(scope.Scope({"root": ">=1.38"}, {}, []), pages, requires)
    assert chooser.choose("root", [], [])[0] == {"1.38", "1.39"}
    kept, missing = chooser.choose("dep", ["<1.7"], [])
    newest = {f"1.{number}" for number in range(28, 40)}
    assert (newest | {"1.0", "1.6"} <= kept, missing) == (True, False)


FITTING = {"needs": ["libtorch.so", "libcudart.so.12", "libcudnn.so.9"], "undefined": ["torch_b"]}


@each(
    "facts requires pins found",
    [
        (FITTING, ["numpy<2"], {}, []),
        (FITTING, ["numpy>=2"], {}, ["requires numpy>=2, the lock has 1.26.4"]),
        (FITTING, ["absent"], {}, ["requires absent, the lock has none"]),
        (FITTING, [], {"torch": "2.0.1"}, ["x.so needs torch_b, which torch 2.0 does not export"]),
        (FITTING, [], {"nvidia-cudnn-cu12": "8.9"}, ["x.so needs cuDNN [9], the lock has [8]"]),
        ({"needs": ["libcublas.so.13"]}, [], {}, ["x.so needs CUDA [13], the lock has [12]"]),
        ({"opens": ["libcublas.so.11"]}, [], {}, ["x.so needs CUDA [11], the lock has [12]"]),
        (
            {"numpy": 1},
            [],
            {"numpy": "2.1.0"},
            ["x.so has the headers of NumPy 1, the lock has 2.1.0"],
        ),
    ],
)
def test_the_judge_of_the_grid_finds_planted_faults(facts, requires, pins, found):
    def read(wheel):
        empty = {"needs": [], "opens": [], "undefined": [], "defined": [], "numpy": None}
        return requires, {"x.so": empty | facts}

    exports = {"torch": {"2.0": {"torch_a"}, "2.1": {"torch_a", "torch_b"}}, "tensorflow": {}}
    grid = load_script("prove.companion_grid")
    usual = {"timm": "1", "torch": "2.1.0", "numpy": "1.26.4", "nvidia-cudnn-cu12": "9.1"}
    lock = {
        name: Wheel(name=name, version=version, filename=name, url=name, sha256=name)
        for name, version in (usual | pins).items()
    }
    target = TargetEnvironment(grid.host_of("T4, driver 550.54.15", "torch"))
    scanner = SimpleNamespace(exports=exports)
    found_now = grid.contradictions(lock, read, scanner, target)
    assert list(found_now) == [f"timm: {text}" for text in found]
