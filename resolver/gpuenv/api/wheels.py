"""Requests for wheels, and their solution."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from .. import activity
from ..compat.data import CompatibilityData, compatibility_data
from ..errors import InputError, NoSolutionError, OfflineError, PackageIndexError
from ..index.default_index import without_default
from ..index.http import OK, Transport
from ..index.multi_index import MultiIndex, open_indexes
from ..index.own_indexes import OwnIndexes
from ..index.protocol import Index
from ..index.source_builds import BuildFailedError, build_settings_of
from ..index.urls import path_to_file_url, redact_url
from ..lock.tool_settings import ToolSettings, capability_of, settings
from ..model import Host, IndexOptions, Pin, Plan, Request
from ..requirements.target import TargetEnvironment, normalize_name, parse_requirement
from ..resolve import solver
from ..resolve.requested import read_request
from ..resolve.wheel_variants import VariantChooser
from .data import data_version


def solve(
    request: Request,
    host: Host,
    options: IndexOptions,
    *,
    changes: bool = True,
    wrap: Callable[[MultiIndex], Index] | None = None,
) -> Plan:
    """Solve a request for wheels.

    Args:
        request: the request.
        host: the host on which the wheels must run.
        options: where packages may come from.
        changes: whether to look for the smallest changes that help when there is no solution.
        wrap: makes the index that the resolver reads of the usual one; None is the usual one.
    """
    data, options = compatibility_data(), without_default(options)
    # --index-url and --default-index-only leave out the indexes of frameworks and companions.
    excluded = request.default_index_only or options.no_index or options.index_url is not None
    ranges: dict[str, list[str]] = {}
    snapshot, index = open_indexes(
        options,
        _own_packages(options, data),
        live=data.user_rows.rows,
        own=None if excluded else OwnIndexes(data, host, ranges, options),
        python=host.python,
        may_build=request.may_build,
        seen=request.earlier,
    )
    target = snapshot.environment(host)
    constraints = [parse_requirement(text) for text in request.constraints]
    frameworks, requirements = read_request(request, data, target)
    for need in (*(requirement for _, requirement in frameworks), *requirements, *constraints):
        if need.specifier and (need.marker is None or target.marker(need.marker, ())):
            ranges.setdefault(need.name, []).append(need.specifier)
    if wrap is None:
        index.start_prefetch(requirements, constraints, target, data.covers, request.may_build)

    def resolve() -> Plan:
        return solver.solve(
            request,
            host,
            data,
            index if wrap is None else wrap(index),
            snapshot.environment,
            widen=index.widen,
            changes=changes,
            data_version=data_version(snapshot.version),
        )

    try:
        try:
            plan = resolve()
        except NoSolutionError as error:
            missing = _missing_builds(error, data, index)
            if excluded or options.offline or not missing:
                raise
            index.read_own(missing)
            plan = resolve()
    except NoSolutionError as error:
        reasons = error.explanation.reasons
        if all(reason.code != "no-offline-file" for reason in reasons):  # which names its index
            reasons += index.failures()
        raise NoSolutionError(error.explanation.replace(reasons=reasons)) from None
    finally:
        index.stop_prefetch()
    pins = _completed(plan.pins, index, options)
    return plan.replace(
        pins=pins,
        warnings=(*plan.warnings, *index.failures()),
        index_date=snapshot.date if any(index.at_hand(pin.wheel.name) for pin in pins) else "",
    )


def _completed(pins: Sequence[Pin], index: MultiIndex, options: IndexOptions) -> tuple[Pin, ...]:
    """Return pins with the hashes and the sizes of their files, and the settings of builds."""
    wheels = [index.hashed(pin.wheel) for pin in pins]
    if any(wheel.size is None for wheel in wheels):
        sizes = index.sizes(wheels)
        wheels = [wheel.replace(size=sizes.get(wheel.filename, wheel.size)) for wheel in wheels]
    completed = []
    for pin, wheel in zip(pins, wheels, strict=True):
        settings: tuple[str, ...] = ()
        if wheel.is_sdist:
            settings = build_settings_of(wheel.name, options.build_settings)
        completed.append(pin.replace(wheel=wheel, build_settings=settings))
    return tuple(completed)


def built_requirements(
    folder: str, extras: Sequence[str], host: Host, options: IndexOptions
) -> tuple[list[str], str | None]:
    """Return what a project requires on a host, and its Requires-Python, by its build backend.

    Args:
        folder: the folder of the project.
        extras: the extras that are wanted.
        host: the host.
        options: where build requirements come from.

    Raises:
        InputError: there is no such extra.
        BuildFailedError: the backend fails.
    """
    _, index = open_indexes(options, python=host.python)
    environment = TargetEnvironment(host)
    try:
        tree = index.direct("", path_to_file_url(os.path.abspath(folder)))
        metadata = index.metadata(tree)
    except BuildFailedError as error:
        error.hint = "without the project: gpuenv solve -r FILE reads a requirements file"
        raise
    markers = " ".join(dependency.marker or "" for dependency in metadata.dependencies)
    wanted = [normalize_name(extra) for extra in extras]
    for extra in wanted:
        if f'"{extra}"' not in markers:
            raise InputError(f"{folder}: the project has no extra {extra}")
    texts: dict[str, None] = {}
    for place in range(len(metadata.dependencies) + 1):
        del place  # an extra may ask for other extras of the project, and these for others
        for dependency in metadata.dependencies:
            if dependency.marker is None or environment.marker(dependency.marker, tuple(wanted)):
                if dependency.name == tree.name:
                    wanted += [extra for extra in dependency.extras if extra not in wanted]
                else:
                    texts[str(dependency.replace(marker=None))] = None
    return list(texts), metadata.requires_python


def name_of_project(url: str, host: Host, options: IndexOptions) -> str:
    """Return the name of the project at a URL or a path, by its metadata."""
    _, index = open_indexes(options, python=host.python)
    return index.direct("", url).name


def read_url(url: str, options: IndexOptions) -> bytes:
    """Return what is at the URL of a requirements file.

    Raises:
        OfflineError: requests are forbidden.
        PackageIndexError: there is no such file, or it cannot be read.
    """
    shown = redact_url(url)
    if options.offline:
        raise OfflineError(f"{shown}: is on the network, and --offline is on")
    host = urlsplit(url).hostname or ""
    is_here = host in ("localhost", "::1") or host.startswith("127.")
    if url.lower().startswith("http:") and not is_here:
        text = "is read without https: anybody on the way can change it"
        activity.current.announce(f"warning: {shown} {text}")
    with Transport() as transport:
        reply = transport.get(transport.login(url), "requirements")
    if reply.status != OK:
        raise PackageIndexError(f"{shown}: the server answered with status {reply.status}")
    return reply.body


def _missing_builds(error: NoSolutionError, data: CompatibilityData, index: MultiIndex) -> set[str]:
    """Return the refused packages of which an own index may have other builds.

    These are the frameworks of known builds whose files are not in the data, and what the snapshot
    supplies beside them, such as torchvision.
    """
    names: set[str] = set()
    for reason in error.explanation.reasons:
        name = re.split(r"[^\w.-]", reason.subject)[0]  # torchvision 0.23.0 or torchvision<0.24
        framework, of_ways = data.framework_of(name), data.framework(name)
        if framework is not None:
            if name == framework.distribution:
                has_others = reason.code == "no-offline-file"
            else:
                has_others = reason.code != "no-version"
            names.update(framework.distributions if has_others else ())
        else:
            ways = of_ways.ways if of_ways is not None else ()
            of_name = (name, *(way.distribution for way in ways))
            names.update(one for one in of_name if data.indexes(one) and index.at_hand(one))
    return names


def _own_packages(options: IndexOptions, data: CompatibilityData) -> dict[str, frozenset[str]]:
    """Return the packages of the extra indexes that belong to a framework.

    PyTorch's index has old releases of numpy and others, too. It supplies its own packages only.
    """
    packages_by_index = {}
    for url in options.extra_index_urls:
        for framework in data.all_frameworks():
            for row in data.indexes(framework.distribution):
                if url.startswith(row.url.partition("{")[0]):
                    packages_by_index[url] = frozenset(row.distributions)
    return packages_by_index


def tool_settings(
    tool: str, host: Host, request: Request | None = None, options: IndexOptions | None = None
) -> ToolSettings:
    """Return the settings that make a tool take the builds that gpuenv takes.

    Args:
        tool: uv, conda, pixi or pip.
        host: the host.
        request: what is to be installed; None leaves out what depends on packages.
        options: where packages may come from.

    Raises:
        InexpressibleError: the settings of the tool cannot express it, such as the devices of the
            host without a compute capability in common.
        NoSolutionError: the request has no solution.
    """
    if request is None or tool in ("conda", "pixi"):
        return settings(tool, host, None)
    options = options or IndexOptions()
    plan = solve(request, host, options)
    if tool != "uv" or not plan.variants:
        return settings(tool, host, plan, ())
    # uv would take these variants of the releases of the plan's variant wheels.
    data = compatibility_data()
    capability = capability_of(plan.host, "uv")
    snapshot, index = open_indexes(options, _own_packages(options, data))
    environment = snapshot.environment(plan.host)
    chooser = VariantChooser(plan.host, data, index)
    versions = plan.versions
    labels = []
    for variant in plan.variants:
        label = variant.label
        if capability is not None:
            files = index.files(variant.name, environment)
            release = [file for file in files if file.version == versions[variant.name]]
            label = chooser.label_by_provider(release, capability)
        labels.append(label)
    return settings(tool, host, plan, tuple(labels))
