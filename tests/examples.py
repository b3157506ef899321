"""How many random examples a test tries.

GPUENV_TEST_EXAMPLES=10 makes every such test try ten times as many.
"""

import os

_FACTOR = int(os.environ.get("GPUENV_TEST_EXAMPLES", "1"))


def examples(count):
    """Return the number of random examples where a usual run of the tests tries `count`."""
    return count * _FACTOR
