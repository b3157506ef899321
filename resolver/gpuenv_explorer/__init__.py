"""HTML pages: the compatibility explorer (`gpuenv matrix html`) and reports (`gpuenv report`).

explorer     the command `gpuenv matrix html`
report       the command `gpuenv report`
pages        both as HTML: one design (page.css), one file each
"""
