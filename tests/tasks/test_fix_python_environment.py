"""The environment as a run uses it: look, test, fix one line, test, submit, be paid."""

import asyncio

import pytest
from fix_python import environment

from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.types import StopReason


def test_an_episode_by_hand_is_paid():
    backend = BubblewrapBackend()
    capabilities = backend.probe()
    if not capabilities.usable:
        pytest.skip(f"no sandbox on this machine: {capabilities.missing}")
    asyncio.run(play(backend))


async def play(backend):
    env = environment()
    task_id = next(i for i in env.tasks.ids("held-out") if "/boundary-" in i)
    task = env.tasks.get(task_id)
    gold = env.tasks.problem(task_id).source.split("\n")
    buggy = task.base["solution.py"].decode().split("\n")
    line = next(n for n, (right, wrong) in enumerate(zip(gold, buggy, strict=True), 1) if right != wrong)
    assert gold[line - 1] not in env.harness.prompt(task).split("\n")
    sandbox = await backend.create(env.sandbox_spec(task))
    try:
        episode = env.harness.start(task, sandbox)
        before = await episode.act("test")
        edit = await episode.act(f"set {line} | {gold[line - 1].strip()}")
        after = await episode.act("test")
        end = await episode.act("submit")
        submission = await sandbox.submission(task.editable)
    finally:
        await sandbox.destroy()
    assert before.exit_code == 1
    assert edit.bad_calls == ()
    assert after.exit_code == 0
    assert after.text.startswith("ok ")
    assert end.stop is StopReason.SUBMITTED
    graded = await env.verifier.grade(task, submission, backend, seed=1)
    unfixed = await env.verifier.grade(task, type(submission)(files={}), backend, seed=1)
    await backend.close()
    assert (graded.reward, graded.evidence.notes) == (1.0, ())
    assert unfixed.reward == 0.0
