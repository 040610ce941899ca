"""The audit of one task in a run: what stands against it, what doesn't, and its end when time is up."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace

import pytest

from sanderling.assemble import load_environment
from sanderling.audit.admission import Verdict
from sanderling.config import load_config
from sanderling.jobs.quarantine import OF_A_TASK, Quarantines, audit_task
from sanderling.report.html import write_report
from sanderling.report.terminal import Progress, ProgressStyle
from sanderling.screening.watch import Watch, screening_counts
from sanderling.store.run_folder import RunFolder
from sanderling.testing.defective_tasks import defective_environment
from sanderling.testing.environments import calc_environment, memory_backend
from sanderling.testing.letters import letter_environment
from sanderling.testing.records import group
from sanderling.testing.sandboxes import MemoryBackend
from sanderling.types import Finding, Group, StepReport

LETTERS = {
    "environment": "sanderling.testing.letters:letter_environment",
    "sandbox.backend": "sanderling.testing.environments:memory_backend",
    "screening.quarantine_proven": 2,
    "screening.audit_s": 60.0,
}


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


def hacked(task: str, proven: int) -> Group:
    """Return a group of four episodes of which the first `proven` are proven hacks."""
    whole = group([0.0] * 4, task_id=task)
    note = {"screen": "test", "severity": "proven", "turn": None, "quote": "", "explanation": ""}
    members = [
        replace(member, findings=(Finding(trajectory_id=member.trajectory.id, **note),) if n < proven else ())
        for n, member in enumerate(whole.members)
    ]
    return replace(whole, members=tuple(members))


@pytest.fixture
def quarantined(tmp_path):
    """Return a run in which the first of two tasks is quarantined: its folder, its watch, its audits, its words."""
    first, second = "letters/train/0", "letters/train/1"
    config = load_config([], LETTERS)
    folder, watch, said = RunFolder.at(tmp_path / "run", config.to_toml(), {}), Watch(config.screening), io.StringIO()
    groups = [hacked(first, 3), hacked(second, 1)]
    for one in watch.count(1, groups):
        folder.append_event("quarantined", step=1, task=one.task_id, reason=one.reason)
    counts = screening_counts(groups) | {"submitted": 8, "graded": 8, "ungraded": 0, "running": 0}
    folder.append_metrics(StepReport(step=1, policy_version=1, metrics=watch.metrics(), timing={}, counts=counts))
    folder.write_rollouts(1, groups)
    progress = Progress(said, style=ProgressStyle.PLAIN)
    yield folder, watch, Quarantines(config, letter_environment(), memory_backend(), folder, progress), said
    folder.close()


def test_each_quarantined_task_is_audited_once_and_the_report_says_what_stands_against_it(quarantined):
    folder, watch, audits, said = quarantined
    audits.tell(watch, 1)
    assert (
        "letters/train/0 is quarantined after step 1: 3 proven hacks in 4 episodes. It is audited when"
        in said.getvalue()
    )
    assert (
        "now: sanderling audit sanderling.testing.letters:letter_environment --task=letters/train/0" in said.getvalue()
    )
    asyncio.run(audits.audit(watch))
    assert audited(folder) == ["letters/train/0"]
    asyncio.run(audits.audit(watch, further=watch.proven()))
    assert audited(folder) == ["letters/train/0", "letters/train/1"]  # the other one, since the run stopped itself
    asyncio.run(audits.audit(watch, further=watch.proven()))
    assert len(audited(folder)) == 2
    events = {event["task"]: event for event in folder.reader().events() if event["kind"] == "task_audited"}
    assert events.keys() == {"letters/train/0", "letters/train/1"}
    assert {event["verdict"] for event in events.values()} == {"QUARANTINED"}
    report = write_report(folder.reader()).read_text()
    assert "step 1: 3 proven hacks in 4 episodes" in report
    assert "no: audited since the run stopped itself" in report
    assert report.count("fail-closed: paid in spite of: creation lost") == 2
    assert report.count("--task=letters/train/0 ") == 1
    folder.append_event("quarantined", step=5, task="letters/train/0", reason="again")
    asyncio.run(audits.audit(watch))
    assert audited(folder)[2:] == ["letters/train/0"]  # an audit from before a quarantine is old


def audited(folder):
    return [event["task"] for event in folder.reader().events() if event["kind"] == "task_audited"]


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
