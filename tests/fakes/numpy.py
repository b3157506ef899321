"""As much of numpy as the probes ask for."""

from fake_arrays import array, asarray  # noqa: F401

__version__ = "2.4.0"
