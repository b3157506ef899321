"""What packaging says of versions, requirements, tags and markers, for a target from afar."""

from itertools import product

import pytest
from packaging.markers import Marker, default_environment

from gpuenv.errors import InputError
from gpuenv.model import Host, Python, Requirement
from gpuenv.requirements.target import TargetEnvironment, marker_environment, parse_requirement
from tables import each, together

LINUX = Host(glibc=(2, 35), python=Python(version=(3, 12), full_version="3.12.4"))
WINDOWS = LINUX.replace(os="windows", glibc=None)
ARM = LINUX.replace(machine="aarch64", python=Python(version=(3, 15), full_version="3.15.0rc1"))


@each("text", ["", "torch=2.9", "torch[a", "torch; nonsense", "a" * 20_000])
def test_wrong_requirements_are_one_line(text):
    with pytest.raises(InputError) as caught:
        parse_requirement(text)
    assert "\n" not in str(caught.value)


def test_a_requirement_is_normalized():
    text = "Some_Torch[B_c,a,A] >= 2.0, <3; extra=='a' and sys_platform=='linux'"
    assert parse_requirement(text) == Requirement(
        name="some-torch",
        extras=("a", "b-c"),
        specifier="<3,>=2.0",
        marker='extra == "a" and sys_platform == "linux"',
    )


@each(
    "tags hosts",
    [
        ("py3-none-any", [LINUX, WINDOWS, ARM]),
        ("cp312-cp312-manylinux_2_35_x86_64", [LINUX]),
        ("cp312-cp312-manylinux_2_36_x86_64", []),
        ("cp39-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64", [LINUX]),
        ("cp39-abi3-manylinux2014_aarch64", [ARM]),
        ("cp313-cp313-manylinux2014_x86_64", []),
        ("cp312-cp312t-manylinux2014_x86_64", []),
        ("cp312-cp312-musllinux_1_2_x86_64", []),
        ("cp312-cp312-win_amd64", [WINDOWS]),
        ("cp315-cp315-linux_aarch64", [ARM]),
        ("nonsense", []),
    ],
)
def test_the_hosts_that_a_wheel_fits(tags, hosts):
    name = f"torch-2.0-{tags}.whl"
    every = (LINUX, WINDOWS, ARM)
    assert [one for one in every if TargetEnvironment(one).rank(name) is not None] == hosts


MARKERS = [
    'python_version < "3.13"', 'python_full_version >= "3.12.4"', 'platform_machine == "AMD64"',
    'platform_machine in "x86_64 aarch64"', 'sys_platform == "linux" and extra == "cuda"',
    'extra == "Some_Extra"', 'os_name == "nt" or implementation_name != "cpython"',
    'platform_release >= "5"', 'platform_version == ""', 'implementation_version >= "3.13"',
    'platform_system == "Linux" and platform_machine == "x86_64"',
]  # fmt: skip


@together(product(MARKERS, [LINUX, WINDOWS, ARM], [[], ["cuda"], ["Some.Extra", "other"]]))
def test_markers(row):
    text, host, extras = row
    variables = marker_environment(host)
    assert {**default_environment(), **variables} == variables  # nothing of this machine is left
    expected = any(Marker(text).evaluate({**variables, "extra": extra}) for extra in extras or [""])
    assert TargetEnvironment(host).marker(text, extras) == expected


def test_extras_of_this_process_do_not_count():
    environment = TargetEnvironment(Host(python=Python(version=(3, 12))))
    assert not environment.marker('extra == "cuda"', ())
    assert environment.marker('extra == "cuda"', ("Other", "CUDA"))


@each("text", ["python_version <", "nonsense == 1", ""])
def test_a_wrong_marker_is_one_line(text):
    with pytest.raises(InputError) as caught:
        TargetEnvironment(Host(python=Python(version=(3, 12)))).marker(text, ())
    assert "\n" not in str(caught.value)


@each(
    "host specifier accepted",
    [
        (LINUX, ">=3.12.4,<3.13", True),
        (LINUX, "<3.12.4", False),
        (ARM, ">=3.15", True),
        (ARM, "<3.15", False),
        (ARM, "", True),
    ],
)
def test_requires_python(host, specifier, accepted):
    """As pip reads it: three numbers, so that a candidate of 3.15 satisfies ">=3.15"."""
    assert TargetEnvironment(host).accepts_python(specifier or None) is accepted


def test_a_wrong_requires_python_is_one_line():
    with pytest.raises(InputError) as caught:
        TargetEnvironment(LINUX).accepts_python("nonsense")
    assert "\n" not in str(caught.value)
