"""The programs that make the documentation.

The modules agents, causes, man_page, schemas and support make files from the code and the data:
their function `files` returns {path in the repository: text}. pages.py writes them all.
"""
