"""Compatibility: can this build, library or environment run on this host?

rules          the compatibility rules as pure functions
evaluate       the only caller of the rules: a release on a host, or an environment, which is a list
               of packages with what the data knows of each
conda_parts    conda records as such packages
conda_records  what a conda record says about CUDA, cuDNN and device code
architectures  targets of device code, driver branches
variants       what the properties of variant wheels mean
extensions     which build of torch an extension was built for
data           the compatibility data: frameworks, builds, libraries, GPUs, drivers
rows           the files of the data as values
catalog        looks the data up by name
what_if        hosts that differ from a given one in one thing
user_rows      what the user's own updates have read
"""
