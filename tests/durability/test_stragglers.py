"""What hangs is cut by a limit of its own, says so, and costs nobody else anything."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import virtual_clock

from sanderling.engine.protocol import SamplingParams
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.episode import Plan, Stage
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.scheduler import start_group
from sanderling.store.episode_log import EpisodeLog, Standing, files, lines
from sanderling.testing.engines import ScriptedEngine
from sanderling.testing.environments import calc_commands, calc_environment
from sanderling.testing.sandboxes import MemoryBackend, MemorySandbox
from sanderling.testing.toy_tokenizer import ToyTokenizer
from sanderling.types import Group, Limits, StopReason, Ungraded

LIMITS = Limits(model_call_s=20, episode_s=50, overhead_s=100, grading_s=10, setup_s=30)


class HangingSandbox(MemorySandbox):
    """Hangs in one of its calls."""

    where = ""

    async def _hang(self, name: str) -> None:
        if self.where == name:
            await asyncio.Event().wait()

    async def exec(self, command):
        await self._hang("exec")
        return await super().exec(command)

    async def state_key(self):
        await self._hang("state_key")
        return await super().state_key()

    async def submission(self, editable, max_bytes=1_048_576):
        await self._hang("submission")
        return await super().submission(editable, max_bytes)

    async def destroy(self):
        await super().destroy()
        await self._hang("destroy")


class HangingBackend(MemoryBackend):
    """The first sandbox hangs."""

    where = ""

    async def create(self, spec):
        await super().create(spec)
        if self.where == "create" and self.created == 1:
            await asyncio.Event().wait()
        sandbox = HangingSandbox(self, f"hanging-{self.created}", dict(spec.files), dict(spec.files))
        sandbox.where = self.where if self.created == 1 else ""
        return sandbox


class DeafEngine(ScriptedEngine):
    """Does not answer the first call; `stubborn`: and does not let it be cancelled."""

    stubborn = False

    async def generate(self, request):
        if not self.calls:
            self.calls.append(None)
            clock = asyncio.get_running_loop()
            while clock.time() < 5000:
                try:
                    await asyncio.sleep(5000 - clock.time())
                except asyncio.CancelledError:
                    if not self.stubborn:
                        raise
        return await super().generate(request)


def stage(where: str = "", engine: ScriptedEngine | None = None) -> Stage:
    environment = calc_environment(limits=LIMITS)
    backend = HangingBackend(commands=calc_commands)
    backend.where = where
    tokenizer = ToyTokenizer()
    policy = {"policy": lambda context: "test" if context.count("\n> ") < 2 else "submit"}
    settings = {**policy, "tokenizer": tokenizer, "end_token": "<|end|>"}
    return Stage(
        environment=environment,
        backend=backend,
        engine=engine(**settings) if engine else ScriptedEngine(**settings),
        codec=environment.harness.codec(tokenizer),
        sampling=SamplingParams(),
        capabilities=backend.probe(),
    )


async def group_of(parts: Stage, ledger: Ledger, retries: int = 0, size: int = 4) -> tuple[Group, float]:
    task = parts.environment.tasks.get("calc/train/0")
    plan = Plan(task=task, group_id="train-0000000", index=0, attempt=0, seed=0)
    group = await start_group(plan, size, parts, RolloutConfig(retries=retries), ledger, lambda member: None)
    return group, asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    ("where", "stop", "phase", "at_s"),
    [
        ("create", StopReason.SANDBOX_LOST, "sandbox", 30),
        ("state_key", StopReason.CANCELLED, "scheduling", 150),
        ("submission", StopReason.SANDBOX_LOST, "sandbox", 30),
    ],
)
def test_a_hung_sandbox_is_our_failure(where, stop, phase, at_s):
    group, seconds = virtual_clock.run(group_of(stage(where), Ledger()))
    hung, *others = group.members
    assert (hung.trajectory.stop, hung.verdict.phase) == (stop, phase)
    assert [member.trajectory.stop for member in others] == [StopReason.SUBMITTED] * 3
    assert at_s <= seconds < at_s + 1


def test_a_hung_tool_costs_the_policy_its_time():
    group, seconds = virtual_clock.run(group_of(stage("exec"), Ledger()))
    assert group.members[0].trajectory.stop is StopReason.TIMEOUT
    assert 50 <= seconds < 51


def test_a_sandbox_that_can_not_be_removed_costs_no_result():
    group, seconds = virtual_clock.run(group_of(stage("destroy"), Ledger()))
    assert [member.trajectory.stop for member in group.members] == [StopReason.SUBMITTED] * 4
    assert seconds < 61


def test_one_of_many_model_calls_hangs_and_the_step_goes_on():
    parts = stage(engine=DeafEngine)
    group, seconds = virtual_clock.run(group_of(parts, Ledger(), size=32))
    stops = [member.trajectory.stop for member in group.members]
    assert stops.count(StopReason.ENGINE_ERROR) == 1
    assert stops.count(StopReason.SUBMITTED) == 31
    assert 20 <= seconds < 21


def test_the_late_result_of_an_attempt_that_could_not_be_cancelled_is_refused_and_logged(tmp_path):
    parts = stage(engine=DeafEngine)
    parts.engine.stubborn = True
    parts = replace(parts, environment=calc_environment(limits=replace(LIMITS, model_call_s=10_000.0)))
    log = EpisodeLog(tmp_path / "episodes", process=1, behind=0)
    ledger = Ledger(log=log)
    ledger.note_weights(0, parts.engine.fingerprint())
    log.begin(Standing(step=0, weights=ledger.earlier.weights, accounts=ledger.snapshot(), reported={}, ahead={}))

    async def job() -> tuple[Group, float]:
        found = await group_of(parts, ledger, retries=1, size=2)
        ledger.hand_over("train-0000000")
        await asyncio.sleep(10_000)
        return found

    group, seconds = virtual_clock.run(job())
    assert [member.trajectory.id for member in group.members] == ["train-0000000/0.1", "train-0000000/1.0"]
    assert seconds < 500
    assert ledger.snapshot() == {"submitted": 3, "graded": 2, "ungraded": 1, "running": 0, "retried": 1}
    assert ledger.refused == 1
    found = [record for file, _, _ in files(tmp_path / "episodes") for _, _, record in lines(file)]
    assert [record["id"] for record in found if record["kind"] == "refused"] == ["train-0000000/0.0"]
    ended = next(r for r in found if r["kind"] == "end" and r["id"] == "train-0000000/0.0")
    assert ended["members"][0]["trajectory"]["stop"] == "cancelled"
    assert isinstance(group.members[0].verdict, Ungraded) is False
