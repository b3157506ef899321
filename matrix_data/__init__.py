"""Compatibility data and the index snapshot, in the wheels of gpuenv and of gpuenv-matrix.

`__version__` is the date of the data in matrix.toml. `SCHEMA` is the number of the layout that
gpuenv reads; it increases if an older gpuenv would misread the files.
"""

__version__ = "2026.11.29"
SCHEMA = 2
