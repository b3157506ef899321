"""scripts/prove/lock.py finds what is wrong with a lock, from METADATA alone."""

import pytest

from script_modules import load_script
from tables import data_file, each

TABLES = data_file("tables/check_lock.json")

# name -> the file name and the METADATA of its wheel
WHEELS = TABLES["wheels"]
CHANGED = TABLES["changed"]


@pytest.fixture(scope="module")
def check_lock():
    return load_script("prove.lock")


@each("requirement change expected", TABLES["what_is_wrong_with_a_lock"])
def test_what_is_wrong_with_a_lock(requirement, change, expected, check_lock, tmp_path):
    wheels = dict(WHEELS)
    if change:
        name, filename, metadata = CHANGED[change]
        wheels[name] = (filename, metadata)
    rows = ['lock-version = "1.0"']
    for name, (filename, metadata) in wheels.items():
        version = filename.removesuffix(".tar.gz").split("-")[1]
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}\n"
        (tmp_path / name).write_text(text, encoding="ascii")  # the name stands for the sha256
        rows += ["[[packages]]", f'name = "{name}"', f'version = "{version}"']
        if filename.endswith(".tar.gz"):
            rows += [f"dependencies = [{{ name = '{metadata}' }}]"]
            rows += [f'sdist = {{ name = "{filename}" }}']
            continue
        rows += ["[[packages.wheels]]", f'name = "{filename}"', f'hashes.sha256 = "{name}"']
    lock = tmp_path / "pylock.toml"
    lock.write_text("\n".join(rows), encoding="ascii")
    assert check_lock.violations(str(lock), [requirement], "3.12", str(tmp_path)) == expected
