"""Check that every library, cubin and fat binary has code for every device. Reads, loads nothing.

The compatibility rules judge known releases. This check reads the files, so that it also finds what
no table knows: an extension that was built here, a cubin, a wheel of another source.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence

from ..binaries.environment import scan_environment
from ..binaries.served import JudgedFile, judge
from ..compat.architectures import parse_target, show_code
from ..compat.data import CompatibilityData
from ..model import Check, Host, Mark, first_texts, show_pair
from .survey import Survey

NAME = "device code"


def device_code_checks(
    target: str, survey: Survey, host: Host, data: CompatibilityData, deadline: float
) -> list[Check]:
    """Return a check for each distribution with a file that cannot run on a device of the host.

    Args:
        target: the folder of the environment, or its interpreter.
        survey: what is installed.
        host: without a GPU there is nothing to check.
        data: the compatibility data.
        deadline: time.monotonic when reading stops.
    """
    if not host.gpus:
        return []
    begin = time.monotonic()
    folders = sorted({row.folder for row in survey.distributions})
    contents = scan_environment(target, more=folders, deadline=deadline)
    judged = judge(contents.files, host, data)
    by_owner: dict[str, list[JudgedFile]] = {}  # what fails or may fail, by distribution or path
    for judged_file in judged:
        file = judged_file.file
        is_nvidia = file.owner.startswith("nvidia-")
        if file.fault or (judged_file.reasons and not is_nvidia):
            by_owner.setdefault(file.owner or file.path, []).append(judged_file)
    checks = [_owner_check(owner, files) for owner, files in sorted(by_owner.items())]
    if not contents.complete:
        evidence = f"only {contents.read} files were read in time"
        checks.append(Check(NAME, "", "unknown", evidence))
    elif not checks:
        gpus = ", ".join(sorted({gpu.name for gpu in host.gpus}))
        without = [os.path.basename(one.file.path) for one in judged if one.reasons]
        text = f"{len(judged) - len(without)} files with device code run on {gpus}"
        if without:
            text += f"; libraries of NVIDIA without code for it: {first_texts(without, ', ')}"
        checks.append(Check(NAME, "", "pass", text))
    seconds = round(time.monotonic() - begin, 3)
    return [checks[0].replace(seconds=seconds), *checks[1:]]


def _owner_check(owner: str, files: Sequence[JudgedFile]) -> Check:
    failing = [judged_file for judged_file in files if judged_file.fails]
    broken = [judged_file for judged_file in files if judged_file.file.fault]
    if broken:
        evidence = f"{broken[0].file.path}: {broken[0].file.fault}"
        return Check(NAME, owner, "unknown", evidence)
    shown = failing or files
    first = shown[0]
    names = first_texts([judged_file.file.path for judged_file in shown], ", ")
    evidence = f"{names}: has {show_code(first.code)}; needs {first.reasons[0].need}"
    if failing:
        marks = (*_marks(failing), ("rebuild", owner, first.hint))
        return Check(NAME, owner, "fail", f"{evidence}: {first.hint}", marks=marks)
    if first.optional:
        evidence += f" ({first.optional})"
    return Check(NAME, owner, "unknown", evidence, marks=_marks(shown))


def _marks(files: Iterable[JudgedFile]) -> tuple[Mark, ...]:
    """Return the marks of files, with the compute capabilities of their SASS: 8.0 for sm_80."""
    marks = []
    for judged_file in files:
        capabilities = [show_pair(parse_target(sass)[0]) for sass in judged_file.code.sass or ()]
        marks.append(("no-code", judged_file.file.path, " ".join(capabilities)))
    return tuple(marks)
