"""Faults planted in environments of the real cuDNN wheels. They need no GPU.

Without a package index the tests are skipped.
"""

import gpuenv
from gpuenv.doctor.check_facts import check_facts
from gpuenv.doctor.judge import diagnose
from gpuenv.model import Host, Python
from hosts import host
from planting import (
    CUDNN,
    HERE,
    OF_MAJOR,
    RELEASES,
    SITE,
    Planter,
    install,
    lock_of,
    place_of,
    stand_in,
)
from tables import cases, data_file, on_x86_64
from test_verification import show

CASES = data_file("planted.toml")["case"]
pytestmark = on_x86_64


def host_of(case):
    if "gpu" not in case:
        return Host(python=Python(version=HERE))
    return host(case["gpu"], case.get("driver", "580.65.06"), python=".".join(map(str, HERE)))


def named(checks, name):
    return [one for one in checks if f"{one.name} {one.subject}".strip() == name]


@cases(CASES)
def test_planted_fault(case, env, published, native, tmp_path, monkeypatch):
    site, release, outside = env / SITE, case["release"], tmp_path / "outside"
    outside.mkdir()
    install(published[release], site)
    for name in OF_MAJOR[RELEASES[release]]:
        stand_in(site, name, native)
    planter = Planter(site, release, published, native, outside)
    for step in case.get("do", ()):
        planter.do(step)
    if not case.get("clean"):
        planter.drop_hashes()
    for variable, key in (("LD_LIBRARY_PATH", "path"), ("LD_PRELOAD", "preload")):
        entries = [place_of(entry, site, published, native, outside) for entry in case.get(key, ())]
        monkeypatch.setenv(variable, ":".join(entries))
    lock = lock_of(RELEASES[release], case["locked"]) if "locked" in case else None
    checks = gpuenv.verify(lock, str(env), host_of(case), device=False, timeout=240)
    said = show(checks)
    # What the doctor makes of the checks alone; rules and locks it knows from elsewhere.
    verdicts = diagnose((), check_facts(checks)).verdicts
    of_rules = all(want["check"].startswith(("rules", "versions")) for want in case.get("find", ()))
    assert verdicts or of_rules if "find" in case else not verdicts, f"{verdicts}\n{said}"
    if case.get("clean"):
        lacking = [
            one
            for one in named(checks, case.get("needs_driver", ""))
            if "needs the driver" in one.evidence
        ]
        assert {one.status for one in lacking} <= {"unknown"}, said
        assert {one.status for one in checks if one not in lacking} == {"pass"}, said
        return
    for want in case["find"]:
        found = [
            one for one in named(checks, want["check"]) if one.status == want.get("status", "fail")
        ]
        assert found, f"{want}\n{said}"
        places = {f"FOLDER({other})": published[other] / CUDNN for other in RELEASES}
        places["FOLDER(cublas)"] = outside / "nvidia/cublas/lib"
        for pattern in want["has"]:
            text = pattern
            for name, place in places.items():
                text = text.replace(name, str(place))
            assert any(text in one.evidence for one in found), f"{text}\n{said}"
