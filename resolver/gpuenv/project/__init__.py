"""The profiles in [tool.gpuenv] of a repository's pyproject.toml.

profiles  a profile as a value, what it asks for, and whether its lock is up to date
read      read and check the table
init      write a first table for a repository
"""
