"""docs/formulas.md is what the code says and computes."""

import re

from markdown_blocks import ROOT

from sanderling.credit import ESTIMATORS
from sanderling.report.formulas import document

PAGE = ROOT / "docs" / "formulas.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text("utf-8") == document(), "run: python -m sanderling.report.formulas docs/formulas.md"


def test_every_estimator_has_its_section_and_its_line():
    text = PAGE.read_text("utf-8")
    assert re.findall(r"^## `(.+)`$", text, re.MULTILINE) == list(ESTIMATORS)
    for file, line in re.findall(r"\(\.\./(src/sanderling/credit/\w+\.py)#L(\d+)\)", text):
        assert (ROOT / file).read_text("utf-8").splitlines()[int(line) - 1].startswith("class ")


def test_an_example_by_hand():
    """GRPO without epsilon: mean .25, deviation .5."""
    section = PAGE.read_text("utf-8").split("## `grpo`\n")[1].split("\n## ")[0]
    assert "| 1.500000 1.500000 1.500000 | -0.500000 -0.500000 -0.500000 |" in section
