"""Check that what the installed distributions require is installed, in the versions they accept.

The requirements are those of the metadata. Markers are evaluated for the target's interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..model import Check, Mark
from ..probes.answers import SurveyAnswer
from .installed import first_texts


class _Environment:
    """The installed distributions and what they require."""

    def __init__(self, survey: SurveyAnswer) -> None:
        self.versions = {row["name"]: row["version"] for row in survey["distributions"]}
        self._markers = survey["interpreter"]["markers"]
        self._requirements: dict[str, list[Requirement]] = {}
        for row in survey["distributions"]:
            self._requirements[row["name"]] = list(_parsed(row["requirements"]))

    def names(self) -> list[str]:
        return [name for name, requirements in self._requirements.items() if requirements]

    def requirements(self, name: str, extra: str) -> Iterator[Requirement]:
        """Yield what a distribution requires here for an extra; "" is without one."""
        for requirement in self._requirements.get(name, ()):
            if _holds(requirement, {**self._markers, "extra": extra}):
                yield requirement


def dependency_check(survey: SurveyAnswer) -> Check:
    """Return the check "dependencies"."""
    environment = _Environment(survey)
    problems: dict[str, Mark] = {}
    count = 0
    pending = [(name, "") for name in environment.names()]
    known = set(pending)
    while pending:
        name, extra = pending.pop()
        for requirement in environment.requirements(name, extra):
            count += 1
            required = canonicalize_name(requirement.name)
            text = _problem(environment, name, required, requirement)
            if text:
                problems.setdefault(text, ("dependency", name, required))
            wanted = {(str(required), wanted_extra) for wanted_extra in requirement.extras}
            pending += wanted - known
            known |= wanted
    if not problems:
        evidence = f"every requirement of the installed distributions holds ({count})"
        return Check(name="dependencies", subject="", status="pass", evidence=evidence)
    # A package of conda may have what a wheel requires under another name.
    status = "unknown" if survey["conda"] else "fail"
    evidence = first_texts(sorted(problems))
    marks = tuple(problems[text] for text in sorted(problems))
    return Check(name="dependencies", subject="", status=status, evidence=evidence, marks=marks)


def _problem(environment: _Environment, name: str, required: str, requirement: Requirement) -> str:
    """Return what is wrong with a requirement, "" if it holds."""
    text = f"{name} {environment.versions[name]} requires {required}{requirement.specifier}"
    version = environment.versions.get(required)
    if version is None:
        return f"{text}, which is not installed"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{text}; {required} {version} is installed"
    return ""


def _parsed(texts: list[str]) -> Iterator[Requirement]:
    """Parse requirements. The metadata of old distributions has texts that are none."""
    for text in texts:
        try:
            yield Requirement(text)
        except InvalidRequirement:
            continue


def _holds(requirement: Requirement, variables: Mapping[str, str]) -> bool:
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
