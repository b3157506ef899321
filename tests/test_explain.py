"""`gpuenv explain`: recorded cases whose changes are solved again, locks on other hosts, laws."""

import shlex
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuenv
import hosts
from examples import examples
from gpuenv import api
from gpuenv.compat import data, what_if
from gpuenv.lock import pylock
from gpuenv.model import Request
from hosts import host_of
from tables import cases, data_file
from test_solve import DRIVERS, GPUS, PYTHONS

CASES = data_file("explain.json")
DATA = data.load()
EXPLAIN = "explain --json --offline"
SCREEN, WIDTH = 25, 100
JARGON = ("resolvelib", "the request needs", "__", "=CUDA", "backtrack")


def flags(case):
    facts = {"python": "3.12", "platform": "linux-x86_64", "glibc": "2.39", **case}
    words = [f"--gpu '{gpu}'" for gpu in case["gpu"]]
    for name in ("driver", "python", "platform", "glibc"):
        words += [f"--{name} {facts[name]}"] if facts.get(name) else []
    return " ".join([*words, "--default-index-only" * case.get("default_index_only", False)])


@pytest.fixture
def explained(call):
    """explained(words): exit status, document and lines. Both forms print one answer."""

    def explain(words):
        with pytest.MonkeyPatch.context() as patch:
            for function in ("explain", "explain_lock"):
                patch.setattr(api, function, found_once(getattr(api, function)))
            done = call(f"explain --json {words}", status=None)
            text = call(f"explain {words}", status=done.returncode).stdout
        return done.returncode, done.document, text.splitlines()

    return explain


def found_once(function):
    """The function with its answers kept. A refusal is an answer, too."""

    @cache
    def outcome(*arguments):
        try:
            return function(*arguments), None
        except gpuenv.NoSolutionError as refusal:
            return None, refusal

    def answer(*arguments):
        value, refusal = outcome(*arguments)
        if refusal is not None:
            raise refusal
        return value

    return answer


def kinds(document):
    return {f"{one['code']} {one['subject'].partition(' ')[0]}" for one in document["reasons"]}


@cases(CASES["requests"])
def test_requests(case, explained, call):
    status, document, lines = explained(f"{shlex.join(case['ask'])} {flags(case)} --offline")
    assert document["possible"] is ("changes" not in case)
    assert status == (0 if document["possible"] else 3)
    assert kinds(document) == set(case["reasons"])
    assert all(
        set(one) == {"code", "subject", "need", "have", "source"} for one in document["reasons"]
    )
    assert all(one["need"] and one["have"] for one in document["reasons"])
    told = "\n".join(
        f"{one['subject']} needs {one['need']}; have {one['have']}" for one in document["reasons"]
    )
    assert [text for text in case.get("says", ()) if text not in told] == []
    assert len(lines) <= SCREEN and max(map(len, lines)) <= WIDTH
    assert [word for word in JARGON if word in "\n".join(lines)] == []
    assert [one["change"] for one in document["smallest_changes"]] == [
        one["change"] for one in case.get("changes", ())
    ]
    given = [one["gives"] for one in document["smallest_changes"]]
    for expected, gives in zip(case.get("changes", ()), given, strict=True):
        # Made as the case says it, not as the code that offers it does.
        changed = {**case, **expected["then"]}
        document = call(f"{EXPLAIN} {shlex.join(changed['ask'])} {flags(changed)}").document
        chosen = [
            f"{one['framework']} {one['version']} ({one['variant']})"
            for one in document["frameworks"]
        ]
        assert gives == ", ".join(chosen)


@cases(CASES["locks"])
def test_locks(case, explained, tmp_path):
    made = case["made"]
    host = host_of(made, glibc="2.28")
    path = str(tmp_path / "pylock.toml")
    lock = gpuenv.lock(gpuenv.solve(Request(frameworks=tuple(made["framework"])), host))
    pylock.write_texts({path: pylock.dumps(lock)})
    status, document, lines = explained(f"{path} {shlex.join(case['flags'])}")
    assert (status, document["possible"]) == (0 if case["possible"] else 3, case["possible"])
    assert kinds(document) == set(case["reasons"])
    assert [one["change"] for one in document["smallest_changes"]] == case.get("changes", [])
    assert len(lines) <= SCREEN
    assert document["created_by"] == "gpuenv" and document["packages"] == len(lock.pins)


def test_very_old_releases_of_a_package_are_not_asked(server, call):
    """A package that keeps the newest torch out: the answer needs no older release of it."""
    server.add("app", "2.0", ["torch==2.14.0"])
    server.add_sdist("app", "0.1", dynamic=["Requires-Dist"])
    host = "--gpu H100 --driver 580.65.06 --python 3.12 --platform linux-x86_64 --glibc 2.39"
    done = call(f"explain torch app {host} --default-index-only --extra-index-url", server.url)
    assert "app 2.0 needs torch==2.14.0" in done.stdout
    assert not [path for path in server.paths() if "app-0.1" in path]


def test_a_lock_that_was_edited_is_told(explained, tmp_path):
    host = hosts.host("H100", "580.65.06", glibc="2.28")
    text = pylock.dumps(gpuenv.lock(gpuenv.solve(Request(frameworks=("torch",)), host)))
    assert 'driver = "580.65.06"' in text
    path = tmp_path / "pylock.toml"
    path.write_text(text.replace('driver = "580.65.06"', 'driver = "450.80.02"'))
    status, document, _ = explained(f"{path} --gpu H100 --driver 580.65.06 --python 3.12")
    assert status == 3
    assert "lock-edited lock" in kinds(document)


some_hosts = st.builds(
    lambda gpus, driver, python: host_of({"gpu": gpus, "driver": driver, "python": python}),
    st.lists(st.sampled_from(GPUS), min_size=1, max_size=2),
    st.sampled_from(DRIVERS),
    st.sampled_from(PYTHONS),
)
quick = settings(max_examples=examples(4), deadline=None, derandomize=True)


def possible(request, host):
    try:
        gpuenv.solve(request, host, changes=False)
    except gpuenv.NoSolutionError:
        return False
    return True


@quick
@given(
    some_hosts,
    st.sampled_from(
        [("torch",), ("tensorflow",), ("torch==2.15.0", "jax"), ("torch", "tensorflow")]
    ),
)
def test_changes_of_a_host_are_the_smallest_that_help(host, asked):
    """The oldest driver that helps is offered, and whatever is offered helps."""
    request = Request(frameworks=asked)
    try:
        gpuenv.solve(request, host)
    except gpuenv.NoSolutionError as refusal:
        explanation = refusal.explanation
    else:
        return
    offered = {change.change for change in explanation.changes}
    steps = what_if.drivers(host, DATA)
    helping = [one.change for one in steps if possible(request, one.host)]
    assert offered & {one.change for one in steps} == set(helping[:1])
    for kind in (what_if.pythons(host), what_if.fewer_gpus(host)):
        named = {one.change: one.host for one in kind}
        assert all(possible(request, named[change]) for change in offered & set(named))
    assert explanation.reasons
