"""The default index: what pip and uv are configured with, cached until a setting changes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pip._internal.models.index import PyPI
from pip._internal.utils import appdirs

from gpuenv.errors import InputError
from gpuenv.index import default_index as defaults
from gpuenv.index.cache import Cache
from gpuenv.index.default_index import DefaultIndex, default_index

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "default_index.json").read_text()
)
BUILTIN = PyPI.simple_url
STORE = f"https://{PyPI.file_storage_domain}"


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with no settings but those of the test."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "system"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    # pip reads /etc/pip.conf as well, which a test cannot move.
    monkeypatch.setattr(appdirs, "site_config_dirs", lambda name: [str(tmp_path / "system" / name)])


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(str(tmp_path / "cache"))


def fill(value: Any, folder: Path) -> Any:
    """The value with {tmp} in its texts replaced."""
    return json.loads(json.dumps(value).replace("{tmp}", str(folder)))


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_settings_are_found_where_pip_and_uv_find_them(
    case: dict[str, Any], tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = fill(case, tmp_path)
    write(tmp_path, case.get("files", {}))
    for name, value in case.get("env", {}).items():
        monkeypatch.setenv(name, value)
    if "error" in case:
        with pytest.raises(InputError) as caught:
            default_index(cache)
        assert str(caught.value).startswith(case["error"])
        assert "\n" not in str(caught.value)
        return
    for _ in range(2):  # asked, then kept
        assert default_index(cache) == DefaultIndex(
            url=case.get("url", BUILTIN),
            file_store=STORE,
            builtin="url" not in case,
            cert=case.get("cert"),
        )


def test_the_default_named_in_a_setting_is_still_the_default(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", BUILTIN + "/")
    found = default_index(cache)
    assert (found.url, found.builtin) == (BUILTIN, True)


def _set(name: str, value: str) -> Callable[[Path, pytest.MonkeyPatch], None]:
    return lambda _, monkeypatch: monkeypatch.setenv(name, value)


def _write(name: str, text: str) -> Callable[[Path, pytest.MonkeyPatch], None]:
    return lambda folder, _: write(folder, {name: text})


CHANGES = {
    "a variable": (_set("UV_INDEX_URL", "https://new.example"), "https://new.example"),
    "a file that was not there": (
        _write("home/.pip/pip.conf", "[global]\nindex-url=https://new.example"),
        None,
    ),
    "a file that was there": (
        _write("config/pip/pip.conf", "[global]\nindex-url=https://n.example"),
        "https://n.example",
    ),
    "a file of uv": (_write("system/uv/uv.toml", "index-url = 'https://new.example'"), None),
    "another configuration": (_set("PIP_CONFIG_FILE", os.devnull), BUILTIN),
}


@pytest.mark.parametrize(("change", "url"), CHANGES.values(), ids=CHANGES)
def test_a_kept_answer_holds_until_a_setting_changes(
    tmp_path: Path,
    cache: Cache,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path, pytest.MonkeyPatch], None],
    url: str | None,
) -> None:
    write(tmp_path, {"config/pip/pip.conf": "[global]\nindex-url = https://old.example\n"})
    asked: list[int] = []
    ask = defaults._ask_pip_and_uv

    def counted() -> Any:
        asked.append(1)
        return ask()

    monkeypatch.setattr("gpuenv.index.default_index._ask_pip_and_uv", counted)
    assert [default_index(cache).url for _ in range(3)] == ["https://old.example"] * 3
    assert len(asked) == 1
    change(tmp_path, monkeypatch)
    assert default_index(cache).url == (url or "https://old.example")
    assert len(asked) == 2


def test_pip_is_not_imported_for_a_kept_answer(tmp_path: Path) -> None:
    code = (
        "import sys; from gpuenv.index.cache import Cache;"
        "from gpuenv.index.default_index import default_index;"
        "print(default_index(Cache(sys.argv[1])).url);"
        "print(sorted({'pip', 'tomllib', 'urllib', 'requests', 'pathlib'} & set(sys.modules)))"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-S", "-c", code, str(tmp_path / "cache")]
    first, second = (
        subprocess.run(
            command, env=environ, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(2)
    )
    assert "pip" in first[1]
    assert second == [BUILTIN, "[]"]


def test_credentials_are_not_written_to_the_cache(
    tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path,
        {"config/pip/pip.conf": "[global]\nindex-url = https://me:hunter2@a.example/simple\n"},
    )
    assert default_index(cache).url == "https://me:hunter2@a.example/simple"
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UV_INDEX_URL", "https://me:hunter2@b.example/simple")
    assert default_index(cache).url == "https://me:hunter2@b.example/simple"
    monkeypatch.setenv("PIP_INDEX_URL", "https://c.example/simple")
    assert default_index(cache).url == "https://c.example/simple"
    kept = (
        [path for path in Path(cache.folder).rglob("*") if path.is_file()]
        if os.path.exists(cache.folder)
        else []
    )
    assert not any(b"hunter2" in path.read_bytes() for path in kept)


def test_a_kept_answer_that_is_damaged_is_asked_for_anew(cache: Cache) -> None:
    first = default_index(cache)
    (path,) = (one for one in Path(cache.folder).rglob("defaults/*") if one.is_file())
    path.write_bytes(path.read_bytes()[:-10])
    assert default_index(cache) == first
    cache.put("defaults", path.name, {"environment": {}, "files": "none", "answer": 3}, b"")
    assert default_index(cache) == first
