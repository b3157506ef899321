"""The sentence of each kind of reason; what commands print is in the tests of the commands."""

import re

from gpuenv.errors import Reason
from gpuenv.render import values
from tables import data_file, together

CASES = data_file("messages.json")


@together(CASES)
def test_the_text_of_a_reason(case):
    fields = {name: value for name, value in case.items() if name != "text"}
    text = values.reason_text(Reason(**fields, source="a source"))
    assert text == case["text"]
    assert text.isascii() and "  " not in text and "None" not in text
    assert not re.search(r" [;,]|[;,:]$|\b([A-Za-z]+) \1\b", text)
