"""HTML pages: the compatibility explorer (`gpuenv matrix html`) and reports (`gpuenv report`).

explorer     the command `gpuenv matrix html`
tables       the solver's answers for every host, which its page looks up
report       the command `gpuenv report`
pages        both as HTML: one design (page.css), one file each
"""
