"""What a request asks for: frameworks, wherever their names stand, and other requirements.

The name of a framework, or of a distribution that installs it, means the framework: after
--framework, on the command line, in a file, in pyproject.toml. An extra or a distribution that
belongs to some builds only (jax[cuda12], onnxruntime-gpu) limits the framework to these builds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from ..compat.data import CompatibilityData
from ..errors import InputError
from ..model import Framework, Request, Requirement, Way
from ..requirements.target import TargetEnvironment, normalize_name, parse_requirement
from .candidates import is_single_distribution

# A framework, limited to the ways that all texts of the request leave, and one of these texts.
NamedFramework = tuple[Framework, Requirement]

# What people call frameworks. No package has such a name, or nobody means the one that does.
NICKNAMES = {"pytorch": "torch", "tf": "tensorflow", "ort": "onnxruntime"}


def read_request(
    request: Request, data: CompatibilityData, environment: TargetEnvironment
) -> tuple[tuple[NamedFramework, ...], tuple[Requirement, ...]]:
    """Return the frameworks of a request, one row for each text, and its other requirements.

    A requirement on a framework whose marker does not hold is left out. One with a URL is an
    ordinary requirement.

    Raises:
        InputError: an unknown framework, an invalid text, a framework twice after --framework, or
            texts that leave no build of a framework.
    """
    names = framework_names(data)
    named = frameworks_of_flags(request, data)
    others: list[Requirement] = []
    for text in request.requirements:
        requirement = parse_requirement(text)
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


def framework_names(data: CompatibilityData) -> dict[str, Framework]:
    """Return {name of a framework, or of a distribution that installs it: the framework}."""
    names: dict[str, Framework] = {}
    for framework in data.all_frameworks():
        names[framework.name] = framework
        names[normalize_name(framework.distribution)] = framework
        for way in framework.ways:
            names[way.distribution] = framework
            if not way.carriers:
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
    texts = map(parse_requirement, (*request.frameworks, *request.requirements))
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


def unknown_framework(text: str, name: str, data: CompatibilityData) -> InputError:
    """Return the error for a text of --framework whose name is not that of a framework."""
    known = sorted(data.frameworks())
    hint = f"known are {', '.join(known)}"
    words = {word: word for word in known} | NICKNAMES | {"onnx": "onnxruntime"}
    close = get_close_matches(name, words, n=1, cutoff=0.6)
    if close:
        hint = f"did you mean {words[close[0]]}? {hint[0].upper()}{hint[1:]}"
    return InputError(f"--framework {text}: no framework has that name", hint=hint)


def _limited(framework: Framework, texts: Sequence[Requirement]) -> Framework:
    """Return a framework with the ways and the further extras that all of its texts ask for."""
    if is_single_distribution(framework):
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
