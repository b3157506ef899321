"""Locks of uv, poetry, pdm, pipenv and pip, and Dockerfiles, as users give them to commands."""

import hashlib
import sys

from index_server import make_sdist
from small_wheels import make_wheel, write_files
from tables import DATA, cases, each, read_data
from test_cli import contents, run

FOLDER = DATA
CASES = [
    case
    for name in ("foreign_locks.toml", "dockerfiles.toml")
    for case in read_data(FOLDER / name)["case"]
]


@cases(CASES)
def test_what_a_command_says(case, folder):
    write_files(folder, case["files"], {"HASH": "0" * 64, "MANY": "(" * 10_000})
    before = contents(folder)
    done = run(case["run"], folder, status=case.get("status", 0), COLUMNS="1000")
    said = done.text
    assert all(text in said for text in case["says"]), said
    assert not any(text in said for text in case.get("never", ())), said
    assert done.returncode != 2 or len(done.stderr.splitlines()) == 1, said
    assert "secret" not in said
    assert contents(folder) == before


@each("name", sorted(path.name for path in (FOLDER / "foreign_sync").iterdir()))
def test_sync_installs_the_files_of_a_lock_and_verify_compares_with_it(name, tmp_path, server):
    """The lock has URLs, or it names files of its index; one has sources, which are built."""
    folder = tmp_path / "work"
    folder.mkdir()
    wheel = make_wheel(tmp_path, "demo-lib", "1.0")
    server.add_file("demo-lib", wheel.filename, (tmp_path / wheel.filename).read_bytes())
    sdist, data = make_sdist("demo-sources", "2.0")
    server.add_file("demo-sources", sdist, data)
    text = (FOLDER / "foreign_sync" / name).read_text()
    for old, new in {
        "INDEX": server.url,
        "FILES": f"{server.base}/files",
        "WHEEL": wheel.sha256,
        "SDIST": hashlib.sha256(data).hexdigest(),
        "PYTHON": "{}.{}".format(*sys.version_info),
    }.items():
        text = text.replace(old, str(new))
    (folder / name).write_text(text)
    sync = f"sync {name} --gpu none --no-verify --index-url {server.url} --target"
    run(f"{sync} env", folder)
    installed = next((folder / "env").glob("lib/python*/site-packages"))
    assert {"demo_lib.py", "demo_sources.py"} <= {path.name for path in installed.iterdir()}

    def verified(lock=""):
        return run(f"verify {lock} --target env --no-device -v", folder, status=None).stdout

    assert "2 as locked" in verified(name)
    assert "verified: " in verified()  # by the lock that sync recorded
    (folder / name).write_text(text.replace("2.0", "2.1"))
    assert "2.1" in verified(name)
    (folder / name).write_text(text.replace(wheel.sha256 or "", "0" * 64))
    assert run(f"{sync} other", folder, status=None).returncode in (2, 4)
    assert not (folder / "other").exists()
