"""The version of gpuenv."""

__version__ = "0.1.0"
