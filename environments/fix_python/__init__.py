"""fix_python: find and fix the bug in a small Python function."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sanderling.sandbox.protocol import PYTHON, Kept

if TYPE_CHECKING:
    from sanderling.environment import Environment

FOLDER = Path(__file__).parent
VISIBLE_TESTS = (*PYTHON, "/tools/visible.py")


def environment() -> Environment:
    """Return the environment: tasks, line editor with visible tests, and hidden calls as the verifier."""
    from fix_python.hidden import HiddenCalls
    from fix_python.tasks import FILE, FixPythonTasks
    from sanderling.environment import Environment
    from sanderling.harness.line_edit import AnswerToChange, LineEditHarness
    from sanderling.verify.observation import ObservationVerifier

    tasks = FixPythonTasks()
    return Environment(
        name="fix_python",
        version="1",
        tasks=tasks,
        harness=LineEditHarness(
            file=FILE,
            test_argv=VISIBLE_TESTS,
            answer=AnswerToChange.TRIED,
        ),
        verifier=ObservationVerifier(HiddenCalls(tasks)),
        tools={"visible.py": (FOLDER / "visible.py").read_bytes()},
        test_argv=VISIBLE_TESTS,
        task_kind="family",
        certificate=FOLDER / "certificate.json",
        kept=Kept.INTERPRETER,
    )


def tiny_policy() -> Path:
    """Return the folder of the policy that comes with the package: config, weights and tokenizer.json."""
    return FOLDER / "policy"
