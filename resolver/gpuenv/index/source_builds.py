"""Builds source distributions, for their metadata and for their wheels.

pypa's `build` runs the backend (PEP 517) in an environment of its own, which has the build
requirements only. uv installs these where it is present, otherwise pip, from the indexes of the
user. A project that compiles code for an installed package, such as torch, is built beside the
environment that has it (`Beside`): the packages of that environment can be imported, too. A build
runs code of the archive: in its own process group, with a time limit, and without the settings of
pip and uv, which may have credentials. However gpuenv ends, the processes of a build end and its
folder is removed (build_watcher).
"""

from __future__ import annotations

import importlib.resources  # noqa: F401  two threads that import it at once can deadlock
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from threading import BoundedSemaphore
from typing import IO, Literal

from .. import activity
from ..compat.data import compatibility_data
from ..errors import InputError, PackageIndexError, Reason, UnusableFileError
from ..interpreters import find_interpreter_of, find_pip, find_uv, venv_command
from ..model import IndexOptions, Python, Value, Wheel
from ..prefix import interpreter_of, sites
from ..requirements.source_urls import is_editable
from ..requirements.target import identify
from ..requirements.versions import contains, normalize_name, parse_requirement
from ..serialize import text_digest
from .cache import cache_folder
from .default_index import default_index

TIME_LIMIT = 1800.0  # seconds; GPUENV_BUILD_TIMEOUT changes it
COMPILING = 8  # times as long may a build beside an environment take: flash-attn takes hours
MOST_FAILURES = 3  # of a package; its other releases are not tried then
TAIL = 20  # lines of the output of a failed build

# What tarfile and zipfile raise for archives that are damaged, encrypted or packed in unknown ways.
DAMAGED_ARCHIVE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
)

_WATCHER = os.path.join(os.path.dirname(__file__), "build_watcher.py")
_MISSING_MODULE = re.compile(r"No module named '([\w.]+)")
_ERROR_LINE = re.compile(
    r"\s*(?:\w+\.)*(?:\w*Error|\w*Exception|error|ERROR|fatal error)\b.*[:!]|"
    r"(?:\w+\.)+[A-Z]\w+: |"  # an exception of a module, such as a.b.InvalidVersion
    r"\S+:\d+(?::\d+)?: (?:fatal )?error: |\S+\(\d+\): error"  # gcc, nvcc
)
_FAILED_COMMAND = re.compile(r"\S*(?:error|Error): Command ")  # what failed is above
_LONGEST_LINE = 300
_LAST_LINES = 5  # of an output without such a line
_FRAME = " \t\u2570\u251c\u2500\u25b6\xd7\u2502"  # what uv draws around its errors
# What pip and uv write where a server cannot be reached.
NO_CONNECTION = re.compile("connect|resolve|lookup|timed out|dns error", re.IGNORECASE)
# Settings of pip that would send build requirements elsewhere, and what hides or adds modules.
_DROPPED = ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PYTHONHOME", "PYTHONPATH")
_OF_INSTALLERS = ("PIP_", "UV_", "GPUENV_")
_slots = BoundedSemaphore(os.cpu_count() or 1)  # builds that run at once


class BuildFailedError(UnusableFileError):
    """A source distribution cannot be built.

    `output` is the end of what the build printed. `missing_module` is a module that it imports and
    does not require, "" for other failures.
    """

    code = "build-failed"

    def __init__(self, reason: Reason, output: str, missing_module: str = "") -> None:
        super().__init__(reason)
        self.output, self.missing_module = output, missing_module


class Beside(Value):
    """The environment that a project is built beside, because it compiles code for a package in it.

    Attributes:
        package: the distribution that it is compiled for.
        folders: the folders of packages of the environment.
        label: what the wheel depends on, as a file name: torch-2.15.0-cuda-13.2-for-9.0.
        requires: what the build needs beside its stated build requirements.
        variables: (name, value) of environment variables of the build.
        hint: what to change if the build fails.
    """

    package: str
    folders: tuple[str, ...]
    label: str
    requires: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    hint: str = ""


class SourceBuilder:
    """Builds source distributions.

    Args:
        python: the interpreter to build for, or what it must be. Where no such one is here,
            that of gpuenv tells the metadata, as in uv; it builds no wheel for another one.
        options: where build requirements come from; the default index has what they do not name.
        may_build: whether a package may be built. A changed request that a refusal tries builds no
            more than the user's own.

    Attributes:
        deadline: when all builds end (time.monotonic).
    """

    deadline = math.inf

    def __init__(
        self,
        python: str | Python,
        options: IndexOptions,
        may_build: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._wanted, self._options, self.may_build = python, options, may_build
        self._failures: dict[str, list[UnusableFileError]] = {}  # by package

    @cached_property
    def _python(self) -> str:
        if isinstance(self._wanted, str):
            return self._wanted
        return find_interpreter_of(self._wanted) or sys.executable

    @cached_property
    def key(self) -> str:
        """What metadata and wheels can depend on: the interpreter and the platform of this host."""
        code = "import sys, sysconfig; print(sys.implementation.cache_tag, sysconfig.get_platform()"
        code += ", sysconfig.get_config_var('SOABI'))"
        command = [self._python, "-I", "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def metadata(self, sdist: Wheel, archive: str, why: str, requires: Sequence[str] = ()) -> bytes:
        """Return the METADATA that a build makes.

        Args:
            sdist: the source distribution.
            archive: its file, whose hash was checked.
            why: why a build is needed, for the line that announces it.
            requires: what the build needs beside its stated build requirements.

        Raises:
            BuildFailedError: it cannot be built.
            PackageIndexError: an index of its build requirements cannot be reached.
        """
        before = _traces(archive)
        try:
            return self._build(sdist, archive, "metadata", why, requires=requires)[0]
        finally:
            for path in _traces(archive) - before:
                shutil.rmtree(path, ignore_errors=True)

    def remember(self, name: str, error: UnusableFileError) -> None:
        """Count a release of a package that cannot be built, or must not be."""
        self._failures.setdefault(name, []).append(error)

    def require_hope(self, sdist: Wheel) -> None:
        """Raise UnusableFileError if other releases of a package could not be built.

        One is enough if a module is missing: its build requirements lack it in other releases, too.
        """
        failures = self._failures.get(sdist.name, [])
        lacks_module = any(
            isinstance(error, BuildFailedError) and error.missing_module for error in failures
        )
        if len(failures) >= MOST_FAILURES or lacks_module:
            reason = failures[0].reason
            raise UnusableFileError(reason.replace(subject=f"{sdist.name} {sdist.version}"))

    def wheel(self, sdist: Wheel, archive: str, why: str, beside: Beside | None = None) -> str:
        """Return the path of a wheel of a source distribution; one that was built before is kept.

        Args:
            sdist, archive, why: as `metadata`.
            beside: the environment whose packages the build may import; None isolates it.

        Raises:
            BuildFailedError: it cannot be built.
        """
        kept = self.kept_wheel(sdist, beside)
        product = "an editable wheel" if is_editable(sdist) else "a wheel"
        return kept or self._build(sdist, archive, product, why, beside=beside)[1]

    def kept_wheel(self, sdist: Wheel, beside: Beside | None = None) -> str | None:
        """Return the wheel that an earlier build of a source distribution made; None without."""
        folder = self._place(sdist, beside) if sdist.sha256 else ""
        with suppress(OSError):
            for name in os.listdir(folder):
                if name.endswith(".whl"):
                    return os.path.join(folder, name)
        return None

    def key_of(self, name: str) -> str:
        """Return what the metadata and wheels of a package can depend on."""
        settings = build_settings_of(name, self._options.build_settings)
        digest = text_digest("\n".join(settings))[:16]
        return f"{self.key} {digest}" if settings else self.key

    def compiles_for(self, name: str) -> str:
        """Return the framework that the user gives to the builds of a package; "" for none."""
        names = (parse_requirement(text).name for text in self._given("requirement", name))
        data = compatibility_data()
        return next((other for other in names if data.framework(other) is not None), "")

    def _given(self, kind: str, name: str) -> list[str]:
        """Return the texts of one kind of what the user says about the builds of a package."""
        rows = build_settings_of(name, self._options.build_settings)
        return [row.split(" ", 2)[2] for row in rows if row.startswith(f"{kind} ")]

    def _place(self, sdist: Wheel, beside: Beside | None) -> str:
        key = self.key_of(sdist.name).replace(" ", "-")
        key += f"-{beside.label}" if beside is not None else ""
        place = sdist.sha256 or "folders"
        return os.path.join(cache_folder(), "builds", "wheels", place, key)

    def _build(
        self,
        sdist: Wheel,
        archive: str,
        product: str,
        why: str,
        *,
        beside: Beside | None = None,
        requires: Sequence[str] = (),
    ) -> tuple[bytes, str]:
        """Return (METADATA, the path of the wheel); the path is "" if only metadata was asked for.

        A backend without a hook for metadata builds a wheel for it, which is kept.
        """
        from build import BuildBackendException, BuildException, ProjectBuilder
        from pyproject_hooks import BuildBackendWarning

        # They are in the output already.
        warnings.filterwarnings("ignore", category=BuildBackendWarning)
        release = f"{sdist.name} {sdist.version}".strip() or "the project"
        limit = _time_limit() * (COMPILING if beside is not None else 1)
        with _slots, _BuildFolder(limit, self) as folder:
            activity.current.announce(f"building {product} of {release}: {why}")
            try:
                source = unpack(archive, folder.path("source"))
            except DAMAGED_ARCHIVE as error:
                problem = f"an archive that cannot be unpacked ({error})"
                raise _failure(sdist, problem) from None
            _refuse_placeholder(sdist, source)
            try:
                settings = self._install_settings()
                flags = ["--no-index"] if self._options.no_index else []
                if constraints := self._given("constraint", sdist.name):
                    flags += ["-c", folder.write("constraints.txt", constraints)]
                variables = self._given("variable", sdist.name)
                environment = _Environment(
                    folder, self._python, settings, flags, beside=beside, variables=variables
                )
                builder = ProjectBuilder.from_isolated_env(environment, source, runner=folder.hook)
                given = self._given("requirement", sdist.name)
                environment.install([*builder.build_system_requires, *given, *requires])
                kind: Literal["editable", "wheel"] = "editable" if is_editable(sdist) else "wheel"
                config = _config_settings(self._given("config", sdist.name))
                environment.install(builder.get_requires_for_build(kind, config))
                output, metadata = folder.path("output"), b""
                is_wanted = product == "metadata"
                place = builder.prepare("wheel", output, config) if is_wanted else None
                if place is not None:
                    metadata = Path(place, "METADATA").read_bytes()
                else:
                    built = builder.build("wheel" if is_wanted else kind, output, config)
                    metadata = _metadata_of(built) if is_wanted else b""
            except (zipfile.BadZipFile, KeyError):
                raise _failure(sdist, "a build that makes no wheel", folder.output()) from None
            except BuildException as error:
                problem = str(error).replace(f"{source} ", "")
                raise _failure(sdist, problem, folder.output()) from None
            except (BuildBackendException, subprocess.CalledProcessError) as error:
                # The hooks catch the traceback of a backend that cannot be imported.
                folder.note(getattr(getattr(error, "exception", None), "traceback", ""))
                problem = folder.problem() or str(error)
                raise _failure(sdist, problem, folder.output()) from None
            wheels = [str(path) for path in Path(output).glob("*.whl")]
            # An index may give no hashes, and a folder has none.
            is_kept = bool(wheels and (sdist.sha256 or product != "metadata"))
            return metadata, self._keep(sdist, wheels[0], beside) if is_kept else ""

    def _keep(self, sdist: Wheel, wheel: str, beside: Beside | None) -> str:
        name = os.path.basename(wheel)
        built, version = identify(name) or ("?", "?")
        # A source tree may tell neither before its build; each commit may change its version.
        is_other = sdist.version not in ("", version) and not is_editable(sdist)
        if is_other or sdist.name not in ("", built):
            raise _failure(sdist, f"a build that makes {name}")
        place = os.path.join(self._place(sdist, beside), name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.replace(wheel, place)  # on the same file system: the folder of a build is in the cache
        return place

    def _install_settings(self) -> dict[str, str]:
        """Return the environment of the installer, which says where build requirements come from.

        In the arguments of a process, everybody could read credentials.
        """
        options, default = self._options, default_index()
        links = [os.path.abspath(link) for link in options.find_links if os.path.exists(link)]
        links += [link for link in options.find_links if not os.path.exists(link)]
        settings = {
            "UV_DEFAULT_INDEX": options.index_url or default.url,
            "UV_INDEX": " ".join(options.extra_index_urls),
            "UV_FIND_LINKS": ",".join(links),
            "PIP_EXTRA_INDEX_URL": " ".join(options.extra_index_urls),
            "PIP_FIND_LINKS": " ".join(links),
            "SSL_CERT_FILE": default.cert or "",
        }
        if options.index_url:
            settings["PIP_INDEX_URL"] = options.index_url
        if options.offline:  # uv then uses its cache
            settings["UV_OFFLINE"] = settings["PIP_NO_INDEX"] = "1"
        own = {name: value for name, value in os.environ.items() if name not in _DROPPED}
        return own | {name: value for name, value in settings.items() if value}


def build_settings_of(name: str, settings: Iterable[str]) -> tuple[str, ...]:
    """Return what holds for the builds of a package (see IndexOptions)."""
    return tuple(row for row in settings if row.split(" ", 2)[1] in ("*", name))


def _config_settings(texts: Iterable[str]) -> dict[str, str | list[str]]:
    """Return KEY=VALUE texts as a backend gets them: several values of a key as a list."""
    settings: dict[str, list[str]] = {}
    for text in texts:
        key, _, value = text.partition("=")
        settings.setdefault(key, []).append(value)
    return {key: values if len(values) > 1 else values[0] for key, values in settings.items()}


def _metadata_of(wheel: str) -> bytes:
    """Return the METADATA of a wheel that a backend has built."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return archive.read(min(names, key=len, default=""))


def _time_limit() -> float:
    """Return the seconds that a build may take."""
    text = os.environ.get("GPUENV_BUILD_TIMEOUT") or str(TIME_LIMIT)
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise InputError(f"GPUENV_BUILD_TIMEOUT={text}: is no number of seconds")
    return float(text)


def _failure(sdist: Wheel, problem: str, output: str = "", need: str = "") -> BuildFailedError:
    """Return why a source distribution cannot be built.

    A missing module is one that neither the build requirements nor the environment have.
    """
    missing = _MISSING_MODULE.search(problem)
    if missing is not None:
        need, problem = f"{missing[1]} at build time", "build requirements that lack it"
    reason = Reason(
        "build-failed",
        f"{sdist.name} {sdist.version}".strip() or "the project",
        need or "a build of its source distribution that works",
        problem,
    )
    return BuildFailedError(reason, output, missing[1] if missing is not None else "")


def _refuse_placeholder(sdist: Wheel, source: str) -> None:
    """Raise BuildFailedError if a build would only download a wheel (wheel-stub, nvidia-stub)."""
    try:
        document = tomllib.loads(Path(source, "pyproject.toml").read_text(encoding="utf-8"))
        backend = document["build-system"]["build-backend"]
        if backend == "nvidia_stub.buildapi":
            index = "https://pypi.nvidia.com"
        elif backend == "wheel_stub.buildapi":
            index = str(document["tool"]["wheel_stub"]["index_url"]).rstrip("/")
        else:
            return
    except (OSError, ValueError, LookupError, TypeError):  # the build says what is wrong
        return
    placeholder = f"a placeholder on the index; use --extra-index-url {index}"
    raise _failure(sdist, placeholder, need=f"a wheel of {index}")


def unpack(archive: str, folder: str) -> str:
    """Unpack an archive, and return the folder of the project in it; a folder stays."""
    if os.path.isdir(archive):
        return os.path.abspath(archive)
    if archive.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(folder)  # noqa: S202  it stays in the folder
    else:
        with tarfile.open(archive, "r:gz") as packed:
            if hasattr(tarfile, "data_filter"):
                packed.extractall(folder, filter="data")
            else:  # Python before 3.11.4
                packed.extractall(folder, _without_links(packed))  # noqa: S202  checked
    entries = os.listdir(folder)
    inside = os.path.join(folder, entries[0]) if len(entries) == 1 else folder
    return inside if os.path.isdir(inside) else folder


def archive_files(file: IO[bytes], filename: str) -> Iterator[tuple[str, int, Callable[[], bytes]]]:
    """Yield (path, bytes, the function that reads it) of each file of an archive.

    The function can be called until the next file is asked for. One of DAMAGED_ARCHIVE is raised
    for an archive that cannot be read.
    """
    if not filename.endswith(".tar.gz"):
        with zipfile.ZipFile(file) as zipped:
            for info in zipped.infolist():
                yield info.filename, info.file_size, partial(zipped.read, info)
        return
    with tarfile.open(fileobj=file, mode="r:gz") as packed:
        for member in packed:
            content = packed.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, member.size, content.read


def _traces(folder: str) -> set[str]:
    """Return the folders that a backend writes beside the sources; an archive has none."""
    patterns = ("build", "*.egg-info", "*/*.egg-info")
    return {str(path) for pattern in patterns for path in Path(folder).glob(pattern)}


def _without_links(packed: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the files and folders of an archive, for a Python that has no filter for links.

    Raises:
        tarfile.TarError: a file would be outside of the folder.
    """
    for member in packed:
        path = os.path.normpath(member.name)
        if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
            raise tarfile.TarError(f"{member.name} would be extracted outside the destination")
        if member.isfile() or member.isdir():
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.uname = member.gname = ""
            member.uid, member.gid = os.getuid(), os.getgid()
            yield member


class _Environment:
    """The environment of a build: build.env.IsolatedEnv, with the target's interpreter.

    Beside another environment, it has the packages of that one as well. Its own come first.
    """

    def __init__(
        self,
        folder: _BuildFolder,
        base: str,
        settings: Mapping[str, str],
        flags: Sequence[str],
        *,
        beside: Beside | None,
        variables: Sequence[str] = (),
    ) -> None:
        self._folder, self._settings = folder, settings
        path = folder.path("environment")
        uv = find_uv()
        # The pip beside gpuenv may be too new for another Python, which has one of its own.
        own = find_pip() if base == sys.executable else None
        folder.run(venv_command(base, path, uv=uv, prompt="build", pip=own is None), settings)
        python = interpreter_of(path)
        if uv is not None:
            self._install = [uv, "pip", "install", "--quiet", "--no-config", "--python", python]
        else:
            pip = ["-m", "pip"] if own is None else [own]
            self._install = [python, "-I", *pip, "install", "--quiet", "--no-input"]
        self._install += flags
        self.python_executable = python
        self._variables = {"PATH": os.pathsep.join((os.path.dirname(python), *os.get_exec_path()))}
        given = {name: value for name, _, value in (text.partition("=") for text in variables)}
        self._variables |= given
        self._package, self._there = "", dict[str, str]()
        if beside is None:
            return
        self._install_lines(beside.requires)
        import importlib.metadata  # slow, and few solves build

        own_folder = sites(path)[0]
        lines = "\n".join(beside.folders)
        Path(own_folder, "beside.pth").write_text(lines, encoding="utf-8")
        self._package = beside.package
        for distribution in importlib.metadata.distributions(path=list(beside.folders)):
            self._there[normalize_name(distribution.name)] = distribution.version
        self._variables |= dict(beside.variables) | given
        self._variables = _toolkit_of_wheels([own_folder, *beside.folders]) | self._variables
        if "CUDA_HOME" in self._variables:
            programs = os.path.join(self._variables["CUDA_HOME"], "bin")
            self._variables["PATH"] = programs + os.pathsep + self._variables["PATH"]

    def make_extra_environ(self) -> Mapping[str, str]:
        """Return the variables of the backend: the programs of the environment come first."""
        return self._variables

    def install(self, requirements: Iterable[str]) -> None:
        """Install build requirements that the environment beside does not fulfill.

        Raises:
            subprocess.CalledProcessError: the installer failed.
            PackageIndexError: it could not reach an index.
            build.BuildException: the package that code is compiled for is another release.
        """
        from build import BuildException

        lines = []
        for text in sorted(requirements):
            requirement = parse_requirement(text)
            version = self._there.get(requirement.name)
            if version is not None and contains(requirement.specifier, version):
                continue
            if requirement.name == self._package:
                raise BuildException(f"{self._package} {version}; its build requires {text}")
            lines.append(text)
        self._install_lines(lines)

    def _install_lines(self, lines: Sequence[str]) -> None:
        if not lines:
            return
        path = self._folder.write("requirements.txt", lines)
        try:
            self._folder.run([*self._install, "-r", path], self._settings)
        except subprocess.CalledProcessError:
            problem = self._folder.problem()
            if "UV_OFFLINE" in self._settings or not NO_CONNECTION.search(problem):
                raise
            message = f"build requirements ({', '.join(lines)}) cannot be installed: {problem}"
            raise PackageIndexError(message) from None


def _toolkit_of_wheels(folders: Sequence[str]) -> dict[str, str]:
    """Return the variables for what wheels have of a CUDA toolkit; {} if they have nothing.

    A toolkit of the host may lack headers that they have (CPATH). CUDA_HOME is that of nvcc.

    Args:
        folders: folders of packages. The first one may have nvcc; all may have headers and
            libraries, which then get the names that a linker looks for.
    """
    homes = [Path(place) for folder in folders for place in Path(folder).glob("nvidia/cu1?")]
    headers = {"CPATH": os.pathsep.join(str(home / "include") for home in homes)} if homes else {}
    if not homes or not (homes[0] / "bin" / "nvcc").exists():
        return headers
    for library in [file for home in homes for file in home.glob("lib/lib*.so.*")]:
        name = homes[0] / "lib" / (library.name.partition(".so.")[0] + ".so")
        if not name.exists():
            name.symlink_to(library)
    return {**headers, "CUDA_HOME": str(homes[0])}


class _BuildFolder:
    """The folder of one build, and the process group of what runs in it."""

    def __init__(self, limit: float, builder: SourceBuilder) -> None:
        self._builder = builder
        self._root = os.path.join(cache_folder(), "builds", "running", os.urandom(8).hex())
        self._log = self.path("output.txt")
        self._deadline = time.monotonic() + limit
        self._timed_out = ""
        self._watcher: subprocess.Popen[bytes] | None = None
        if os.name != "posix":
            os.makedirs(self._root)
            return
        command = [sys.executable, "-I", "-S", _WATCHER, self._root]
        pipe = subprocess.PIPE
        self._watcher = subprocess.Popen(command, stdin=pipe, stdout=pipe, process_group=0)
        ready = self._watcher.stdout and self._watcher.stdout.readline()
        if not ready:
            raise InputError(f"{self._root}: cannot be made", hint="set GPUENV_CACHE_DIR")

    def __enter__(self) -> _BuildFolder:
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the folder, and end what a build left running.

        The watcher ends last: until then it removes the folder if gpuenv is killed.
        """
        shutil.rmtree(self._root, ignore_errors=True)
        if self._watcher is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._watcher.pid, signal.SIGKILL)
            self._watcher.communicate()
        if os.path.exists(self._root):  # a process of the build has written meanwhile
            shutil.rmtree(self._root, ignore_errors=True)

    def path(self, name: str) -> str:
        """Return the path of a file in the folder."""
        return os.path.join(self._root, name)

    def write(self, name: str, lines: Iterable[str]) -> str:
        """Write a file, and return its path."""
        Path(self.path(name)).write_text("\n".join(lines), encoding="utf-8")
        return self.path(name)

    def hook(
        self,
        cmd: Sequence[str],
        cwd: str | None = None,
        extra_environ: Mapping[str, str] | None = None,
    ) -> None:
        """Run a hook of the backend (pyproject_hooks.SubprocessRunner), without settings."""
        environment = dict(extra_environ or {})
        for name, value in os.environ.items():
            if name not in _DROPPED and not name.startswith(_OF_INSTALLERS):
                environment.setdefault(name, value)
        self.run(cmd, environment, cwd)

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: str | None = None
    ) -> None:
        """Run a program of the build; its output is kept.

        Args:
            command: the program and its arguments.
            environment: its environment variables.
            cwd: the working folder.

        Raises:
            subprocess.CalledProcessError: it failed, or the time of the build is over.
        """
        with open(self._log, "ab") as log:
            child = subprocess.Popen(
                list(command),
                cwd=cwd or self._root,
                env={**environment, "TMPDIR": self._root},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=None if self._watcher is None else self._watcher.pid,
            )
            status = None
            try:
                while status is None:
                    with suppress(subprocess.TimeoutExpired):
                        status = child.wait(0.5)
                    end = min(self._deadline, self._builder.deadline)
                    if status is None and time.monotonic() >= end:
                        self._timed_out = "a build that takes longer than its time limit"
                        status = -signal.SIGKILL
            finally:
                child.kill()
                child.wait()
        if status:
            raise subprocess.CalledProcessError(status, list(command))

    def note(self, text: str) -> None:
        """Add a text to the output."""
        with open(self._log, "a", encoding="utf-8") as log:
            log.write(text)

    def output(self) -> str:
        """Return the end of what the programs of the build printed."""
        with suppress(OSError):
            text = Path(self._log).read_text(encoding="utf-8", errors="replace")
            return "\n".join(text.rstrip().splitlines()[-TAIL:])
        return ""

    def problem(self) -> str:
        """Return the output from its last line that names an error, or else its last lines."""
        if self._timed_out:
            return self._timed_out
        lines = [line.strip(_FRAME) for line in self.output().splitlines()]
        lines = [line for line in lines if re.search(r"\w", line) and not line.startswith("hint:")]
        starts = [number for number, line in enumerate(lines) if _ERROR_LINE.match(line)]
        whole = [number for number in starts if not _FAILED_COMMAND.match(lines[number])]
        starts = whole or starts
        return " ".join(lines[starts[-1] if starts else -_LAST_LINES :])[:_LONGEST_LINE]
