"""cupy.cudnn, which CuPy has before 14."""

import fake_arrays
from cupy import _current, _encode


def convolution_forward(images, filters, bias, out, *others, auto_tune, tensor_core):
    assert bias is None and others == (
        (1, 1),
        (1, 1),
        (1, 1),
        1,
    )  # padding, stride, dilation, groups
    found = fake_arrays.convolve(images.array(), filters.array(), _current[-1])
    out.buffer[:] = _encode(found.flat, out.dtype)
