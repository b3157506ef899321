"""The programs that try gpuenv with real parts, and write records."""
