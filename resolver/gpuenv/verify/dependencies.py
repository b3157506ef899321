"""Check that what the installed distributions require is installed, in the versions they accept.

The requirements are those of the metadata. Markers are evaluated for the target's interpreter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..model import Check, Mark
from ..probes.answers import SurveyAnswer
from .installed import first_texts


def dependency_check(survey: SurveyAnswer) -> Check:
    """Return the check "dependencies"."""
    versions = {row["name"]: row["version"] for row in survey["distributions"]}
    requirements = {row["name"]: _parsed(row["requirements"]) for row in survey["distributions"]}
    problems: dict[str, Mark] = {}
    count = 0
    pending = [(name, "") for name, own in requirements.items() if own]
    known = set(pending)
    while pending:
        name, extra = pending.pop()
        variables = {**survey["interpreter"]["markers"], "extra": extra}
        for requirement in requirements.get(name, ()):
            if not _holds(requirement, variables):
                continue
            count += 1
            required = canonicalize_name(requirement.name)
            text = f"{name} {versions[name]} requires {required}{requirement.specifier}"
            version = versions.get(required)
            mark = ("dependency", name, required)
            if version is None:
                problems.setdefault(f"{text}, which is not installed", mark)
            elif not requirement.specifier.contains(version, prereleases=True):
                problems.setdefault(f"{text}; {required} {version} is installed", mark)
            wanted = {(str(required), wanted_extra) for wanted_extra in requirement.extras}
            pending += wanted - known
            known |= wanted
    if not problems:
        evidence = f"every requirement of the installed distributions holds ({count})"
        return Check("dependencies", "", "pass", evidence)
    # A package of conda may have what a wheel requires under another name.
    status = "unknown" if survey["conda"] else "fail"
    marks = tuple(problems[text] for text in sorted(problems))
    return Check("dependencies", "", status, first_texts(sorted(problems)), marks=marks)


def _parsed(texts: list[str]) -> list[Requirement]:
    """Parse requirements. The metadata of old distributions has texts that are none."""
    parsed = []
    for text in texts:
        with contextlib.suppress(InvalidRequirement):
            parsed.append(Requirement(text))
    return parsed


def _holds(requirement: Requirement, variables: Mapping[str, str]) -> bool:
    """Return whether a requirement applies; with an extra, whether it applies because of it."""
    if requirement.marker is None:
        return variables["extra"] == ""
    try:
        holds = requirement.marker.evaluate(dict(variables))
        if variables["extra"]:
            # Without the extra it is checked anyway.
            holds = holds and not requirement.marker.evaluate({**variables, "extra": ""})
    except UndefinedEnvironmentName:
        return False
    return holds
