"""Package sources: where releases, their files and their metadata come from.

The resolver asks an Index (protocol): for the releases of a package, and for the metadata of a
file. multi_index opens it, and binds each package name to one source.

- sources: indexes over HTTP, folders and pages of --find-links.
- snapshot: the shipped part of the default and the PyTorch index, without any network.
- pages: pages of an index, and the cache of them; names and versions from file names.
- metadata: requirements and variants of files, with as few downloaded bytes as possible.
- prefetch: requests ahead of time what a solve will need.
- own_indexes: the indexes of frameworks and companions.
- source_builds: builds source distributions; build_watcher cleans up after a killed one.
- source_trees: the folders of source trees, and of commits that git fetches.
- attestations: who has published a file, by signatures (PEP 740).
- variants: the metadata of variant wheels, and the markers about them.
- default_index: which index pip and uv are configured with.
- http: limits, retries, credentials and one kind of error.
- urls: redacts URLs for messages, maps file:// URLs to paths.
- cache: entries on disk that processes share; answers that several threads ask for.
"""
