"""The guide's Python runs: every section of docs/guide/python.md, from top to bottom, in an empty folder."""

import importlib.util
import os
import re
from pathlib import Path

import pytest
from embedded import home  # noqa: F401

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "python.md"


def sections():
    """Title and program of each section that has one."""
    for section in re.split(r"^## ", GUIDE.read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        pieces = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        if pieces:
            yield title, "\n".join(pieces)


@pytest.mark.parametrize("title, program", [*sections()], ids=[title for title, _ in sections()])
def test_the_guides_python_runs(title, program, home, run_python):  # noqa: F811
    for package in ("torch", "torchdata", "fsspec"):
        is_used = re.search(rf"^(import|from) {package}\b", program, flags=re.MULTILINE)
        if is_used and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed here")
    own = {name: os.environ[name] for name in ("PADDLECLOUD_HOME", "PADDLECLOUD_PROGRAM")}
    run_python(program, **own)


def test_the_guide_has_a_program_in_every_section():
    titles = re.findall(r"^## (.*)$", GUIDE.read_text(), flags=re.MULTILINE)
    assert titles == [title for title, _ in sections()]
