"""Installation of locks into environments.

wheels.py           locks of wheels: what changes, and how the new environment is built
installers.py       the commands of uv and of pip
downloads.py        the files of locks in a folder, for hosts without a network
fetch.py            one file of a lock
built_wheels.py     wheels that are built here of source distributions
built_record.py     built.json: which wheels in a folder were built here
bundle.py           one file with the wheels, the lock, gpuenv and what it requires
bundle_main.py      the program of a bundle
transaction.py      the new environment takes the place of the old one at once; rollback
target_lock.py      one process at a time changes a target
environment_files.py  the files of an environment: owners, a copy by links, paths in scripts
variant_files.py    variant wheels under ordinary file names, for uv and pip
build_record.py     gpuenv.json: what was installed
conda.py            conda locks, by rattler
conda_prefix.py     what is in a conda environment: packages, wheels, and what has two owners
conda_changes.py    what a lock changes in an existing conda environment, and why it may not
conda_history.py    conda-meta/history: what users asked for
inplace_install.py  what an installation into an existing environment keeps and changes
"""
