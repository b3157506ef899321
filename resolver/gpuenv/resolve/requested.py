"""What a request asks for: frameworks, wherever their names stand, and other requirements.

The name of a framework, or of a distribution that installs it, means the framework: after
--framework, on the command line, in a file, in pyproject.toml. An extra or a distribution that
belongs to some builds only (jax[cuda12], onnxruntime-gpu) limits the framework to these builds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..compat.data import CompatibilityData
from ..compat.names import unknown_framework
from ..errors import InputError
from ..model import Framework, Request, Requirement, Way
from ..requirements.overrides import Overrides
from ..requirements.target import TargetEnvironment, parse_requirement
from .candidates import CandidateStore
from .graph import FrameworkRequirement, Identifier, NodeRequirement, PackageRequirement

# A framework, limited to the ways that all texts of the request leave, and one of these texts.
NamedFramework = tuple[Framework, Requirement]


def read_request(
    request: Request, data: CompatibilityData, environment: TargetEnvironment
) -> tuple[tuple[NamedFramework, ...], tuple[Requirement, ...]]:
    """Return the frameworks of a request, one row for each text, and its other requirements.

    Both are as the overrides have them. A requirement on a framework whose marker does not hold is
    left out. One with a URL is an ordinary requirement.

    Raises:
        InputError: an unknown framework, an invalid text, a framework twice after --framework, or
            texts that leave no build of a framework.
    """
    names = framework_names(data)
    flags = [requirement for _, requirement in frameworks_of_flags(request, data)]
    named: list[NamedFramework] = []
    others: list[Requirement] = []
    texts_of_request = (*flags, *map(parse_requirement, request.requirements))
    for requirement in Overrides(request.overrides).apply(texts_of_request):
        framework = framework_of(requirement, names)
        if framework is None:
            others.append(requirement)
        elif requirement.marker is None or environment.marker(requirement.marker, ()):
            named.append((framework, requirement))
    texts: dict[str, list[Requirement]] = {}
    for framework, requirement in named:
        texts.setdefault(framework.name, []).append(requirement)
    limited = {framework.name: _limited(framework, texts[framework.name]) for framework, _ in named}
    rows = tuple((limited[framework.name], requirement) for framework, requirement in named)
    return rows, tuple(others)


def requirements_of(request: Request, store: CandidateStore) -> list[NodeRequirement]:
    """Return what a request on the host of a store requires, its frameworks first.

    Raises:
        InputError: as read_request, or the request is empty and does not follow an earlier lock.
    """
    if not (request.frameworks or request.requirements or request.earlier):
        raise InputError("nothing to solve: name a framework (--framework torch) or a requirement")
    data, environment = store.data, store.environment
    frameworks, others = read_request(request, data, environment)
    roots: list[NodeRequirement] = []
    for framework, parsed in frameworks:
        if framework.is_single_distribution:
            name = framework.distribution
            specifier = _build_of_default_index(name, parsed.specifier, store)
            roots.append(PackageRequirement(name, parsed.extras, specifier))
        else:
            is_limited = framework != data.framework(framework.name)
            text = str(parsed.replace(marker=None)) if is_limited else ""
            roots.append(FrameworkRequirement(framework, parsed.specifier, text))
    for requirement in others:
        if requirement.marker is None or environment.marker(requirement.marker, ()):
            name, extras = requirement.name, requirement.extras
            root = PackageRequirement(name, extras, requirement.specifier, requirement.url)
            roots.append(root)
    return roots


def _build_of_default_index(name: str, specifier: str, store: CandidateStore) -> str:
    """Return ===2.4.0 for ==2.4.0+cu121 if that is the build of torch on the default index.

    It stands there under the plain version. An index that has the file under the name that was
    asked for supplies it.
    """
    version = specifier.removeprefix("==")
    release, plus, variant = version.partition("+")
    if not plus or not store.on_path(name):
        return specifier
    build = store.data.build(name, release, store.host.platform)
    is_listed = any(wheel.version == version for wheel in store.index.files(name))
    if build is None or build.variant != variant or is_listed:
        return specifier
    return f"==={release}"


def framework_nodes(roots: Sequence[NodeRequirement], store: CandidateStore) -> list[Identifier]:
    """Return the nodes of the frameworks that the requirements of a request name, each once."""
    nodes: dict[Identifier, None] = {}
    for root in roots:
        if isinstance(root, FrameworkRequirement) or (
            isinstance(root, PackageRequirement) and store.on_path(root.name) and root.url is None
        ):
            nodes[root.identifier] = None
    return list(nodes)


def framework_names(data: CompatibilityData) -> dict[str, Framework]:
    """Return {name of a framework, or of a distribution that installs it: the framework}."""
    names = dict(data.installers)
    for framework in data.all_frameworks():
        names[framework.name] = framework
        if not all(way.carriers for way in framework.ways):
            names[f"{framework.name}-cpu"] = framework
    return names


def framework_of(requirement: Requirement, names: Mapping[str, Framework]) -> Framework | None:
    """Return the framework that a requirement means; None for any other package and for a URL.

    Args:
        requirement: the requirement.
        names: `framework_names`.
    """
    return None if requirement.url is not None else names.get(requirement.name)


def with_versions(
    request: Request, versions: Mapping[str, str], data: CompatibilityData
) -> Request:
    """Return a request that also asks for versions of frameworks, by name.

    A framework that is only a dependency gets a constraint: a requirement would make it more.
    """
    names = framework_names(data)
    of_wheels = request.requirements if request.conda is None else ()  # conda has its own specs
    texts = map(parse_requirement, (*request.frameworks, *of_wheels))
    named = {framework.name for text in texts if (framework := framework_of(text, names))}
    requirements, constraints = [*request.requirements], [*request.constraints]
    for name, version in versions.items():
        (requirements if name in named else constraints).append(f"{name}=={version}")
    return request.replace(requirements=tuple(requirements), constraints=tuple(constraints))


def frameworks_of_flags(request: Request, data: CompatibilityData) -> list[NamedFramework]:
    """Return the frameworks that --framework names, in their order.

    Raises:
        InputError: an unknown framework, an invalid text, or a framework twice.
    """
    named: list[NamedFramework] = []
    for text in request.frameworks:
        requirement = parse_requirement(text)
        framework = data.framework(requirement.name)
        if framework is None:
            raise unknown_framework(text, requirement.name, data)
        if requirement.marker or requirement.url:
            raise InputError(
                f"--framework {text}: takes NAME or NAME with a version range, such as torch>=2.9"
            )
        if any(framework.name == other.name for other, _ in named):
            raise InputError(f"--framework {text}: given twice")
        named.append((framework, requirement))
    return named


def _limited(framework: Framework, texts: Sequence[Requirement]) -> Framework:
    """Return a framework with the ways and the further extras that all of its texts ask for."""
    if framework.is_single_distribution:
        return framework
    ways = list(framework.ways)
    extras: dict[str, None] = {}  # in order, each once
    for requirement in texts:
        named = {way.variant: way for way in _named_ways(framework, requirement)}
        # What a user wrote replaces a way of the data.
        ways = [
            named[way.variant] if way in framework.ways else way
            for way in ways
            if way.variant in named
        ]
        for extra in requirement.extras:
            if not any(_names_way(extra, way) for way in framework.ways):
                extras[extra] = None
    if not ways:
        raise InputError(
            f"{' and '.join(map(str, texts))}: these are different builds of {framework.name}",
            hint="keep one of them",
        )
    if extras:
        further = f"[{','.join(extras)}]"
        ways = [
            way.replace(requires=(*way.requires, f"{way.distribution}{further}")) for way in ways
        ]
    if tuple(ways) == framework.ways:
        return framework
    return framework.replace(ways=tuple(ways))


def _named_ways(framework: Framework, requirement: Requirement) -> list[Way]:
    """Return the ways that a requirement means, by its extras or else by its name.

    An extra that the user wrote replaces that of a way: jax[cuda12-local] for jax[cuda12].
    """
    name, ways = requirement.name, list(framework.ways)
    if name == f"{framework.name}-cpu":
        return [way.replace(requires=(name,)) for way in ways if not way.carriers]
    if name != framework.name:
        ways = [way for way in ways if way.distribution == name]
    by_extra = []
    for way in ways:
        for extra in requirement.extras:
            if not _names_way(extra, way):
                continue
            own = parse_requirement(way.requires[0]).extras
            if own and extra not in own:
                written = f"{way.distribution}[{extra}]"
                by_extra.append(way.replace(requires=(written, *way.requires[1:])))
            else:
                by_extra.append(way)
            break
    return by_extra or ways


def _names_way(extra: str, way: Way) -> bool:
    """Return whether an extra asks for a way: cuda12, cuda12-local, or cpu for the CPU build."""
    if not way.carriers and extra == way.variant:
        return True
    own = parse_requirement(way.requires[0]).extras
    return any(extra == name or extra.startswith(f"{name}-") for name in own)
