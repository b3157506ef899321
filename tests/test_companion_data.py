"""What the data says of companions: scan_companions.py reads wheels, companion_rows.py compiles."""

import json
import os
import subprocess
from pathlib import Path

from gpuenv.api.data import compatibility_data
from gpuenv.compat.rows import convert
from gpuenv.model import Wheel
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.requirements.versions import parse_requirement
from index_server import IndexServer
from processes import run_program
from script_modules import load_script, tool
from tables import cases, data_file, each, on_x86_64, read_data

DATA = data_file("companion_data.toml")


def library(folder, defines, calls, links, text):
    """A shared library, linked with an empty one that has the name `links`."""
    lines = [f"void {name}(void) {{}}" for name in defines.split()]
    lines += [f"void {name}(void);" for name in calls.split()]
    lines.append(f"void start(void) {{ {''.join(f'{name}();' for name in calls.split())} }}")
    lines.append(f"const char *text = {json.dumps(text)};")
    (folder / "x.c").write_text("\n".join(lines))
    gcc, needed = ["gcc", "-shared", "-fPIC", "-w"], []
    if links:
        other = folder / links
        subprocess.run([*gcc, f"-Wl,-soname,{links}", "-xc", "/dev/null", "-o", other], check=True)
        needed = ["-Wl,--no-as-needed", other]
    subprocess.run([*gcc, folder / "x.c", "-o", folder / "x.so", *needed], check=True)
    return (folder / "x.so").read_bytes()


TAG = "py3-none-manylinux_2_28_x86_64"


@on_x86_64
def test_wheels_become_rows(tmp_path):
    data = tmp_path / "matrix_data"
    for name in ("scans", "frameworks", "libraries"):
        (data / name).mkdir(parents=True)
    (data / "scans.toml").write_text('interpreters = ["py3"]')
    builds = [{"version": version} for version in DATA["torch"]]
    (data / "frameworks" / "torch.json").write_text(json.dumps({"builds": builds}))
    with IndexServer("html", metadata=None) as server:
        for version, defines in DATA["torch"].items():
            content = library(tmp_path, defines, "", "", "")
            files = {"torch/lib/libtorch_cpu.so": content}
            server.add("torch", version, files=files, tag=TAG)
        server.add("tensorflow", "2.20.0", tag=TAG)
        for wheel in DATA["wheel"]:
            name, version = wheel["name"], wheel["version"]
            text = "module compiled against ABI version" if name == "arrays" else ""
            text += "numpy._core._multiarray_umath" if version == "1.2" else ""
            content = library(tmp_path, "", wheel.get("calls", ""), wheel.get("links", ""), text)
            texts = wheel.get("texts", {}).items()
            files = {f"{name}/x.so": content, **{p: f"__version__ = '{t}'" for p, t in texts}}
            server.add(name, version, wheel.get("requires", ()), files=files, tag=TAG)
        for wheel in DATA["names"]:
            server.add(**wheel, tag=TAG)
        command = tool("data", "scan-companions", "--folder", str(data))
        cache = str(tmp_path / "cache")
        environment = {**os.environ, "PIP_INDEX_URL": server.url, "GPUENV_CACHE_DIR": cache}
        for names in (["stable", "cxx", "front", "arrays"], []):  # the second time nothing is new
            done = run_program([*command, *names], env=environment)
            assert done.stderr.count(".whl") == (len(DATA["wheel"]) if names else 0), done.stderr
        command[-3] = "scan-names"
        assert run_program([*command, "user"], env=environment).stderr.count(".whl") == 3
    document = convert(
        DATA["document"], load_script("data.toml_files").Companions, "companions.toml"
    )
    compiled = load_script("data.companion_rows")
    rows = json.loads(json.dumps(compiled.companion_rows(document, data)))
    for name, listed in rows.items():
        assert all(fields.pop("source") for _, fields, _ in listed)
        rows[name] = sorted([row[:2] for row in listed], key=str)
    assert rows == DATA["rows"]
    (bad,), (pair,) = compiled.named_rows(data)
    assert [bad[:2], pair[:3]] == DATA["named"]


@cases(DATA["release"])
def test_needs_of_releases(case):
    links = compatibility_data().links(*case["release"])
    assert (links is None) == ("needs" not in case)
    if links:
        names = ("cuda", "cuda_versions", "cudnn", "numpy")
        found = {name: [*value] for name in names if (value := getattr(links, name))}
        if specifiers := ",".join(specifier for _, specifier in links.frameworks):
            found["frameworks"] = specifiers
        assert found == case["needs"]
        assert links.source


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


LOCK = {"torch": "2.1.0", "numpy": "1.26.4", "nvidia-cudnn-cu12": "9.1"}


@cases(DATA["fault"])
def test_the_judge_of_the_grid_finds_planted_faults(case):
    grid = load_script("prove.companion_grid")
    lock = {
        name: Wheel(name=name, version=version, filename=name, url=name, sha256=name)
        for name, version in (LOCK | case.get("pins", {})).items()
    }
    target = TargetEnvironment(grid.host_of("T4, driver 550.54.15", "torch"))
    line = {"requires": [], **case["line"]}
    assert list(grid.contradictions(line, lock, target)) == case["found"]


@each(
    "name uploaded specifier version",
    [
        ("native", "2023-05-01T00:00:00Z", "numpy>=1.20", "1.26.4"),
        ("native", "2023-05-01T00:00:00Z", "numpy<3", "2.0.0"),  # it says that NumPy 2 fits
        ("native", "2024-06-20T00:00:00Z", "numpy>=1.20", "2.0.0"),
        ("native", None, "numpy>=1.20", "2.0.0"),
        ("labmaze", "2023-05-01T00:00:00Z", "numpy>=1.20", "2.0.0"),  # a row says that it fits
    ],
)
def test_a_native_wheel_that_is_older_than_numpy_2_gets_numpy_1(
    server, call, tmp_path, monkeypatch, name, uploaded, specifier, version
):
    monkeypatch.chdir(tmp_path)
    tag = "cp312-cp312-manylinux_2_17_x86_64"
    server.add(name, "1.0.6", [specifier], tag=tag, upload_time=uploaded)
    for release in ("1.26.4", "2.0.0"):
        server.add("numpy", release)
    host = "--gpu none --python 3.12 --platform linux-x86_64 --glibc 2.28"
    call(f"solve {name} {host} --index-url", server.url, "-o", "pylock.toml")
    lock = read_data(Path("pylock.toml"))
    assert {row["name"]: row["version"] for row in lock["packages"]}["numpy"] == version
