"""`--require-attestations`: a real wheel, its real attestation, and changes of both.

tests/data/attestations has files of the tests of pypi-attestations. The signature is of CircleCI.
"""

import importlib.util
import json
from pathlib import Path

import pytest

from gpuenv.lock import pylock
from small_wheels import make_lock, make_wheel
from tables import ROOT, each

NAME = "circleci_sign_publish_example-0.0.1.dev137-py3-none-any.whl"
DATA = ROOT / "tests" / "data" / "attestations"
WHEEL, PROVENANCE = (DATA / NAME).read_bytes(), (DATA / f"{NAME}.provenance").read_bytes()
OTHER_PUBLISHER = PROVENANCE.replace(b"CircleCI-Public/", b"somebody-else/")
# (the wheel, the provenance or None, what the refusal says; "" is no refusal)
CASES = {
    "good": (WHEEL, PROVENANCE, ""),
    "none": (WHEEL, None, "its index serves no attestation of it"),
    "of another file": (WHEEL + b"\0", PROVENANCE, "an attestation does not hold: "),
    "of another publisher": (WHEEL, OTHER_PUBLISHER, "an attestation does not hold: "),
    "junk": (WHEEL, b"{}", "do not follow PEP 740"),
    "without a bundle": (WHEEL, b'{"version": 1, "attestation_bundles": []}', "who has published"),
}


SOLVE = "solve --require-attestations --gpu none -o pylock.toml"


@pytest.mark.skipif(
    importlib.util.find_spec("pypi_attestations") is None, reason="needs gpuenv[attestations]"
)
@each("wheel provenance says", CASES)
def test_a_file_needs_an_attestation_that_holds(wheel, provenance, says, server, call):
    server.add_file("circleci-sign-publish-example", NAME, wheel)
    if provenance is not None:
        server.raw[f"/provenance/{NAME}"] = ("application/json", provenance)
    asked = f"circleci-sign-publish-example==0.0.1.dev137 --index-url {server.url}"
    done = call(f"{SOLVE} {asked}", status=1 if says else 0)
    path = Path("pylock.toml")
    if says:
        (line,) = done.stderr.splitlines()
        assert says in line and NAME in line and line.isprintable() and not path.exists()
        return
    (pin,) = pylock.read(str(path)).pins
    (identity,) = map(json.loads, pin.publishers)
    assert identity["kind"] == "CircleCI"
    assert identity["vcs_origin"] == "github.com/CircleCI-Public/sign-and-publish-examples"


def test_no_network_means_no_attestations(tmp_path, call):
    make_wheel(tmp_path, "alpha", "1.0")
    done = call(f"{SOLVE} alpha --no-index --find-links {tmp_path}", status=2)
    assert "asks the indexes of wheels" in done.stderr
    assert not Path("pylock.toml").exists()


def test_a_lock_keeps_the_publishers(tmp_path):
    lock = make_lock(make_wheel(tmp_path, "alpha", "1.0"))
    text = '{"kind":"GitHub","repository":"of/alpha","workflow":"release.yml"}'
    attested = lock.replace(pins=(lock.pins[0].replace(publishers=(text,)),))
    read = pylock.loads(pylock.dumps(attested), "pylock.toml")
    assert read.pins[0].publishers == (text,)
    assert "attestation-identities" not in pylock.installer_text(attested)
