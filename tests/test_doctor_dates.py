"""The years of logs: dates in several forms, and texts that no program printed before a year."""

from __future__ import annotations

import pytest

from gpuenv.doctor import read_log


def years(log: str) -> list[str]:
    facts = read_log([f"{log}\nCUDA error: no kernel image is available"])
    return sorted(fact.value for fact in facts if fact.kind == "year")


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("2018-10-05 10:11:21 started", ["2018"]),
        ("[2018/10/05] started", ["2018"]),
        ("Fri Mar 17 2017", ["2017"]),
        ("Sun Nov 27 10:11:11 2016", ["2016"]),
        ("Built on Tue_Jan_10_13:22:03_CST_2017", ["2017"]),
        ("/opt/conda/conda-bld/pytorch_1532502421238/work/aten/x.cu", ["2018"]),
        ("Ubuntu 16.04.6 LTS", ["2016"]),
        ("FROM nvcr.io/nvidia/pytorch:20.03-py3", ["2020"]),
        ("gmx mdrun, version 2018.3", ["2018"]),
        ("Compile with `TORCH_USE_CUDA_DSA`", ["2023"]),
        ("/usr/lib/python3.12/site-packages", ["2024"]),
        ("image of 2018 x 2020 pixels, 1.2018-10 and 20180-05-01", []),
        ("epoch 2019/2020 of 3000", []),
    ],
)
def test_years(log: str, expected: list[str]) -> None:
    assert years(log) == expected


def test_a_late_date_is_not_read() -> None:
    assert years("noise of a log\n" * 4000 + "2018-10-05 end") == []
