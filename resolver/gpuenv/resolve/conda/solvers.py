"""The solvers of a closure: rattler in a child process, or the conda that runs gpuenv.

Both answer with records as repodata.json has them ("url", "channel", "fn" and "sha256" among their
keys). Neither library is imported before it is used.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Any, Self

from ...compat.conda_records import Record, Virtual
from ...errors import InputError, InstallError, PackageIndexError
from ...model import Value
from ...requirements import conda_versions
from ...requirements.conda_versions import inside_conda

NEEDED = "install gpuenv[conda], which has py-rattler, or run gpuenv inside conda"
END_SECONDS = 10.0  # for a child to end after its input has ended; then it is killed
_FIELDS = (
    *("name", "version", "build", "build_number", "subdir"),
    *("url", "fn", "size", "sha256", "md5"),
)
_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rattler_child.py")
CHANNEL_HINT = "a name such as conda-forge, a URL, or a folder with noarch/repodata.json in it"
# How conda's cache of repodata is used.
_CACHE_VARIABLES = {
    "fetch": {},
    "offline": {"CONDA_OFFLINE": "true"},
    "refresh": {"CONDA_LOCAL_REPODATA_TTL": "0"},
}


class RefusedError(Exception):
    """The solver found no closure; the text is its own."""


class ExistingPrefix(Value):
    """An environment that a closure is added to; without a path, a new one.

    `packages` are (name, version, build). `specs` name every package, with what users asked for.
    `fixed` are the specs of packages that must not change.
    """

    path: str = ""
    packages: frozenset[tuple[str, str, str]] = frozenset()
    specs: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()

    def staying(self, specs: Sequence[str]) -> list[str]:
        """Return the exact specs of the packages that the specs permit to stay."""
        wanted: dict[str, list[str]] = {}
        for spec in specs:
            wanted.setdefault(conda_versions.name_of(spec), []).append(spec)
        return [
            f"{name} =={version} {build}"
            for name, version, build in sorted(self.packages)
            if all(
                conda_versions.matches(spec, name, version, build) for spec in wanted.get(name, ())
            )
        ]

    def added(self, records: Sequence[Record], specs: Sequence[str]) -> list[Record]:
        """Return the records that the specs need, and those that change the environment.

        The records are the whole environment afterwards.
        """
        by_name = {record["name"]: record for record in records}
        pending = list(map(conda_versions.name_of, specs))
        for name, record in by_name.items():
            if (name, record["version"], record["build"]) not in self.packages:
                pending.append(name)
        reached: set[str] = set()
        while pending:
            name = pending.pop()
            if name in by_name and name not in reached:
                reached.add(name)
                pending += map(conda_versions.name_of, by_name[name].get("depends") or ())
        return [record for record in records if record["name"] in reached]


class Solver(ABC):
    """Reads channels and solves closures.

    `channels` are the names or URLs of the channels that it reads.

    `into` is the environment that closures are added to: its packages are kept, and changed only if
    a closure needs it. It may be set between two solves.

    A solver is a context manager: at the end of the block, what it started is ended.
    """

    def __init__(self, channels: Sequence[str]) -> None:
        self.channels: Sequence[str] = [*channels]
        self.into = ExistingPrefix()

    @abstractmethod
    def records(self, names: Sequence[str]) -> Sequence[Record]:
        """Return every record of these names that the channels have, in any order.

        Raises:
            PackageIndexError: A channel cannot be read.
            InputError: A channel does not exist, or there is no solver.
        """

    @abstractmethod
    def solve(
        self,
        specs: Sequence[str],
        constraints: Sequence[str],
        virtual: Sequence[Virtual],
        limits: Sequence[str] = (),
    ) -> Sequence[Record]:
        """Return the closure of the specs, and what it changes in an existing environment.

        Args:
            specs: What is requested.
            constraints: Specs of packages that are in the closure anyway.
            virtual: The host.
            limits: Specs that hold for packages of the closure, and add none: pins and the like.

        Raises:
            RefusedError: There is no closure.
            PackageIndexError, InputError: As `records`.
        """

    def close(self) -> None:  # noqa: B027  most solvers start nothing
        """End what was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_solver(
    channels: Sequence[str],
    subdirs: Sequence[str],
    *,
    cache: str = "fetch",
) -> Solver:
    """Start a solver: that of the conda that runs gpuenv, otherwise py-rattler.

    Args:
        channels: Names or URLs.
        subdirs: linux-64 and the like, and noarch.
        cache: fetch, offline or refresh.
    """
    if inside_conda():
        return CondaSolver(channels, subdirs, cache=cache)
    return RattlerSolver(channels, subdirs, cache=cache)


# ---- rattler ------------------------------------------------------------------------------------


class RattlerSolver(Solver):
    """py-rattler, in an interpreter that runs rattler_child.py. Its stderr is dropped.

    The child ends with its input, with this process, and at the latest END_SECONDS after `close`.
    """

    def __init__(
        self, channels: Sequence[str], subdirs: Sequence[str], *, cache: str = "fetch"
    ) -> None:
        """Start the child, which imports py-rattler meanwhile. Arguments as `open_solver`."""
        super().__init__(channels)
        self._child = Popen(
            [sys.executable, "-I", "-X", "utf8", _SCRIPT, str(os.getpid())],
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
        )
        atexit.register(self.close)
        self._send({"do": "open", "channels": [*channels], "subdirs": [*subdirs], "cache": cache})

    def _send(self, request: Mapping[str, object]) -> None:
        assert self._child.stdin is not None  # noqa: S101  it is a pipe
        with suppress(OSError):  # if the child has ended, its last answer says why
            self._child.stdin.write(json.dumps(request).encode() + b"\n")
            self._child.stdin.flush()

    def _request(self, request: Mapping[str, object]) -> dict[str, Any]:
        """Return the answer to a request; the failures of rattler are raised."""
        self._send(request)
        assert self._child.stdout is not None  # noqa: S101  it is a pipe
        try:
            answer: dict[str, Any] = json.loads(self._child.stdout.readline())
        except (OSError, ValueError):
            raise PackageIndexError("rattler ended without an answer") from None
        if "error" not in answer:
            return answer
        # A message of rattler, with its causes, on one line.
        text = " ".join(answer["text"].split()).replace(" Caused by:", ":")
        where = ", ".join(self.channels)
        match answer["error"]:
            case "refused":
                raise RefusedError(text)
            case "unreadable":
                message = f"not a conda package and its version: {text}"
                raise InputError(message, hint=conda_versions.SPEC_HINT)
            case "missing":
                raise InputError(f"conda environments need a solver: {text}", hint=NEEDED)
            case "nowhere":
                raise InputError(f"--channel {where}: {text}", hint=CHANNEL_HINT)
            case _:
                raise PackageIndexError(f"{where or 'rattler'}: {text}")

    def records(self, names: Sequence[str]) -> Sequence[Record]:
        """As Solver.records."""
        records: Sequence[Record] = self._request({"do": "records", "names": [*names]})["records"]
        return records

    def solve(
        self,
        specs: Sequence[str],
        constraints: Sequence[str],
        virtual: Sequence[Virtual],
        limits: Sequence[str] = (),
    ) -> Sequence[Record]:
        """As Solver.solve."""
        into = self.into
        request = {
            "do": "solve",
            "specs": [*specs, *into.specs, *into.fixed],
            "constraints": [*constraints, *limits],
            "virtual": [*virtual],
            "installed": into.path,
        }
        records: Sequence[Record] = self._request(request)["records"]
        return into.added(records, specs)

    def install(
        self,
        prefix: str,
        records: Sequence[Record],
        subdir: str,
        *,
        remove: Sequence[str] = (),
    ) -> None:
        """Install packages into a prefix. Other packages stay.

        Args:
            prefix: The folder.
            records: The packages.
            subdir: The platform of the prefix.
            remove: Packages to remove.

        Raises:
            InstallError: A package cannot be installed.
        """
        request = {
            "do": "install",
            "prefix": prefix,
            "records": [dict(record) for record in records],
            "subdir": subdir,
            "remove": [*remove],
        }
        try:
            self._request(request)
        except PackageIndexError as error:
            raise InstallError(f"installing failed ({error.message})") from None

    def close(self) -> None:
        """End the child, and wait for its end."""
        atexit.unregister(self.close)
        with self._child:
            try:
                with suppress(OSError, TimeoutExpired):
                    self._child.communicate(timeout=END_SECONDS)
            finally:
                self._child.kill()  # does nothing to a process that has ended


# ---- the conda around gpuenv --------------------------------------------------------------------


class CondaSolver(Solver):
    """The conda in this interpreter, through its API: its solver backend, its caches."""

    def __init__(
        self,
        channels: Sequence[str],
        subdirs: Sequence[str],
        *,
        cache: str,
    ) -> None:
        """Arguments as `open_solver`. The backend is conda's setting `solver`."""
        super().__init__(channels)
        self._subdirs = [*subdirs]
        self.name = _configured_backend()
        self._variables = _CACHE_VARIABLES[cache]

    def records(self, names: Sequence[str]) -> Sequence[Record]:
        """As Solver.records."""
        from conda.core.subdir_data import (  # type: ignore[import-not-found,unused-ignore]
            SubdirData,
        )

        records = []
        with conda_variables(self._variables):
            try:
                for name in names:
                    records += SubdirData.query_all(
                        name, channels=self.channels, subdirs=self._subdirs
                    )
            except Exception as error:
                raise translated(error, self.name) from None
        return [_plain_record(record) for record in records]

    def solve(
        self,
        specs: Sequence[str],
        constraints: Sequence[str],
        virtual: Sequence[Virtual],
        limits: Sequence[str] = (),
    ) -> Sequence[Record]:
        """As Solver.solve.

        conda has no constraints on packages that nothing requires, so they become specs. Planning
        constrains only packages that the closure has anyway. The limits become conda's pins. conda
        reads the packages and the history of an existing environment itself.
        """
        variables = {**self._variables, **override_variables(virtual)}
        if limits:
            variables["CONDA_PINNED_PACKAGES"] = "&".join(limits)
        with conda_variables(variables):
            try:
                records = self._final_state([*specs, *constraints])
            except Exception as error:
                raise translated(error, self.name) from None
        self._require_limits(records, limits)
        real = [record for record in records if not record.name.startswith("__")]
        return self.into.added([_plain_record(record) for record in real], specs)

    def _final_state(self, specs: Sequence[str]) -> Sequence[Any]:
        """Return conda's records of the environment, those of virtual packages among them."""
        into = self.into
        if not into.path:
            import tempfile  # slow: it loads shutil and random

            with tempfile.TemporaryDirectory(prefix="gpuenv-") as folder:
                return self._solved(os.path.join(folder, "prefix"), specs, "create")
        names = {name for name, _, _ in into.packages}
        earlier = [spec for spec in into.specs if spec not in names]
        specs = [*specs, *earlier, *into.fixed]
        try:
            # conda may also change packages that could stay.
            records = self._solved(into.path, [*specs, *into.staying(specs)], "install")
        except Exception as error:
            if not isinstance(translated(error, self.name), RefusedError):
                raise
            records = self._solved(into.path, specs, "install")
        return records

    def _require_limits(self, records: Sequence[Any], limits: Sequence[str]) -> None:
        """Raise RefusedError if conda chose what a limit or an earlier request does not permit."""
        by_name = {record.name: record for record in records}
        for spec in (*limits, *self.into.specs):
            record = by_name.get(conda_versions.name_of(spec))
            if record is None:
                continue
            if not conda_versions.matches(spec, record.name, record.version, record.build):
                have = f"{record.name} {record.version}"
                raise RefusedError(f"the constraint {spec} is not met by {have}")

    def _solved(self, prefix: str, specs: Sequence[str], command: str) -> Sequence[Any]:
        from conda.base.context import context  # type: ignore[import-not-found,unused-ignore]
        from conda.models.match_spec import (  # type: ignore[import-not-found,unused-ignore]
            MatchSpec,
        )

        backend = context.plugin_manager.get_cached_solver_backend(self.name)
        solver = backend(
            prefix=prefix,
            channels=self.channels,
            subdirs=self._subdirs,
            specs_to_add=[MatchSpec(spec) for spec in specs],
            command=command,
        )
        records: Sequence[Any] = solver.solve_final_state()
        return records


def _configured_backend() -> str:
    """Return conda's setting `solver`. InputError if that solver is not installed."""
    from conda.base.context import context  # type: ignore[import-not-found,unused-ignore]
    from conda.exceptions import CondaError  # type: ignore[import-not-found,unused-ignore]

    _reset_context()
    try:
        context.plugin_manager.get_cached_solver_backend(context.solver)
    except CondaError:
        message = f"conda's setting solver is {context.solver}, which is not installed"
        raise InputError(message, hint="conda config --set solver classic, or install it") from None
    return str(context.solver)


def configured_channels() -> tuple[str, ...]:
    """Return the channels of conda's settings: the URLs that "defaults" and the like stand for."""
    from conda.base.context import context  # type: ignore[import-not-found,unused-ignore]
    from conda.models.channel import Channel  # type: ignore[import-not-found,unused-ignore]

    _reset_context()
    names: list[str] = []
    for name in context.channels:
        channel = Channel(name)
        names += [str(name)] if channel.base_url else channel.base_urls
    return tuple(dict.fromkeys(names))


REFUSALS = {
    "UnsatisfiableError",
    "PackagesNotFoundError",
    "ResolvePackageNotFound",
    "SpecsConfigurationConflictError",
}


def translated(error: Exception, name: str) -> Exception:
    """Return what an error of conda is to gpuenv: its solvers raise errors of any class.

    The classes are compared by name: their modules differ between versions of conda.
    """
    classes = {cls.__name__ for cls in type(error).__mro__}
    if classes & REFUSALS:
        # Advice on other channels and their list follow.
        return RefusedError(str(error).partition("Current channels:")[0])
    # General advice follows in further paragraphs.
    text = " ".join(str(error).partition("\n\n")[0].split())
    if "UnavailableInvalidChannel" in classes:
        return InputError(f"no such channel: {text}", hint=CHANNEL_HINT)
    if "InvalidSpec" in classes:
        return InputError(
            f"not a conda package and its version: {text}", hint=conda_versions.SPEC_HINT
        )
    if "SyntaxError" in classes:  # conda evaluates the lists of specs in its history
        message = f"conda cannot read the file conda-meta/history of the environment: {text}"
        return InputError(message, hint="repair or delete its last lines")
    return PackageIndexError(f"{name}: {text or type(error).__name__}")


def override_variables(virtual: Sequence[Virtual]) -> dict[str, str]:
    """Return the virtual packages as CONDA_OVERRIDE_*; "" is what the host does not have."""
    values = {name: version for name, version, _ in virtual}
    values["__archspec"] = next((build for name, _, build in virtual if name == "__archspec"), "")
    names = ("archspec", "cuda", "cuda_arch", "glibc", "linux", "win")
    return {f"CONDA_OVERRIDE_{name.upper()}": values.get(f"__{name}", "") for name in names}


@contextmanager
def conda_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set conda's variables while it works, and drop the steps and progress that it prints."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            _reset_context()
            yield
    finally:
        for name in variables:
            os.environ.pop(name)
        os.environ.update(before)
        _reset_context()


def _reset_context() -> None:
    """Let conda read its variables again: it keeps what it detected once."""
    from conda.base.context import reset_context  # type: ignore[import-not-found,unused-ignore]

    try:
        reset_context()
    except Exception as error:  # of its reader of YAML, or its own
        text = " ".join(str(error).split())
        raise InputError(f"conda's settings cannot be read: {text}") from None


def _plain_record(record: Any) -> Record:
    """Return a record of conda as repodata.json has it."""
    return {
        **{key: record.get(key) for key in _FIELDS},
        "depends": [str(spec) for spec in record.depends],
        "constrains": [str(spec) for spec in record.constrains or ()],
        "channel": record.channel.base_url,
    }
