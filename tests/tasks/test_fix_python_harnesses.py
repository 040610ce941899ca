"""fix_python through the other harnesses: look, mend, test, submit, be paid."""

from __future__ import annotations

import asyncio
import json

import pytest

from sanderling.assemble import load_environment
from sanderling.errors import PluginError
from sanderling.harness.bash_block import BashBlockHarness
from sanderling.harness.tool_call_harness import ToolCallHarness
from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.types import StopReason


def _call(name: str, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def _tool_calls(wrong: str, right: str) -> list[str]:
    return [
        _call("read_file", path="solution.py") + _call("search", pattern="def"),
        _call("run_tests"),
        _call("replace", path="solution.py", old=wrong, new=right) + _call("run_tests"),
        _call("submit"),
    ]


def _bash_blocks(wrong: str, right: str) -> list[str]:
    edit = f"s = open('solution.py').read(); open('solution.py', 'w').write(s.replace({wrong!r}, {right!r}, 1))"
    commands = [
        "cat solution.py",
        "python3 -I -S /tools/visible.py",
        f"python3 - <<'EOF'\n{edit}\nEOF\npython3 -I -S /tools/visible.py",
        "submit",
    ]
    return [f"```bash\n{command}\n```" for command in commands]


@pytest.mark.parametrize(
    ("harness", "kind", "actions"),
    [("tool-calls", ToolCallHarness, _tool_calls), ("bash-block", BashBlockHarness, _bash_blocks)],
)
def test_an_episode_by_hand_is_paid(harness, kind, actions):
    backend = BubblewrapBackend()
    capabilities = backend.probe()
    if not capabilities.usable:
        pytest.skip(f"no sandbox on this machine: {capabilities.missing}")
    environment = load_environment("fix_python", harness=harness)
    assert isinstance(environment.harness, kind)
    asyncio.run(_play(environment, backend, actions))


async def _play(environment, backend, actions):
    task_id = next(i for i in environment.tasks.ids("held-out") if "/boundary-" in i)
    task = environment.tasks.get(task_id)
    gold = environment.tasks.problem(task_id).source.split("\n")
    buggy = task.base["solution.py"].decode().split("\n")
    right, wrong = next((a, b) for a, b in zip(gold, buggy, strict=True) if a != b)
    sandbox = await backend.create(environment.sandbox_spec(task))
    try:
        conversation = environment.harness.start(task, sandbox)
        replies = [await conversation.act(text) for text in actions(wrong, right)]
        submission = await sandbox.submission(task.editable)
    finally:
        await sandbox.destroy()
    assert not any(reply.bad_calls for reply in replies)
    assert "def " in replies[0].text
    assert [reply.exit_code for reply in replies[1:3]] == [1, 0]
    assert "ok " in replies[2].text
    assert replies[3].stop is StopReason.SUBMITTED
    graded = await environment.verifier.grade(task, submission, backend, seed=1)
    await backend.close()
    assert (graded.reward, graded.evidence.notes) == (1.0, ())


def test_a_harness_that_is_not_there_is_named():
    with pytest.raises(PluginError, match="did you mean 'tool-calls'"):
        load_environment("fix_python", harness="tool-call")
    with pytest.raises(PluginError, match="without prompt, start, codec"):
        load_environment("fix_python", harness="sanderling.testing.letters:LetterTasks")
