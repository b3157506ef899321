"""The convolution that all probes compute: its inputs and its exact result.

2 images of 16x16 in 16 channels, 16 filters of 3x3, padding 1, stride 1, no bias. Every input is a
multiple of 1/64 with at most 7 bits, so float32, TF32, float16 and bfloat16 hold it exactly, and so
does float32 each sum: one reference serves all types, and no math mode (TF32 or not) explains a
difference. The reference is computed here with integers, without a library.

Runs on Python 3.8 and later; standard library only.
"""

from __future__ import annotations

import itertools
import math
import operator

IMAGES, CHANNELS, SIDE, FILTERS, WINDOW = 2, 16, 16, 16, 3
INPUT, WEIGHT = (IMAGES, CHANNELS, SIDE, SIDE), (FILTERS, CHANNELS, WINDOW, WINDOW)
RESULT = (IMAGES, FILTERS, SIDE, SIDE)
UNIT = 64


def integers(count: int, seed: int) -> list[int]:
    """Return integers from -127 to 127 of a linear congruential generator (C's rand).

    They are the same on every Python.
    """
    values = []
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        values.append((seed >> 16) % 255 - 127)
    return values


def integer_inputs() -> tuple[list[int], list[int]]:
    """Return the images and the filters in units of 1/64, flat."""
    return integers(math.prod(INPUT), 1), integers(math.prod(WEIGHT), 2)


def inputs() -> tuple[list[float], list[float]]:
    """Return the images (NCHW) and the filters (KCRS), flat."""
    images, filters = integer_inputs()
    return [value / UNIT for value in images], [value / UNIT for value in filters]


def reference() -> list[float]:
    """Return the exact result, flat in NKHW."""
    images, filters = integer_inputs()
    size = CHANNELS * WINDOW * WINDOW
    rows = [filters[start : start + size] for start in range(0, len(filters), size)]
    sums: list[int] = []
    for image in range(IMAGES):
        planes = []  # each channel with a border of zeros
        for channel in range(CHANNELS):
            lines = [[0] * (SIDE + 2)]
            for line in range(SIDE):
                start = ((image * CHANNELS + channel) * SIDE + line) * SIDE
                lines.append([0, *images[start : start + SIDE], 0])
            planes.append([*lines, lines[0]])
        patches = []  # the values under the filter at each place
        for top, left in itertools.product(range(SIDE), repeat=2):
            values: list[int] = []
            for plane in planes:
                for line in range(top, top + WINDOW):
                    values += plane[line][left : left + WINDOW]
            patches.append(values)
        for row in rows:
            sums += [sum(map(operator.mul, values, row)) for values in patches]
    return [value / (UNIT * UNIT) for value in sums]
