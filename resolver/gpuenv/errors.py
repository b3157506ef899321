"""The errors that reach a user, and the data that explains a refusal.

Exit statuses are those of the command line: 1 a check failed or a lock is stale, 2 bad usage or
input, 3 no solution, 4 the network, an index, an installer or this system failed, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from .model import Host, Value


def error_text(error: Exception) -> str:
    """Return the text of an error as one line."""
    return " ".join(str(error).split())


def did_you_mean(word: str, known: Iterable[str], most: int = 1) -> str:
    """Return "did you mean NAME?" with the known names that are close to a word; "" for none."""
    close = get_close_matches(word, known, n=most, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else ""


class Reason(Value, kw_only=False):
    """One fact that speaks against a build. The first four fields may be given by position.

    `code` is kebab-case and stable (driver-floor, no-code-for-device, ...). `subject` is what the
    fact is about ("torch 2.15.0+cu132"). `need` and `have` are short texts. `source` is where the
    need is documented. `dependent` is the release that has the need, if it is not the subject.
    """

    code: str
    subject: str
    need: str
    have: str
    source: str = ""
    dependent: str = ""


_DOUBTS = (
    "known-avoid", "avoid-pair", "gpu-unused", "shared-paths", "unpinned", "system-cudnn",
    "left-out",
)  # fmt: skip


def is_doubt(reason: Reason) -> bool:
    """Return whether a reason is a doubt or a warning rather than a failure."""
    return reason.code.endswith("-unknown") or reason.code in _DOUBTS


# The codes of reasons about the packages beside a release (compat.evaluate.agreements).
_OF_OTHERS = frozenset(
    {"conflict", "cuda-major", "cuda-variant", "cudnn-major", "numpy-abi", "two-owners", "bad-pair"}
    | {"avoid-pair", "extension-release", "extension-cuda", "extension-abi"}
)


def is_about_others(reason: Reason) -> bool:
    """Return whether a release is refused because of other packages, not because of the host."""
    return reason.code in _OF_OTHERS


# What decides, first to last; within a release the first reason is what stands against it. Reasons
# with other codes (versions, files, markers) come last.
_DECIDING = (
    ("no-offline-file",),  # this build would run
    # the host alone: no build runs
    ("jetson-wheel", "gpu-needs-newer-driver", "gpu-dropped-by-driver"),
    # device code
    ("no-code-for-device", "known-unsupported", "device", "device-unknown", "code-unknown"),
    # the driver
    ("driver-floor", "driver-cuda", "ptx-needs-newer-driver", "driver-floor-unknown",
     "driver-cuda-unknown", "driver-unknown"),
    # CUDA and cuDNN
    ("cuda-major", "cuda-variant", "extension-cuda", "cudnn-major", "cudnn-version"),
    # the other packages: "conflict" is a range of versions
    ("numpy-abi", "two-owners", "bad-pair", "extension-release", "extension-abi"),
)  # fmt: skip
_PLACES = {code: place for place, codes in enumerate(_DECIDING) for code in codes}


def deciding_first(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return reasons in the order in which they decide, failures before doubts.

    The order is: device code, the driver, CUDA and cuDNN, versions.
    """

    def place(reason: Reason) -> tuple[bool, int]:
        return is_doubt(reason), _PLACES.get(reason.code, len(_DECIDING))

    return tuple(sorted(reasons, key=place))


class Change(Value):
    """A change of the request or of the host that makes a solution possible, and what it gives.

    `edits` are the requirements to replace, each with what takes its place; "" removes it.
    """

    change: str
    gives: str
    edits: tuple[tuple[str, str], ...] = ()


class Explanation(Value):
    """Why there is no solution: every reason, and the smallest changes that help, each solved."""

    subject: str
    reasons: tuple[Reason, ...]
    changes: tuple[Change, ...] = ()


# The arguments of the API that have the meaning of a flag.
_ARGUMENTS = {
    "--default-index-only": "default_index_only",
    "--driver": "driver",
    "--exact": "exact",
    "--exclude-newer": "exclude_newer",
    "--extra-index-url": "extra_index_urls",
    "--find-links": "find_links",
    "--framework": "frameworks",
    "--glibc": "glibc",
    "--gpu": "gpus",
    "--index-url": "index_url",
    "--installer": "installer",
    "--no-binary": "no_binary",
    "--no-build": "no_build",
    "--no-index": "no_index",
    "--offline": "offline",
    "--platform": "platform",
    "--pre": "pre",
    "--python": "python",
    "--refresh": "refresh",
    "--target": "target",
}


def argument_text(text: str) -> str:
    """Return a message of the command line in terms of the API: "gpus" for "--gpu".

    A message with a command to type stays as it is.
    """
    if "gpuenv " in text:
        return text
    words = []
    for word in text.split(" "):
        flag = word.rstrip(":;,.)")
        words.append(_ARGUMENTS.get(flag, flag) + word[len(flag) :])
    return " ".join(words)


class LockReport(Value):
    """Whether a lock file of any tool works on a host.

    `packages` is the number of packages that it installs there; `changes` are single changes with
    which nothing fails any more, if they were looked for. Of a Dockerfile `created_by` is
    the base image, and `places` are FILE:LINE of each reason.
    """

    path: str
    host: Host
    created_by: str
    packages: int
    reasons: tuple[Reason, ...]
    changes: tuple[Change, ...] = ()
    places: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Return whether all reasons are doubts: facts that are not known, or notes."""
        return all(is_doubt(reason) for reason in self.reasons)


class GpuEnvError(Exception):
    """Base of all errors that are shown as one line. `hint` says what to do.

    `message` and `hint` name flags, for the command line. The text of the error and its note name
    the arguments of the API.
    """

    code = "error"
    exit_status = 2

    def __init__(self, message: str, *, hint: str = "", **context: object) -> None:
        super().__init__(message)
        self.message, self.hint, self.context = message, hint, context
        if hint:
            self.add_note(argument_text(hint))

    def __str__(self) -> str:
        return argument_text(self.message)


class InputError(GpuEnvError):
    """A flag, a file or a value cannot be used. Nothing was written."""

    code = "bad-input"


class WrongTypeError(InputError, TypeError):
    """An argument of the API is of the wrong type."""

    code = "wrong-type"


class DataError(InputError):
    """The compatibility data or the index snapshot is damaged."""

    code = "bad-data"


class TamperedError(InputError):
    """A lock does not hold what was locked. Nothing was written."""

    code = "lock-edited"


class NoSolutionError(GpuEnvError):
    """No environment satisfies the request on this host."""

    code = "no-solution"
    exit_status = 3

    def __init__(self, explanation: Explanation) -> None:
        super().__init__(f"no environment for {explanation.subject} on this host")
        self.explanation = explanation


class InexpressibleError(GpuEnvError):
    """The settings of another tool cannot express what gpuenv would do."""

    code = "not-expressible"
    exit_status = 3


class HostMismatchError(GpuEnvError):
    """A lock does not fit the host or the environment. Nothing was installed."""

    code = "lock-does-not-fit"
    exit_status = 1

    def __init__(self, message: str, reasons: tuple[Reason, ...], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reasons = reasons


class StaleLockError(GpuEnvError):
    """A lock or an environment is older than what the project asks for. Nothing was done."""

    code = "stale"
    exit_status = 1


class DeclinedError(GpuEnvError):
    """The user answered no. Nothing was installed."""

    code = "declined"
    exit_status = 130


class UnfinishedError(GpuEnvError):
    """The resolver gave up. Whether there is a solution is not known."""

    code = "unfinished"
    exit_status = 4


class PackageIndexError(GpuEnvError):
    """An index did not answer, or its answer cannot be read."""

    code = "index-failed"
    exit_status = 4


class UnusableFileError(PackageIndexError):
    """A file that can never be chosen; another release may do. `reason` says why."""

    code = "unusable-file"

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"{reason.subject}: needs {reason.need}; it has {reason.have}")
        self.reason = reason


class OfflineError(PackageIndexError):
    """A fact is neither in the snapshot nor in the cache, and --offline forbids a request."""

    code = "offline"


class InstallError(GpuEnvError):
    """An installer failed. The environment is as it was."""

    code = "install-failed"
    exit_status = 4


class NotAttestedError(GpuEnvError):
    """Files lack an attestation that holds. Nothing was locked."""

    code = "not-attested"
    exit_status = 1


class TargetBusyError(GpuEnvError):
    """Another process changes the environment. Nothing was installed."""

    code = "target-busy"
    exit_status = 4


class NotVerifiedError(GpuEnvError):
    """The new environment was not verified. The environment is as it was."""

    code = "not-verified"
    exit_status = 1
