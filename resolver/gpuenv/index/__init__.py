"""Package sources: where releases, their files and their dependencies come from.

What the resolver uses:

- protocol: the interface of an index.
- factory: opens the indexes that the options and the configuration name.
- multi_index: several indexes as one; each package name is bound to one of them.
- snapshot: the shipped part of the default and the PyTorch index, without any network; answers of
  packaging about a target, kept in the cache.

Indexes:

- live: the simple repository API over HTTP.
- find_links: folders, files and HTML pages.
- direct_url: files that requirements name by URL.
- default_index: which index pip and uv are configured with.

Parts of these:

- prefetch: requests ahead of time what a solve will need.
- simple_api: parses HTML and JSON pages of an index.
- html_links: the links of an HTML page.
- page_fetcher: fetches pages through the cache.
- cached_page: a page as the cache stores it, read by release.
- metadata: the dependencies of a file, with as few downloaded bytes as possible.
- core_metadata: reads METADATA and PKG-INFO from archives, and checks them.
- attestations: who has published a file, by signatures (PEP 740)
- variants: the metadata of variant wheels, and the markers about them
- filenames: names and versions from file names.
- http: retries, credentials and one kind of error.
- http_session: sessions of requests, and what their errors mean.
- urls: redacts URLs for messages, maps file:// URLs to paths.
- cache: entries on disk that processes share.
- keyed_memo: answers that several threads ask for, each computed once.
"""
