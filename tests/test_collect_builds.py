"""scripts/data/collect_builds.py: files of the PyTorch index in lock files, with their hashes."""

import base64
import shutil

from processes import run_program
from script_modules import tool
from tables import ROOT, read_data

HASH = "ab" * 32
FILE = "torch-9.9.0+cu129-cp312-cp312-manylinux_2_28_x86_64.whl"
URL = f"https://download-r2.pytorch.org/whl/cu129/{FILE.replace('+', '%2B')}"
NIX = base64.b64encode(bytes.fromhex(HASH)).decode()


# What a lock file has, by its tool.
NAMED = {
    "uv": f'wheels = [\n    {{ url = "{URL}", hash = "sha256:{HASH}" }},\n]',
    "pylock": f'{{ name = "torch", url = "{URL}", hashes = {{ sha256 = "{HASH}" }} }}',
    "requirements": f"torch @ {URL} \\\n    --hash=sha256:{HASH}",
    "fragment": f"torch @ {URL}#sha256={HASH}",
    "nix": f'url = "{URL}";\n      hash = "sha256-{NIX}";',
    "json": f'"url": "{URL}",\n        "hash": "sha256-{NIX}",',
}
UNNAMED = {
    "size": f'{{ url = "{URL}", size = 3 }}',
    "bare": URL,
    "package": f'"{URL.replace("torch-", "other-")}#sha256={HASH}"',
}


def collect(data, *paths, status=0):
    command = tool("data", "collect-builds", *map(str, paths), "--folder", str(data))
    return run_program(command, status=status)


def test_projects_that_name_a_file_make_one_row_and_a_second_hash_is_refused(tmp_path):
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
    before = len(read_data(table)["wheels"])
    for name, text in {**NAMED, **UNNAMED}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "uv.lock").write_text(text)
    done = collect(data, *(tmp_path / name for name in (*NAMED, *UNNAMED)))
    assert f"1 new of {before + 1} files" in done.stdout
    (row,) = (row for row in read_data(table)["wheels"] if FILE in row["file"])
    assert (row["file"], row["sha256"]) == (f"cu129/{FILE}", HASH)
    assert row["sources"] == sorted(f"{name}:uv.lock" for name in NAMED)
    for package in ("torch", "torchvision", "torchaudio"):  # no release of the index is new
        path = f"snapshot/pytorch/{package}.json"
        assert (data / path).read_bytes() == (ROOT / "matrix_data" / path).read_bytes()
    text = table.read_text()
    (tmp_path / "uv.lock").write_text(NAMED["uv"].replace(HASH, "cd" * 32))
    assert "contradiction" in collect(data, tmp_path / "uv.lock", status=1).stderr
    assert table.read_text() == text


def test_the_rows_of_the_data_are_well_formed():
    content = read_data(ROOT / "matrix_data" / "pytorch_index.json")
    files = [row["file"] for row in content["wheels"]]
    assert len(files) == len(set(files)) > 700
    assert all(len(row["sha256"]) == 64 and row["sources"] for row in content["wheels"])
    assert all(row["source"] for row in content["pins"])
