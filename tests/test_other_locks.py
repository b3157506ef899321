"""Locks that other tools wrote: what speaks against them on a host."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w

import gpuenv
from gpuenv.lock import other_tools

HOST = gpuenv.describe(gpus=["none"], python="3.12", platform="linux-x86_64", glibc="2.35")
HASHES = {"sha256": "0" * 64}
HERE = "cp312-cp312-manylinux_2_28_x86_64"
ELSEWHERE = "cp312-cp312-win_amd64"


def file_of(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "url": f"https://example.invalid/{name}", "hashes": HASHES, **changes}


def package(tags: str = HERE, **changes: Any) -> dict[str, Any]:
    wheel = file_of(f"demo-1.0-{tags}.whl")
    return {"name": "demo", "version": "1.0", "wheels": [wheel], **changes}


def sources(**changes: Any) -> dict[str, Any]:
    return {"name": "demo", "version": "1.0", **changes}


NO_WHEEL = ("no-wheel-for-target", "demo 1.0", "a wheel for Python 3.12 on linux-x86_64")
BUILD = ("no-wheel-unknown", "demo 1.0", NO_WHEEL[2], "sources, which have to be built there")


@pytest.mark.parametrize(
    ("top", "packages", "expected"),
    [
        ({}, [package()], []),
        ({"requires-python": ">=3.12.3"}, [package()], []),
        ({"requires-python": "<3.12.1"}, [package()], []),
        (
            {"requires-python": ">=3.13"},
            [package()],
            [("lock-python", "lock", "Python >=3.13", "Python 3.12")],
        ),
        ({"environments": ["sys_platform == 'linux'"]}, [package()], []),
        ({"environments": ["sys_platform == 'win32'", "os_name == 'posix'"]}, [package()], []),
        (
            {"environments": ["sys_platform == 'win32'"]},
            [package()],
            [("lock-environment", "lock", 'sys_platform == "win32"', "linux-x86_64, Python 3.12")],
        ),
        ({}, [package(ELSEWHERE)], [(*NO_WHEEL, ELSEWHERE)]),
        ({}, [package(ELSEWHERE, marker="sys_platform == 'win32'")], []),
        ({}, [sources(sdist=file_of("demo-1.0.tar.gz"))], [BUILD]),
        (
            {},
            [
                sources(
                    vcs={
                        "type": "git",
                        "url": "https://example.invalid/demo",
                        "commit-id": "0" * 40,
                    }
                )
            ],
            [BUILD],
        ),
        ({}, [sources(directory={"path": "demo"})], [BUILD]),
        (
            {},
            [
                sources(
                    archive={
                        "url": f"https://example.invalid/demo-1.0-{HERE}.whl",
                        "hashes": HASHES,
                    }
                )
            ],
            [],
        ),
        (
            {},
            [sources(archive={"url": "https://example.invalid/demo.zip", "hashes": HASHES})],
            [BUILD],
        ),
    ],
)
def test_reasons_against_a_lock_of_another_tool(
    top: dict[str, Any],
    packages: list[dict[str, Any]],
    expected: list[tuple[str, str, str, str]],
    tmp_path: Path,
) -> None:
    lock = {"lock-version": "1.0", "created-by": "someone", **top, "packages": packages}
    path = tmp_path / "pylock.toml"
    path.write_text(tomli_w.dumps(lock))
    found = other_tools.read_any_lock(str(path), HOST)
    reasons = [(one.code, one.subject, one.need, one.have) for one in found.reasons]
    assert reasons == expected


def test_a_file_without_a_hash_makes_a_lock_invalid(tmp_path: Path) -> None:
    wheel = file_of(f"demo-1.0-{HERE}.whl", hashes={})
    lock = {"lock-version": "1.0", "created-by": "someone", "packages": [package(wheels=[wheel])]}
    path = tmp_path / "pylock.toml"
    path.write_text(tomli_w.dumps(lock))
    with pytest.raises(gpuenv.InputError, match=r"is not a valid lock: .*hash"):
        other_tools.read_any_lock(str(path), HOST)
