"""The shape of the PyTorch index's pages: an extra index whose files are on another host."""

import hashlib

import pytest

import gpuenv
from gpuenv.errors import NoSolutionError
from gpuenv.model import IndexOptions, Request
from hosts import host
from index_server import IndexServer, make_wheel

TAG = "cp312-cp312-linux_x86_64"
BUILD, NIGHTLY = "2.4.0+cu118", "2.5.0.dev20240601+cu118"


def page(files, *wheels):
    """The page of a package as the PyTorch index serves it: no doctype, a <br/> in each line."""
    lines = []
    for name, data in wheels:
        href = f"{files}/{name.replace('+', '%2B')}#sha256={hashlib.sha256(data).hexdigest()}"
        metadata = 'data-dist-info-metadata="true" data-core-metadata="true"'
        lines.append(f'    <a href="{href}" {metadata}>{name}</a><br/>')
    body = "\n".join(lines)
    head = "<!DOCTYPE html>\n<html>\n  <body>\n    <h1>Links for torch</h1>\n"
    return f"{head}{body}\n  </body>\n</html>\n<!--TIMESTAMP 1780000000-->".encode()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The URL of an index whose pages name files on a second server."""
    monkeypatch.setenv("GPUENV_CACHE_DIR", str(tmp_path / "cache"))
    with IndexServer() as pages, IndexServer() as files:
        wheels = [make_wheel("torch", version, tag=TAG) for version in (BUILD, NIGHTLY)]
        for name, data in wheels:
            files.add_file("torch", name, data)
        content = page(f"{files.base}/files", *wheels)
        pages.raw["/whl/cu118/torch/"] = ("text/html", content)
        yield f"{pages.base}/whl/cu118"


HOST = host("A100", "580.65.06")


def solve(index, requirement, *, pre=False):
    default = f"{index.partition('/whl')[0]}/simple"
    options = IndexOptions(index_url=default, extra_index_urls=(index,))
    return gpuenv.solve(Request(requirements=(requirement,), pre=pre), HOST, options)


def test_a_build_without_an_offline_file_is_read_live(index):
    with pytest.raises(NoSolutionError) as refused:
        gpuenv.solve(
            Request(requirements=(f"torch=={BUILD}",)),
            HOST,
            IndexOptions(offline=True),
            changes=False,
        )
    (reason,) = refused.value.explanation.reasons
    assert reason.code == "no-offline-file"
    assert "--extra-index-url https://download.pytorch.org/whl/cu118" in reason.have
    plan = solve(index, f"torch=={BUILD}")
    wheel = next(pin.wheel for pin in plan.pins if pin.wheel.name == "torch")
    assert (wheel.version, wheel.filename) == (BUILD, f"torch-{BUILD}-{TAG}.whl")
    assert wheel.sha256 is not None and "%2B" in wheel.url
    assert plan.choices[0].variant == "cu118"


def test_nightly_builds_are_not_taken_unasked(index):
    plan = solve(index, "torch")
    assert plan.versions["torch"] == BUILD
    plan = solve(index, "torch", pre=True)
    assert plan.versions["torch"] == NIGHTLY
