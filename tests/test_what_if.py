"""The hosts that a suggestion tries: what differs from a host, and in which order."""

import pytest

import gpuenv
from gpuenv.compat import data, what_if
from gpuenv.model import Host, show_pair

DATA = data.load()


def described(*gpus: str, driver: str | None = None, python: str = "3.12") -> Host:
    return gpuenv.describe(
        gpus=list(gpus), driver=driver, python=python, platform="linux-x86_64", glibc="2.35"
    )


@pytest.mark.parametrize(
    ("gpus", "driver", "expected"),
    [
        # Releases after the host's, up to the last branch that supports the GPU.
        (["V100"], "565.57.01", ["570.00", "575.00", "580.65.06"]),
        (["V100"], "570.00", ["575.00", "580.65.06"]),
        (["V100"], "580.65.05", ["580.65.06"]),
        (["V100"], "580.65.06", []),
        (["K80"], "470.82.01", []),
        # The driver dropped the GPU.
        (["V100"], "595.45.04", ["580.65.06"]),
        (["H100", "V100"], "595.45.04", ["580.65.06"]),
        (["K80", "V100"], "595.45.04", ["470.00"]),
        (["H100"], None, []),
        (["none"], None, []),
    ],
)
def test_drivers_are_those_that_allow_more(
    gpus: list[str], driver: str | None, expected: list[str]
) -> None:
    found = what_if.drivers(described(*gpus, driver=driver), DATA)
    assert [one.host.driver for one in found] == expected
    assert [one.host.driver_cuda for one in found] == [DATA.driver_cuda(one) for one in expected]


@pytest.mark.parametrize(
    ("driver", "changes"),
    [
        ("570.00", ["a driver of branch R575 or newer", "driver 580.65.06 or newer"]),
        ("595.45.04", ["a driver of branch R580, the last one for this GPU"]),
    ],
)
def test_a_change_of_the_driver_names_the_branch_or_the_release(
    driver: str, changes: list[str]
) -> None:
    found = what_if.drivers(described("V100", driver=driver), DATA)
    assert [one.change for one in found] == changes


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ("3.12", ["3.11", "3.13", "3.10", "3.14", "3.9", "3.15"]),
        ("3.13t", ["3.13, not free-threaded", "3.12", "3.14", "3.11", "3.15", "3.10", "3.9"]),
    ],
)
def test_the_nearest_interpreters_come_first(python: str, expected: list[str]) -> None:
    found = list(what_if.pythons(described("none", python=python)))
    assert [one.change for one in found] == [f"Python {change}" for change in expected]
    versions = [change.partition(",")[0] for change in expected]
    assert [show_pair(one.host.python.version) for one in found] == versions
    assert not any(one.host.python.free_threaded for one in found)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (["H100"], []),
        (["H100", "H200"], []),
        (["H100", "A100", "H200"], ["only the H100 and H200", "only the A100"]),
        (["V100", "H100", "V100"], ["only the V100", "only the H100"]),
    ],
)
def test_gpus_of_one_compute_capability_are_kept(gpus: list[str], expected: list[str]) -> None:
    found = list(what_if.fewer_gpus(described(*gpus)))
    assert [one.change for one in found] == [f"{one} (CUDA_VISIBLE_DEVICES)" for one in expected]
    for one in found:
        assert len({gpu.compute_capability for gpu in one.host.gpus}) == 1
    assert sum(len(one.host.gpus) for one in found) == (len(gpus) if expected else 0)


@pytest.mark.parametrize(
    ("gpus", "driver", "expected"),
    [
        # Newer ones upwards, then older ones downwards.
        (["GTX 1080"], "450.80.02", "7.0 7.5 8.0 6.0 5.2 5.0 3.7 3.5"),
        (["T4", "A100"], "450.80.02", "7.0 6.1 6.0 5.2 5.0 3.7 3.5"),
        (["H100"], "525.60.13", "8.9 8.6 8.0 7.5 7.0 6.1 6.0 5.2 5.0"),
        # The driver dropped all that is older than 7.5.
        (["T4"], "595.45.04", "8.0 8.6 8.9 9.0 10.0 10.3 11.0 12.0 12.1"),
        (["T4"], None, "8.0 8.6 8.9 9.0 10.0 10.3 11.0 12.0 12.1"),
    ],
)
def test_other_gpus_are_those_that_the_driver_supports(
    gpus: list[str], driver: str | None, expected: str
) -> None:
    found = list(what_if.gpus(described(*gpus, driver=driver), DATA))
    capabilities = [one.host.gpus[0].compute_capability for one in found]
    assert [show_pair(one) for one in capabilities if one] == expected.split()
    assert all(DATA.compute_capability(one.host.gpus[0].name) for one in found)


def test_a_gpu_is_shown_with_three_names() -> None:
    first = next(what_if.gpus(described("V100", driver="450.80.02"), DATA))
    assert first.change == "a GPU of compute capability 7.5 (T4, T4G, T10)"


def test_a_host_without_its_gpu_has_no_driver() -> None:
    changed = what_if.without_gpu(described("H100", driver="550.54.14"))
    assert changed.change == "without the GPU (--gpu none)"
    assert (changed.host.gpus, changed.host.driver, changed.host.driver_cuda) == ((), None, None)
