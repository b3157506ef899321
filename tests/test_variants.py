"""Variant wheels (PEP 825): read, chosen, locked, installed and verified."""

import hashlib
import json
import re
import sys
from pathlib import Path

import pytest

import gpuenv
from fatbin_maker import binary
from gpuenv import api
from gpuenv.api.data import compatibility_data
from gpuenv.errors import (
    NoSolutionError,
    OfflineError,
    PackageIndexError,
    UnusableFileError,
)
from gpuenv.index import variants
from gpuenv.index.cache import Cache
from gpuenv.lock.host_fit import variant_fit
from gpuenv.model import IndexOptions, Request
from gpuenv.requirements.target import TargetEnvironment, split_label
from gpuenv.resolve.wheel_variants import VariantChooser
from indexes import find_links
from processes import run_program
from tables import HERE, cases, data_file, each, read_data
from variant_maker import (
    conformance_document,
    conformance_host,
    conformance_wheels,
    host_of,
    make_conformance,
    make_release,
    make_variant,
    metadata,
    write_variant,
)

CONFORMANCE = data_file("variant_conformance.toml")
CASES = data_file("variants.toml")
ON_H100 = f"--gpu sm_90 --driver 570.86.10 --python {HERE}"
DEMO = "solve demo --no-index --find-links links"
TABLES = data_file("tables/variants.json")
GPU = TABLES["gpu"]


# ---- the choice ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    """The release of each case, as the version 1.0 of case0, case1, ..."""
    folder = tmp_path_factory.mktemp("links")
    for number, case in enumerate(CASES["choice"]):
        make_release(
            folder,
            f"case{number}",
            "1.0",
            case["variants"],
            namespaces=case.get("namespaces", ["nvidia"]),
            providers=case.get("providers"),
            described=number % 2 == 0,
        )
    return find_links([str(folder)], cache=Cache(str(folder / "cache")))


@each("number", range(len(CASES["choice"])), ids=lambda number: CASES["choice"][number]["name"])
def test_the_choice_on_a_host(number, links):
    case = CASES["choice"][number]
    chooser = VariantChooser(host_of(case), compatibility_data(), links)
    suitable, refused = [], {}
    for wheel in chooser.sort(links.wheels(f"case{number}")):
        judged = chooser.judged(wheel)
        label = split_label(wheel.filename)[1]
        if judged is None or not judged.reasons:
            suitable.append(label)
        else:
            refused[label] = sorted({reason.code for reason in judged.reasons})
    assert suitable == case["order"]
    assert refused == {label: sorted(codes) for label, codes in case.get("refused", {}).items()}


def test_the_order_is_that_of_the_reference_implementation(tmp_path):
    """data/variant_order.json has random releases and the order of variantlib."""
    cases = data_file("variant_order.json")
    for number, case in enumerate(cases):
        document = case["metadata"]
        namespaces = document["default-priorities"]["namespace"]
        make_release(
            tmp_path,
            f"order{number}",
            "1.0",
            document["variants"],
            namespaces=namespaces,
            providers=document["providers"],
        )
    links = find_links([str(tmp_path)], cache=Cache(str(tmp_path / "cache")))
    chooser = VariantChooser(host_of({"gpu": ["none"]}), compatibility_data(), links)
    for number, case in enumerate(cases):
        suitable = []
        for wheel in chooser.sort(links.wheels(f"order{number}")):
            judged = chooser.judged(wheel)
            if judged is not None and not judged.reasons:
                suitable.append(judged.variant.label)
        assert suitable == case["order"], number


@cases(CONFORMANCE["metadata"])
def test_the_conformance_material_for_metadata(case):
    content = conformance_document(case).encode()
    if "refused" in case:
        with pytest.raises(ValueError, match=re.escape(case["refused"])):
            variants.parse(content, "demo")
    else:
        labels = [variant.label for variant in variants.parse(content, "demo").variants]
        assert labels == sorted(json.loads(content)["variants"])


@cases(CONFORMANCE["choice"])
def test_the_conformance_material(case, tmp_path):
    """The cases follow the tests of uv and variantlib, which gave the answers."""
    requirement = make_conformance(tmp_path, case)
    links = find_links([str(tmp_path)], cache=Cache(str(tmp_path / "cache")))
    host = host_of(conformance_host(case))
    if case["chosen"] == "error":
        with pytest.raises(PackageIndexError, match=r"not a readable wheel|exactly one"):
            links.wheels("demo")
        return
    chooser = VariantChooser(host, compatibility_data(), links)
    wheels = [wheel for wheel in links.wheels("demo") if wheel.version == "1.0"]
    suitable = {}
    for wheel in chooser.sort(wheels):
        judged = chooser.judged(wheel)
        if judged is None or not judged.reasons:
            suitable[split_label(wheel.filename)[1]] = True
    assert list(suitable) == case["order"]
    options = IndexOptions(no_index=True, find_links=(str(tmp_path),))
    request = Request(requirements=(requirement,))
    try:
        plan = gpuenv.solve(request, host, options, changes=False)
    except NoSolutionError:
        assert case["chosen"] == "none"
        return
    pins = {pin.wheel.name: pin.wheel.filename for pin in plan.pins}
    version, label, build = [*case["chosen"].split(" "), "", ""][:3]
    assert (version, label, build) in conformance_wheels(case)
    parts = [part for part in ("demo", version, build, "py3-none-any", label) if part]
    assert pins.pop("demo") == f"{'-'.join(parts)}.whl"
    assert sorted(pins) == case["installs"]


# ---- indexes -------------------------------------------------------------------------------------


def fill(server, version="1.0", described=GPU):
    """Add a release that has only variant wheels, and a document that describes these variants."""
    for label, properties in GPU.items():
        document = metadata({label: properties})
        server.add_file("demo", *make_variant("demo", version, label, document))
    content = json.dumps(metadata(described)).encode()
    server.add_file("demo", f"demo-{version}-variants.json", content)


def labels_of(index, wheels):
    return [variant.label for variant in index.variants(wheels).variants]


def test_what_an_index_may_answer(server, index_of, direct_of):
    server.ranges = False
    fill(server)
    server.add_file("other", *make_variant("other", "1.0", "cu126", metadata(GPU)))
    server.add_file("other", "other-1.0-variants.json", b"[]")
    server.add_file("whole", *make_variant("whole", "1.0", "null", metadata({"null": {}})))
    index, direct = index_of(), direct_of()
    server.faults["/files/demo-1.0-variants.json"] = ["tampered", "always"]
    with pytest.raises(PackageIndexError, match="has the wrong hash"):
        index.variants(index.wheels("demo"))
    server.faults["/files/other-1.0-variants.json"] = ["403"]
    with pytest.raises(PackageIndexError, match="answered with status 403"):
        index.variants(index.wheels("other"))
    with pytest.raises(UnusableFileError, match="it must be an object"):
        index.variants(index.wheels("other"))
    whole = index.wheels("whole")
    assert labels_of(index, whole) == ["null"]
    url = f"{server.base}/files/{whole[0].filename}"
    assert labels_of(direct, (direct.direct("whole", url),)) == ["null"]
    asked, offline = len(server.asked), index_of(offline=True)
    with pytest.raises(OfflineError, match=r"demo-1.0-variants.json is not in the cache"):
        offline.variants(offline.wheels("demo"))
    assert len(server.asked) == asked


# ---- solve, lock, install, verify ----------------------------------------------------------------


def solve(folder, *requirements, **host):
    options = IndexOptions(no_index=True, find_links=(str(folder),))
    return gpuenv.solve(Request(requirements=requirements), host_of(host), options)


def chosen(plan):
    return {variant.name: variant.label for variant in plan.variants}


H100 = {"gpu": ["sm_90"], "driver": "570.86.10"}


def test_the_dependencies_follow_the_variant(tmp_path):
    for label, properties in GPU.items():
        document = metadata({label: properties})
        write_variant(tmp_path, "demo", "1.0", label, document, requires=TABLES["requires"])
    for name in ("cuda", "hopper", "volta", "cpu", "plain"):
        write_variant(tmp_path, name, "1.0", "")
    plan = solve(tmp_path, "demo", **H100)
    assert [*plan.versions] == ["cuda", "demo", "hopper", "plain"]
    plan = solve(tmp_path, "demo", gpu=["none"])
    assert [*plan.versions] == ["cpu", "demo", "plain"]


def test_another_variant_is_taken_if_the_dependencies_of_the_best_conflict(tmp_path):
    for label, pin in (("cu126", "base==1.0"), ("cu128", "base==2.0")):
        document = metadata({label: GPU[label]})
        write_variant(tmp_path, "demo", "1.0", label, document, requires=[pin])
    for version in ("1.0", "2.0"):
        write_variant(tmp_path, "base", version, "")
    assert chosen(solve(tmp_path, "demo", **H100)) == {"demo": "cu128"}
    plan = solve(tmp_path, "demo", "base<2", **H100)
    assert chosen(plan) == {"demo": "cu126"}
    (rejection,) = (one for one in plan.skipped if one.name == "demo")
    assert [reason.code for reason in rejection.reasons] == ["conflict"]


def test_a_requirement_with_a_wrong_marker_about_variants_refuses_the_file(tmp_path):
    """The operator == is for variant_label only."""
    for version, marker in (
        ("1.0", '"nvidia" in variant_namespaces'),
        ("2.0", 'variant_namespaces == "nvidia"'),
    ):
        document = metadata({"cu126": GPU["cu126"]})
        requires = [f"cuda; {marker}"]
        write_variant(tmp_path, "demo", version, "cu126", document, requires=requires)
    write_variant(tmp_path, "cuda", "1.0", "")
    plan = solve(tmp_path, "demo", **H100)
    assert plan.versions == {
        "cuda": "1.0",
        "demo": "1.0",
    }
    (rejection,) = plan.skipped
    (reason,) = rejection.reasons
    assert (reason.code, reason.subject) == ("bad-metadata", "demo-2.0-py3-none-any-cu126.whl")
    assert reason.need == "readable requirements"
    assert "cuda" in reason.have and "variant_namespaces must be compared" in reason.have


def test_a_framework_as_a_variant_wheel_is_no_cpu_build(tmp_path):
    make_release(tmp_path, "torch", "2.99.0", GPU)
    options = IndexOptions(no_index=True, find_links=(str(tmp_path),))
    plan = gpuenv.solve(Request(frameworks=("torch",)), host_of(H100), options)
    (choice,) = plan.choices
    assert (choice.variant, choice.cuda, choice.sass) == ("cu128", (12, 8), ("75", "90"))
    for name in ("cu126", "cu128"):
        (tmp_path / f"torch-2.99.0-py3-none-any-{name}.whl").unlink()
    with pytest.raises(NoSolutionError) as error:
        gpuenv.solve(Request(frameworks=("torch",)), host_of(H100), options)
    assert "cpu-build" in {reason.code for reason in error.value.explanation.reasons}


@pytest.fixture(scope="module")
def project_folder(tmp_path_factory):
    """A folder with a source of wheels."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "links").mkdir()
    cpu = {"cu128": GPU["cu128"], "v1": {"x86_64": {"level": ["v1"]}}, "null": {}}
    make_release(folder / "links", "demo", "1.0", cpu, namespaces=("nvidia", "x86_64"))
    return folder


@pytest.fixture
def project(project_folder, monkeypatch):
    """The folder in which the commands run."""
    monkeypatch.chdir(project_folder)
    return project_folder


def test_solve_and_explain_name_the_variant(project, call):
    first = call(f"{DEMO} {ON_H100}")
    text = (project / "pylock.toml").read_bytes()
    call(f"{DEMO} {ON_H100}")
    assert (project / "pylock.toml").read_bytes() == text
    assert "wrote pylock.toml" in first.stdout
    done = call("explain pylock.toml --gpu sm_90 --driver 560.28.03", status=3)
    assert "demo 1.0 (cu128) needs a driver for CUDA 12.8" in done.stdout
    done = call(f"{DEMO} {ON_H100} --format requirements -o r.txt", status=2)
    assert "cannot name the variant wheel of demo" in done.stderr
    assert not (project / "r.txt").exists()


def test_other_tools_read_the_lock(project, call):
    """uv installs it. pip takes the name of a file from its URL, and refuses the label in it.

    `gpuenv sync` installs the same locks with both (test_a_variant_is_installed_and_verified).
    """
    from packaging.pylock import Pylock

    lock = project / "pylock.uv.toml"
    call(f"{DEMO} --gpu none --python {HERE} -o {lock.name}")
    document = read_data(lock)
    assert document["tool"]["gpuenv"]["variants"][0]["label"] == "v1"
    Pylock.from_dict(document)
    python, uv = sys.executable, "uv pip install --quiet --preview-features pylock"
    run_program(f"{python} -m {uv} --python {python} --target plain -r {lock.name}")
    assert (project / "plain" / "demo.py").read_text() == "label = 'v1'\n"
    pip = f"{python} -m pip install --target by-pip -r {lock.name}"
    assert "invalid wheel filename" in run_program(pip, status=1).stderr
    assert not (project / "by-pip").exists()


def site_packages(target):
    (folder,) = Path(target).glob("lib/python*/site-packages")
    return folder


@each("installer", ["uv", "pip"])
def test_a_variant_is_installed_and_verified(project, installer, call):
    path, target = f"pylock.{installer}2.toml", f"env-{installer}"
    call(f"{DEMO} --gpu none --python {HERE} -o {path}")
    flags = f"--target {target} --installer {installer} --no-verify --find-links links"
    call(f"sync {path} {flags}")
    packages = site_packages(target)
    assert (packages / "demo.py").read_text() == "label = 'v1'\n"
    original = next((project / "links").glob("*-v1.whl")).read_bytes()
    assert hashlib.sha256(original).hexdigest() in (project / path).read_text()
    verify = f"verify {path} --target {target} --no-device"
    assert "variants" in call(verify).stdout
    if installer == "pip":
        return  # what follows does not depend on the installer
    variant = packages / "demo-1.0.dist-info" / "variant.json"
    variant.write_text(json.dumps(metadata({"null": {}})))
    assert "demo is null, the lock says v1" in call(verify, status=1).stdout


# ---- device code ---------------------------------------------------------------------------------


def test_the_libraries_count_more_than_the_properties(tmp_path):
    """Both variants say 9.0; one has code for 8.0 only, and the other code for 7.0 as well."""
    claim = {"nvidia": {"cuda_version_lower_bound": ["12.0"], "sm_arch": ["90_real"]}}
    files = {
        "liar": {"demo.fatbin": binary([{"sass": "75"}])},
        "more": {"demo.fatbin": binary([{"sass": "70"}, {"ptx": "75", "language": "7.5"}])},
    }
    make_release(tmp_path, "demo", "1.0", {"liar": claim, "more": claim}, files=files)
    plan = solve(tmp_path, "demo", gpu=["sm_70", "sm_90"], driver="535.54.03")
    assert chosen(plan) == {"demo": "more"}
    assert [(one.code, one.need, one.have) for one in plan.warnings] == [
        ("variant-claim", "sm_90, as its properties say", "sm_70 compute_75 in its libraries")
    ]
    (rejection,) = plan.skipped
    codes = {reason.code for reason in rejection.reasons}
    assert codes == {"no-code-for-device", "variant-claim"}
    assert rejection.reasons[0].have == "sm_75"
    assert set(plan.needs.compute_capabilities) >= {(7, 0), (9, 0)}
    again = solve(tmp_path, "demo", gpu=["sm_70", "sm_90"], driver="535.54.03")
    assert again == plan  # from the cache
    path = str(tmp_path / "pylock.toml")
    api.write_lock(api.lock(plan), path)
    lock = api.read_lock(path)
    assert lock.variants == plan.variants
    assert variant_fit(lock, plan.host, compatibility_data()) == ()


def test_releases_of_an_index_are_read_at_once(server):
    """The metadata of one release is gone, and that of another contradicts the wheels."""
    for version in ("1.0", "2.0", "3.0", "4.0"):
        fill(server, version, GPU if version != "3.0" else {"null": {}})
    server.faults["/files/demo-4.0-variants.json"] = ["404", "always"]
    options = IndexOptions(index_url=server.url)
    plan = gpuenv.solve(Request(requirements=("demo",)), host_of(H100), options)
    assert plan.pins[0].wheel.version == "3.0" and chosen(plan) == {"demo": "null"}
    skipped = {rejection.version: rejection.reasons[0] for rejection in plan.skipped}
    assert "lists a file that it does not have" in skipped["4.0 (null)"].have
    assert skipped["3.0 (cu128)"].need == "the variant cu128 in its metadata"
    plan = gpuenv.solve(Request(requirements=("demo<3",)), host_of(H100), options)
    assert chosen(plan) == {"demo": "cu128"} and plan.pins[0].wheel.version == "2.0"


def test_a_variant_wheel_at_a_url(project, call):
    (path,) = (project / "links").glob("demo-1.0-*-cu128.whl")
    solve = f"solve 'demo @ {path.as_uri()}'"
    call(f"{solve} {ON_H100} -o pylock.url.toml")
    lock = api.read_lock("pylock.url.toml")
    assert [(one.name, one.label) for one in lock.variants] == [("demo", "cu128")]
    assert lock.pins[0].wheel.filename == path.name
    host = "--gpu sm_90 --driver 570.86.10"
    call(f"sync pylock.url.toml --target env-url {host} --no-verify --find-links links")
    assert (site_packages("env-url") / "demo.py").read_text() == "label = 'cu128'\n"
    v100 = f"--gpu sm_70 --driver 570.86.10 --python {HERE}"
    text = call(f"{solve} {v100} -o pylock.none.toml", status=3).text
    assert "demo 1.0 (cu128) needs code for compute capability 7.0" in text


@each("case", CASES["marker"], ids=lambda case: case["marker"])
def test_markers_about_the_variant(case):
    rows = [tuple(text.split(" :: ")) for text in case.get("properties", ())]

    def decide(clause):
        return variants.clause_holds(clause, case["label"], rows)

    assert variants.names_variant(case["marker"])
    if "error" in case:
        with pytest.raises(ValueError, match=case["error"]):
            variants.replace_clauses(case["marker"], decide)
        return
    marker = variants.replace_clauses(case["marker"], decide)
    environment = TargetEnvironment(host_of({"gpu": ["none"]}))
    assert environment.marker(marker, ()) is case["holds"]
