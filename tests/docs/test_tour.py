"""docs/tour.md names a file and functions for each stage, and shows a program: all of it must be there and run."""

from __future__ import annotations

import ast
import asyncio
import io
import re
import runpy
from pathlib import Path

import pytest
from markdown_blocks import ROOT, blocks

from sanderling import jobs
from sanderling.config import load_config
from sanderling.report.terminal import ProgressStyle
from sanderling.testing.tiny_model import tiny_llama_folder

PAGE = ROOT / "docs" / "tour.md"
_STAGE = re.compile(r"\]\((\.\./[\w/]+\.py)\):((?:\s+`\w+`,?)+)")


def _defined(file: Path) -> set[str]:
    """Return the names of all functions and classes of a file, those in classes too."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, kinds)}


def _stages() -> list[tuple[str, str]]:
    return [
        (file, name)
        for file, names in _STAGE.findall(PAGE.read_text("utf-8"))
        for name in re.findall(r"`(\w+)`", names)
    ]


@pytest.mark.parametrize(("file", "name"), _stages())
def test_the_named_function_is_in_the_named_file(file, name):
    assert name in _defined(PAGE.parent / file)


def test_the_tour_has_every_stage_in_under_200_lines():
    text = PAGE.read_text("utf-8")
    assert len(_stages()) > 25
    assert len(text.splitlines()) < 200
    for noun in (
        "Task",
        "Sandbox",
        "Rollout",
        "Trajectory",
        "Verdict",
        "Credit and batch",
        "Loss and weights",
        "Report",
    ):
        assert f"\n## {noun}\n" in text


def test_the_program_of_the_tour_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    overrides = {
        "environment": "sanderling.testing.letters:letter_environment",
        "sandbox.backend": "sanderling.testing.environments:memory_backend",
        "policy": str(tiny_llama_folder(tmp_path / "tiny")),
        "engine.threads": 1,
        "steps": 1,
        "rollout.groups_per_step": 2,
        "evaluation.tasks": 1,
        "evaluation.greedy": False,
        "trust.certificate": "none",
    }
    job = jobs.train(
        load_config([], overrides), Path("runs/tour"), resume=False, stream=io.StringIO(), style=ProgressStyle.PLAIN
    )
    asyncio.run(job)
    program = next(block.text for block in blocks(PAGE) if block.title == "rows.py")
    group = re.search(r"train-\d{7}", program)
    assert group is not None
    program = re.sub(r"rollouts\(\d+\)", "rollouts(1)", program.replace(group[0], "train-0000001"))
    (tmp_path / "rows.py").write_text(program, "utf-8")
    capsys.readouterr()
    runpy.run_path("rows.py")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("rewards [")
    assert [line.split(":")[0] for line in lines[1:]] == [f"train-0000001/{index}.0" for index in range(8)]
    assert all("tokens are trained, advantage " in line for line in lines[1:])
