import os
import unittest


def check_license(*, device):
    """Return what was seen; an exception fails the check."""
    server = os.environ.get("EXAMPLE_LICENSE", "")
    if not server:
        raise RuntimeError("EXAMPLE_LICENSE names no license server")
    return f"the license server is {server}"


def check_cache(*, device):
    """`device` says whether a GPU may be used. SkipTest: the check cannot tell."""
    if not device:
        raise unittest.SkipTest("the kernel cache is on a GPU, and none is used")
