"""Installation of locks into environments.

wheels.py           locks of wheels, by uv or by pip
interpreters.py     interpreters to make environments with: of PATH, pyenv and uv
conda.py            conda locks, by rattler
conda_prefix.py     what is in a conda environment: packages, wheels, and what has two owners
conda_changes.py    what a lock changes in an existing conda environment, and why it may not
conda_history.py    conda-meta/history: what users asked for
inplace_install.py  what an installation into an existing environment keeps and changes
"""
