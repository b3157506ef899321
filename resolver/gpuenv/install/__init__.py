"""Installation of locks into environments.

wheels.py           locks of wheels: what changes, and how the new environment is built
installers.py       the commands of uv and of pip
lock_files.py       the files of a lock: downloaded, built, named for uv and pip
downloads.py        files of locks in folders and bundles, for hosts without a network
bundle.py           one file with the wheels, the lock, gpuenv and what it requires
bundle_main.py      the program of a bundle
transaction.py      the new environment takes the place of the old one at once; rollback
target_lock.py      one process at a time changes a target
environment_files.py  the files of an environment: its record, owners, a copy by links, scripts
inplace_install.py  what an installation into an existing environment keeps and changes
conda.py            conda locks, by conda or rattler
conda_prefix.py     what is in a conda environment: packages, wheels, and what has two owners
conda_changes.py    what a lock changes in an existing conda environment, and why it may not
conda_history.py    conda-meta/history: what users asked for
"""
