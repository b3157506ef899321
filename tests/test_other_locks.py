"""Locks that other tools wrote: what speaks against them on a host."""

import pytest
import tomli_w

import gpuenv
from gpuenv.lock import other_tools
from hosts import host
from tables import data_file, each

HOST = host("none")
CASES = data_file("other_locks.json")
HASHES = {"sha256": "0" * 64}
HERE = "cp312-cp312-manylinux_2_28_x86_64"


def file_of(name, **changes):
    return {"name": name, "url": f"https://example.invalid/{name}", "hashes": HASHES, **changes}


def package(tags=HERE, **changes):
    wheel = file_of(f"demo-1.0-{tags}.whl")
    return {"name": "demo", "version": "1.0", "wheels": [wheel], **changes}


@each("case", [*CASES])
def test_reasons_against_a_lock_of_another_tool(case, tmp_path):
    head = {"lock-version": "1.0", "created-by": "someone", **case.get("top", {})}
    path = tmp_path / "pylock.toml"
    path.write_text(tomli_w.dumps({**head, "packages": case["packages"]}))
    found = other_tools.read_any_lock(str(path), HOST)
    reasons = [[one.code, one.subject, one.need, one.have] for one in found.reasons]
    assert reasons == case["reasons"]


def test_a_file_without_a_hash_makes_a_lock_invalid(tmp_path):
    wheel = file_of(f"demo-1.0-{HERE}.whl", hashes={})
    lock = {"lock-version": "1.0", "created-by": "someone", "packages": [package(wheels=[wheel])]}
    path = tmp_path / "pylock.toml"
    path.write_text(tomli_w.dumps(lock))
    with pytest.raises(gpuenv.InputError, match=r"is not a valid lock: .*hash"):
        other_tools.read_any_lock(str(path), HOST)
