"""Whether what a Dockerfile installs works in its base image and on a host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from ..compat.architectures import reaches_floor
from ..compat.data import CompatibilityData, compatibility_data
from ..errors import Change, InputError, LockReport, NoSolutionError, Reason, is_doubt
from ..model import CudaVersion, Host, IndexOptions, Plan, Request, show_pair
from ..requirements.dockerfile import Dockerfile, Install
from ..requirements.target import parse_requirement
from . import environments
from .explanations import check_lock

_TAG = re.compile(r"(?:^|/)(cu\d+|cpu)/?$")
_Finding = tuple[int, Reason]  # the line that it is about
_reason = partial(Reason, source="the Dockerfile")


def explain_dockerfile(
    path: str, file: Dockerfile, host: Host, options: IndexOptions | None
) -> LockReport:
    """Judge the base image and what is installed into it; the requirements are solved together.

    Reason codes: those of a solve, and image-unknown, file-unknown, unpinned, no-nvcc,
    nvcc-unknown, nvcc-version, system-cudnn, cudnn-shadowed.

    Args:
        path: the Dockerfile, for messages.
        file: what it says.
        host: the host, with the Python of the image.
        options: where packages may come from.

    Returns:
        The report; `places` has the line of each reason.

    Raises:
        PackageIndexError: an index did not answer.
    """
    data = compatibility_data()
    findings = [*_of_image(file, host, data)]
    request, built = Request(), list[tuple[int, str]]()
    for install in file.installs:
        findings += _of_install(install, file, host, data)
        built += [(install.line, text) for text in install.sources]
        if install.is_isolated:
            request = _then_installed(request, install.requirements, data)
        else:
            built += [(install.line, text) for text in install.requirements]
        tags = [match[1] for match in map(_TAG.search, install.indexes) if match]
        for text in install.requirements if tags and tags[0] != "cpu" else ():
            framework = data.framework_of(parse_requirement(text).name)
            if framework is not None:
                request = request.replace(builds=((framework.name, tags[0]),))
    plan, changes = None, tuple[Change, ...]()
    request = _with_framework(request, file)
    if request.requirements:
        try:
            plan = environments.solve(request, host, options)
        except NoSolutionError as error:
            changes = error.explanation.changes
            findings += [_judged(reason, file) for reason in error.explanation.reasons]
    if plan is not None:
        findings += _of_cudnn(file, plan, data)
        findings += [(_line(file, reason), reason) for reason in filter(is_doubt, plan.warnings)]
    findings += _of_builds(file, plan, built, data)
    findings.sort(key=lambda finding: finding[0])
    return LockReport(
        path=path,
        host=host,
        created_by=file.image,
        packages=len(plan.pins) if plan is not None else 0,
        reasons=tuple(reason for _, reason in findings),
        places=tuple(f"{path}:{line}" for line, _ in findings),
        changes=changes,
    )


def _then_installed(request: Request, texts: Sequence[str], data: CompatibilityData) -> Request:
    """Return the request with what a later command installs.

    As with pip, its pins take the place of earlier versions, also of those that installed packages
    require. A framework must still be what these require.
    """
    pins = {
        need.name: text for text in texts if "==" in (need := parse_requirement(text)).specifier
    }
    earlier = request.requirements
    kept = [text for text in earlier if parse_requirement(text).name not in pins]
    overrides = {parse_requirement(text).name: text for text in request.overrides}
    if earlier:
        overrides |= {name: pins[name] for name in pins if data.framework_of(name) is None}
    return request.replace(requirements=(*kept, *texts), overrides=tuple(overrides.values()))


def _with_framework(request: Request, file: Dockerfile) -> Request:
    """Return the request with the framework of the image, which pip leaves as it is.

    Another version that the Dockerfile asks for takes its place.
    """
    requirements = list(request.requirements)
    builds = request.builds
    if file.framework:
        name = parse_requirement(file.framework).name
        own = [text for text in requirements if parse_requirement(text).name == name]
        if not any(parse_requirement(text).specifier for text in own):
            kept = [text for text in requirements if text not in own]
            requirements = [file.framework, *kept]
            if file.cuda is not None and not builds:
                builds = ((name, show_pair(file.cuda)),)
    return request.replace(requirements=tuple(requirements), builds=builds)


def _judged(reason: Reason, file: Dockerfile) -> _Finding:
    """Return a reason of a solve with its line; where too little is known for it, as not known."""
    line, why = _line(file, reason), ""
    if reason.code in ("index-failed", "no-offline-file"):
        why = reason.have
    elif reason.code == "no-wheel-for-target" and not file.python:
        why = "another Python can have a wheel"
    elif reason.code in ("no-version", "not-in-index"):
        commands = [install for install in file.installs if install.line == line]
        indexes = [index for install in commands for index in install.indexes]
        unread = [name for install in commands for name, _ in install.unread]
        if "$" in "".join(unread) or not all(map(_TAG.search, indexes)):
            why = "another index of the command can have it"
    have = f"not judged: {why}"
    return line, _reason("file-unknown", reason.subject, "", have) if why else reason


def _line(file: Dockerfile, reason: Reason) -> int:
    """Return the line that a reason is about: that of a requirement, otherwise of the image."""
    data = compatibility_data()
    for subject in (reason.subject, reason.dependent):
        wanted = re.split(r"[^\w.-]", subject)[0]
        for install in file.installs:
            for text in install.requirements:
                name = parse_requirement(text).name
                framework = data.framework(name)
                if wanted in (name, framework and framework.name):
                    return install.line
    return file.line


def _of_image(file: Dockerfile, host: Host, data: CompatibilityData) -> Iterator[_Finding]:
    """Yield what speaks against the base image, and what its tag does not show."""
    image = file.image
    yield from _below_floor(file.line, file.cuda, "of the image", host, data)
    if "alpine" in image and any(install.requirements for install in file.installs):
        yield file.line, _reason("glibc", "wheels of frameworks", "glibc", f"musl: {image}")
    unknown = [] if file.python else [f"Python (judged for {show_pair(host.python.version)})"]
    if file.cuda is None and not re.search(r"(?:^|/)python:", image):
        unknown.append("CUDA, cuDNN and nvcc")
    if unknown:
        have = f"its tag does not show {' and '.join(unknown)}"
        yield file.line, _reason("image-unknown", image, "", have)


def _below_floor(
    line: int, cuda: CudaVersion | None, whose: str, host: Host, data: CompatibilityData
) -> Iterator[_Finding]:
    """Yield that the driver of the host is too old for a CUDA version (R1)."""
    floor = data.driver_floor(cuda, "linux") if cuda is not None else None
    if cuda is None or floor is None or not host.gpus or host.driver is None:
        return
    if not reaches_floor(host, floor[0], cuda):
        need, have = f"driver {floor[0]} or newer", f"driver {host.driver}"
        yield line, _reason("driver-floor", f"CUDA {show_pair(cuda)} {whose}", need, have)


def _of_install(
    install: Install, file: Dockerfile, host: Host, data: CompatibilityData
) -> Iterator[_Finding]:
    """Yield what can be said of a command without a solve."""
    line = install.line
    if install.lock:
        try:
            yield from ((line, reason) for reason in check_lock(install.lock, host).reasons)
        except InputError as error:
            yield line, _reason("file-unknown", install.lock, "", f"not judged: {error.message}")
    of_build = ((name, "only its build shows what it needs") for name in install.sources)
    for name, why in (*install.unread, *of_build):
        yield line, _reason("file-unknown", name, "", f"not judged: {why}")
    yield from _below_floor(line, install.cuda, "of conda", host, data)
    is_cpu = any(match[1] == "cpu" for match in map(_TAG.search, install.indexes) if match)
    of_image = parse_requirement(file.framework) if file.framework else None
    for text in install.requirements:
        requirement = parse_requirement(text)
        if data.framework_of(requirement.name) is None:
            continue
        if is_cpu and host.gpus:
            have = "a CPU build, from an index of CPU builds"
            yield line, _reason("cpu-build", requirement.name, "a CUDA build", have)
        if not (requirement.specifier or requirement.url):
            have = "no version: another day of the build gives another release"
            if of_image is not None and requirement.name == of_image.name:
                have = f"no version: {file.framework} of the image stays"
            yield line, _reason("unpinned", requirement.name, "", have)


def _of_cudnn(file: Dockerfile, plan: Plan, data: CompatibilityData) -> Iterator[_Finding]:
    """Yield where the cuDNN of the image takes the place of another, or is of another major."""
    if file.cudnn is None:
        return
    have = f"cuDNN {file.cudnn} of the image"
    versions = plan.versions
    wheel = next((name for name in versions if name.startswith("nvidia-cudnn-")), "")
    if wheel and int(versions[wheel].partition(".")[0]) != file.cudnn:
        subject = f"{wheel} {versions[wheel]}"
        if file.library_path:
            have += ", which LD_LIBRARY_PATH puts before it"
            reason = _reason("cudnn-shadowed", subject, "to be loaded first", have)
            yield file.library_path, reason
        else:
            yield file.line, _reason("system-cudnn", subject, "", f"is used; {have} is not")
    for name, version in versions.items() if not wheel else ():
        links = data.links(name, version, plan.host.platform)
        if links is not None and links.cudnn and file.cudnn not in links.cudnn:
            need = f"cuDNN {' or '.join(map(str, links.cudnn))}"
            reason = _reason("cudnn-major", f"{name} {version}", need, have)
            yield _line(file, reason), reason


def _of_builds(
    file: Dockerfile, plan: Plan | None, built: Sequence[tuple[int, str]], data: CompatibilityData
) -> Iterator[_Finding]:
    """Yield why what is built with the framework of the environment lacks nvcc, or has another."""
    choices = [choice for choice in plan.choices if choice.cuda] if plan else []
    framework, cuda = next(((choice.framework, choice.cuda) for choice in choices), ("", None))
    for line, text in built:
        name = text if "/" in text else re.split(r"[=<>!~\[ ]", text)[0]
        is_known = data.is_companion(name)
        if file.kind in ("base", "runtime"):
            need = "nvcc" if is_known else "nvcc, if it has CUDA code"
            have = f"none: {file.image} is no devel image"
            yield line, _reason("no-nvcc" if is_known else "nvcc-unknown", name, need, have)
        elif cuda is not None and file.cuda is not None and cuda[0] != file.cuda[0]:
            need = f"nvcc of CUDA {cuda[0]}{'' if is_known else ', if it has CUDA code'}"
            have = f"CUDA {show_pair(file.cuda)} of the image; {framework} is for {show_pair(cuda)}"
            yield line, _reason("nvcc-version" if is_known else "nvcc-unknown", name, need, have)
