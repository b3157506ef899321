"""What gpuenv can say about an error of conda's."""

from __future__ import annotations

from . import checks

UNSOLVED = {"UnsatisfiableError", "PackagesNotFoundError", "ResolvePackageNotFound", "SpecsConfigurationConflictError"}
_WHY = "See which builds this host's driver and GPUs can run: conda gpuenv explain"
_LENIENT = "to keep such an environment: conda config --set plugins.gpuenv_verify warn"


def hints(error: BaseException) -> list[tuple[str, str]]:
    """(text, code) of what gpuenv can say about an error of conda's."""
    refused = getattr(error, "gpuenv_frameworks", None)
    if refused is not None:
        return [(f"{_WHY} {' '.join(refused or ['FRAMEWORK'])}; {_LENIENT}", "gpuenv_strict")]
    if not UNSOLVED & {one.__name__ for one in type(error).__mro__}:
        return []
    import re

    words = set(re.findall(r"[a-z][a-z0-9-]*", str(error).lower()))
    if not words & (checks.WATCHED.keys() | {"cuda"}):
        return []
    return [(f"{_WHY} {' '.join(checks.frameworks(words) or ['FRAMEWORK'])}", "gpuenv_explain")]
