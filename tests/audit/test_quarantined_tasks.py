"""The audit of one task in a run: what stands against it, what doesn't, and its end when time is up."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sanderling.assemble import load_environment
from sanderling.audit.admission import Verdict
from sanderling.jobs.quarantine import OF_A_TASK, audit_task
from sanderling.testing.defective_tasks import defective_environment
from sanderling.testing.environments import calc_environment, memory_backend
from sanderling.testing.letters import letter_environment
from sanderling.testing.sandboxes import MemoryBackend


def test_an_audit_ends_in_time_and_what_breaks_it_is_said():
    async def work():
        environment, backend = letter_environment(), memory_backend()
        whole = await audit_task("letters/train/0", environment, backend, seed=0, seconds=60.0)
        late = await audit_task("letters/train/0", environment, backend, seed=0, seconds=0.001)
        unknown = await audit_task("calc/train/0", calc_environment(), broken_backend(), seed=0, seconds=60.0)
        return whole, late, unknown

    whole, late, broken = asyncio.run(work())
    assert whole.verdict is Verdict.QUARANTINED
    assert any(line.startswith("fail-closed: paid in spite of") for line in whole.against)
    assert whole.against[-1].startswith("not measured: ")
    assert (late.verdict, late.against) == (Verdict.PARTIAL, ())
    assert "not finished" in late.line()
    assert broken.verdict is Verdict.QUARANTINED
    assert "audit: it broke off, RuntimeError: no machine" in broken.line()


def broken_backend() -> MemoryBackend:
    backend = memory_backend()

    def fail(*_: object) -> None:
        raise RuntimeError("no machine")

    return replace(backend, commands=fail)


@pytest.mark.slow
def test_tasks_of_a_sound_environment_are_not_to_blame_and_broken_ones_are(bubblewrap):
    async def work(backend):
        environment, broken = load_environment("fix_python"), defective_environment()
        task = environment.tasks.ids("train")[0]
        sound = await audit_task(task, environment, backend, seed=0, seconds=300.0)
        return sound, await audit_task("defective/train/gold-fails", broken, backend, seed=0, seconds=300.0)

    sound, broken = bubblewrap(work)
    assert sound.verdict is Verdict.ADMITTED, sound.against
    assert sound.checks >= len(OF_A_TASK)
    assert broken.verdict is Verdict.QUARANTINED
    assert any(line.startswith("gold: ") for line in broken.against)
