"""Installation of locks into environments.

wheels.py           locks of wheels, by uv or by pip
conda.py            conda locks, by rattler
conda_prefix.py     what is in a conda environment: packages, wheels, and what has two owners
inplace_install.py  what an installation into an existing environment keeps and changes
"""
