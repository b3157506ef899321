"""Solves of conda environments: gpuenv chooses the builds, conda's own solvers find the closure.

planning.py          a request on a host -> a Plan of conda packages
candidates.py        the builds of a framework that a host can run, best first
solvers.py           finds closures: rattler in a child process, or the conda around gpuenv
rattler_child.py     the script of the child process
virtual_packages.py  what conda knows of a host: __cuda, __glibc, ...
wheels_beside.py     wheels in a conda environment: an index that holds what conda supplies
"""
