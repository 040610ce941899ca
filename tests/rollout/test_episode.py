from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

import numpy as np
import pytest
from stages import TOKENIZER, run_group, stage, text_engine

from sanderling.batch.rows import assign_credit, training_rows
from sanderling.credit.grpo import Grpo
from sanderling.errors import InvariantViolation
from sanderling.rollout.checks import check_contexts, check_paid
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.context import ContextBuffer
from sanderling.rollout.episode import Plan
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.scheduler import start_group
from sanderling.screening.findings import finding
from sanderling.screening.panel import Panel
from sanderling.testing.engines import Fault, Scripted, ScriptedEngine
from sanderling.testing.environments import FIX, FIXED, RuleVerifier, calc_commands, calc_environment
from sanderling.testing.sandboxes import Faults, MemoryBackend
from sanderling.testing.screens import FailingScreen
from sanderling.types import Graded, Gradient, Limits, Membership, StopReason, Ungraded

END = TOKENIZER.special_id("<|end|>")
HE, LLO = 256, 257


def fixer(context: str) -> str:
    """Fix the bug, test, submit."""
    turns = context.count("\n> ")
    return [FIX, "test", "submit"][min(turns - 1, 2)]


def test_an_episode_that_fixes_the_bug_is_paid():
    backend = MemoryBackend(commands=calc_commands)
    group, ledger, _ = run_group(stage(text_engine(fixer), backend=backend), RolloutConfig())
    member = group.members[0]
    assert member.trajectory.stop is StopReason.SUBMITTED
    assert member.disposition.reward == 1.0
    assert [turn.observation.text for turn in member.trajectory.turns] == ["ok", "ok 1 of 1", ""]
    assert ledger.snapshot() == {"submitted": 1, "graded": 1, "ungraded": 0, "running": 0, "retried": 0}
    assert backend.alive == 0


def test_probe_d1_ids_survive_the_text_round_trip():
    """Sampled [he][llo] is trained as [he][llo], though its text encodes to the one id [hello]."""
    engine = ScriptedEngine(
        script=[
            Scripted(token_ids=[HE, LLO], logprobs=[-0.5, -0.25], finish_reason="stop"),
            Scripted(token_ids=[HE], logprobs=[-1.5], finish_reason="stop"),
        ]
    )
    limits = Limits(max_turns=2)
    group, _, _ = run_group(stage(engine, calc_environment(limits=limits)), RolloutConfig(group_size=1))
    trajectory = group.members[0].trajectory
    assert trajectory.turns[0].action.text == "hello"
    assert TOKENIZER.encode("hello") == [258]
    first, second = engine.calls
    assert second.context_ids[: len(first.context_ids) + 2] == [*first.context_ids, HE, LLO]
    assert second.context_ids == trajectory.token_ids()[: len(second.context_ids)].tolist()
    # A second member with another reward gives the group a signal; only then has a row an advantage.
    twin = replace(group.members[0], disposition=replace(group.members[0].disposition, reward=1.0))
    twin = replace(twin, trajectory=replace(trajectory, id="g/1.0"))
    both = replace(group, members=(group.members[0], twin))
    row = training_rows([both], assign_credit([both], Grpo()))[0]
    assert row.token_ids[row.loss_mask].tolist() == [HE, LLO, HE]
    assert row.rollout_logprobs[row.loss_mask].tolist() == [-0.5, -0.25, -1.5]
    lengths = {len(getattr(row, name)) for name in ("token_ids", "loss_mask", "rollout_logprobs", "policy_versions")}
    assert lengths == {len(row.token_ids)}


def _six_endings() -> dict[StopReason, tuple[Limits, MemoryBackend, ScriptedEngine, RuleVerifier]]:
    memory = lambda **faults: MemoryBackend(commands=calc_commands, faults=Faults(**faults))  # noqa: E731
    talk = lambda context: "show"  # noqa: E731
    cut = lambda context: "test" if context.count("\n> ") == 1 else "x" * 80  # noqa: E731
    dead = text_engine(talk)
    dead.faults.add(Fault.RAISES)
    return {
        StopReason.SANDBOX_LOST: (Limits(), memory(create_lost=-1), text_engine(talk), RuleVerifier()),
        StopReason.ENGINE_ERROR: (Limits(), memory(), dead, RuleVerifier()),
        StopReason.TIMEOUT: (
            Limits(episode_s=0.2),
            memory(exec_hangs=-1),
            text_engine(lambda context: "test"),
            RuleVerifier(),
        ),
        StopReason.MAX_TOKENS: (Limits(max_context_tokens=220), memory(), text_engine(talk), RuleVerifier()),
        StopReason.MAX_ACTION_TOKENS: (Limits(max_action_tokens=40), memory(), text_engine(cut), RuleVerifier()),
        StopReason.VERIFIER_ERROR: (Limits(), memory(), text_engine(fixer), RuleVerifier(crashes=-1)),
    }


@pytest.mark.parametrize("gradient", ["train", "mask"])
def test_probe_d6_six_endings(gradient):
    """Six ends, six reasons; ours are excluded and ungraded, the policy's and the budget's stay in the baseline."""
    config = RolloutConfig(retries=1, truncated_gradient=gradient)
    expected = {
        StopReason.SANDBOX_LOST: None,
        StopReason.ENGINE_ERROR: None,
        StopReason.TIMEOUT: Gradient.FULL,
        StopReason.MAX_TOKENS: Gradient.FULL if gradient == "train" else Gradient.NONE,
        StopReason.MAX_ACTION_TOKENS: Gradient.FULL if gradient == "train" else Gradient.NONE,
        StopReason.VERIFIER_ERROR: None,
    }
    members = []
    for stop, (limits, backend, engine, verifier) in _six_endings().items():
        environment = calc_environment(limits=limits, verifier=verifier)
        group, ledger, dropped = run_group(stage(engine, environment, backend), config)
        member = group.members[0]
        assert member.trajectory.stop is stop
        assert backend.alive == 0
        if expected[stop] is None:
            assert isinstance(member.verdict, Ungraded)
            assert member.disposition.membership is Membership.EXCLUDED
            assert member.trajectory.attempt == 1
            assert len(dropped) == ledger.retried == 1
            assert ledger.snapshot()["ungraded"] == 2
        else:
            assert isinstance(member.verdict, Graded)
            assert member.disposition.gradient is expected[stop]
        assert ledger.stops[stop.value] == len(dropped) + 1
        members.append(replace(member, trajectory=replace(member.trajectory, id=stop.value)))
    solved = run_group(stage(text_engine(fixer)), config)[0].members[0]
    group = replace(run_group(stage(text_engine(fixer)), config)[0], members=(*members, solved))
    credit = Grpo(normalise="none")(group)
    assert set(credit) == {"timeout", "max_tokens", "max_action_tokens", solved.trajectory.id}
    assert credit[solved.trajectory.id][0] == pytest.approx(0.75)
    assert credit["timeout"].tolist() == pytest.approx([-0.25] * len(credit["timeout"]))


def test_a_hung_model_call_is_our_failure():
    engine = text_engine(lambda context: "test")
    engine.faults.add(Fault.NEVER_ANSWERS)
    environment = calc_environment(limits=Limits(model_call_s=0.05))
    group, _, _ = run_group(stage(engine, environment), RolloutConfig(retries=0))
    assert group.members[0].trajectory.stop is StopReason.ENGINE_ERROR
    assert "0.05 s" in group.members[0].trajectory.detail


def test_waiting_for_us_is_never_the_policys_timeout():
    """The engine hangs longer than the episode may take: our failure, not a timeout with reward 0."""
    engine = text_engine(lambda context: "test")
    engine.faults.add(Fault.NEVER_ANSWERS)
    environment = calc_environment(limits=Limits(model_call_s=0.1, episode_s=0.01))
    member = run_group(stage(engine, environment), RolloutConfig(retries=0))[0].members[0]
    assert member.trajectory.stop is StopReason.ENGINE_ERROR
    assert member.disposition.membership is Membership.EXCLUDED


def test_a_prompt_that_leaves_no_room_is_an_error_of_the_task():
    environment = calc_environment(limits=Limits(max_context_tokens=10))
    with pytest.raises(ExceptionGroup) as caught:
        run_group(stage(text_engine(fixer), environment), RolloutConfig())
    assert "max_context_tokens is 10" in str(caught.value.exceptions[0])


class _UntidyVerifier(RuleVerifier):
    async def grade(self, task, submission, backend, seed):
        return {}["verdict"]


def test_a_verifier_that_raises_anything_is_our_failure():
    environment = calc_environment(verifier=_UntidyVerifier())
    member = run_group(stage(text_engine(fixer), environment), RolloutConfig(retries=0))[0].members[0]
    assert member.trajectory.stop is StopReason.VERIFIER_ERROR
    assert "KeyError" in member.verdict.cause


def test_a_lost_sandbox_is_retried_under_a_new_attempt():
    backend = MemoryBackend(commands=calc_commands, faults=Faults(exec_lost=1))
    group, ledger, dropped = run_group(stage(text_engine(fixer), backend=backend), RolloutConfig(retries=2))
    assert group.members[0].disposition.reward == 1.0
    assert group.members[0].trajectory.id == "g/0.1"
    assert [member.trajectory.id for member in dropped] == ["g/0.0"]
    assert ledger.snapshot() == {"submitted": 2, "graded": 1, "ungraded": 1, "running": 0, "retried": 1}


def test_a_broken_world_is_the_agents_own_doing():
    backend = MemoryBackend(commands=calc_commands, faults=Faults(exec_broken=-1))
    group, _, dropped = run_group(stage(text_engine(fixer), backend=backend), RolloutConfig())
    assert group.members[0].trajectory.stop is StopReason.SANDBOX_BROKEN
    assert group.members[0].disposition.reward == 0.0
    assert not dropped


class _Inside:
    """A screen that works in a fork of the agent's place and reports what it saw."""

    names = ("inside",)

    def __init__(self, backend: MemoryBackend, hangs: bool = False) -> None:
        self._backend = backend
        self._hangs = hangs

    async def look(self, exhibit, backend, seed):
        return (finding(exhibit, "inside", "info", "nothing was handed in"),)

    async def look_inside(self, exhibit, place, backend, seed):
        copy = await place.fork()
        try:
            if self._hangs:
                await asyncio.Event().wait()
            seen = (await copy.read_file("calc.py")).decode()
            return (finding(exhibit, "inside", "info", f"{self._backend.alive} alive", quote=seen),)
        finally:
            await copy.destroy()


def test_a_screen_may_look_into_the_agents_place_which_is_gone_afterwards():
    backend = MemoryBackend(commands=calc_commands)
    parts = replace(stage(text_engine(fixer), backend=backend), screen=Panel([_Inside(backend)], {}))
    (member,) = run_group(parts, RolloutConfig())[0].members
    assert [(one.quote, one.explanation) for one in member.findings] == [(FIXED.decode(), "2 alive")]
    assert backend.alive == 0
    lost = replace(parts, environment=calc_environment(verifier=_UntidyVerifier()))
    assert run_group(lost, RolloutConfig(retries=0))[0].members[0].findings == ()
    assert backend.alive == 0
    gave_up = replace(parts, engine=text_engine(lambda context: "hello?"))
    findings = run_group(gave_up, RolloutConfig())[0].members[0].findings
    assert [one.explanation for one in findings] == ["nothing was handed in"]
    assert not Panel([FailingScreen()], {}).enters


def test_cancellation_destroys_the_place_that_a_screen_is_in():
    backend = MemoryBackend(commands=calc_commands)
    parts = replace(stage(text_engine(fixer), backend=backend), screen=Panel([_Inside(backend, hangs=True)], {}))

    async def run() -> None:
        plan = Plan(task=parts.environment.tasks.get("calc/train/0"), group_id="g", index=0, attempt=0, seed=0)
        running = start_group(plan, 2, parts, RolloutConfig(), Ledger(), lambda member: None)
        while backend.alive < 4:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(asyncio.wait_for(run(), 20))
    assert backend.alive == 0


def test_calls_in_a_row_that_can_not_be_parsed_end_the_episode():
    group, _, _ = run_group(stage(text_engine(lambda context: "hello?")), RolloutConfig())
    member = group.members[0]
    assert member.trajectory.stop is StopReason.FORMAT_ERROR
    assert member.trajectory.usage.bad_calls == len(member.trajectory.turns) == Limits().max_bad_calls
    assert member.disposition.reward == 0.0


@pytest.mark.parametrize(("setting", "reward"), [("grade", 1.0), ("zero", 0.0)])
def test_the_state_left_behind_at_a_limit_is_graded_or_not(setting, reward):
    environment = calc_environment(limits=Limits(max_turns=2))
    config = RolloutConfig(truncated_reward=setting)
    member = run_group(stage(text_engine(fixer), environment), config)[0].members[0]
    assert member.trajectory.stop is StopReason.MAX_TURNS
    assert member.disposition.reward == reward


def test_cancellation_destroys_the_sandbox():
    backend = MemoryBackend(commands=calc_commands, faults=Faults(exec_hangs=-1))
    parts = stage(text_engine(lambda context: "test"), backend=backend)

    async def run():
        ledger = Ledger()
        task = parts.environment.tasks.get("calc/train/0")
        plan = Plan(task=task, group_id="g", index=0, attempt=0, seed=0)
        running = start_group(plan, 3, parts, RolloutConfig(), ledger, lambda member: None)
        await asyncio.sleep(0.05)
        assert backend.alive == 3
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return ledger

    ledger = asyncio.run(run())
    assert backend.alive == 0
    assert ledger.snapshot() == {"submitted": 3, "graded": 0, "ungraded": 3, "running": 0, "retried": 0}


def test_check_contexts_names_the_trajectory_and_the_turn():
    trajectory = run_group(stage(text_engine(fixer)), RolloutConfig())[0].members[0].trajectory
    with pytest.raises(InvariantViolation, match=r"invariant 2, trajectory g/0\.0, turn 0"):
        check_contexts(trajectory, [b"", b"", b""], trajectory.token_ids())
    action = replace(trajectory.turns[0].action, policy_versions=np.zeros(1, dtype=np.int32))
    bad = replace(trajectory, turns=(replace(trajectory.turns[0], action=action),))
    with pytest.raises(InvariantViolation, match="invariant 1"):
        check_contexts(bad, [ContextBuffer(trajectory.prompt_ids).digest()], trajectory.token_ids())


def test_a_context_that_was_changed_under_the_engine_is_found():
    trajectory = run_group(stage(text_engine(fixer)), RolloutConfig())[0].members[0].trajectory
    shown = ContextBuffer(trajectory.prompt_ids)
    sent = []
    for turn in trajectory.turns:
        sent.append(shown.digest())
        shown.append(turn.action.token_ids)
        shown.append(turn.observation.token_ids)
    check_contexts(trajectory, sent, shown.view())
    changed = shown.view().copy()
    changed[3] += 1
    with pytest.raises(InvariantViolation, match="changed while the episode ran"):
        check_contexts(trajectory, sent, changed)


def test_a_context_grows_without_changing_what_was_handed_out():
    random = np.random.default_rng(0)
    pieces = [random.integers(0, 1000, int(n)).astype(np.int32) for n in [7, *random.integers(0, 700, 60)]]
    buffer = ContextBuffer(pieces[0])
    views = [buffer.view()]
    for piece in pieces[1:]:
        buffer.append(piece)
        views.append(buffer.view())
    for count, view in enumerate(views, 1):
        whole = np.concatenate(pieces[:count])
        assert np.array_equal(view, whole)
    assert buffer.digest() == hashlib.blake2b(np.concatenate(pieces).tobytes(), digest_size=16).digest()
    assert np.shares_memory(buffer.view(), views[-1]), "handing it out copies nothing"
    with pytest.raises(ValueError, match="read-only"):
        views[-1][0] = 1


@pytest.mark.parametrize(
    "change",
    [
        {"executed": 0},
        {"passed": 0},
        {"canary_failed": False},
        {"processes_gone": False},
        {"required": 0},
        {"channel": ""},
    ],
)
def test_nothing_is_paid_on_incomplete_evidence(change):
    member = run_group(stage(text_engine(fixer)), RolloutConfig())[0].members[0]
    check_paid(member.trajectory, member.verdict)
    with pytest.raises(InvariantViolation, match="invariant 8"):
        check_paid(member.trajectory, replace(member.verdict, evidence=replace(member.verdict.evidence, **change)))
    with pytest.raises(InvariantViolation, match="reward nan"):
        check_paid(member.trajectory, replace(member.verdict, reward=float("nan")))
    with pytest.raises(InvariantViolation, match="without evidence"):
        check_paid(member.trajectory, Graded(reward=1.0))
