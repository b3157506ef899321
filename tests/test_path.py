"""The whole path over a live index on loopback: solve, lock, sync; and what a bad index ends in."""

from index_server import File, IndexServer, make_wheel
from tables import data_file, each
from test_asking import CPU, fill
from test_cli import contents, run

TABLES = data_file("tables/path.json")


# What an index looks like and who installs meet in the lock alone: every style goes with both
# kinds of metadata, and each installer with every style.
@each("installer metadata style", TABLES["solve_and_sync_from_a_live_index"])
def test_solve_and_sync_from_a_live_index(folder, style, metadata, installer):
    with IndexServer(style, metadata=metadata) as server:
        fill(server)
        flags = f"{CPU} --index-url {server.url}"
        run(f"solve alpha {flags}", folder)
        text = (folder / "pylock.toml").read_text()
        assert 'version = "2.5"' in text and 'version = "2.0"' in text and "gamma" not in text
        assert f'index = "{server.url}' in text
        assert text.count("size = ") == 2  # asked for where the page does not say it
        run(f"solve alpha {flags} -o pylock.b.toml --offline", folder)
        assert (folder / "pylock.b.toml").read_text() == text
        sync = f"sync pylock.toml --target env --no-verify --installer {installer}"
        run(f"{sync} {flags}", folder)
    assert (folder / "env" / "pyvenv.cfg").exists()


@each("path fault", TABLES["a_bad_index_is_one_line_and_status_4"])
def test_a_bad_index_is_one_line_and_status_4(folder, path, fault, server, command):
    fill(server)
    server.faults[path] = [fault, "always"]
    done = command("solve alpha", status=4)
    assert len(done.stderr.splitlines()) == 1
    assert "127.0.0.1" in done.stderr or "alpha-2.0" in done.stderr
    assert contents(folder) == {}


def test_a_package_comes_from_one_index_only(folder, server, command):
    """A newer release on the default index never wins over the extra index that has the name."""
    with IndexServer() as mine:
        fill(mine)
        server.add("alpha", "99.0")
        server.add("delta", "1.0", ["alpha"])
        command(f"solve delta --extra-index-url {mine.url}")
        text = (folder / "pylock.toml").read_text()
    assert '"99.0"' not in text
    assert 'name = "alpha"\nversion = "2.0"' in text
    assert server.base in text and mine.base in text


@each("installer", ["uv", "pip"])
def test_a_file_with_the_wrong_hash_is_not_installed(tmp_path, folder, server, command, installer):
    fill(server)
    command("solve beta")
    before = contents(folder)
    name, other = make_wheel("beta", "2.5", padding=9)
    server.projects["beta"] = [File(name, other)]  # another file under the name that was locked
    caches = {"UV_CACHE_DIR": str(tmp_path / "uv"), "PIP_NO_CACHE_DIR": "1"}
    sync = f"sync --target env --no-verify --installer {installer}"
    done = command(sync, status=4, **caches)
    assert "beta-2.5" in done.stderr.splitlines()[-1]
    assert contents(folder) == before
