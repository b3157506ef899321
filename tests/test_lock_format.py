"""The formats of locks: every number that was ever written is read, a newer one is refused."""

import json
import re

import pytest
import yaml

from gpuenv.errors import InputError, TamperedError
from gpuenv.lock import conda_formats, pylock
from gpuenv.lock.fields import CONDA, PYLOCK, CondaTable, LockFormat, PylockTable, read_table
from gpuenv.model import Lock
from gpuenv.serialize import dump_yaml
from tables import DATA, ROOT, cases, data_file, each, read_data

TABLES = data_file("lock_format.toml")
LOCKS = DATA / "locks"
TOML = sorted(LOCKS.glob("format-*.toml"))
CONDA_LOCKS = sorted({*LOCKS.glob("format-*")} - {*TOML})
FORMS = {".txt": "conda-explicit", ".yml": "conda-lock"}


def number_of(path):
    match = re.match(r"format-(\d+)", path.name)
    return int(match[1])


@each("lock_format", [PYLOCK, CONDA], ids=["pylock", "conda"])
def test_every_older_number_has_a_migration(lock_format):
    assert sorted(lock_format.migrations) == list(range(1, lock_format.current))


def test_there_is_a_stored_lock_of_every_number():
    assert {number_of(path) for path in TOML} == set(range(1, PYLOCK.current + 1))
    for suffix in FORMS:
        stored = {number_of(path) for path in CONDA_LOCKS if path.suffix == suffix}
        assert stored == set(range(1, CONDA.current + 1))


@each("path", TOML, ids=lambda path: path.name)
def test_a_stored_pylock_is_read_and_written_again(path):
    lock = pylock.read(str(path))
    assert pylock.loads(pylock.dumps(lock), str(path)) == lock
    if number_of(path) == PYLOCK.current:
        assert pylock.dumps(lock) == path.read_text()


@each("path", CONDA_LOCKS, ids=lambda path: path.name)
def test_a_stored_conda_lock_is_read(path):
    lock = conda_formats.read(str(path))
    assert [*lock.versions] == ["_libgcc_mutex", "cudnn", "python"]
    assert conda_formats.wheel_lock_of(lock) == ("pylock.conda-lock.toml", "b" * 64)
    assert lock.choices[1].cuda is None and lock.needs.compute_capabilities == ((7, 0), (9, 0))
    assert lock.host.gpus[1].compute_capability is None and lock.host.gpus[1].mig
    if number_of(path) == CONDA.current and path.suffix == ".txt":
        assert conda_formats.dumps(lock, FORMS[path.suffix]) == path.read_text()


def test_a_conda_lock_is_the_yaml_that_other_tools_read():
    """Names that begin with an underscore are quoted; specs of one package are joined."""
    text = (LOCKS / "format-1-conda-lock.yml").read_text()
    document = yaml.safe_load(text)
    assert '      "_libgcc_mutex": ""\n' in text
    assert document["package"][1]["dependencies"] == {
        "__glibc": ">=2.17,<3.0.a0",
        "_libgcc_mutex": "",
        "cuda-version": ">=12,<13.0a0,>=12.8",
    }
    assert document["package"][0]["dependencies"] == {}
    special = {"key": 'quote " \\ tab \t é', "empty": [], "long": "x " * 300}
    written = dump_yaml(special)
    assert yaml.safe_load(written) == special and len(written.splitlines()) == len(special)


FILE = "https://example.invalid/conda-forge/linux-64/cudnn-9.10.2-h1_3.conda"
PACKAGE = {
    "name": "cudnn",
    "version": "9.10.2",
    "manager": "conda",
    "url": FILE,
    "hash": {"sha256": "a" * 64, "md5": "b" * 32},
    "dependencies": {"cuda-version": ">=12,<13", "libgcc": None},
}


def filled(text):
    return text.replace("FILE", FILE).replace("PACKAGE", json.dumps(PACKAGE)[1:-1])


def read_conda(folder, name, text):
    path = folder / name
    path.write_text(text)
    return conda_formats.read(str(path))


def test_a_conda_lock_of_another_tool_has_its_files_only(tmp_path):
    document = {"version": 1, "metadata": {}, "package": [PACKAGE]}
    lock = read_conda(tmp_path, "conda-lock.yml", json.dumps(document))
    (pin,) = lock.pins
    assert (pin.wheel.name, pin.wheel.version) == ("cudnn", "9.10.2")
    assert pin.wheel.filename == "cudnn-9.10.2-h1_3.conda"
    assert (pin.wheel.url, pin.wheel.sha256) == (FILE, "a" * 64)
    assert pin.wheel.index == "https://example.invalid/conda-forge"
    assert pin.wheel.metadata == {
        "build": "h1_3",
        "build_number": 3,
        "subdir": "linux-64",
        "depends": ("cuda-version >=12,<13", "libgcc"),
        "md5": "b" * 32,
    }
    assert lock.choices == () and lock.host.python.version == (0, 0)


def test_an_explicit_file_of_another_tool_has_its_files_only(tmp_path):
    other = FILE.replace("h1_3.conda", "h1.tar.bz2")
    text = f"# a comment\n{FILE}#{'a' * 64}\n@EXPLICIT\n\n# {FILE}\n{other}#sha256:{'a' * 64}\n"
    (pin,) = read_conda(tmp_path, "spec.txt", text).pins
    assert (pin.wheel.url, pin.wheel.sha256) == (other, "a" * 64)
    assert pin.wheel.metadata == {"build": "h1", "build_number": 0, "subdir": "linux-64"}


@each("name text message", TABLES["unreadable"])
def test_a_conda_lock_that_cannot_be_read_is_refused(name, text, message, tmp_path):
    with pytest.raises(InputError, match=re.escape(message)):
        read_conda(tmp_path, name, filled(text))


@each("name text expected", TABLES["recognized"])
def test_what_is_a_lock_of_conda(name, text, expected, tmp_path):
    path = tmp_path / name
    assert not conda_formats.is_lock(str(path))
    path.write_text(filled(text))
    assert conda_formats.is_lock(str(path)) is expected


@each("size is_read", [((1 << 20) - 11, True), (1 << 20, False)])
def test_a_lock_can_begin_with_a_long_comment(size, is_read, tmp_path):
    """The first MiB is read."""
    path = tmp_path / "spec.txt"
    path.write_text(f"{'#' * size}\n@EXPLICIT\n")
    assert conda_formats.is_lock(str(path)) is is_read


TABLE = read_data(LOCKS / "format-1.toml")["tool"]["gpuenv"]


@cases(TABLES["field"])
def test_a_field_that_does_not_fit_is_named(case):
    with pytest.raises(ValueError, match=re.escape(case["says"])):
        read_table({**TABLE, case["name"]: case["value"]})


def newer(path, release):
    """Return a stored lock as a newer gpuenv might write it."""
    text = path.read_text()
    if path.suffix == ".toml":
        extra = "" if release is None else f'\noldest-reader = "{release}"'
        return text.replace("format = 1", f"format = 9{extra}")
    extra = "" if release is None else f'"oldest-reader": "{release}", '
    changed = f'{{{extra}"format": 9, '
    if path.suffix == ".yml":
        changed = json.dumps(changed)[1:-1]
        return text.replace('"{\\"channels', changed.join(['"', '\\"channels']))
    return text.replace('{"channels', changed + '"channels').replace('"format": 1, ', "")


@each("release", [None, "7.5"])
@each("path", [TOML[0], *CONDA_LOCKS], ids=lambda path: path.suffix)
def test_a_lock_of_a_newer_gpuenv_says_what_to_do(path, release, tmp_path):
    changed = tmp_path / f"conda-lock{path.suffix}"
    changed.write_text(newer(path, release).replace(', \\"format\\": 1', ""))
    current = (PYLOCK if path.suffix == ".toml" else CONDA).current
    with pytest.raises(InputError, match=f"format is 9; this gpuenv reads {current}") as caught:
        (pylock if path.suffix == ".toml" else conda_formats).read(str(changed))
    assert "upgrade gpuenv" in caught.value.hint
    assert not isinstance(caught.value, TamperedError)
    assert release is None or release in caught.value.hint


@each("number", [0, -1, True, 1.0, "1", None])
def test_what_is_no_number_of_a_format_is_refused(number):
    with pytest.raises(ValueError, match="this gpuenv reads"):
        PYLOCK.migrate({"format": number}, "format")


def test_an_older_document_is_migrated_step_by_step():
    lock_format = LockFormat(current=3, migrations={1: noted("1 to 2"), 2: noted("2 to 3")})
    for number, steps in ((1, ["1 to 2", "2 to 3"]), (2, ["2 to 3"]), (3, [])):
        migrated = lock_format.migrate({"format": number, "steps": []}, "format")
        assert migrated["steps"] == steps


def noted(step):
    return lambda document: {**document, "steps": [*document["steps"], step]}


def test_every_field_of_a_lock_is_in_the_table():
    # Packages are in a table of their own. The file format shows whether a lock is for conda.
    # Wheels beside conda packages have a lock file of their own.
    stored_elsewhere = {"pins", "conda", "wheels"}
    about_the_file = {"format", "oldest_reader", "content"}
    fields = set(Lock.__struct_fields__) - stored_elsewhere
    assert set(PylockTable.__struct_fields__) - about_the_file == fields
    assert set(CondaTable.__struct_fields__) < fields


def test_the_documentation_names_every_field():
    text = (ROOT / "docs" / "lock-format.md").read_text()
    table = read_data(TOML[-1])["tool"]["gpuenv"]
    for key in {*table, *table["needs"], *table["choices"][0], *table["host"]}:
        assert f"`{key}`" in text, key


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    for path in (tmp_path / "none.txt", tmp_path, tmp_path / "binary.txt"):
        (tmp_path / "binary.txt").write_bytes(b"\xff\xfe")
        for read in (conda_formats.read, pylock.read):
            with pytest.raises(InputError, match=re.escape(f"{path}: ")):
                read(str(path))
