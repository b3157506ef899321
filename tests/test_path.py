"""The whole path over a live index on loopback: solve, lock, sync; and what a bad index ends in."""

from index_server import File, IndexServer, make_wheel
from tables import HERE, data_file, each
from test_cli import contents, run

TABLES = data_file("tables/path.json")


def fill(server):
    server.add("alpha", "1.0", ["beta>=1"])
    server.add(
        "alpha", "2.0", ["beta>=2 ; python_version >= '3.8'", "gamma ; sys_platform == 'win32'"]
    )
    server.add("beta", "1.0")
    server.add("beta", "2.5")
    server.add("beta", "3.0", yanked="broken")


# What an index looks like and who installs meet in the lock alone: every style goes with both
# kinds of metadata, and each installer with every style.
@each("installer metadata style", TABLES["solve_and_sync_from_a_live_index"])
def test_solve_and_sync_from_a_live_index(folder, style, metadata, installer):
    with IndexServer(style, metadata=metadata) as server:
        fill(server)
        flags = f"--gpu none --python {HERE}"
        run(f"solve alpha {flags} --index-url {server.url}", folder)
        text = (folder / "pylock.toml").read_text()
        assert 'version = "2.5"' in text and 'version = "2.0"' in text and "gamma" not in text
        assert f'index = "{server.url}' in text
        assert text.count("size = ") == 2  # asked for where the page does not say it
        run(f"solve alpha {flags} --index-url {server.url} -o pylock.b.toml --offline", folder)
        assert (folder / "pylock.b.toml").read_text() == text
        command = (
            f"sync pylock.toml --target env --no-verify --installer {installer} --index-url "
            f"{server.url}"
        )
        run(f"{command} {flags}", folder)
    assert (folder / "env" / "pyvenv.cfg").exists()


@each("path fault", TABLES["a_bad_index_is_one_line_and_status_4"])
def test_a_bad_index_is_one_line_and_status_4(folder, path, fault, server):
    fill(server)
    server.faults[path] = [fault, "always"]
    done = run(f"solve alpha --gpu none --index-url {server.url}", folder, status=4)
    assert len(done.stderr.splitlines()) == 1
    assert "127.0.0.1" in done.stderr or "alpha-2.0" in done.stderr
    assert contents(folder) == {}


def test_a_package_comes_from_one_index_only(folder):
    """A newer release on the default index never wins over the extra index that has the name."""
    with IndexServer() as mine, IndexServer() as other:
        fill(mine)
        other.add("alpha", "99.0")
        other.add("delta", "1.0", ["alpha"])
        flags = f"--gpu none --index-url {other.url} --extra-index-url {mine.url}"
        run(f"solve delta {flags}", folder)
        text = (folder / "pylock.toml").read_text()
    assert '"99.0"' not in text
    assert 'name = "alpha"\nversion = "2.0"' in text
    assert other.base in text and mine.base in text


@each("installer", ["uv", "pip"])
def test_a_file_with_the_wrong_hash_is_not_installed(tmp_path, installer, server):
    folder = tmp_path / "work"
    folder.mkdir()
    flags = f"--gpu none --python {HERE}"
    fill(server)
    run(f"solve beta {flags} --index-url {server.url}", folder)
    before = contents(folder)
    name, other = make_wheel("beta", "2.5", padding=9)
    server.projects["beta"] = [File(name, other)]  # another file under the name that was locked
    command = f"sync --target env --no-verify --installer {installer} --index-url {server.url}"
    caches = {"UV_CACHE_DIR": str(tmp_path / "uv"), "PIP_NO_CACHE_DIR": "1"}
    done = run(f"{command} {flags}", folder, status=4, **caches)
    assert "beta-2.5" in done.stderr.splitlines()[-1]
    assert contents(folder) == before
