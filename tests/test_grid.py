"""The solver on a grid of hosts and frameworks, against an independent search and checker.

`python tests/brute_force.py` runs the same and prints what it found.
"""

import itertools

import brute_force
import grid
import raw_facts as raw
from examples import examples
from gpuenv.compat import data as matrix
from gpuenv.compat import rules
from tables import each


def drivers_of(gpu):
    """Return every second driver; all of them with GPUENV_TEST_EXAMPLES above 1."""
    if examples(1) > 1:
        return grid.DRIVERS
    return grid.DRIVERS[list(grid.GPUS).index(gpu) % 2 :: 2]


@each("gpu", [*grid.GPUS])
@each("frameworks", grid.SETS, ids="+".join)
def test_every_plan_is_right_and_the_best_and_every_refusal_is_due(frameworks, gpu):
    for driver in drivers_of(gpu):
        verdict, lines = grid.judged(frameworks, gpu, driver, (3, 12))
        assert verdict in ("solved", "refused"), (driver, lines)
        if (
            verdict == "refused"
        ):  # older frameworks, for older drivers, have wheels for older interpreters
            verdict, lines = grid.judged(frameworks, gpu, driver, (3, 11))
            assert verdict in ("solved", "refused"), (driver, lines)


# The order in which frameworks are named decides which of them stays the newest.
ORDERS = [*itertools.permutations(["torch", "tensorflow", "jax", "cupy", "onnxruntime"], 2)]
HARD = [
    ("GTX 1080 Ti", "550.54.14"),
    ("B200", "580.65.06"),
    ("V100", "580.65.06"),
    ("H100", "595.45.04"),
]


@each("frameworks", ORDERS, ids="+".join)
def test_the_framework_named_first_is_as_new_as_it_can_be(frameworks):
    for gpu, driver in HARD:
        verdict, lines = grid.judged(frameworks, gpu, driver, (3, 12))
        assert verdict == "solved", (gpu, driver, lines)


# On Pascal resolvelib alone needs more than a thousand rounds for these, and too many for five
# frameworks.
@each(
    "frameworks",
    [
        *itertools.permutations(["torch", "jax", "cupy"]),
        ("cupy", "tensorflow", "jax"),
        ("onnxruntime", "cupy", "jax", "tensorflow", "torch"),
    ],
    ids="+".join,
)
def test_hard_requests_are_solved(frameworks):
    for gpu, driver in HARD[:2]:
        verdict, lines = grid.judged(frameworks, gpu, driver, (3, 12))
        assert verdict == "solved", (gpu, driver, lines)


def test_the_search_finds_that_there_is_nothing():
    assert brute_force.best((6, 0), "595.45.04", (3, 12), ("torch",)) == (None, False)
    assert brute_force.best((9, 0), "470.256.02", (3, 12), ("torch",)) == (None, False)
    best, strict = brute_force.best((6, 0), "580.65.06", (3, 12), ("cupy", "torch"))
    assert strict
    # torch 2.7.1 pins components of two CUDA 12.6 updates, and cupy's toolkit those of one.
    assert [(way.framework, way.version) for way in best] == [
        ("cupy", "14.2.0"),
        ("torch", "2.6.0"),
    ]


def test_the_rows_say_of_a_device_what_the_scans_say():
    """Compare serves() of the rows with the raw counts, for every scanned release, GPU, driver."""
    data = matrix.load()
    drivers = sorted({raw.pair(row["cuda"]) for row in raw.DRIVERS["branch"]})
    for name in sorted(raw.ON_PATH):
        for version in raw.scans(name):
            row = data.build(name, version, raw.PLATFORM) or data.library(
                name, version, raw.PLATFORM
            )
            assert row is not None, (name, version)
            for device, cuda in itertools.product(data.capabilities(), drivers):
                mine, theirs = (
                    raw.serves(name, version, device, cuda),
                    rules.serves(row.code, device, cuda),
                )
                # If one library's PTX has no known maker and another's is too new, the row is
                # undecided.
                assert mine == theirs or (mine, theirs) == (None, "unknown"), (
                    name,
                    version,
                    device,
                    cuda,
                )


def test_what_installs_the_same_library_shares_a_slot():
    """Compare R5 of the data with the file lists of the scans, within one CUDA major."""
    owners = {}
    for path in sorted((raw.DATA / "scans").glob("*.json")):
        for version in raw.scans(path.stem):
            for one in raw.owned(path.stem, version):
                owners.setdefault(one, set()).add(path.stem)
    shared = {one: names for one, names in owners.items() if len(names) > 1}
    assert shared
    for one, names in shared.items():
        for left, right in itertools.combinations(sorted(names), 2):
            same_slot = left in raw.SLOTS and raw.SLOTS[left] == raw.SLOTS.get(right)
            assert same_slot or raw.cuda_major(left, "0") != raw.cuda_major(right, "0"), (
                one,
                left,
                right,
            )
