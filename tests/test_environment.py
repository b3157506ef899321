"""What packaging says of versions, requirements, tags and markers, for a target from afar."""

import packaging._manylinux as manylinux
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from packaging.markers import Marker, default_environment
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from gpuenv.errors import InputError
from gpuenv.model import Host, Python, Requirement
from gpuenv.requirements.target import (
    NEWEST_GLIBC,
    TargetEnvironment,
    marker_environment,
    parse_requirement,
)
from gpuenv.requirements.versions import names_prerelease

NUMBERS = st.integers(0, 12).map(str) | st.sampled_from(["00", "01", "2026"])
RELEASES = st.lists(NUMBERS, min_size=1, max_size=4).map(".".join)
PRERELEASES = ["a1", "b2", "rc1", "a1.dev2", ".dev3", "dev", ".dev", ".a1", "alpha", ".beta2"]
SUFFIXES = st.sampled_from(["", "", "", "", ".post1", "-1", "x", *PRERELEASES])
LOCALS = st.sampled_from(["", "", "", "+cu126", "+cu130", "+cpu", "+1", "+cu126.2", "+CU126", "+"])
VERSIONS = st.tuples(st.sampled_from(["", "", "", "", "1!", "v"]), RELEASES, SUFFIXES, LOCALS).map(
    "".join
)
OPERATORS = st.sampled_from(["==", "!=", ">=", "<=", ">", "<", "~=", "===", "= ", ""])
SPACES = st.sampled_from(["", "", "", "", " "])
CLAUSES = st.tuples(OPERATORS, SPACES, VERSIONS, st.sampled_from(["", "", "", ".*"]), SPACES).map(
    "".join
)
SPECIFIERS = st.lists(CLAUSES, max_size=3).map(",".join)


@pytest.mark.parametrize(
    ("specifier", "expected"),
    [("", False), (">=2.0rc1", True), ("<2.0a0", False), ("!=2.0a1", False), ("==2.0.dev1", True)],
)
def test_a_specifier_that_asks_for_a_prerelease(specifier: str, expected: bool) -> None:
    assert names_prerelease(specifier) == expected


@pytest.mark.parametrize(
    "text",
    ["", "torch=2.9", "torch[a", "torch; nonsense", "a" * 20_000],
)
def test_wrong_requirements_are_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_requirement(text)
    assert "\n" not in str(caught.value)


def test_a_requirement_is_normalized() -> None:
    text = "Some_Torch[B_c,a,A] >= 2.0, <3; extra=='a' and sys_platform=='linux'"
    assert parse_requirement(text) == Requirement(
        name="some-torch",
        extras=("a", "b-c"),
        specifier="<3,>=2.0",
        marker='extra == "a" and sys_platform == "linux"',
    )


HOSTS = st.builds(
    Host,
    os=st.sampled_from(["linux", "linux", "windows"]),
    machine=st.sampled_from(["x86_64", "aarch64"]),
    glibc=st.sampled_from([None, (2, 4), (2, 5), (2, 17), (2, 28), (2, 39), (2, 60)]),
    python=st.builds(
        Python,
        version=st.integers(8, 17).map(lambda minor: (3, minor)),
        free_threaded=st.booleans(),
    ),
).filter(lambda host: host.python.version >= (3, 13) or not host.python.free_threaded)

INTERPRETERS = st.sampled_from(
    ["cp312", "cp313", "cp38", "cp39.cp312", "py3", "py2.py3", "py310", "pp310", "cp315"]
)
ABIS = st.sampled_from(
    ["cp312", "cp313", "cp313t", "cp315t", "abi3", "abi3t", "none", "abi3.abi3t", "cp312.cp313"]
)
PLATFORM = st.sampled_from([
    "any", "linux_x86_64", "linux_aarch64", "win_amd64", "win_arm64", "manylinux1_x86_64",
    "manylinux2014_x86_64", "manylinux2014_aarch64", "manylinux_2_17_x86_64",
    "manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "manylinux_2_5_aarch64",
    "manylinux_2_99_x86_64", "manylinux_2_50_x86_64", "musllinux_1_2_x86_64",
    "macosx_11_0_arm64", "manylinux_2_4_x86_64", "manylinux_3_1_x86_64",
])  # fmt: skip
BUILDS = st.sampled_from(["", "", "-1", "-2", "-10", "-2abc"])
WHEELS = st.tuples(
    BUILDS, INTERPRETERS, ABIS, st.lists(PLATFORM, min_size=1, max_size=2).map(".".join)
).map(lambda parts: f"torch-2.0{parts[0]}-{parts[1]}-{parts[2]}-{parts[3]}.whl")


def real_tags(host: Host) -> dict[str, int]:
    """packaging's own tags for a target, best first, with the manylinux tags of its glibc."""
    if host.os == "windows":
        platforms = ["win_amd64" if host.machine == "x86_64" else "win_arm64"]
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(manylinux, "_get_glibc_version", lambda: host.glibc or NEWEST_GLIBC)
            patch.setattr(manylinux, "_have_compatible_abi", lambda *_: True)
            platforms = [f"linux_{host.machine}", *manylinux.platform_tags([host.machine])]
    version = host.python.version
    interpreter = f"cp{version[0]}{version[1]}"
    abis = [interpreter + "t" * host.python.free_threaded]
    tags = [
        *cpython_tags(version, abis, platforms),
        *compatible_tags(version, interpreter, platforms),
    ]
    found: dict[str, int] = {}
    for place, tag in enumerate(tags):
        found.setdefault(str(tag), place)
    return found


@given(HOSTS, st.lists(WHEELS, min_size=1, max_size=6))
def test_ranks(host: Host, filenames: list[str]) -> None:
    """A wheel fits where packaging says so, and two wheels stand as pip would have them."""
    tags = real_tags(host)
    environment = TargetEnvironment(host)
    expected = {}
    for filename in filenames:
        _, _, build, found = parse_wheel_filename(filename)
        places = [tags[str(tag)] for tag in found if str(tag) in tags]
        assert (environment.rank(filename) is None) == (not places)
        if places:
            expected[filename] = (min(places), -(build[0] if build else 0))
    by_rank = sorted(expected, key=lambda name: (environment.rank(name), name))
    assert by_rank == sorted(expected, key=lambda name: (expected[name], name))


@given(WHEELS)
def test_the_least_glibc_is_the_first_on_which_the_wheel_fits(filename: str) -> None:
    def fits(minor: int) -> bool:
        host = Host(glibc=(2, minor), python=Python(version=(3, 12)))
        return TargetEnvironment(host).rank(filename) is not None

    least = TargetEnvironment(Host(python=Python(version=(3, 12)))).least_glibc(filename)
    if least is not None:
        assert fits(least[1])
        assert not fits(least[1] - 1)
    else:
        assert fits(0) == fits(99)


@pytest.mark.parametrize(
    "name", ["torch-2.0.tar.gz", "torch.whl", "torch-2.0-py3-none-any.zip", "a-b-c-d-e-f-g.whl"]
)
def test_other_files_fit_nothing(name: str) -> None:
    assert TargetEnvironment(Host(python=Python(version=(3, 12)))).rank(name) is None


MARKERS = [
    'python_version < "3.13"', 'python_full_version >= "3.12.4"', 'platform_machine == "AMD64"',
    'platform_machine in "x86_64 aarch64"', 'sys_platform == "linux" and extra == "cuda"',
    'extra == "Some_Extra"', 'os_name == "nt" or implementation_name != "cpython"',
    'platform_release >= "5"', 'platform_version == ""', 'implementation_version >= "3.13"',
    'platform_system == "Linux" and platform_machine == "x86_64"',
]  # fmt: skip


@given(
    HOSTS,
    st.sampled_from(MARKERS),
    st.lists(st.sampled_from(["cuda", "some-extra", "Some.Extra"]), max_size=2),
)
def test_markers(host: Host, text: str, extras: list[str]) -> None:
    variables = marker_environment(host)
    assert {**default_environment(), **variables} == variables  # nothing of this machine is left
    expected = any(Marker(text).evaluate({**variables, "extra": extra}) for extra in extras or [""])
    assert TargetEnvironment(host).marker(text, extras) == expected


def test_variables_on_windows() -> None:
    variables = marker_environment(
        Host(os="windows", python=Python(version=(3, 12), full_version="3.12.4"))
    )
    assert (variables["platform_machine"], variables["sys_platform"], variables["os_name"]) == (
        "AMD64",
        "win32",
        "nt",
    )
    assert variables["python_full_version"] == "3.12.4"


def test_extras_of_this_process_do_not_count() -> None:
    environment = TargetEnvironment(Host(python=Python(version=(3, 12))))
    assert not environment.marker('extra == "cuda"', ())
    assert environment.marker('extra == "cuda"', ("Other", "CUDA"))


@pytest.mark.parametrize("text", ["python_version <", "nonsense == 1", ""])
def test_a_wrong_marker_is_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        TargetEnvironment(Host(python=Python(version=(3, 12)))).marker(text, ())
    assert "\n" not in str(caught.value)


@given(SPECIFIERS, st.sampled_from(["3.12", "3.12.4", "3.15.0rc1", "3.15.0b2+local", "3.13.1+"]))
def test_requires_python(specifier: str, full: str) -> None:
    """As pip reads it: three numbers, so that a candidate of 3.15 satisfies ">=3.15"."""
    minor = int(full.split(".")[1])
    environment = TargetEnvironment(Host(python=Python(version=(3, minor), full_version=full)))
    try:
        wanted = SpecifierSet(specifier)
    except InvalidSpecifier:
        assume(specifier)
        with pytest.raises(InputError):
            environment.accepts_python(specifier)
        return
    three = {
        "3.12": "3.12.0",
        "3.15.0rc1": "3.15.0",
        "3.15.0b2+local": "3.15.0",
        "3.13.1+": "3.13.1",
    }.get(full, full)
    assert environment.accepts_python(specifier) == wanted.contains(three)
    assert environment.accepts_python(None)
