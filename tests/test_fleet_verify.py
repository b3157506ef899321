"""`gpuenv fleet verify`: failures, outliers of a class, slow nodes, changes since the last run."""

import json

import pytest

from tables import data_file, each

HOST = {
    "glibc": [2, 35],
    "python": {"version": [3, 12]},
    "driver": "580.65.06",
    "driver_cuda": [13, 0],
    "gpus": [{"name": "NVIDIA H100", "compute_capability": [9, 0]}] * 2,
}
V100 = {**HOST, "gpus": [{"name": "Tesla V100", "compute_capability": [7, 0]}]}
TABLES = data_file("tables/fleet_verify.json")
CUDNN = "lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9"
BITS = [
    {"device": f"GPU {device} NVIDIA H100", "what": what, "sha256": what[:7] * 9}
    for device in (0, 1)
    for what in ("float32 on the default stream", "float16 on the default stream")
]


def check(name, subject="", status="pass", evidence="fine", seconds=0.5):
    return {
        "name": name,
        "subject": subject,
        "status": status,
        "evidence": evidence,
        "seconds": seconds,
    }


def node(**changes):
    """The document of a healthy node with some keys changed."""
    checks = [check("files", seconds=3.0), check("cudnn convolution", "GPU 0 NVIDIA H100")]
    healthy = {
        "ok": True,
        "checks": checks,
        "host": HOST,
        "libraries": {CUDNN: "sha256=" + "a" * 43},
        "bits": BITS,
    }
    return {**healthy, **changes}


def write(path, nodes):
    path.write_text(
        "".join(json.dumps({"node": name, **one}) + "\n" for name, one in nodes.items())
    )
    return str(path)


@pytest.fixture
def verify(call, tmp_path):
    """verify(nodes, *more): (exit status, document, text)."""

    def command(nodes, *more):
        path = write(tmp_path / "now", nodes)
        done = call(f"fleet verify --from {path} --json", *more, status=None)
        text = call(f"fleet verify --from {path}", *more, status=done.returncode).stdout
        return done.returncode, done.document, text

    return command


def healthy(count):
    return {f"n{number}": node() for number in range(count)}


def test_a_healthy_fleet(verify):
    nodes = {**healthy(4), "v1": node(host=V100, bits=[], libraries={CUDNN: "sha256=" + "b" * 43})}
    status, document, text = verify(nodes)
    assert (status, document["ok"], document["passed"], document["outliers"]) == (0, True, 5, [])
    assert [len(one["nodes"]) for one in document["classes"]] == [4, 1]
    assert text.startswith("verified: 5 of 5 nodes passed")


@each("name changes what subject value expected", TABLES["outliers"])
def test_a_node_that_differs_from_its_class_is_named(
    verify, name, changes, what, subject, value, expected
):
    status, document, text = verify({**healthy(5), "odd": node(**changes)})
    outliers = [one for one in document["outliers"] if one["subject"] == subject]
    assert status == 1
    # The other device of the odd node agrees with the class.
    agree = 6 if what == "convolution" else 5
    assert outliers == [
        {
            "node": "odd",
            "class": 0,
            "what": what,
            "subject": subject,
            "value": value,
            "expected": expected,
            "agree": agree,
        }
    ]
    assert document["failures"] == []
    assert f"outlier: odd: {what} {subject}".rstrip() in text
    assert f"{agree} nodes of its class" in text


def test_two_nodes_that_differ_are_both_named(verify):
    other = node(bits=[{**one, "sha256": "e" * 64} for one in BITS])
    _, document, text = verify({"n0": node(), "n1": other})
    assert {one["node"] for one in document["outliers"]} == {"n0", "n1"}
    assert all(one["expected"] == "" for one in document["outliers"])
    assert "no most frequent value" in text


def test_failures_are_grouped_by_their_reason(verify):
    mixed = [
        check("cudnn", "libraries", "fail", "cuDNN 9.10 and 9.12 are mixed\x1b[31m"),
        check("files"),
    ]
    full = [check("device", "GPU 0", "unknown", "no memory is free"), check("files")]
    nodes = {**healthy(3), "m1": node(ok=False, checks=mixed), "m2": node(ok=False, checks=mixed)}
    nodes["f1"] = node(ok=False, checks=full)
    status, document, text = verify(nodes)
    assert (status, document["passed"]) == (1, 3)
    assert [(one["node"], one["status"]) for one in document["failures"]] == [
        ("m1", "fail"),
        ("m2", "fail"),
        ("f1", "unknown"),
    ]
    assert "failed: m[1-2]: cudnn libraries: cuDNN 9.10 and 9.12 are mixed\\x1b[31m" in text
    assert "failed: f1: device GPU 0: no memory is free" in text
    assert text.startswith("NOT verified: 3 of 6 nodes passed")


def test_a_slow_check_is_named_and_does_not_fail(verify):
    times = [3.0, 3.1, 2.9, 3.2, 3.05, 9.0]
    nodes = {
        f"n{number}": node(checks=[check("files", seconds=one)]) for number, one in enumerate(times)
    }
    status, document, text = verify(nodes)
    assert status == 0
    [outlier] = document["outliers"]
    assert (outlier["node"], outlier["what"], outlier["subject"]) == ("n5", "time", "files")
    assert "outlier: n5: files took 9.00 s, in its class 3.08 s" in text


def test_what_changed_since_the_last_run(verify, tmp_path):
    before = write(tmp_path / "before", {**healthy(3), "gone": node()})
    failing = [check("cudnn", "libraries", "fail", "mixed"), check("files", seconds=3.0)]
    now = {
        "n0": node(host={**HOST, "driver": "580.95.05"}),
        "n1": node(ok=False, checks=failing),
        "n2": node(),
        "new": node(),
    }
    _, document, text = verify(now, "--since", before)
    keys = ("node", "what", "subject", "was", "now")
    changes = [[one[key] for key in keys] for one in document["changes"]]
    assert sorted(changes) == TABLES["changes"]
    assert "changed: n0: driver: 580.65.06 -> 580.95.05" in text
    assert "changed: n1: check cudnn libraries: nothing -> fail" in text


def test_documents_of_detect_are_refused(call, tmp_path):
    path = write(tmp_path / "hosts", {"n1": HOST})
    done = call(f"fleet verify --from {path}", status=2)
    assert "n1: the document has no checks; gpuenv fleet verify needs" in done.stderr
