"""The grid of hosts and frameworks, each solved offline from the default index."""

from itertools import product

from packaging.version import Version

import brute_force
import gpuenv
import plan_checker
import raw_facts as raw
from gpuenv.model import IndexOptions, Request

GPUS = {
    "P100": (6, 0),
    "GTX 1080 Ti": (6, 1),
    "V100": (7, 0),
    "T4": (7, 5),
    "A100": (8, 0),
    "RTX 3090": (8, 6),
    "L40S": (8, 9),
    "H100": (9, 0),
    "B200": (10, 0),
    "RTX 5090": (12, 0),
}
DRIVERS = [
    "470.256.02",
    "525.147.05",
    "550.54.14",
    "570.86.15",
    "580.65.06",
    "590.44.01",
    "595.45.04",
]
SETS = [
    ("torch",),
    ("tensorflow",),
    ("jax",),
    ("torch", "tensorflow"),
    ("torch", "jax", "cupy"),
    ("torch", "tensorflow", "jax", "cupy", "onnxruntime"),
]


def cases(pythons):
    yield from product(SETS, GPUS, DRIVERS, pythons)


def solved(frameworks, gpu, driver, python):
    """The solver's plan; None for a refusal. Any other error is one of the test."""
    host = gpuenv.describe(
        gpus=[gpu],
        driver=driver,
        python=f"{python[0]}.{python[1]}",
        platform=raw.PLATFORM,
        glibc="2.39",
    )
    request = Request(frameworks=tuple(frameworks), default_index_only=True)
    try:
        return gpuenv.solve(request, host, IndexOptions(offline=True), changes=False)
    except gpuenv.NoSolutionError:
        return None


def judged(frameworks, gpu, driver, python):
    """(solved, refused, wrong, refused wrongly, better exists or crashed; details)."""
    device = GPUS[gpu]
    try:
        plan = solved(frameworks, gpu, driver, python)
    except gpuenv.GpuEnvError as error:
        return "crashed", [str(error)]
    best, strict = brute_force.best(device, driver, python, frameworks)
    if plan is None:
        return ("refused", []) if best is None else ("refused wrongly", [f"works: {told(best)}"])
    wrong = plan_checker.contradictions(plan, device, driver, python)
    if wrong:
        return "wrong", wrong
    mine = [(choice.framework, choice.version, choice.variant) for choice in plan.choices][
        : len(frameworks)
    ]
    if best is None:
        return "wrong", [f"no combination works, and the solver has {mine}"]
    theirs = [(way.framework, way.version, way.variant) for way in best]
    same = all(
        a[:2] == b[:2] and b[2] in (a[2], "*") for a, b in zip(mine, theirs, strict=True)
    ) and strict == (not plan.warnings)
    if same:
        return "solved", []
    lines = [
        f"solver: {mine}, warnings {sorted({reason.code for reason in plan.warnings})}",
        f"better: {told(best)}",
    ]
    keys = [[Version(one[1]) for one in found] for found in (mine, theirs)]
    better = strict > (not plan.warnings) or (strict == (not plan.warnings) and keys[1] >= keys[0])
    return ("better exists" if better else "beyond the brute force"), [*lines, f"strict: {strict}"]


def told(ways):
    return ", ".join(f"{way.framework} {way.version} ({way.variant})" for way in ways)
