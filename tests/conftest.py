"""What tests of several files share."""

import compileall
import fcntl
import gc
import itertools
import os
import shutil
import sys
import tomllib
import venv
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import planting
import processes
from gpuenv.cli import main
from gpuenv.errors import InstallError
from gpuenv.index.cache import Cache
from gpuenv.index.http import Transport
from gpuenv.verify.runner import PROBES
from index_server import IndexServer
from indexes import combined_index, simple_index
from tables import HERE

# Without bytecode, each of the many processes that the tests start compiles gpuenv again, which
# takes longer than most of the commands.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# In CI, commands print progress on stderr.
os.environ.pop("CI", None)
# Commands read no config file of the user.
os.environ["GPUENV_CONFIG_FILE"] = ""

processes.adopt_orphans()
# Seconds for processes that were told to end and are about to.
GRACE = 5.0


# How long an example takes says how busy the machine is.
settings.register_profile(
    "suite", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


# Tests of many long cases. With GPUENV_TEST_SAMPLE=1 every fifth case runs.
LONG_TESTS = (
    "test_owners.py::test_commands",
    "test_state.py::test_paths_are_utf_8_in_every_locale",
    "test_shared_versions.py::test_lock",
    "test_pip.py::test_what_would_be_done",
    "test_project_files.py::test_solve",
    "test_companions.py::test_an_import",
    "test_companion_indexes.py::test_the_builds_of_an_index_are_chosen_for_the_host",
    "test_upgrades.py::test_no_version_goes_back_in_silence",
    "test_laptops.py::test_a_command_runs_on_a_laptop",
    "test_foreign_locks.py::test_what_a_command_says",
    "test_no_network.py::test_the_snapshot_answers_without_a_network",
    "test_verification.py::test_a_framework",
    "test_verification.py::test_planted_faults",
    "test_conda_scenarios.py::test_a_scenario",
    "test_framework_names.py::test_command_line",
    "test_foreign_locks.py::test_sync_installs_the_files_of_a_lock_and_verify_compares_with_it",
    "test_planted.py::test_planted_fault",
    "test_probes.py::test_planted_faults",
    "test_doctor_host.py::test_the_evidence_settles_it",
    "test_grid.py::test_every_plan_is_right_and_the_best_and_every_refusal_is_due",
    "test_grid.py::test_the_framework_named_first_is_as_new_as_it_can_be",
    "test_host_conditions.py::test_condition",
)


def pytest_configure():
    """Compile the probes, as pip does for users. They run with -B, which keeps no bytecode.

    The commands of entry points come from the metadata of the installed gpuenv.
    """
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    expected = project["project"]["entry-points"]["gpuenv.commands"]
    installed = {entry.name: entry.value for entry in entry_points(group="gpuenv.commands")}
    if installed != expected:
        command = f"{sys.executable} scripts/install_tests.py '.[test,lint]'"
        pytest.exit(f"the installed gpuenv has other commands; install it again: {command}", 2)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        compileall.compile_dir(PROBES, quiet=1)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect the tests without looking for garbage: nearly all objects stay to the end."""
    gc.disable()
    result = yield
    gc.enable()
    return result


def pytest_collection_modifyitems(config, items):
    """Deselect four of five cases of the long tests, if that is asked for."""
    if os.environ.get("GPUENV_TEST_SAMPLE") != "1":
        return
    dropped = []
    for test in LONG_TESTS:
        cases = [item for item in items if f"/{test}[" in item.nodeid]
        dropped += [item for number, item in enumerate(cases) if number % 5]
    config.hook.pytest_deselected(items=dropped)
    names = {item.nodeid for item in dropped}
    items[:] = [item for item in items if item.nodeid not in names]


def pytest_collection_finish():
    """Keep the collected tests, which stay to the end, out of every garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # solves make many objects and little garbage


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test():
    before = processes.running()
    yield
    gc.enable()  # a command turns it off for its own short life
    left = processes.left_over(before, GRACE)
    assert not left, f"processes outlive the test: {left}"


@pytest.fixture(scope="module", autouse=True)
def _no_process_outlives_its_module():
    """The processes that fixtures of the module start."""
    before = processes.running()
    yield
    left = processes.left_over(before, GRACE)
    assert not left, f"processes outlive the module: {left}"


@pytest.fixture(scope="session", autouse=True)
def _no_process_outlives_the_session():
    before = processes.running()
    yield
    left = processes.left_over(before, GRACE)
    assert not left, f"processes outlive the session: {left}"


@pytest.fixture(scope="session", autouse=True)
def _no_files_of_the_user(tmp_path_factory):
    """An empty home folder, an empty working folder and an empty cache of gpuenv.

    What is needed to reach a package index, and what was downloaded before, is that of the user.
    """
    user, home = Path.home(), tmp_path_factory.mktemp("home")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or user / ".config") / "pip" / "pip.conf"
    if config.exists():
        (home / ".config" / "pip").mkdir(parents=True)
        (home / ".config" / "pip" / "pip.conf").symlink_to(config)
    caches = Path(os.environ.get("XDG_CACHE_HOME") or user / ".cache")
    os.environ.setdefault("UV_CACHE_DIR", str(caches / "uv"))
    os.environ.setdefault("PIP_CACHE_DIR", str(caches / "pip"))
    os.environ.setdefault("PYENV_ROOT", str(user / ".pyenv"))
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    os.environ["HOME"] = str(home)
    os.environ["GPUENV_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("working"))
    yield
    os.chdir(before)


@pytest.fixture(scope="session")
def _folders(tmp_path_factory):
    """Names for folders that do not exist."""
    above = tmp_path_factory.mktemp("folders")
    return (above / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_working_folder(_folders):
    before, folder = Path.cwd(), next(_folders)
    folder.mkdir()
    os.chdir(folder)
    yield
    os.chdir(before)
    with suppress(OSError):  # it is not empty
        folder.rmdir()


@pytest.fixture
def folder(tmp_path):
    """The working folder of a command, with nothing in it."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def env(tmp_path):
    """An environment with nothing in it."""
    venv.create(tmp_path / "env", symlinks=True)
    yield tmp_path / "env"
    shutil.rmtree(tmp_path / "env", ignore_errors=True)  # some have half a gigabyte


@pytest.fixture
def hanging_env(env, native):
    """An environment whose cuDNN hangs, and variables that mark the processes of its checks."""
    from test_verification import CLEAN, install, site_of

    install(site_of(env), native, [{"member": "heuristic", "defines": ["HANG"]}])
    return env, {**CLEAN, "MARKER": f"marker-{os.getpid()}-{env}"}


@pytest.fixture
def call(capsys):
    """call(command, *words): run a command in this process, which is faster than a new one.

    It ends with status 0, or with the one that is given; None stands for any.
    """

    def command(text, *words, status=0):
        capsys.readouterr()
        arguments = [*processes.words_of(text), *map(str, words)]
        try:
            ended = main(arguments)
        except SystemExit as end:
            ended = int(str(end.code))
        return processes.Done(arguments, ended, *capsys.readouterr()).expect(status)

    return command


@pytest.fixture
def server():
    with IndexServer() as one:
        yield one


@pytest.fixture
def command(folder, server):
    """command(text): run a command in `folder` with the index of `server`.

    The host has no GPU, unless the text describes another one.
    """
    from test_cli import run

    def typed(text, *, status=0, **environment):
        has_host = "--gpu" in text or text.startswith("download")
        host = "" if has_host else f"--gpu none --python {HERE}"
        return run(f"{text} {host} --index-url {server.url}", folder, status=status, **environment)

    return typed


@pytest.fixture
def transport():
    with Transport(read=5.0) as one:
        yield one


@pytest.fixture
def cache(tmp_path):
    return Cache(str(tmp_path / "cache"))


@pytest.fixture
def index_of(server, transport, cache):
    """index_of(**options): the index of the server, as gpuenv reads it."""
    return lambda url="", **options: simple_index(url or server.url, transport, cache, **options)


@pytest.fixture
def direct_of(transport, cache):
    """direct_of(**options): no index; files are read by their URLs."""
    return lambda **options: combined_index(transport, cache, **options)


@pytest.fixture(params=["uv", "pip"])
def installer(request):
    return str(request.param)


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder of this run, the same one for all of its workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def made_once(shared):
    """made_once(name, make): a folder that the first worker to ask for fills by make(folder).

    The others wait meanwhile. If `make` raises, the next one starts again.
    """

    def folder_of(name, make):
        folder, done = shared / name, shared / f"{name}.done"
        with open(shared / f"{name}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return folder_of


@pytest.fixture(scope="session")
def native(shared):
    """Where C sources are compiled to: one content is compiled once in a run."""
    folder = shared / "native"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def published(made_once):
    """The site-packages of each real cuDNN release, the same before the first case and after.

    uv downloads them once for a machine, into its cache. Without a package index the tests that
    need them are skipped.
    """
    try:
        folder = made_once("cudnn", planting.download)
    except InstallError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no package index: {error}")
    before = planting.times(folder)
    yield {version: folder / version / planting.SITE for version in planting.RELEASES}
    assert planting.times(folder) == before


@pytest.fixture(scope="session")
def channel(made_once):
    """The local channel of real records; no test changes it."""
    import conda_channel

    return made_once("channel", conda_channel.make).as_uri()


@pytest.fixture(scope="session")
def conda(tmp_path_factory):
    """A real conda, with gpuenv as its plugin."""
    import conda_stand_in

    return conda_stand_in.real_conda(tmp_path_factory.mktemp("conda"))


@pytest.fixture(scope="module")
def own_conda_caches(tmp_path_factory):
    """Use empty caches of rattler and gpuenv, and no active environment."""
    import conda_channel

    with conda_channel.own_caches(tmp_path_factory):
        yield


@pytest.fixture(scope="module")
def one_rattler(own_conda_caches):
    """Solve with one process of rattler, with its own caches."""
    import rattler_turns

    with rattler_turns.one_process():
        yield


@pytest.fixture(scope="session")
def environment_channels(made_once):
    """Return the channels of conda_environments.toml: that of its packages, and the other one."""
    import conda_prefixes

    return conda_prefixes.make_channels(made_once)


@pytest.fixture(scope="session")
def conda_rows(environment_channels):
    """Return {"NAME VERSION": the record of repodata, with its URL} of these channels."""
    import conda_prefixes

    return conda_prefixes.rows_of(environment_channels)


@pytest.fixture(scope="session")
def channel_url(conda_rows):
    """The URL of the channel of its packages."""
    return conda_rows["openssl 3.0.7"]["channel"]
