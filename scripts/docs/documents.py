"""The documents that commands print with --json. docs/schemas has their JSON Schemas.

A field of a value (a class of `model` or `errors`) that has its default is left out. Documents get
new keys in later releases; keys keep their meaning.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from gpuenv.errors import Change
from gpuenv.model import Choice, Host, Needs


class ReasonRow(TypedDict):
    """One fact that speaks against a build. `place` is FILE:LINE of a Dockerfile."""

    code: str
    subject: str
    need: str
    have: str
    source: str
    place: NotRequired[str]


class Error(TypedDict):
    """What went wrong: `code` is stable."""

    code: str
    message: str
    hint: str


class Failure(TypedDict):
    """Any command that fails. The reasons and changes are those of a request without a solution."""

    error: Error
    possible: NotRequired[bool]
    reasons: NotRequired[list[ReasonRow]]
    smallest_changes: NotRequired[list[Change]]


class RejectedRelease(TypedDict):
    """A release that was passed over."""

    name: str
    version: str
    reasons: list[ReasonRow]


class ChosenBuild(TypedDict):
    """The build of a framework."""

    version: str
    cuda: str | None
    cudnn: str | None
    variant: str
    evidence: str


class Solution(TypedDict):
    """`solve`: `lock` is the file that was written. `pip` is about wheels beside conda packages."""

    lock: str | None
    host: Host
    frameworks: dict[str, ChosenBuild]
    packages: int
    download_bytes: int | None
    needs: Needs
    warnings: list[Any]
    skipped: list[RejectedRelease]
    pip: NotRequired[Solution]


class Explanation(TypedDict):
    """`explain`: whether a request is possible on a host, or whether a lock works on it."""

    possible: bool
    reasons: list[ReasonRow]
    smallest_changes: list[Change]
    frameworks: NotRequired[list[Choice]]
    needs: NotRequired[Needs]
    packages: NotRequired[int]
    warnings: NotRequired[list[ReasonRow]]
    skipped: NotRequired[list[RejectedRelease]]
    lock: NotRequired[str]
    created_by: NotRequired[str]


class CheckRow(TypedDict):
    """One check of an environment."""

    name: str
    subject: str
    status: Literal["pass", "fail", "unknown"]
    evidence: str
    seconds: float


class Bits(TypedDict):
    """The hash of the result of a convolution."""

    device: str
    what: str
    sha256: str


class Verification(TypedDict):
    """`verify`, `sync`, `install`, `add` and `remove`.

    `libraries` are the hashes of NVIDIA's libraries, by path.
    """

    ok: bool
    checks: list[CheckRow]
    host: NotRequired[Host]
    libraries: NotRequired[dict[str, str]]
    bits: NotRequired[list[Bits]]


class Installed(TypedDict):
    """`sync` and `install` with --no-verify."""

    target: str
    packages: int
    verified: bool


class PlannedChanges(TypedDict):
    """`sync --dry-run`."""

    target: str
    add: list[Any]
    change: list[Any]
    again: list[Any]
    remove: list[Any]


class Downloaded(TypedDict):
    """`download`: how many files came into the folder, and how many were there."""

    folder: str
    downloaded: int
    present: int


class Bundled(TypedDict):
    """`download --bundle`."""

    bundle: str
    wheels: int
    sha256: str


class Target(TypedDict):
    """`rollback`."""

    target: str


class Verdict(TypedDict):
    """A cause, with the evidence for it."""

    cause: str
    title: str
    confidence: Literal["proved", "likely", "possible"]
    evidence: list[str]
    fix: str
    risk: str


class Fact(TypedDict):
    """What was read in a log, an environment or a host."""

    kind: str
    subject: str
    value: str
    where: str
    text: str


class NextTest(TypedDict):
    """A test that tells causes apart."""

    test: str
    shows: str
    command: str


class Area(TypedDict):
    """What failed, if it is nothing of a GPU environment."""

    area: str
    evidence: list[str]
    fix: str


class Origin(TypedDict):
    """Where a log is from: this machine, or another one."""

    place: str
    reason: str
    is_evidence: bool


class TestRow(TypedDict):
    """What a test of --probe showed."""

    test: str
    device: str
    status: str
    evidence: str


class Remedy(TypedDict):
    """An environment that works, solved for this host."""

    asked: list[str]
    command: list[str]
    gives: list[str]
    needs_driver: str | None
    failure: str
    risk: str
    changes: list[Change]


class Diagnosis(TypedDict):
    """`doctor`: the causes, best first."""

    abstained: bool
    verdicts: list[Verdict]
    failures: list[str]
    facts: list[Fact]
    next_tests: list[NextTest]
    outside: Area | None
    origin: Origin | None
    tests: list[TestRow]
    checks: list[CheckRow]
    remedy: Remedy | None


class KnownBad(TypedDict):
    """A flaw of a release."""

    severity: str
    text: str
    source: str


class VariantRow(TypedDict):
    """A build of a release. Targets without a suffix are numbers."""

    variant: str
    cuda: str | None
    cudnn: str | None
    requires_python: str | None
    distribution: str
    version: str
    platform: str
    sass: list[int | str] | None
    ptx: list[int | str] | None
    some: list[int | str] | None
    source: str
    index: str
    indexes: list[str]
    evidence: str
    made_by: str | None
    known_bad: KnownBad | None


class ReleaseRow(TypedDict):
    """`matrix show NAME VERSION`; in a list of versions it has no name."""

    name: NotRequired[str]
    version: str
    variants: list[VariantRow]


class EntryDocument(TypedDict):
    """`matrix show NAME`."""

    name: str
    platform: str
    versions: list[ReleaseRow]


class CatalogRow(TypedDict):
    """A framework or a library that the data knows."""

    name: str
    distributions: list[str]
    releases: int
    newest: str | None
    variants: list[str]
    on_path: bool


class Catalog(TypedDict):
    """`matrix list`."""

    platform: str
    frameworks: list[CatalogRow]
    libraries: list[CatalogRow]


class ScannedGpu(TypedDict):
    """A GPU that files were judged for."""

    name: str
    compute_capability: str


class ScannedReason(TypedDict):
    """Why a file does not run on a GPU."""

    code: str
    need: str
    have: str


class ScannedFile(TypedDict):
    """The device code of a file. `runs` is null if nothing can be said."""

    file: str
    distribution: str | None
    sass: list[str]
    ptx: list[str]
    made_by: str | None
    fat_binaries: int
    runs: bool | None
    fails: bool
    optional: str | None
    reasons: list[ScannedReason]
    fault: str | None
    hint: str | None


class Scan(TypedDict):
    """`matrix scan`."""

    path: str
    kind: str
    read: int
    gpus: list[ScannedGpu]
    files: list[ScannedFile]


class TreePackage(TypedDict):
    """A package of a lock."""

    name: str
    version: str
    requires: list[str]


class LockTree(TypedDict):
    """`tree`."""

    asked: list[str]
    roots: list[str]
    packages: list[TreePackage]


class Paths(TypedDict):
    """`why`."""

    name: str
    version: str
    asked: bool
    paths: list[list[str]]
    required_by: list[str]


class OutdatedPackage(TypedDict):
    """A package that a new solve would change; "-" is none."""

    name: str
    locked: str
    newest: str


class Outdated(TypedDict):
    """`outdated`."""

    lock: str
    packages: list[OutdatedPackage]


class Exported(TypedDict):
    """`export`."""

    to: str
    file: str | None
    tables: str


class LockChange(TypedDict):
    """A package whose version a lock changed."""

    name: str
    was: str | None
    now: str | None


class ProfileLock(TypedDict):
    """The lock of a profile."""

    profile: str
    path: str
    status: str
    changes: list[LockChange]
    files: list[str]
    frameworks: list[Choice]
    needs: Needs
    packages: int
    download_bytes: int | None


class ProfileRefusal(TypedDict):
    """Why a profile cannot have a version."""

    profile: str
    version: str
    reasons: list[ReasonRow]


class SharedVersion(TypedDict):
    """The version that profiles share, and what each would get alone."""

    framework: str
    versions: dict[str, str]
    alone: dict[str, str]
    separate: list[str]
    against: list[ProfileRefusal]


class Locked(TypedDict):
    """`lock`."""

    profiles: list[ProfileLock]
    frameworks: list[SharedVersion]


class CheckedFile(TypedDict):
    """A lock file on a host."""

    path: str
    created_by: str
    packages: int
    ok: bool
    reasons: list[ReasonRow]


class Checked(TypedDict):
    """`lock --check`."""

    ok: bool
    profiles: list[Any]
    files: list[CheckedFile]


class Begun(TypedDict):
    """`init`: `covered` are profiles that were there for one of the hosts."""

    path: str
    frameworks: list[str]
    profiles: list[str]
    covered: list[Any]
    python: str


SettingsOfTool = TypedDict(
    "SettingsOfTool", {"for": str, "variables": dict[str, str], "table": str}
)


class Command(TypedDict):
    """`run`: the command, and the variables that it gets."""

    target: str
    command: list[str]
    set: dict[str, str]
    unset: list[str]
    shadows: list[Any]


class EnvironmentState(TypedDict):
    """Whether the environment has the lock of the project."""

    prefix: str | None
    state: Literal["missing", "other", "current", "unknown"]


class Status(TypedDict):
    """`status`."""

    project: list[str]
    environment: EnvironmentState
    host: Host
    next: str


class Cache(TypedDict):
    """`cache`."""

    folder: str
    files: int
    bytes: int


class PipPackage(TypedDict):
    """A package that was installed or removed."""

    name: str
    version: str
    was: NotRequired[str | None]


class PipInstalled(TypedDict):
    """`pip install`."""

    target: str
    dry_run: bool
    frameworks: dict[str, str]
    installed: list[PipPackage]
    removed: list[PipPackage]
    verify: Verification | None


# What each command prints, apart from Failure.
DOCUMENTS: dict[str, tuple[Any, ...]] = {
    "add": (Verification, Installed),
    "cache": (Cache,),
    "completion": (dict[str, dict[str, list[str]]],),
    "detect": (Host,),
    "doctor": (Diagnosis, Explanation),
    "download": (Downloaded, Bundled),
    "env": (SettingsOfTool,),
    "explain": (Explanation,),
    "export": (Exported,),
    "help": (dict[str, str],),
    "init": (Begun,),
    "install": (Verification, Installed, Solution),
    "list": (dict[str, str],),
    "lock": (Locked, Checked),
    "matrix": (Catalog, EntryDocument, ReleaseRow, Scan),
    "outdated": (Outdated,),
    "pip": (PipInstalled,),
    "remove": (Verification, Installed),
    "rollback": (Target,),
    "run": (Command,),
    "solve": (Solution,),
    "status": (Status,),
    "sync": (Verification, Installed, PlannedChanges),
    "tree": (LockTree,),
    "verify": (Verification,),
    "why": (Paths,),
}
