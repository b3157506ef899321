"""jax_cuda13_plugin._versions: built against 9.12, and FAKE_CUDNN is what is found."""

import os


def cuda_runtime_build_version():
    return 13000


def cudnn_build_version():
    return 91200


def cudnn_get_version():
    found = int(os.environ.get("FAKE_CUDNN", "92000"))
    if not found:
        raise RuntimeError("cuDNN not found.")
    return found
