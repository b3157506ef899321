"""Facts of what was tried: the checks of a verification, and the tests that a diagnosis asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from ..model import Check, Mark
from .host_facts import fact
from .model import Fact

# CUresult of a device's check -> the test that failed with it; "says" names the one cause that gives it.
_RESULTS = {
    802: ("test", "fabric", "fail"),
    803: ("test", "driver-versions", "fail"),
    804: ("says", "compat_libcuda_misuse", "804"),
    34: ("test", "loader-path", "fail"),
    214: ("test", "health", "fail"),
    220: ("test", "health", "fail"),
}
_TESTS = {"build": "cuda-build", "glibc": "libc"}  # check -> the test that it is
# What fails, too, where a variable or a second package has put other libraries in the environment's place.
_FOLLOWING = frozenset({"one-folder", "cudnn-complete", "cudnn-present", "libraries-resolve", "environment"})


def check_facts(checks: Sequence[Check]) -> tuple[Fact, ...]:
    """Of the checks of a verification. What follows from another fault is told as that one: a variable that leads
    to another cuDNN, or packages that overwrote one another's libraries, make the checks after them fail, too."""
    first = _first(checks)
    ordered = sorted(checks, key=lambda one: one.name not in ("loader", "owners"))
    opened = [one for one in checks if (one.name, one.subject, one.status) == ("cudnn", "libraries", "fail")]
    members = tuple(mark for one in opened for mark in one.marks)
    found = [_blamed(seen, first) for one in ordered for seen in _check(one, members)]
    runs = [one for one in checks if one.name == "cudnn convolution"]
    devices = [one for one in checks if one.name == "device" and one.subject.startswith("GPU")]
    if runs and len(runs) == len(devices):
        good = all(one.status == "pass" for one in runs)
        text = f"the convolution was right on {sum(one.status == 'pass' for one in runs)} of {len(runs)} GPUs"
        found.append(fact("test", "each-device", "pass" if good else "fail", "host: check cudnn convolution", text))
    whole = [one for one in checks if one.name in ("owners", "files", "closure")]
    if whole and all(one.status == "pass" for one in whole):
        text = "no library has two owners, and NVIDIA's files are as recorded"
        found.append(fact("test", "one-cuda-major", "pass", "host: checks owners, files and closure", text))
    return tuple(found)


def _first(checks: Sequence[Check]) -> str | None:
    """The test whose failure makes others fail, if there is one."""
    if any((one.name, one.subject, one.status) == ("loader", "variables", "fail") for one in checks):
        return "loader-path"
    marks = [mark for one in checks if one.name in ("owners", "files") for mark in one.marks]
    if any(code == "two-owners" and _of_libraries(path, names) for code, path, names in marks):
        return "one-cuda-major"
    # Without its list of files a distribution has none that the other checks would find.
    return "environment" if any(code in ("no-record", "twice") for code, _, _ in marks) else None


def _of_libraries(path: str, names: str) -> bool:
    """Whether the file of two owners is a library, or anything of two packages of NVIDIA's."""
    return ".so" in os.path.basename(path) or names.count("nvidia-") > 1


def _blamed(seen: Fact, first: str | None) -> Fact:
    """The fact, or the fault that it follows from."""
    follows = seen.kind == "test" and seen.value == "fail" and seen.subject in _FOLLOWING
    return seen.replace(subject=first) if first is not None and follows else seen


def _check(check: Check, members: Sequence[Mark]) -> Iterator[Fact]:
    """Of one check; `members` are the marks of the one that opened cuDNN's libraries."""
    tests: list[tuple[str, str]] = []
    who, text = (check.name, check.subject), check.evidence
    if check.status == "unknown" and check.name not in ("device", "cudnn"):
        return
    if who == ("loader", "variables"):
        tests = [("loader-path", check.status)]
    elif who == ("cudnn", "libraries"):
        tests = [(_library_test(check.marks), check.status)] if check.status != "unknown" else []
    elif who in (("cudnn", "origin"), ("cudnn", "version")):
        tests = _place_tests(check, members)
        for version in about(check.marks, "version"):
            yield fact("cudnn-loaded", "", version, _where(check), text)
    elif who == ("cudnn", "device version") and check.status == "fail":
        tests = [("architecture", "fail")]
        yield fact("architecture-missing", "cudnn", text, _where(check), text)
    elif check.name in _TESTS:
        tests = [(_TESTS[check.name], check.status)]
    elif check.name == "closure":
        tests, more = _closure(check)
        yield from more
    elif check.name in ("owners", "files"):
        tests = _files(check)
    elif check.name in ("device", "cudnn handle", "cudnn convolution"):
        yield from _device(check)
    for test, status in tests:
        yield fact("test", test, status, _where(check), text)


def about(marks: Iterable[Mark], code: str) -> list[str]:
    """What the marks of that code are about."""
    return [subject for one, subject, _ in marks if one == code]


def _library_test(marks: Sequence[Mark]) -> str:
    """No cuDNN at all, a member that is not there, or one that is of another release: its symbols are not found."""
    if about(marks, "none"):
        return "cudnn-present"
    return "one-folder" if about(marks, "symbol") and not _lacking(marks) else "cudnn-complete"


def _lacking(marks: Sequence[Mark]) -> bool:
    return any(name.startswith("libcudnn") for name in about(marks, "missing"))


def _place_tests(check: Check, members: Sequence[Mark]) -> list[tuple[str, str]]:
    """cuDNN's members from one folder and of one version; what a missing one brings about is the missing one's."""
    if check.status == "unknown":
        return []
    crashed = about(check.marks, "crashed") and not about(members, "symbol")
    if check.status == "fail" and (crashed or _lacking(members)):
        return [("cudnn-complete", "fail")]
    return [("one-folder", check.status)]


def _closure(check: Check) -> tuple[list[tuple[str, str]], list[Fact]]:
    """What is missing, mixed, broken, or taken from outside."""
    if check.status == "pass":
        return [("libraries-resolve", "pass")], []
    tests: dict[tuple[str, str], None] = {}
    facts = []
    for kind, name, more in check.marks:
        if kind == "missing":
            tests[("cudnn-complete" if name.startswith("libcudnn_") else "libraries-resolve", "fail")] = None
            text = f"{name}, which {more} needs, is nowhere"
            facts.append(fact("library-missing", name, more.partition(",")[0], _where(check), text))
        elif kind == "mixed":
            tests["one-cuda-major", "fail"] = None
        elif kind == "broken":
            tests["environment", "fail"] = None
        elif kind == "outside":
            tests["one-folder" if name.startswith("libcudnn") else "libraries-resolve", "fail"] = None
    return list(tests), facts


def _files(check: Check) -> list[tuple[str, str]]:
    """Two owners of a library of NVIDIA's, or files that are not as recorded."""
    if check.status != "fail":
        return []
    if check.name == "owners":
        mixed = any("nvidia-" in names for code, _, names in check.marks if code == "two-owners")
        return [("one-cuda-major" if mixed else "environment", "fail")]
    return [("environment", "fail")]


def _device(check: Check) -> Iterator[Fact]:
    """A device's context, its handle of cuDNN and its convolutions."""
    where, text = _where(check), check.evidence
    tests: list[tuple[str, str]] = []
    if check.name == "device":
        yield from _context(check)
    elif check.name == "cudnn handle":
        tests = [("fresh-process", check.status)]
    elif check.status == "pass":
        tests = [("float32-convolution", "pass"), ("other-stream", "pass"), ("one-folder", "pass")]
    elif about(check.marks, "foreign"):
        tests = [("one-folder", "fail")]
    else:
        tests = [("float32-convolution", "fail")]
    if check.name != "device" and check.status == "fail":
        for code, owner, name in check.marks:
            if code == "status":
                yield fact("status", owner, name, where, text)
    for test, status in tests:
        yield fact("test", test, status, where, text)


def _context(check: Check) -> Iterator[Fact]:
    """The driver as far as a context on the device."""
    where, text = _where(check), check.evidence
    if check.status == "pass":
        for test in ("libcuda", "cuinit", "context", "fabric", "driver-versions"):
            yield fact("test", test, "pass", where, text)
        return
    for code, what, more in check.marks:
        if code == "result":
            yield fact("test", "cuinit" if what == "cuInit" else "context", "fail", where, text)
            if int(more) in _RESULTS:
                yield fact(*_RESULTS[int(more)], where, text)
        elif code == "status":
            yield fact("status", what, more, where, text)
        elif code == "no-driver":
            yield fact("test", "libcuda", "fail", where, text)
        elif code == "memory":
            yield fact("test", "free-memory", "fail", where, text)


# ---- tests --------------------------------------------------------------------------------------------------------


def test_facts(shown: Iterable[tuple[str, int, str, str]]) -> tuple[Fact, ...]:
    """Of (test, device, status, evidence): one fact a test, the worst of its devices, and "each-device"."""
    rows: dict[str, list[tuple[int, str, str]]] = {}
    for test, device, status, evidence in shown:
        rows.setdefault(test, []).append((device, status, evidence))
    facts = []
    for test, of in rows.items():
        status = next((one for one in ("fail", "unknown") if any(row[1] == one for row in of)), "pass")
        device, _, evidence = next(row for row in of if row[1] == status)
        facts.append(fact("test", test, status, f"host: test {test}", f"GPU {device}: {evidence}"))
    first = rows.get("fresh-process", [])
    if first:
        good = [device for device, status, _ in first if status == "pass"]
        text = f"{len(good)} of {len(first)} GPUs computed right in a fresh process"
        status = "pass" if len(good) == len(first) else "fail"
        facts.append(fact("test", "each-device", status, "host: test each-device", text))
    return tuple(facts)


def _where(check: Check) -> str:
    return f"host: check {check.name} {check.subject}".rstrip()
