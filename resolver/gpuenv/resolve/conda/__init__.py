"""conda environments: the build is chosen by gpuenv's rules, the closure by conda's own solver."""
