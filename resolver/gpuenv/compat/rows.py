"""The files of matrix_data as values: builds of frameworks, releases of libraries."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from ..errors import DataError
from ..model import Build, Code, Framework, Library, Value, parse_pair
from ..requirements.versions import version_key
from ..serialize import read_toml

T = TypeVar("T")
Text = Annotated[str, msgspec.Meta(min_length=1)]
Pair = Annotated[str, msgspec.Meta(pattern=r"^[0-9]+\.[0-9]+$")]
Target = Annotated[str, msgspec.Meta(pattern="^[0-9]{2,3}[af]?$")]
Verdict = tuple[str, str, str]  # of a release that is known to be bad: severity, text, source


class Family(Value):
    """Distributions that install the same paths (R5): a row of families.toml, which says more.

    `path` is what they share. `replaceable` are the members whose place any other may take. A plan
    has one member at most, unless the family is `tolerated`.
    """

    path: Text
    distributions: tuple[str, ...]
    replaceable: tuple[str, ...] = ()
    tolerated: bool = False
    source: Text


class IndexRow(Value):
    """An index with builds of companions (R10): a row of indexes.toml.

    Attributes:
        name: what messages call it.
        url: where the pages of its packages are. It has {cuda} (cu128, cpu), {major} (12), {torch}
            (2.8), {pt} (28) and {version} where there is an index for each CUDA, for each release
            of torch or for each release of the package.
        distributions: the only packages that it may supply.
        flat: whether `url` is one page with the files of all packages.
        plain: whether its builds have no local version: only their page tells the CUDA.
        files: what the links of a page to another host start with.
        cuda: the values of {cuda}, if they are not those of the builds of torch.
        platforms: where its builds run; () is everywhere.
        source: where this was read.
    """

    name: Text
    url: Text
    distributions: tuple[Text, ...]
    flat: bool = False
    plain: bool = False
    files: tuple[Text, ...] = ()
    cuda: tuple[Text, ...] = ()
    platforms: tuple[str, ...] = ()
    source: Text


# ---- files ---------------------------------------------------------------------------------------


def decode(path: str, kind: type[T]) -> T:
    """Return the content of a JSON file. DataError names the file and the place in it."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=kind)
    except FileNotFoundError as error:
        hint = "reinstall gpuenv, or run scripts/data/compile.py"
        raise DataError(f"{path} is missing", hint=hint) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def convert(content: object, kind: type[T], where: str) -> T:
    """Return data as a value. DataError names `where` and the place in the data."""
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{where} cannot be read: {error}") from error


def read_scopes(folder: str) -> list[dict[str, Any]]:
    """Return the [[scan]] rows in a folder of the data: which wheels are scanned, and how.

    They are in scans.toml and in frameworks/*.toml.

    Raises:
        InputError: a file is damaged.
    """
    paths = glob.glob(os.path.join(glob.escape(folder), "frameworks", "*.toml"))
    scopes: list[dict[str, Any]] = []
    for path in (os.path.join(folder, "scans.toml"), *sorted(paths)):
        scopes += read_toml(path).get("scan", [])
    return scopes


# ---- rows ----------------------------------------------------------------------------------------


class CudaRow(Value):
    """One library of a release that has one for each CUDA version."""

    cuda: Pair
    sass: tuple[Target, ...]
    ptx: tuple[Target, ...]
    made_by: Pair | None = None


class Row(Value, forbid_unknown_fields=False):
    """What a row says of the device code of a build or a release; null is unknown."""

    version: Text
    platform: Text
    sass: tuple[Target, ...] | None = None
    ptx: tuple[Target, ...] | None = None
    some: tuple[Target, ...] = ()
    made_by: Pair | None = None
    cuda: Pair | None = None
    cudnn: str | None = None
    evidence: Literal["scanned", "documented"]
    source: Text
    file: str = ""
    sha256: str = ""
    url: str = ""

    def code(self) -> Code:
        """Return the device code, with its source."""
        source = self.source
        if self.evidence == "scanned":
            source += f" of {self.file} (sha256 {self.sha256})"
        if self.url:
            source += f"; {self.url}"
        return Code(
            sass=self.sass,
            ptx=self.ptx,
            made_by=_pair_or_none(self.made_by),
            evidence=self.evidence,
            source=source,
            some=self.some,
        )


class BuildRow(Row):
    """A build of a framework. `local` "" is the version itself, that of the default index."""

    variant: Text
    local: str = ""
    index: Text = "default"


class ReleaseRow(Row):
    """A release of a library."""

    by_cuda: tuple[CudaRow, ...] = ()


class BuildsFile(Value, forbid_unknown_fields=False):
    """The builds of a framework and of its companions."""

    builds: tuple[BuildRow, ...]
    companions: tuple[dict[str, Any], ...]


class _ReleasesFile(Value, forbid_unknown_fields=False):
    cuda_major: int | None
    releases: tuple[ReleaseRow, ...]


def _pair_or_none(text: str | None) -> tuple[int, int] | None:
    return None if text is None else parse_pair(text)


class Builds:
    """The builds of one framework and of its companions. A row becomes a Build when it is used."""

    def __init__(
        self, framework: Framework, content: BuildsFile, more: Sequence[object] = ()
    ) -> None:
        """Index the rows.

        Args:
            framework: the framework.
            content: its rows.
            more: rows of the user, which replace none of these.

        Raises:
            DataError: a row of the user is damaged.
        """
        self.framework = framework
        self._rows: dict[tuple[str, str], BuildRow] = {}
        of_user = convert(more, list[BuildRow], f"a row of {framework.name} of the user")
        for row in (*content.builds, *of_user):
            self._rows.setdefault((row.local or row.version, row.platform), row)
        # torchvision 0.28.0 -> the framework releases that it fits, the one it was built with
        # first.
        self._partners: dict[tuple[str, str], list[str]] = {}
        # A framework release -> the companions that fit it.
        self._companions: dict[str, list[tuple[str, str]]] = {}
        for companion in content.companions:
            name, version = companion["name"], companion["version"]
            partners = companion[framework.name]
            self._partners[name, version] = partners
            for partner in partners:
                self._companions.setdefault(partner, []).append((name, version))

    def find(self, distribution: str, version: str, platform: str) -> Build | None:
        """Return the build of the framework or of a companion that a version names."""
        row = self._rows.get((version, platform))
        build = None
        if distribution != self.framework.distribution:
            build = self._companion(distribution, version, platform)
        elif row is not None:
            build = Build(
                name=distribution,
                version=row.version,
                local=version,
                variant=row.variant,
                index=row.index,
                platform=platform,
                cuda=_pair_or_none(row.cuda),
                cudnn=row.cudnn,
                code=row.code(),
                companions=tuple(self._companions.get(row.version, ())),
            )
        if build is None and platform in self.framework.cpu_only and "+" not in version:
            build = Build(
                name=distribution,
                version=version,
                local=version,
                variant="cpu",
                index="default",
                platform=platform,
                cuda=None,
                code=Code(sass=(), ptx=(), source=self.framework.source),
            )
        return build

    def all(self, distribution: str, platform: str, above: str = "") -> Sequence[Build]:
        """Return the builds on a platform, newest first, in a version the default index first.

        `above` leaves out that version and older ones.
        """
        versions = [local for local, row_platform in self._rows if row_platform == platform]
        if distribution != self.framework.distribution:
            # Every version of a companion with every local part that the framework has.
            local_parts = sorted({"".join(local.partition("+")[1:]) for local in versions})
            versions = [
                version + local
                for name, version in self._partners
                if name == distribution
                for local in local_parts
            ]
        builds = []
        for version in versions:
            build = self.find(distribution, version, platform)
            if build is None or (above and version_key(build.version) <= version_key(above)):
                continue
            builds.append(build)
        builds.sort(key=lambda build: build.index != "default")
        builds.sort(key=lambda build: version_key(build.version), reverse=True)
        return builds

    def _companion(self, distribution: str, local: str, platform: str) -> Build | None:
        """Return a companion's build: it has the CUDA of the framework that it was built with."""
        version, plus, variant = local.partition("+")
        partners = self._partners.get((distribution, version), ())
        for partner in partners:
            base = self.find(self.framework.distribution, partner + plus + variant, platform)
            if base is not None:
                source = f"built with {base.name} {base.local}: {base.code.source}"
                return base.replace(
                    name=distribution,
                    version=version,
                    local=local,
                    cudnn=None,
                    code=base.code.replace(evidence="documented", source=source),
                    companions=tuple((self.framework.distribution, name) for name in partners),
                )
        return None


class Releases:
    """The releases of one CUDA library, from libraries/<distribution>.json."""

    def __init__(
        self,
        path: str,
        distribution: str,
        more: Sequence[object] = (),
    ) -> None:
        """Read the rows.

        Args:
            path: the file.
            distribution: the library's distribution.
            more: rows of the user, which replace none of the file.

        Raises:
            DataError: names the file and the row that is damaged.
        """
        self._distribution = distribution
        content = decode(path, _ReleasesFile)
        # None: it is that of each release's toolkit.
        self.major = content.cuda_major
        self._rows = {(row.version, row.platform): row for row in content.releases}
        for row in convert(more, list[ReleaseRow], f"a row of {distribution} of the user"):
            self._rows.setdefault((row.version, row.platform), row)

    def find(self, version: str, platform: str) -> Library | None:
        """Return what is known about a release on a platform."""
        row = self._rows.get((version, platform))
        if row is None:
            return None
        cuda, code = _pair_or_none(row.cuda), row.code()
        by_cuda = []
        for part in row.by_cuda:
            made_by = _pair_or_none(part.made_by)
            own = code.replace(sass=part.sass, ptx=part.ptx, made_by=made_by)
            by_cuda.append((parse_pair(part.cuda), own))
        return Library(
            name=self._distribution,
            version=version,
            platform=platform,
            cuda_major=(cuda or (0, 0))[0] if self.major is None else self.major,
            code=code,
            cuda=cuda,
            cudnn=row.cudnn,
            by_cuda=tuple(by_cuda),
            url=row.url,
        )

    def reaches(self, version: str) -> bool:
        """Return whether there is a release of that version or an older one, on any platform."""
        return any(version_key(known) <= version_key(version) for known, _ in self._rows)

    def upto(self, version: str, platform: str, local: str = "") -> Library | None:
        """Return the release of a version, else the newest older one.

        That is the release that the version range of a plug-in admits. With `local` it is the
        build whose local version begins so; these builds end with the newest one.
        """
        if not local and (version, platform) in self._rows:
            return self.find(version, platform)
        known = []
        for row_version, row_platform in self._rows:
            public, _, row_local = row_version.partition("+")
            is_meant = row_local.startswith(local) if local else not row_local
            if row_platform == platform and is_meant:
                known.append((version_key(public), row_version))
        older = [pair for pair in known if pair[0] <= version_key(version)]
        if not older or (local and max(known)[0] < version_key(version)):
            return None
        return self.find(max(older)[1], platform)

    def all(self) -> Sequence[Library]:
        """Return every release on every platform, in the order of the file."""
        libraries = (self.find(version, platform) for version, platform in self._rows)
        return [library for library in libraries if library is not None]
