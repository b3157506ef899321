"""Every flag of the commands that solve or install, with conda packages: honored or refused."""

from pathlib import Path

import pytest

from conda_prefixes import HOST
from gpuenv.api import conda
from gpuenv.cli import command_parser, parse_arguments
from gpuenv.cli.requests import read_conda_request, read_repair_request
from gpuenv.resolve.conda import solvers
from small_wheels import write_files
from tables import data_file, each

TABLES = data_file("tables/conda_flags.json")

pytestmark = pytest.mark.usefixtures("one_rattler")


@pytest.fixture(autouse=True)
def files(channel, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = {"CHANNEL": channel, "OTHER": f"{tmp_path.as_uri()}/other"}
    write_files(tmp_path, TABLES["files"], places)
    Path("open.yml").write_text(f"channels: ['{channel}']\ndependencies: [numpy]\n")


def rows(backend):
    return [row for of_flag in TABLES[backend].values() for row in of_flag]


def given(line, default):
    """Return the flags of a default that a line does not give."""
    line = line.replace("--gpu none", "--gpu none --driver")  # which has no driver
    pairs = zip(*[iter(default.split())] * 2, strict=True)
    return " ".join(f"{flag} {value}" for flag, value in pairs if flag not in line)


@each("line status text", rows("conda"))
def test_a_flag_counts_for_conda_packages(line, status, text, channel, call):
    more = given(line, f"--backend conda {HOST}") + (" -o lock" if "-o " not in line else "")
    more += "" if "pixi" in line or "environment" in line or "elsewhere" in line else " --channel X"
    more = more.replace("--channel X", f"--channel {channel}")
    shown = call(f"solve {line.replace('CHANNEL', channel)} {more}", status=status).output
    lock = Path("lock").read_text() if Path("lock").exists() else ""
    assert text in shown + lock, shown


@each("line status text", rows("pip"))
def test_a_flag_of_conda_is_refused_for_wheels(line, status, text, call):
    assert text in call("solve", *line.split(), *HOST.split(), status=status).stderr


@each("flag", [*TABLES["sync"]])
def test_a_flag_of_wheels_is_refused_for_a_lock_of_conda(flag, call):
    Path("lock.txt").write_text("@EXPLICIT\n")
    done = call("sync lock.txt --target env", *TABLES["sync"][flag].split(), status=2)
    assert flag in done.stderr


def test_no_package_at_a_url_is_installed_offline(call):
    url = f"https://a.test/channel/linux-64/zlib-1.3.1-0.conda#{32 * '0'}"
    Path("lock.txt").write_text(f"@EXPLICIT\n{url}\n")
    done = call("sync lock.txt --target env --offline", status=2)
    done.says_in_one_line("zlib 1.3.1 is of no local channel")
    assert not Path("env").exists()


def test_the_tables_have_every_flag():
    known = {*TABLES["conda"], *TABLES["sync"], *TABLES["elsewhere"]}
    for name in ("solve", "install", "explain", "sync"):
        flags = {(*one.option_strings, one.dest)[-2 if one.option_strings else -1]
                 for one in command_parser(name).shown_actions()}  # fmt: skip
        assert flags <= known, name


@each("line expected", TABLES["channels"])
def test_conda_gpuenv_reads_the_channels_of_conda(line, expected, channel, tmp_path, monkeypatch):
    monkeypatch.setattr(conda, "inside_conda", lambda: True)
    monkeypatch.setattr(solvers, "configured_channels", lambda: ("of-conda",))
    arguments = parse_arguments([*line.replace("torch.yml", "torch").split(), *HOST.split()])
    read = read_repair_request if "--repair" in line else read_conda_request
    assert [*conda.channels(read(arguments)[0])] == [
        text.replace("CHANNEL", channel).replace("OTHER", f"{tmp_path.as_uri()}/other")
        for text in expected
    ]


def test_pins_hold_for_a_new_environment(channel, monkeypatch, call):
    """A pin limits what is solved, adds no package, and refuses a lock that violates it."""
    solve = f"solve torch --backend conda --channel {channel} {HOST}"
    call(f"{solve} -o without.txt")
    monkeypatch.setenv("CONDA_PINNED_PACKAGES", "pytorch<2.8&ncurses=6.4&attr 1.*")
    assert "ncurses" in call(f"{solve} -o pinned.txt", status=3).stderr
    monkeypatch.setenv("CONDA_PINNED_PACKAGES", "pytorch<2.8&gcc=1")
    call(f"{solve} -o pinned.txt")
    assert "pytorch-2.7.1" in Path("pinned.txt").read_text()
    done = call(f"sync without.txt --target env --no-verify {HOST}", status=1)
    assert "pytorch<2.8" in done.stderr and not Path("env").exists()
