"""scripts/data/collect_builds.py: files of the PyTorch index in lock files, with their hashes."""

import base64
import json
import shutil

from processes import run_program
from script_modules import load_script, tool
from tables import ROOT, each

collect_builds = load_script("data.collect_builds")

HASH = "ab" * 32
FILE = "torch-9.9.0+cu129-cp312-cp312-manylinux_2_28_x86_64.whl"
URL = f"https://download-r2.pytorch.org/whl/cu129/{FILE.replace('+', '%2B')}"
NIX = base64.b64encode(bytes.fromhex(HASH)).decode()


@each(
    "text",
    [
        f'wheels = [\n    {{ url = "{URL}", hash = "sha256:{HASH}" }},\n]',
        f'{{ name = "torch", url = "{URL}", hashes = {{ sha256 = "{HASH}" }} }}',
        f"torch @ {URL} \\\n    --hash=sha256:{HASH}",
        f"torch @ {URL}#sha256={HASH}",
        f'url = "{URL}";\n      hash = "sha256-{NIX}";',
        f'"url": "{URL}",\n        "hash": "sha256-{NIX}",',
    ],
    ids=["uv", "pylock", "requirements", "fragment", "nix", "json"],
)
def test_a_lock_names_a_file_and_its_hash(text):
    assert list(collect_builds.wheels(text)) == [(f"cu129/{FILE}", HASH)]


@each(
    "text",
    [f'{{ url = "{URL}", size = 3 }}', URL, f'"{URL.replace("torch-", "other-")}#sha256={HASH}"'],
    ids=["size", "bare", "package"],
)
def test_what_names_no_hash_gives_no_row(text):
    assert list(collect_builds.wheels(text)) == []


def lock(path, digest=HASH):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{ url = "{URL}", hash = "sha256:{digest}" }}')
    return path


def collect(path, data, name="", *, status=0):
    command = tool("data", "collect-builds", str(path), "--name", name, "--folder", str(data))
    return run_program(command, status=status)


def test_two_projects_make_one_row_and_a_second_hash_is_refused(tmp_path):
    data = tmp_path / "matrix_data"
    for path in ("pytorch_index.json", "frameworks/torch.json", "snapshot/index.json"):
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "matrix_data" / path, data / path)
    for package in ("torch", "torchvision", "torchaudio"):
        for index in ("default", "pytorch"):
            (data / "snapshot" / index).mkdir(exist_ok=True)
            path = f"snapshot/{index}/{package}.json"
            shutil.copy(ROOT / "matrix_data" / path, data / path)
    table = data / "pytorch_index.json"
    before = len(json.loads(table.read_text())["wheels"])
    for name in ("a/one", "b/two"):
        lock(tmp_path / name / "uv.lock")
        done = collect(tmp_path / name, data, name=name)
    assert f"0 new of {before + 1} files" in done.stdout
    (row,) = (row for row in json.loads(table.read_text())["wheels"] if FILE in row["file"])
    assert row["sources"] == ["a/one:uv.lock", "b/two:uv.lock"]
    for package in ("torch", "torchvision", "torchaudio"):  # no release of the index is new
        path = f"snapshot/pytorch/{package}.json"
        assert (data / path).read_bytes() == (ROOT / "matrix_data" / path).read_bytes()
    text = table.read_text()
    other = lock(tmp_path / "c" / "uv.lock", "cd" * 32)
    assert "contradiction" in collect(other, data, status=1).stderr
    assert table.read_text() == text


def test_the_rows_of_the_data_are_well_formed():
    content = json.loads((ROOT / "matrix_data" / "pytorch_index.json").read_text())
    files = [row["file"] for row in content["wheels"]]
    assert len(files) == len(set(files)) > 700
    assert all(len(row["sha256"]) == 64 and row["sources"] for row in content["wheels"])
    assert all(row["source"] for row in content["pins"])
