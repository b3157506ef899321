"""Who solves a closure: rattler in a child process, or the conda that runs gpuenv.

Both answer with records as repodata.json has them ("url", "channel", "fn" and "sha256" among their keys). Neither is
imported before it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...compat.conda_records import Record, Virtual
from ...errors import InputError, InstallError, PackageIndexError
from .child import Child

NEEDED = "install gpuenv[conda], which has py-rattler, or run gpuenv inside conda"


class RefusedError(Exception):
    """The solver says that there is no closure; the text is its own."""


class Solver(Protocol):
    """Reads channels and solves closures. `name` is for messages."""

    name: str

    def records(self, names: Sequence[str]) -> Sequence[Record]:
        """Every record of some names that the channels have, in any order. PackageIndexError."""

    def solve(self, specs: Sequence[str], constraints: Sequence[str], virtual: Sequence[Virtual]) -> Sequence[Record]:
        """What must be there so that all specs are; constraints hold for what is there.

        RefusedError, PackageIndexError.
        """

    def leave(self) -> None:
        """Nothing more will be asked."""

    def close(self) -> None:
        """Ends what was started, and waits for its end."""


class RattlerSolver:
    """py-rattler, in a child process of this interpreter or of `python`."""

    name = "rattler"

    def __init__(
        self, channels: Sequence[str], subdirs: Sequence[str], *, cache: str = "fetch", python: str | None = None
    ) -> None:
        """Starts the child, which imports py-rattler meanwhile. `cache` is fetch, offline or refresh."""
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rattler_child.py")
        self._open: dict[str, Any] = {"do": "open", "channels": [*channels], "subdirs": [*subdirs], "cache": cache}
        self._child: Child | None = Child([python or sys.executable, "-I", "-X", "utf8", script])
        self._opened = False

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if not self._opened:
            self._opened = True
            self._told(self._open)
        return self._told(request)

    def _told(self, request: Mapping[str, Any]) -> dict[str, Any]:
        import json

        if self._child is None:
            raise PackageIndexError("rattler has ended")
        try:
            self._child.write(json.dumps(request))
        except OSError:
            pass  # it has ended, and what it said last says why
        try:
            found: dict[str, Any] = json.loads(self._child.read())
        except (OSError, ValueError):
            raise PackageIndexError("rattler ended without an answer") from None
        if "missing" in found:
            raise InputError(f"conda environments need a solver: {found['missing']}", hint=NEEDED)
        where = ", ".join(self._open["channels"])
        if "nowhere" in found:
            hint = "a name such as conda-forge, a URL, or a folder with noarch/repodata.json in it"
            raise InputError(f"--channel {where}: {_line(found['nowhere'])}", hint=hint)
        if "failed" in found:
            raise PackageIndexError(f"{where or 'rattler'}: {_line(found['failed'])}")
        return found

    def records(self, names: Sequence[str]) -> Sequence[Record]:
        """As Solver.records."""
        found: Sequence[Record] = self._ask({"do": "records", "names": [*names]})["records"]
        return found

    def solve(self, specs: Sequence[str], constraints: Sequence[str], virtual: Sequence[Virtual]) -> Sequence[Record]:
        """As Solver.solve."""
        request = {"do": "solve", "specs": [*specs], "constraints": [*constraints], "virtual": [*virtual]}
        found = self._ask(request)
        if "refused" in found:
            raise RefusedError(str(found["refused"]))
        if "unreadable" in found:
            raise InputError(f"not a conda package and its version: {found['unreadable']}", hint="numpy, or numpy>=2")
        records: Sequence[Record] = found["records"]
        return records

    def install(self, prefix: str, records: Sequence[Record], subdir: str) -> None:
        """Makes a prefix hold these packages and no others. InstallError."""
        try:
            self._ask({"do": "install", "prefix": prefix, "records": [dict(one) for one in records], "subdir": subdir})
        except PackageIndexError as error:
            raise InstallError(f"installing failed ({error.message})") from None

    def leave(self) -> None:
        """Lets the child end while others work; `close` waits for it."""
        if self._child is not None:
            self._child.leave()

    def close(self) -> None:
        """As Solver.close."""
        child, self._child = self._child, None
        if child is not None:
            child.close()


def _line(text: object) -> str:
    """A message of rattler's, with its causes, on one line."""
    return " ".join(str(text).split()).replace(" Caused by:", ":")


class CondaSolver:
    """The conda that this interpreter has, through its API: its solver back end, its channels' caches."""

    name = "libmamba"

    def __init__(
        self, channels: Sequence[str], subdirs: Sequence[str], *, cache: str = "fetch", backend: str = "libmamba"
    ) -> None:
        """`backend` is a name of conda's solver plug-ins: libmamba, classic, rattler."""
        self._channels, self._subdirs, self.name = [*channels], [*subdirs], backend
        self._settings = {"CONDA_OFFLINE": "true"} if cache == "offline" else {}

    def records(self, names: Sequence[str]) -> Sequence[Record]:
        """As Solver.records."""
        from conda.core.subdir_data import SubdirData  # type: ignore[import-not-found,unused-ignore]

        found = []
        with _Overrides(self._settings):
            try:
                for name in names:
                    found += SubdirData.query_all(name, channels=self._channels, subdirs=self._subdirs)
            except Exception as error:
                raise _translated(error, self.name) from None
        return [_of_conda(one) for one in found]

    def solve(self, specs: Sequence[str], constraints: Sequence[str], virtual: Sequence[Virtual]) -> Sequence[Record]:
        """As Solver.solve. conda knows no constraints of what nothing asks for: they are specs where the caller says
        that what they are about is needed, which is the only use that choosing makes of them.
        """
        import tempfile

        from conda.base.context import context  # type: ignore[import-not-found,unused-ignore]
        from conda.models.match_spec import MatchSpec  # type: ignore[import-not-found,unused-ignore]

        backend = context.plugin_manager.get_cached_solver_backend(self.name)
        settings = {**self._settings, **_overrides(virtual)}
        with tempfile.TemporaryDirectory(prefix="gpuenv-") as folder, _Overrides(settings):
            try:
                solver = backend(
                    prefix=os.path.join(folder, "prefix"),
                    channels=self._channels,
                    subdirs=self._subdirs,
                    specs_to_add=[MatchSpec(one) for one in (*specs, *constraints)],
                    command="create",
                )
                found = solver.solve_final_state()
            except Exception as error:
                raise _translated(error, self.name) from None
        return [_of_conda(one) for one in found if not one.name.startswith("__")]

    def leave(self) -> None:
        """Nothing was started."""

    def close(self) -> None:
        """Nothing was started."""


def _translated(error: Exception, name: str) -> Exception:
    """What an error of conda's is to gpuenv; one that is none of conda's is left as it is."""
    kinds = {one.__name__ for one in type(error).__mro__}
    if kinds & _REFUSALS:
        # Behind it are advice on other channels and their list.
        return RefusedError(str(error).partition("Current channels:")[0])
    text = " ".join(str(error).partition("\n\n")[0].split())  # the paragraphs below it are general advice
    if "UnavailableInvalidChannel" in kinds:
        hint = "a name such as conda-forge, a URL, or a folder with noarch/repodata.json in it"
        return InputError(f"no such channel: {text}", hint=hint)
    if "InvalidSpec" in kinds:
        return InputError(f"not a conda package and its version: {text}", hint="numpy, or numpy>=2")
    if kinds & {"CondaError", "MambaNativeException"}:
        return PackageIndexError(f"{name}: {text}")
    return error


_REFUSALS = {"UnsatisfiableError", "PackagesNotFoundError", "ResolvePackageNotFound", "SpecsConfigurationConflictError"}


def _overrides(virtual: Sequence[Virtual]) -> dict[str, str]:
    """The host that was asked for, as conda's variables say it; "" is what it does not have."""
    values = {name: text for name, text, _ in virtual}
    found = {f"CONDA_OVERRIDE_{name[2:].upper()}": values.get(name, "") for name in ("__cuda", "__cuda_arch")}
    return found | ({"CONDA_OVERRIDE_GLIBC": values["__glibc"]} if "__glibc" in values else {})


class _Overrides:
    """conda's own variables while it works, and no words of it: each of its solves tells its steps on stdout."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        self._wanted = wanted

    def __enter__(self) -> None:
        import io

        self._stdout, sys.stdout = sys.stdout, io.StringIO()
        self._before = {name: os.environ.get(name) for name in self._wanted}
        os.environ.update(self._wanted)
        _forget()

    def __exit__(self, *_: object) -> None:
        sys.stdout = self._stdout
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _forget()


def _forget() -> None:
    """conda keeps what it detected once."""
    from conda.base.context import reset_context  # type: ignore[import-not-found,unused-ignore]

    reset_context()


def _of_conda(record: Any) -> Record:
    row: dict[str, Any] = {
        "name": record.name,
        "version": record.version,
        "build": record.build,
        "build_number": record.build_number,
        "subdir": record.subdir,
        "depends": [str(one) for one in record.depends],
        "constrains": [str(one) for one in record.constrains or ()],
        "url": record.url,
        "channel": record.channel.base_url,
        "fn": record.fn,
        "size": record.get("size"),
        "sha256": record.get("sha256"),
        "md5": record.get("md5"),
    }
    return row


def inside_conda() -> str | None:
    """The solver of the conda that this interpreter has, as that of a base environment has one; None without conda.

    It is libmamba, or classic where libmamba's library or conda's plugin for it is missing.
    """
    if not _is_there("conda/plugins"):
        return None
    return "libmamba" if _is_there("libmambapy") and _is_there("conda_libmamba_solver") else "classic"


def _is_there(package: str) -> bool:
    """Whether a package could be imported; importlib.util would cost three milliseconds."""
    return any(os.path.isdir(os.path.join(folder, package)) for folder in sys.path)


def solver(channels: Sequence[str], subdirs: Sequence[str], *, name: str = "auto", cache: str = "fetch") -> Solver:
    """The solver of that name: libmamba, classic, rattler; auto is that of the conda that runs gpuenv, else rattler."""
    backend = inside_conda() if name == "auto" else name
    if backend in (None, "rattler"):
        return RattlerSolver(channels, subdirs, cache=cache)
    return CondaSolver(channels, subdirs, cache=cache, backend=backend)
