"""Check that every library, cubin and fat binary has code for every device. Reads, loads nothing.

The compatibility rules judge known releases. This check reads the files, so that it also finds what
no table knows: an extension that was built here, a cubin, a wheel of another source.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence

from ..binaries.environment import CodeFile, scan_environment
from ..binaries.served import JudgedFile
from ..compat.architectures import parse_target, show_code
from ..model import Check, Code, Host, Mark, show_pair
from ..probes.answers import SurveyAnswer
from .installed import first_items

NAME = "device code"
Judge = Callable[[Iterable[CodeFile]], Sequence[JudgedFile]]


def device_code_checks(
    target: str, survey: SurveyAnswer, host: Host, judge: Judge, deadline: float
) -> list[Check]:
    """Return a check for each distribution with a file that cannot run on a device of the host.

    Args:
        target: the folder of the environment, or its interpreter.
        survey: what is installed.
        host: without a GPU there is nothing to check.
        judge: applies the rules to files.
        deadline: time.monotonic when reading stops.
    """
    if not host.gpus:
        return []
    begin = time.monotonic()
    folders = sorted({str(row["folder"]) for row in survey["distributions"]})
    contents = scan_environment(target, more=folders, deadline=deadline)
    judged = judge(contents.files)
    checks = [_owner_check(owner, files) for owner, files in _by_owner(judged).items()]
    if not contents.complete:
        evidence = f"only {contents.read} files were read in time"
        checks.append(Check(name=NAME, subject="", status="unknown", evidence=evidence))
    elif not checks:
        checks.append(Check(name=NAME, subject="", status="pass", evidence=_summary(judged, host)))
    seconds = round(time.monotonic() - begin, 3)
    return [checks[0].replace(seconds=seconds), *checks[1:]]


def _by_owner(judged: Iterable[JudgedFile]) -> dict[str, list[JudgedFile]]:
    """Return the files that fail or may fail, by their distribution or their path."""
    groups: dict[str, list[JudgedFile]] = {}
    for judged_file in judged:
        file = judged_file.file
        is_nvidia = file.owner.startswith("nvidia-")
        if file.fault or (judged_file.reasons and not is_nvidia):
            groups.setdefault(file.owner or file.path, []).append(judged_file)
    return dict(sorted(groups.items()))


def _owner_check(owner: str, files: Sequence[JudgedFile]) -> Check:
    failing = [judged_file for judged_file in files if judged_file.fails]
    broken = [judged_file for judged_file in files if judged_file.file.fault]
    if broken:
        evidence = f"{broken[0].file.path}: {broken[0].file.fault}"
        return Check(name=NAME, subject=owner, status="unknown", evidence=evidence)
    shown = failing or files
    first = shown[0]
    names = first_items([judged_file.file.path for judged_file in shown])
    evidence = f"{names}: has {show_code(first.code)}; needs {first.reasons[0].need}"
    if failing:
        hint = first.hint
        return Check(
            name=NAME,
            subject=owner,
            status="fail",
            evidence=f"{evidence}: {hint}",
            marks=(*_marks(failing), ("rebuild", owner, hint)),
        )
    if first.optional:
        evidence += f" ({first.optional})"
    return Check(name=NAME, subject=owner, status="unknown", evidence=evidence, marks=_marks(shown))


def _marks(files: Iterable[JudgedFile]) -> tuple[Mark, ...]:
    return tuple(
        ("no-code", judged_file.file.path, " ".join(_capabilities(judged_file.code)))
        for judged_file in files
    )


def _capabilities(code: Code) -> list[str]:
    """Return the compute capabilities of the SASS targets: 8.0 for sm_80."""
    return [show_pair(parse_target(target)[0]) for target in code.sass or ()]


def _summary(judged: Sequence[JudgedFile], host: Host) -> str:
    gpus = ", ".join(sorted({gpu.name for gpu in host.gpus}))
    text = f"{len(judged)} files with device code run on {gpus}"
    without = [
        os.path.basename(judged_file.file.path) for judged_file in judged if judged_file.reasons
    ]
    if without:
        text = f"{len(judged) - len(without)} files with device code run on {gpus}"
        text += f"; libraries of NVIDIA without code for it: {first_items(without)}"
    return text
