"""Hosts that tests describe."""

import gpuenv


def host_of(case, **defaults):
    """Return the host of a case: `gpu`, and if named `driver`, `python`, `platform` and `glibc`."""
    facts = {"python": "3.12", "platform": "linux-x86_64", "glibc": "2.39", **defaults}
    facts |= {name: case[name] for name in ("driver", *facts) if name in case}
    return gpuenv.describe(gpus=case["gpu"], **facts)


def host(gpu, driver=None, **facts):
    """Return a host with one GPU, or without one ("none")."""
    return host_of({"gpu": [gpu], "driver": driver, **facts})
