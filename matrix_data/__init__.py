"""Compatibility data and the index snapshot, shipped in the wheel. Read by gpuenv.matrix and gpuenv.index."""
