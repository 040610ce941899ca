"""The examples of docs/audit.md are written to files and run by the command under them."""

import re
import shlex
import subprocess
import sys

import fix_python
import pytest
from markdown_blocks import ROOT, blocks

from sanderling.audit.catalogue import attacks, standard_battery
from sanderling.audit.rewrites import HONEST
from sanderling.testing.weak_graders import reference_graders

PAGE = blocks(ROOT / "docs" / "audit.md")


@pytest.fixture
def written(tmp_path, monkeypatch):
    for block in PAGE:
        if block.language == "python":
            (tmp_path / block.title).write_text(block.text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_numbers_and_tiers_of_the_page_are_true(written):
    text = (ROOT / "docs" / "audit.md").read_text("utf-8")
    assert f"There are {len(attacks())} of them" in text
    assert f"as {len(HONEST)} people" in text
    tiers = re.findall(r"^\| ([TVJ]\d) \|", text, re.M)
    assert tiers == list(reference_graders(fix_python.environment()))
    assert standard_battery(["my_attack.py:ATTACK"]).attacks[-1].id == "my-hook"


@pytest.mark.slow
def test_the_battery_of_the_page_runs(bubblewrap, written):
    (command,) = [line for block in PAGE if block.language == "console" for line in block.commands()]
    program, *arguments = shlex.split(command)
    assert program == "python"
    ran = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=written, check=False)
    assert ran.stdout == "['my-hook'] paid: 0 refused: 0\n", ran.stderr
