"""The solvers of a closure: rattler in a child process, or the conda that runs gpuenv.

Both answer with records as repodata.json has them ("url", "channel", "fn" and "sha256" among their
keys). Neither library is imported before it is used.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from ...compat.conda_records import Record, Virtual
from ...errors import InputError, InstallError, PackageIndexError
from ...model import Value
from ...requirements import conda_versions
from ...requirements.conda_versions import inside_conda

NEEDED = "install gpuenv[conda], which has py-rattler, or run gpuenv inside conda"
END_SECONDS = 10.0  # for a child to end after its input has ended; then it is killed
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
    """An environment that a closure is added to.

    `packages` are (name, version, build). `specs` name every package, with what users asked for.
    `fixed` are the specs of packages that must not change.
    """

    path: str
    packages: frozenset[tuple[str, str, str]]
    specs: tuple[str, ...]
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

    def requests(self) -> list[str]:
        """Return the earlier requests that limit a package."""
        names = {name for name, _, _ in self.packages}
        return [spec for spec in self.specs if spec not in names]

    def added(self, records: Sequence[Record], specs: Sequence[str]) -> list[Record]:
        """Return the records that the specs need, and those that change the environment.

        The records are the whole environment afterwards.
        """
        by_name = {record["name"]: record for record in records}
        pending = list(specs)
        for name, record in by_name.items():
            if (name, record["version"], record["build"]) not in self.packages:
                pending.append(name)
        reached: set[str] = set()
        while pending:
            name = conda_versions.name_of(pending.pop())
            if name in by_name and name not in reached:
                reached.add(name)
                pending += by_name[name].get("depends") or ()
        return [record for record in records if record["name"] in reached]


class Solver(ABC):
    """Reads channels and solves closures. `name` is for messages.

    `channels` are the names or URLs of the channels that it reads.

    `limits` are specs that hold for packages of a closure and add none: pins and constraints.

    `into` is the environment that closures are added to: its packages are kept, and changed only if
    a closure needs it. Both may be set between two solves.

    A solver is a context manager: at the end of the block, what it started is ended.
    """

    name: str

    def __init__(self, channels: Sequence[str]) -> None:
        self.channels: Sequence[str] = [*channels]
        self.limits: Sequence[str] = ()
        self.into: ExistingPrefix | None = None

    @abstractmethod
    def records(self, names: Sequence[str]) -> Sequence[Record]:
        """Return every record of these names that the channels have, in any order.

        Raises:
            PackageIndexError: A channel cannot be read.
            InputError: A channel does not exist, or there is no solver.
        """

    @abstractmethod
    def solve(
        self, specs: Sequence[str], constraints: Sequence[str], virtual: Sequence[Virtual]
    ) -> Sequence[Record]:
        """Return the closure of the specs, and what it changes in an existing environment.

        Constraints hold for packages of the closure, and add none. `virtual` describes the host.

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


class RattlerProcess:
    """An interpreter that runs rattler_child.py. Its stderr is dropped.

    It ends with its input, with this process, and at the latest END_SECONDS after `close`.
    """

    def __init__(self, python: str | None) -> None:
        """Start the child. `python` is an interpreter that has py-rattler; None is this one."""
        self._process = subprocess.Popen(
            [python or sys.executable, "-I", "-X", "utf8", _SCRIPT, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self.close)

    def ask(self, line: str) -> bytes:
        """Send a line and return the answer; b"" if the child has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101  both are pipes
        with suppress(OSError):  # if it has ended, its last answer says why
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        return stdout.readline()

    def close(self) -> None:
        """End the child and wait for its end."""
        atexit.unregister(self.close)
        with self._process:
            try:
                with suppress(OSError, subprocess.TimeoutExpired):
                    self._process.communicate(timeout=END_SECONDS)
            finally:
                self._process.kill()  # does nothing to a process that has ended


class RattlerSolver(Solver):
    """py-rattler, in a child process of this interpreter or of `python`."""

    name = "rattler"

    def __init__(
        self,
        channels: Sequence[str],
        subdirs: Sequence[str],
        *,
        cache: str = "fetch",
        python: str | None = None,
    ) -> None:
        """Start the child, which imports py-rattler meanwhile. Arguments as `open_solver`."""
        super().__init__(channels)
        # Sent before the first request.
        self._opening: dict[str, object] | None = {
            "do": "open", "channels": [*channels], "subdirs": [*subdirs], "cache": cache,
        }  # fmt: skip
        self._child: RattlerProcess | None = RattlerProcess(python)

    def _request(self, request: Mapping[str, object]) -> dict[str, Any]:
        """Return the answer to a request; the failures of rattler are raised."""
        opening, self._opening = self._opening, None
        if opening is not None:
            self._exchange(opening)
        return self._exchange(request)

    def _exchange(self, request: Mapping[str, object]) -> dict[str, Any]:
        if self._child is None:
            raise PackageIndexError("rattler has ended")
        try:
            answer: dict[str, Any] = json.loads(self._child.ask(json.dumps(request)))
        except (OSError, ValueError):
            raise PackageIndexError("rattler ended without an answer") from None
        if "missing" in answer:
            message = f"conda environments need a solver: {answer['missing']}"
            raise InputError(message, hint=NEEDED)
        if "nowhere" in answer:
            message = f"--channel {', '.join(self.channels)}: {_one_line(answer['nowhere'])}"
            raise InputError(message, hint=CHANNEL_HINT)
        if "failed" in answer:
            subject = ", ".join(self.channels) or "rattler"
            raise PackageIndexError(f"{subject}: {_one_line(answer['failed'])}")
        return answer

    def records(self, names: Sequence[str]) -> Sequence[Record]:
        """As Solver.records."""
        records: Sequence[Record] = self._request({"do": "records", "names": [*names]})["records"]
        return records

    def solve(
        self, specs: Sequence[str], constraints: Sequence[str], virtual: Sequence[Virtual]
    ) -> Sequence[Record]:
        """As Solver.solve."""
        into = self.into
        request: dict[str, object] = {"do": "solve", "virtual": [*virtual], "installed": ""}
        request |= {"specs": [*specs], "constraints": [*constraints, *self.limits]}
        if into is not None:
            request |= {"specs": [*specs, *into.specs, *into.fixed], "installed": into.path}
        answer = self._request(request)
        if "refused" in answer:
            raise RefusedError(str(answer["refused"]))
        if "unreadable" in answer:
            message = f"not a conda package and its version: {answer['unreadable']}"
            raise InputError(message, hint=conda_versions.SPEC_HINT)
        records: Sequence[Record] = answer["records"]
        return records if into is None else into.added(records, specs)

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
        child, self._child = self._child, None
        if child is not None:
            child.close()


def _one_line(text: object) -> str:
    """Return a message of rattler, with its causes, on one line."""
    return " ".join(str(text).split()).replace(" Caused by:", ":")


# ---- the conda around gpuenv --------------------------------------------------------------------


class CondaSolver(Solver):
    """The conda in this interpreter, through its API: its solver backend, its caches."""

    def __init__(
        self,
        channels: Sequence[str],
        subdirs: Sequence[str],
        *,
        cache: str = "fetch",
        backend: str | None = None,
    ) -> None:
        """`backend` names a solver plugin of conda; None is conda's setting `solver`."""
        super().__init__(channels)
        self._subdirs = [*subdirs]
        self.name = backend or _configured_backend()
        self._variables = _CACHE_VARIABLES[cache]

    def records(self, names: Sequence[str]) -> Sequence[Record]:
        """As Solver.records."""
        from conda.core.subdir_data import (  # type: ignore[import-not-found,unused-ignore]
            SubdirData,
        )

        records = []
        with CondaVariables(self._variables):
            try:
                for name in names:
                    records += SubdirData.query_all(
                        name, channels=self.channels, subdirs=self._subdirs
                    )
            except Exception as error:
                raise translated(error, self.name) from None
        return [_plain_record(record) for record in records]

    def solve(
        self, specs: Sequence[str], constraints: Sequence[str], virtual: Sequence[Virtual]
    ) -> Sequence[Record]:
        """As Solver.solve.

        conda has no constraints on packages that nothing requires, so they become specs. Planning
        constrains only packages that the closure has anyway. The limits become conda's pins. conda
        reads the packages and the history of an existing environment itself.
        """
        variables = {**self._variables, **override_variables(virtual)}
        if self.limits:
            variables["CONDA_PINNED_PACKAGES"] = "&".join(self.limits)
        with CondaVariables(variables):
            try:
                records = self._final_state([*specs, *constraints])
            except Exception as error:
                raise translated(error, self.name) from None
        self._require_limits(records)
        real = [record for record in records if not record.name.startswith("__")]
        plain = [_plain_record(record) for record in real]
        return plain if self.into is None else self.into.added(plain, specs)

    def _final_state(self, specs: Sequence[str]) -> Sequence[Any]:
        """Return conda's records of the environment, those of virtual packages among them."""
        into = self.into
        if into is None:
            import tempfile  # slow: it loads shutil and random

            with tempfile.TemporaryDirectory(prefix="gpuenv-") as folder:
                return self._solved(os.path.join(folder, "prefix"), specs, "create")
        specs = [*specs, *into.requests(), *into.fixed]
        try:
            # conda may also change packages that could stay.
            records = self._solved(into.path, [*specs, *into.staying(specs)], "install")
        except Exception as error:
            if not isinstance(translated(error, self.name), RefusedError):
                raise
            records = self._solved(into.path, specs, "install")
        return records

    def _require_limits(self, records: Sequence[Any]) -> None:
        """Raise RefusedError if conda chose what a limit or an earlier request does not permit."""
        by_name = {record.name: record for record in records}
        for spec in (*self.limits, *(() if self.into is None else self.into.specs)):
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


_REFUSALS = {
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
    if classes & _REFUSALS:
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


class CondaVariables:
    """Sets conda's variables while it works, and drops the steps and progress that it prints."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def __enter__(self) -> None:
        self._streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
        self._before = {name: os.environ.get(name) for name in self._variables}
        os.environ.update(self._variables)
        _reset_context()

    def __exit__(self, *_: object) -> None:
        sys.stdout, sys.stderr = self._streams
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
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
        "name": record.name,
        "version": record.version,
        "build": record.build,
        "build_number": record.build_number,
        "subdir": record.subdir,
        "depends": [str(spec) for spec in record.depends],
        "constrains": [str(spec) for spec in record.constrains or ()],
        "url": record.url,
        "channel": record.channel.base_url,
        "fn": record.fn,
        "size": record.get("size"),
        "sha256": record.get("sha256"),
        "md5": record.get("md5"),
    }
