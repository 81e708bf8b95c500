"""The examples of docs/python.md do what it says."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import DEADLINE_S, Store

GUIDE = Path(__file__).parents[4] / "docs" / "python.md"
ITS_STORE = '("tcp:host=127.0.0.1,port=11100")'


@pytest.fixture
def new_store() -> Iterator[Store]:
    """Two servers that nobody has used."""
    store = Store(2)
    yield store
    store.stop()


def test_the_examples_of_the_guide(new_store: Store) -> None:
    text = GUIDE.read_text()
    # Everything else becomes empty, so that line numbers stay.
    examples = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    store = f"({new_store.locator!r}, timeout_s={DEADLINE_S})"
    lines = [""] * (text.count("\n") + 1)
    for block in examples.finditer(text):
        first = text.count("\n", 0, block.start(1))
        for at, line in enumerate(block[1].splitlines()):
            lines[first + at] = line.replace(ITS_STORE, store)
    test = doctest.DocTestParser().get_doctest("\n".join(lines), {}, GUIDE.name, str(GUIDE), 0)
    assert len(test.examples) > 30
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.FAIL_FAST).run(test, out=report.append)
    assert not report, "".join(report)
