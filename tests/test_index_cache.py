"""The cache: what is put is got, damage is a miss, and processes do not disturb one another."""

import os
import subprocess
import sys
from pathlib import Path

from gpuenv.index.cache import FORMAT, Cache, cache_folder
from gpuenv.serialize import text_digest
from tables import ROOT, data_file, each


@each("environ folder", data_file("tables/index_cache.json")["folders"])
def test_the_folder(environ, folder, monkeypatch):
    for name in ("XDG_CACHE_HOME", "GPUENV_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == os.path.abspath(os.path.expanduser(folder))


def damages(data):
    flipped = [data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :] for at in range(len(data))]
    return [data[:size] for size in range(len(data))] + flipped + [data + b"x", b"\0" * len(data)]


def test_every_damage_is_a_miss_and_heals(tmp_path):
    cache = Cache(str(tmp_path))
    cache.put("pages", "key", ("1", b"a body\nof two lines"))
    path = Path(cache.path("pages", "key"))
    whole = path.read_bytes()
    for data in damages(whole):
        path.write_bytes(data)
        assert cache.get("pages", "key", tuple[str, bytes]) is None, data
        assert not path.exists()
    assert cache.put("pages", "key", b"new")
    assert cache.get("pages", "key", bytes) == b"new"
    assert cache.get("pages", "key", int) is None and not path.exists()  # of another release


def test_an_entry_under_the_name_of_another_is_a_miss(tmp_path):
    cache = Cache(str(tmp_path))
    cache.put("pages", "one", b"1")
    os.rename(cache.path("pages", "one"), cache.path("pages", "two"))
    assert cache.get("pages", "two", bytes) is None


def test_a_folder_that_cannot_be_written_keeps_nothing_and_says_nothing(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = Cache(str(tmp_path / "file" / "cache"))
    assert cache.put("pages", "key", b"") is False
    assert cache.get("pages", "key", bytes) is None
    cache.remove("pages", "key")


def test_the_folder_is_the_users_own(tmp_path):
    cache = Cache(str(tmp_path / "cache"))
    cache.put("pages", "key", b"")
    assert os.stat(cache.folder).st_mode & 0o077 == 0


WORKER = """
import sys
from gpuenv.index.cache import Cache
cache, number = Cache(sys.argv[1]), int(sys.argv[2])
for turn in range(150):
    body = bytes([number]) * (1000 * number + turn)
    assert cache.put("pages", "shared", (number, turn, body))
    own, at, body = cache.get("pages", "shared", tuple[int, int, bytes])
    assert body == bytes([own]) * (1000 * own + at), (own, at)
    assert cache.put("pages", f"own-{number}-{turn}", body)
"""


def test_processes_that_write_and_read_at_once_see_whole_entries_only(tmp_path):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path), str(number)], env=environ)
        for number in range(1, 5)
    ]
    assert [worker.wait() for worker in workers] == [0, 0, 0, 0]
    names = {path.name for path in (tmp_path / f"v{FORMAT}" / "pages").iterdir()}
    keys = ["shared", *(f"own-{number}-{turn}" for number in range(1, 5) for turn in range(150))]
    assert names == set(map(text_digest, keys))


def test_threads_that_use_a_type_first_do_not_crash():
    """They do with msgspec alone: it shows what it knows of a type before that is complete."""
    script = """
import sys
from concurrent.futures import ThreadPoolExecutor
import msgspec
from gpuenv.serialize import decode
sys.setswitchinterval(1e-6)
with ThreadPoolExecutor(8) as pool:
    for _ in range(100):
        inner = msgspec.defstruct("Inner", [(f"f{i}", int | str | None, None) for i in range(30)])
        kind = msgspec.defstruct("Kind", [("a", list[inner]), ("b", dict[str, inner])])
        data = b'{"a": [{}], "b": {"x": {}}}'
        assert len({*map(repr, pool.map(lambda _: decode(data, kind), range(8)))}) == 1
"""
    resolver = ROOT / "resolver"
    subprocess.run([sys.executable, "-c", script], cwd=resolver, check=True)
