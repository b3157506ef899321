"""Arrays in plain Python for the stand-ins of frameworks, with a convolution and planted faults.

Variables: FAKE_DEVICES is how many GPUs there are. On a GPU FAKE_ERROR is the relative error of a
result (nan, too), FAKE_LOST the index of a device whose convolutions raise, FAKE_TEXT what they
say; FAKE_HANG and FAKE_ABORT happen in the convolution. FAKE_LIBRARIES are opened when a framework
is imported. FAKE_RESULTS is a folder where the results of convolutions are kept, so that each is
computed once for all processes.
"""

import ctypes
import json
import math
import os
import sys
import time

CPU = -1
count = int(os.environ.get("FAKE_DEVICES", "0"))
_known = {}


class Array:
    def __init__(self, flat, shape, device=CPU):
        self.flat, self.shape, self.device = list(flat), tuple(shape), device
        assert len(self.flat) == math.prod(self.shape)

    @property
    def size(self):
        return len(self.flat)

    def reshape(self, shape):
        return Array(self.flat, shape, self.device)

    def transpose(self, *axes):
        strides = [math.prod(self.shape[axis + 1 :]) for axis in axes]
        shape, places = [self.shape[axis] for axis in axes], [0]
        for size, stride in zip(shape, strides, strict=True):
            places = [start + step * stride for start in places for step in range(size)]
        return Array([self.flat[place] for place in places], shape, self.device)

    def to(self, device):
        return Array(self.flat, self.shape, device)

    def astype(self, kind):
        return self

    def ravel(self):
        return self

    def tolist(self):
        return list(self.flat)


def array(values, dtype=None):
    return Array(values, [len(values)])


def asarray(one):
    return one


def open_libraries():
    for name in os.environ.get("FAKE_LIBRARIES", "").split(":"):
        if name:
            ctypes.CDLL(name)


def convolve(images, filters, device):
    """NCHW and KCRS, 3x3 with padding 1; the definition, term by term."""
    key = (tuple(images.flat), tuple(filters.flat))
    if key not in _known:
        _known[key] = _kept(key) or _sums(images, filters)
        _keep(key)
    out = Array(_known[key], [images.shape[0], filters.shape[0], *images.shape[2:]], device)
    return out if device == CPU else _plant(out, device)


def _place(key):
    # The hash of numbers is the same in all processes.
    return os.path.join(os.environ.get("FAKE_RESULTS", ""), f"convolution-{hash(key):x}.json")


def _kept(key):
    if "FAKE_RESULTS" not in os.environ or not os.path.exists(_place(key)):
        return None
    with open(_place(key)) as stream:
        return json.load(stream)


def _keep(key):
    if "FAKE_RESULTS" not in os.environ or os.path.exists(_place(key)):
        return
    unfinished = f"{_place(key)}.{os.getpid()}"
    with open(unfinished, "w") as stream:
        json.dump(_known[key], stream)
    os.replace(unfinished, _place(key))


def _sums(images, filters):
    number, channels, high, wide = images.shape
    row = wide + 2
    found = []
    for n in range(number):
        planes = [_padded(images, n, c) for c in range(channels)]
        for k in range(filters.shape[0]):
            sums = [0.0] * (high * row)  # the last two of each row stand for nothing
            for c in range(channels):
                for r in range(3):
                    for s in range(3):
                        weight = filters.flat[((k * channels + c) * 3 + r) * 3 + s]
                        shifted = planes[c][r * row + s :]
                        pairs = zip(sums, shifted, strict=False)
                        sums = [left + weight * right for left, right in pairs]
            for i in range(high):
                found += sums[i * row : i * row + wide]
    return found


def _padded(images, n, c):
    """A channel of an image, flat, with zeros around it."""
    _, channels, high, wide = images.shape
    padded = [0.0] * (wide + 2)
    for i in range(high):
        start = ((n * channels + c) * high + i) * wide
        padded += [0.0, *images.flat[start : start + wide], 0.0]
    return padded + [0.0] * (wide + 4)


def _plant(out, device):
    if "FAKE_HANG" in os.environ:
        time.sleep(1000)
    if "FAKE_ABORT" in os.environ:
        os.abort()
    if os.environ.get("FAKE_LOST") == str(device):
        raise RuntimeError(
            os.environ.get("FAKE_TEXT", "no kernel image is available for execution on the device")
        )
    error = float(os.environ.get("FAKE_ERROR", "1e-7"))
    flat = [value * (1 + error) for value in out.flat]
    # Not a number is one value only, as a wrong kernel may leave it.
    return Array(out.flat[:-1] + flat[-1:] if math.isnan(error) else flat, out.shape, device)


def say(text):
    """As C++ writes: past Python's streams."""
    sys.stderr.flush()
    os.write(2, text.encode() + b"\n")
