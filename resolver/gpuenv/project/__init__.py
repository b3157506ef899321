"""The profiles in [tool.gpuenv] of a repository's pyproject.toml.

profiles         a profile as a value, what it asks for, and whether its lock is up to date
read             read and check the table
shared_versions  one version of each framework for all profiles
edit             add and remove requirements in a pyproject.toml
init             write a first table for a repository, from its files; add profiles to it
"""
