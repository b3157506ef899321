"""File names and Requires-Python of pages: they are read as packaging reads them."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.utils import parse_sdist_filename, parse_wheel_filename

from gpuenv.index import pages
from gpuenv.requirements.target import split_label

TEXT = st.text(
    st.sampled_from(string.ascii_letters + string.digits + "-_.+!#=&;<>/'\" \n%\\\u00e9"),
    max_size=12,
)
NAME = st.from_regex(r"[A-Za-z0-9._-]{1,8}", fullmatch=True)
VERSION = st.one_of(
    st.from_regex(
        r"(v|1!)?[0-9]{1,3}(\.[0-9]{1,3}){0,3}((a|rc|-)?[0-9])?(\.post[0-9])?(\.dev[0-9])?",
        fullmatch=True,
    ),
    st.from_regex(r"[0-9]\.[0-9]\+[a-z0-9._-]{1,5}", fullmatch=True),
)  # fmt: skip
TAG = st.sampled_from(
    [
        "py3-none-any",
        "py2.py3-none-any",
        "cp311-cp311-win32",
        "3.6-none-any",
        "cp311--any",
        "1-cp3-abi3-x",
    ]
)
FILE = st.one_of(
    st.builds("{}-{}-{}.whl".format, NAME, VERSION, TAG),
    st.builds("{}-{}.tar.gz".format, NAME, VERSION),
    TEXT,
)


def by_packaging(filename: str) -> tuple[str, str] | None:
    try:
        if filename.endswith(".whl"):
            name, version, _, _ = parse_wheel_filename(filename)
        else:
            name, version = parse_sdist_filename(filename)
    except ValueError:
        return None
    return name, str(version)


@given(FILE)
def test_file_names_are_read_as_packaging_reads_them(filename: str) -> None:
    is_plain = filename.isprintable() and not {*filename} & {*"/\\"}
    expected = by_packaging(split_label(filename)[0]) if is_plain else None
    assert pages.identify(filename) == expected


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (">=3.5.*", ">=3.5"),
        (">=3.8,<4", ">=3.8,<4"),
        ("snakes", None),
        ("", None),
        (None, None),
        ("!=3.5.*", "!=3.5.*"),
    ],
)
def test_requires_python_of_old_files(text: str | None, meant: str | None) -> None:
    assert pages.parse_requires_python(text) == meant
