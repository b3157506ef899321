"""HTML pages: the compatibility explorer (`gpuenv matrix html`) and reports (`gpuenv report`).

command      the flags, and what each command does
tables       the solver's answers for every host, which its page looks up
pages        both as HTML: one design (page.css), one file each
"""
