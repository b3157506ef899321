"""What a release requires of the host and of the other packages of a plan, and why it is refused.

The releases of the compatibility data are facts, so the cases name them.
"""

from collections.abc import Sequence

import pytest

import gpuenv
from gpuenv.errors import Reason
from gpuenv.model import EVERY_FRAMEWORK, Host, Request
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.resolve.answer_tables import _missing_dependency
from gpuenv.resolve.candidates import CandidateStore
from gpuenv.resolve.graph import Candidate
from gpuenv.resolve.release_facts import ReleaseFacts, is_refused
from test_resolution import DATA
from universe import Packages, Universe


def host(*gpus: str, driver: str | None = "570.86.10", glibc: str = "2.35") -> Host:
    return gpuenv.describe(
        gpus=list(gpus) or ["none"],
        driver=driver if gpus else None,
        python="3.12",
        platform="linux-x86_64",
        glibc=glibc,
    )


def read(
    packages: Packages, on: Host, builds: Sequence[tuple[str, str]] = ()
) -> tuple[CandidateStore, ReleaseFacts]:
    request = Request(requirements=tuple(packages), builds=tuple(builds))
    store = CandidateStore(request, on, DATA, Universe(packages), TargetEnvironment(on))
    return store, ReleaseFacts(store)


def release_of(name: str, version: str, on: Host) -> tuple[Candidate, ReleaseFacts]:
    store, facts = read({name: {version: {}}}, on)
    [candidate] = store.candidates(name)
    return candidate, facts


H100, TWO, NO_GPU = host("H100"), host("H100", "H100"), host()
DROPPED = host("V100", driver="590.44.01")  # a driver that does not support the GPU any more
PAIR = "side of cudnn-before-9.10.1-beside-cublas-12.9"


@pytest.mark.parametrize(
    ("name", "version", "on", "agreements"),
    [
        (
            "torch",
            "2.6.0+cu126",
            H100,
            ["CUDA build of torch cu126", "CUDA major 12", "torch 2.6 with CXX11_ABI=1"],
        ),
        ("torch", "2.6.0+cpu", H100, ["CUDA build of torch cpu", "torch 2.6 with CXX11_ABI=0"]),
        ("torch", "9.9", H100, []),
        ("torchvision", "0.21.0+cu124", H100, ["CUDA build of torch cu124", "CUDA major 12"]),
        ("onnxruntime-gpu", "1.23.0", H100, ["CUDA major 12"]),
        ("tensorflow", "2.20.0", H100, ["CUDA major 12"]),
        ("nvidia-cublas-cu12", "12.4.5.8", H100, ["CUDA major 12"]),
        ("bitsandbytes", "0.48.0", H100, ["CUDA major 11 or 12 or 13"]),
        (
            "flash-attn",
            "2.8.3+cu12torch2.8cxx11abiTRUE",
            H100,
            ["CUDA major 12", "CUDA major 12", "torch 2.8 with CXX11_ABI=1"],
        ),
        ("deepspeed", "0.18.0+cu128torch2.9", H100, ["CUDA major 12"]),
        ("made-up", "1.0+torch2.8cxx11abiFALSE", H100, ["torch 2.8 with CXX11_ABI=0"]),
        ("nvidia-cudnn-cu12", "0.1", H100, ["owner of nvidia/cudnn nvidia-cudnn-cu12"]),
        # Only several GPUs share what such a pair computes.
        ("nvidia-cublas-cu12", "12.9.0.13", H100, ["CUDA major 12"]),
        ("nvidia-cublas-cu12", "12.9.0.13", TWO, ["CUDA major 12", f"the other {PAIR}"]),
        ("made-up", "1.0", TWO, []),
    ],
)
def test_what_a_release_and_all_others_must_agree_on(
    name: str, version: str, on: Host, agreements: list[str]
) -> None:
    candidate, facts = release_of(name, version, on)
    assert [str(one) for one in facts.agreements(candidate)] == agreements


def test_a_companion_of_several_releases_goes_with_builds_of_its_cuda_major() -> None:
    """It links the CUDA runtime only."""
    builds = DATA.builds("torchaudio", "linux-x86_64")
    several = [one for one in builds if len(one.companions) > 1 and one.cuda is not None]
    assert several
    for build in several:
        candidate, facts = release_of(build.name, build.local, H100)
        assert build.cuda is not None
        expected = [f"CUDA major {build.cuda[0]}"]
        assert [str(one) for one in facts.agreements(candidate)] == expected


@pytest.mark.parametrize(
    ("name", "version", "packages"),
    [
        ("flash-attn", "2.8.3+cu12torch2.8cxx11abiTRUE", ["torch==2.8.*"]),
        ("deepspeed", "0.18.0+cu128torch2.9", ["torch==2.9.*"]),
        ("xformers", "0.0.30+cu128", []),
        ("flash-attn", "2.8.3", []),
    ],
)
def test_an_extension_requires_the_release_of_torch_that_it_is_built_for(
    name: str, version: str, packages: list[str]
) -> None:
    candidate, facts = release_of(name, version, H100)
    agreements = [str(one) for one in facts.agreements(candidate)]
    assert [str(one) for one in facts.requirements_of(candidate)] == [*agreements, *packages]


@pytest.mark.parametrize(
    ("name", "version", "on", "codes"),
    [
        ("torch", "2.6.0+cu126", H100, []),
        ("torch", "2.6.0+cu126", DROPPED, ["gpu-dropped-by-driver"]),
        ("torch", "2.6.0+cpu", DROPPED, ["cpu-build"]),
        ("torch", "2.6.0+cpu", NO_GPU, []),
        ("torch", "9.9", H100, ["build-unknown"]),
        ("torch", "9.9", NO_GPU, []),
        ("nvidia-cublas-cu12", "12.4.5.8", DROPPED, ["gpu-dropped-by-driver"]),
        ("nvidia-cudnn-cu12", "0.1", H100, ["library-unknown"]),
        ("nvidia-cudnn-cu12", "0.1", NO_GPU, []),
        ("tensorflow", "2.21.0", H100, ["known-broken"]),
        ("tensorflow", "2.21.0", NO_GPU, []),
        ("cuda-toolkit", "12.5.1", NO_GPU, ["known-avoid"]),
        ("nvidia-cublas", "0.0.0a0", H100, ["library-unknown", "known-broken"]),
        ("made-up", "1.0", DROPPED, []),
    ],
)
def test_why_a_release_is_refused(name: str, version: str, on: Host, codes: list[str]) -> None:
    candidate, facts = release_of(name, version, on)
    assert [reason.code for reason in facts.reasons(candidate)] == codes
    if codes and codes != ["gpu-dropped-by-driver"]:  # a reason against the GPU
        assert facts.reasons(candidate)[0].subject.startswith(f"{name} {version}")


def test_a_pinned_library_needs_the_driver_of_the_build_that_pins_it() -> None:
    library, facts = release_of("nvidia-cublas-cu12", "12.4.5.8", DROPPED)
    assert facts.reasons_of_pinned(library) == []
    unknown, facts = release_of("nvidia-cublas-cu12", "0.1", DROPPED)
    assert [reason.code for reason in facts.reasons_of_pinned(unknown)] == ["library-unknown"]


def test_the_reasons_against_a_build_without_a_wheel() -> None:
    _, facts = release_of("torch", "2.6.0", DROPPED)
    build = DATA.build("torch", "2.6.0+cu126", "linux-x86_64")
    assert build is not None
    [reason] = facts.build_reasons(build)
    assert reason.code == "gpu-dropped-by-driver"


def test_a_driver_that_is_newer_than_the_data_is_a_doubt_about_the_data() -> None:
    candidate, facts = release_of("torch", "2.6.0+cu126", host("H100", driver="999.10.01"))
    assert [reason.code for reason in facts.host_doubts] == ["driver-branch-unknown"]
    assert facts.reasons(candidate) == []
    _, facts = release_of("torch", "2.6.0+cu126", DROPPED)
    assert facts.host_doubts == ()


CHOSEN = "which was chosen by hand"


@pytest.mark.parametrize(
    ("name", "version", "builds", "need", "have"),
    [
        ("torch", "2.6.0+cu126", [], None, None),
        ("torch", "2.6.0+cu126", [("torch", "cu126")], None, None),
        ("torch", "2.6.0+cu126", [("torch", "12.6")], None, None),
        ("torch", "2.6.0+cu126", [("jax", "12.4")], None, None),
        ("torch", "2.6.0+cu126", [("torch", "cu126"), (EVERY_FRAMEWORK, "12.4")], None, None),
        (
            "torch",
            "2.6.0+cu126",
            [("torch", "cu124")],
            f"the build cu124, {CHOSEN}",
            "cu126, for CUDA 12.6",
        ),
        (
            "torch",
            "2.6.0+cu126",
            [(EVERY_FRAMEWORK, "12.4")],
            f"for CUDA 12.4, {CHOSEN}",
            "cu126, for CUDA 12.6",
        ),
        ("torch", "2.6.0+cpu", [("torch", "cu124")], f"the build cu124, {CHOSEN}", "cpu"),
        ("torch", "9.9", [("torch", "cu124")], f"the build cu124, {CHOSEN}", "an unknown build"),
        ("made-up", "1.0", [(EVERY_FRAMEWORK, "12.4")], None, None),
    ],
)
def test_a_build_that_was_chosen_by_hand_refuses_the_others(
    name: str, version: str, builds: list[tuple[str, str]], need: str | None, have: str | None
) -> None:
    store, facts = read({name: {version: {}}}, NO_GPU, builds)
    [candidate] = store.candidates(name)
    found = [(one.code, one.subject, one.need, one.have) for one in facts.reasons(candidate)]
    expected = ("other-build", f"{name} {version}", need, have)
    assert found == ([] if need is None else [expected])


# ---- frameworks that install in several ways -----------------------------------------------------

PLUGIN = "jax-cuda12-plugin==0.6.2; extra == 'cuda12'"
JAX: Packages = {
    "jax": {"0.6.2": {"requires": ["jaxlib==0.6.2", PLUGIN]}},
    "jaxlib": {"0.6.2": {}},
    "jax-cuda12-plugin": {"0.6.2": {}},
    "jax-cuda12-pjrt": {"0.6.2": {}},
}
TENSORFLOW: Packages = {
    "tensorflow": {
        "2.20.0": {"requires": ["nvidia-cudnn-cu12; extra == 'and-cuda'"]},
        "2.21.0": {},
    }
}
OLD_TENSORFLOW: Packages = {"tensorflow": {"2.10.1": {}, "2.3.0": {}}}
OLD_JAX: Packages = {
    "jax": {
        "0.4.20": {
            "requires": [
                "jaxlib==0.4.20+cuda12.cudnn89; extra == 'cuda12-pip'",
                "jaxlib==0.4.20+cuda11.cudnn86; extra == 'cuda11-pip'",
            ]
        },
        "0.4.4": {"requires": ["jaxlib==0.4.4+cuda11.cudnn86; extra == 'cuda11-cudnn86'"]},
    }
}
CUPY: Packages = {"cupy-cuda12x": {"13.6.0": {}}}


@pytest.mark.parametrize(
    ("framework", "packages", "on", "codes"),
    [
        (
            "jax",
            JAX,
            H100,
            {
                "jax 0.6.2 (cuda12)": [],
                "jax 0.6.2 (cuda13)": ["build-unknown", "no-such-extra"],
                "jax 0.6.2 (cpu)": ["cpu-build"],
            },
        ),
        (
            "jax",
            JAX,
            DROPPED,
            {
                "jax 0.6.2 (cuda12)": ["gpu-dropped-by-driver"],
                "jax 0.6.2 (cuda13)": ["build-unknown", "no-such-extra"],
                "jax 0.6.2 (cpu)": ["cpu-build"],
            },
        ),
        (
            "jax",
            JAX,
            NO_GPU,
            {"jax 0.6.2 (cpu)": [], "jax 0.6.2 (cuda12)": [], "jax 0.6.2 (cuda13)": []},
        ),
        # The distribution itself has the device code: without the extra only the libraries lack.
        (
            "tensorflow",
            TENSORFLOW,
            H100,
            {
                "tensorflow 2.20.0 (cuda)": [],
                "tensorflow 2.21.0 (cuda)": ["cuda-libraries-unknown", "known-broken"],
                "tensorflow 2.20.0 (cpu)": ["cpu-build"],
                "tensorflow 2.21.0 (cpu)": ["cpu-build"],
            },
        ),
        ("cupy", CUPY, NO_GPU, {"cupy 13.6.0 (cuda12x)": ["needs-gpu"]}),
        (
            "tensorflow",
            OLD_TENSORFLOW,
            H100,
            {
                "tensorflow 2.10.1 (cuda)": ["cuda-libraries-unknown"],
                "tensorflow 2.10.1 (cpu)": ["cpu-build"],
                "tensorflow 2.3.0 (cuda)": ["build-unknown", "cuda-libraries-unknown"],
                "tensorflow 2.3.0 (cpu)": ["cpu-build"],
            },
        ),
        # Ways with builds of jaxlib that name their CUDA: only those that the data has.
        (
            "jax",
            OLD_JAX,
            H100,
            {
                "jax 0.4.20 (cuda12_pip)": [],
                "jax 0.4.20 (cuda11_pip)": [],
                "jax 0.4.20 (cuda11_cudnn86)": ["no-such-extra"],
                "jax 0.4.20 (cuda13)": ["build-unknown", "no-such-extra"],
                "jax 0.4.20 (cuda12)": ["build-unknown", "no-such-extra"],
                "jax 0.4.20 (cpu)": ["cpu-build"],
                "jax 0.4.4 (cuda11_cudnn86)": ["cuda-libraries-unknown"],
                "jax 0.4.4 (cuda11_pip)": ["no-such-extra"],
                "jax 0.4.4 (cuda11_cudnn82)": ["no-such-extra"],
                "jax 0.4.4 (cuda13)": ["build-unknown", "no-such-extra"],
                "jax 0.4.4 (cuda12)": ["build-unknown", "no-such-extra"],
                "jax 0.4.4 (cpu)": ["cpu-build"],
            },
        ),
    ],
)
def test_why_a_way_to_install_a_framework_is_refused(
    framework: str, packages: Packages, on: Host, codes: dict[str, list[str]]
) -> None:
    store, facts = read(packages, on)
    found = DATA.framework(framework)
    assert found is not None
    assert {
        variant.label: [reason.code for reason in facts.reasons(variant)]
        for variant in store.variants(found)
    } == codes


@pytest.mark.parametrize(("gpu", "is_served"), [("V100", True), ("H100", True), ("B200", False)])
def test_a_cudnn_of_the_system_must_serve_the_device(gpu: str, is_served: bool) -> None:
    """Of cuDNN 8 for a B200 only PTX of an unknown toolkit is left: a doubt."""
    on = host(gpu)
    store, facts = read(OLD_TENSORFLOW, on)
    framework = DATA.framework("tensorflow")
    assert framework is not None
    newest = store.variants(framework)[0]
    reasons = [(reason.code, reason.subject) for reason in facts.reasons(newest)]
    own = [("cuda-libraries-unknown", "tensorflow 2.10.1 (cuda)")]
    of_cudnn = [("code-unknown", "cuDNN 8.9.6.50 for CUDA 11")]
    assert reasons == (own if is_served else own + of_cudnn)


def test_libraries_that_the_system_must_have_are_named() -> None:
    store, facts = read(OLD_TENSORFLOW, H100)
    framework = DATA.framework("tensorflow")
    assert framework is not None
    newest = store.variants(framework)[0]
    assert [reason.need for reason in facts.reasons(newest)] == [
        "CUDA 11.2 and cuDNN 8.1 of the system: libcudart.so.11.0, libcublas.so.11, "
        "libcublasLt.so.11, libcufft.so.10, libcurand.so.10, libcusolver.so.11, "
        "libcusparse.so.11, libcudnn.so.8"
    ]


def test_what_the_user_asks_for_is_not_refused_for_its_kind() -> None:
    """A CPU build on a host with a GPU, a CUDA build on one without."""
    jax, cupy = DATA.framework("jax"), DATA.framework("cupy")
    assert jax is not None and cupy is not None
    store, facts = read(JAX, DROPPED)
    [cpu] = store.variants(jax.replace(ways=jax.ways[-1:]))
    assert facts.reasons(cpu) == []
    store, facts = read(CUPY, NO_GPU)
    [cuda] = store.variants(cupy.replace(ways=cupy.ways[1:2]))
    assert facts.reasons(cuda) == []


def test_a_missing_extra_is_named() -> None:
    store, facts = read(JAX, H100)
    framework = DATA.framework("jax")
    assert framework is not None
    [variant] = [one for one in store.variants(framework) if one.way.variant == "cuda13"]
    unknown, missing = facts.reasons(variant)
    assert unknown.subject == "jax 0.6.2 (cuda13): jax-cuda13-pjrt and jax-cuda13-plugin"
    assert (missing.subject, missing.have) == ("jax 0.6.2 (cuda13)", "a release without it")
    assert missing.need == "the extra cuda13, which brings its CUDA libraries"


def test_what_a_way_to_install_a_framework_requires() -> None:
    store, facts = read(JAX, H100)
    framework = DATA.framework("jax")
    assert framework is not None
    required = {
        one.way.variant: [str(requirement) for requirement in facts.requirements_of(one)]
        for one in store.variants(framework)
    }
    assert required == {
        "cuda13": ["jax==0.6.2", "jax[cuda13]==0.6.2"],
        "cuda12": ["CUDA major 12", "jax==0.6.2", "jax[cuda12]==0.6.2"],
        "cpu": ["jax==0.6.2"],
    }


@pytest.mark.parametrize(
    ("builds", "refused"),
    [
        ([("jax", "cuda12")], {"cuda13": "cuda13", "cpu": "cpu"}),
        ([("jax", "cpu")], {"cuda13": "cuda13", "cuda12": "cuda12, for CUDA 12.8"}),
    ],
)
def test_a_way_that_was_chosen_by_hand_refuses_the_others(
    builds: list[tuple[str, str]], refused: dict[str, str]
) -> None:
    store, facts = read(JAX, NO_GPU, builds)
    framework = DATA.framework("jax")
    assert framework is not None
    found = {}
    for variant in store.variants(framework):
        for reason in facts.reasons(variant):
            assert (reason.code, reason.subject) == ("other-build", variant.label)
            found[variant.way.variant] = reason.have
    assert found == refused


@pytest.mark.parametrize(
    ("codes", "lenient", "refused"),
    [
        ([], False, False),
        ([], True, False),
        (["build-unknown"], False, True),
        (["build-unknown"], True, False),
        (["build-unknown", "driver-floor"], True, True),
    ],
)
def test_doubts_refuse_a_release_in_a_strict_resolution_only(
    codes: list[str], lenient: bool, refused: bool
) -> None:
    reasons = [Reason(code=code, subject="a", need="b", have="c") for code in codes]
    assert is_refused(reasons, lenient=lenient) is refused


# ---- the order of builds -------------------------------------------------------------------------

# 9.9, 2.6.99 and +x are not in the data.
BUILDS = (
    "2.6.0+cpu 2.6.0+cu118 2.6.0+cu126 2.6.0+cu124 2.6.0+x 2.6.99 9.9 2.5.1+cu121 2.5.1"
    " 2.8.0+cu129 2.8.0+cu128 2.8.0+cu126"
)
OLDER = "2.6.99 2.6.0+cu126 2.6.0+cu124 2.6.0+cu118 2.6.0+x 2.5.1 2.5.1+cu121"


@pytest.mark.parametrize(
    ("on", "order"),
    [
        # The toolkit that is nearest to the CUDA of the driver (12.8), in each version.
        (H100, f"9.9 2.8.0+cu128 2.8.0+cu129 2.8.0+cu126 {OLDER} 2.6.0+cpu"),
        # Builds with code for the GPU first.
        (
            host("GTX 1080"),
            f"9.9 2.8.0+cu126 2.8.0+cu128 2.8.0+cu129 {OLDER} 2.6.0+cpu",
        ),
        # Without a known driver the newest toolkit.
        (
            host("H100", driver=None),
            f"9.9 2.8.0+cu129 2.8.0+cu128 2.8.0+cu126 {OLDER} 2.6.0+cpu",
        ),
        # Without a GPU the CPU builds, and what may be one.
        (
            NO_GPU,
            "9.9 2.6.99 2.6.0+cpu 2.6.0+x 2.8.0+cu129 2.8.0+cu128 2.8.0+cu126"
            " 2.6.0+cu126 2.6.0+cu124 2.6.0+cu118 2.5.1 2.5.1+cu121",
        ),
    ],
)
def test_the_builds_that_suit_a_host_best_come_first(on: Host, order: str) -> None:
    packages: Packages = {"torch": {version: {} for version in BUILDS.split()}}
    store, _ = read(packages, on)
    assert [candidate.version for candidate in store.candidates("torch")] == order.split()


def test_urls_of_the_same_file_give_the_same_candidate() -> None:
    store, _ = read({"a": {"1.0": {"tags": ["py3-none-any", "py3-none-win_amd64"]}}}, H100)
    plain, hashed = "https://x/a-1.0-py3-none-any.whl", "https://x/a-1.0-py3-none-any.whl#sha256="
    [first] = store.at_url("a", plain)
    assert first.wheel.url == plain and first.wheel.index == "url"
    same = f"{hashed}{first.wheel.sha256}"
    for _ in range(2):
        [again] = store.at_url("a", same)
        assert again is first
    [other] = store.at_url("a", f"{hashed}{'b' * 64}")
    assert other is not first and other.wheel.sha256 == "b" * 64
    assert store.at_url("a", "https://x/a-1.0-py3-none-win_amd64.whl") == ()


class AtHand(Universe):
    """An index with every package that the GPU stack requires, like the snapshot."""

    def at_hand(self, name: str) -> bool:
        return self.has(name)


@pytest.mark.parametrize(
    ("requires", "code", "need"),
    [
        ([], None, ""),
        (["known"], None, ""),
        (["nowhere ; sys_platform == 'win32'"], None, ""),
        (["nowhere ; sys_platform == 'win32'", "gone"], "no-candidate", "gone"),
        (["known", "gone>1"], "no-candidate", "gone>1"),
        (["known>2", "gone"], "no-version", "known>2"),
        (["gone ; extra == 'x'"], None, ""),
    ],
)
def test_the_first_requirement_of_a_release_that_no_index_meets(
    requires: list[str], code: str | None, need: str
) -> None:
    packages: Packages = {"a": {"1.0": {"requires": requires}}, "known": {"1.0": {}}}
    request = Request(requirements=("a",))
    store = CandidateStore(request, H100, DATA, AtHand(packages), TargetEnvironment(H100))
    [release] = store.candidates("a")
    reason = _missing_dependency(store, release)
    assert (reason and reason.code) == code
    assert reason is None or need in reason.need
    assert _missing_dependency(store, None) is None
