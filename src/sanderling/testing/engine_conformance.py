"""What every engine must do. Each check is a coroutine function of a `Subject` and raises `AssertionError` with a reason.

Example::

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check, subject):
        asyncio.run(check(subject))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sanderling.engine.protocol import Engine, SampleRequest, SamplingParams
from sanderling.engine.weights import fingerprint_like, push
from sanderling.types import Action, Int32Array

TrainerReference = Callable[[Mapping[str, Any], Int32Array, Int32Array], NDArray[np.floating]]
"""From weights, context and action ids to the log-probabilities of the action at temperature 1, (T,)."""


class Repeats(Enum):
    """How equal two runs of the same lists of requests are."""

    TO_THE_BIT = "to the bit"
    UP_TO_ROUNDING = "up to rounding"  # a server puts its batches together as requests happen to come in


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An engine under test.

    `make` returns a new engine under policy version 0 with the weights `states[0]`, able to sample 4 rows at once and 8 or
    more sessions in turn; its contexts may have 600 tokens. `tolerance` bounds differences of log-probabilities.
    """

    make: Callable[[], Engine]
    states: tuple[Mapping[str, Any], Mapping[str, Any]]
    vocab_size: int
    reference: TrainerReference
    tolerance: float = 1e-4
    repeats: Repeats = Repeats.TO_THE_BIT


Check = Callable[[Subject], Coroutine[Any, Any, None]]


@asynccontextmanager
async def _engine(subject: Subject) -> AsyncGenerator[Engine]:
    engine = subject.make()
    try:
        yield engine
    finally:
        await engine.close()


def ragged_requests(count: int, vocab_size: int, *, max_tokens: int = 12, seed: int = 0) -> list[SampleRequest]:
    """Return requests of new sessions with random contexts of 3 to 60 tokens."""
    rng = np.random.default_rng(seed)
    return [
        SampleRequest(
            session=f"session {seed}/{i}",
            context_ids=rng.integers(0, vocab_size, int(rng.integers(3, 61))).astype(np.int32),
            params=SamplingParams(max_tokens=max_tokens),
            seed=1000 * seed + i,
        )
        for i in range(count)
    ]


def _close(a: Action, b: Action, tolerance: float) -> bool:
    return a.token_ids.tolist() == b.token_ids.tolist() and bool(
        np.allclose(a.rollout_logprobs, b.rollout_logprobs, rtol=0.0, atol=tolerance)
    )


def _next_turn(request: SampleRequest, action: Action, vocab_size: int, seed: int) -> SampleRequest:
    """Return the request that follows: context, action, then an observation of 1 to 40 random tokens."""
    rng = np.random.default_rng(seed)
    observation = rng.integers(0, vocab_size, int(rng.integers(1, 41))).astype(np.int32)
    context = np.concatenate([request.context_ids, action.token_ids, observation])
    return replace(request, context_ids=context, seed=request.seed + 7)


async def check_action_is_whole(subject: Subject) -> None:
    """Ids, log-probabilities and versions have one length, the right types and possible values; text is empty."""
    async with _engine(subject) as engine:
        for action in await engine.generate_many(ragged_requests(3, subject.vocab_size)):
            lengths = {len(action.token_ids), len(action.rollout_logprobs), len(action.policy_versions)}
            assert len(lengths) == 1 and 0 not in lengths, f"per-token arrays have lengths {sorted(lengths)}"
            kinds = (action.token_ids.dtype, action.rollout_logprobs.dtype, action.policy_versions.dtype)
            assert kinds == (np.int32, np.float32, np.int32), f"dtypes are {kinds}; expected int32, float32, int32"
            assert action.token_ids.min() >= 0 and action.token_ids.max() < subject.vocab_size, (
                "ids leave the vocabulary"
            )
            assert np.isfinite(action.rollout_logprobs).all(), "a log-probability isn't finite"
            assert action.rollout_logprobs.max() <= 1e-4, "a log-probability is above 0"
            assert action.text == "", f"text is {action.text!r}; the harness decodes, not the engine"


async def check_seed_decides(subject: Subject) -> None:
    """Equal seeds give equal actions; other seeds give others."""
    async with _engine(subject) as engine:
        request = ragged_requests(1, subject.vocab_size, max_tokens=24)[0]
        first = await engine.generate(request)
        again = await engine.generate(replace(request, session="again"))
        assert _close(first, again, subject.tolerance), "one seed gave two actions"
        others = [await engine.generate(replace(request, session=f"other {s}", seed=s)) for s in (11, 12, 13)]
        assert any(o.token_ids.tolist() != first.token_ids.tolist() for o in others), "four seeds gave one action"


async def check_batch_independence(subject: Subject) -> None:
    """An action doesn't depend on what else is in the batch."""
    async with _engine(subject) as engine:
        requests = ragged_requests(12, subject.vocab_size)
        together = await engine.generate_many(requests)
        for request, batched in zip(requests, together, strict=True):
            alone = await engine.generate(replace(request, session=request.session + " alone"))
            assert _close(alone, batched, subject.tolerance), f"{request.session} differs alone and in a batch"


async def check_lockstep_repeats(subject: Subject) -> None:
    """The same lists of requests on two new engines give the same actions, over three turns: to the bit, if promised."""
    runs: list[list[Action]] = []
    for _ in range(2):
        async with _engine(subject) as engine:
            requests, seen = ragged_requests(10, subject.vocab_size, seed=3), []
            for turn in range(3):
                actions = await engine.generate_many(requests)
                seen += actions
                requests = [
                    _next_turn(r, a, subject.vocab_size, 100 * turn + i)
                    for i, (r, a) in enumerate(zip(requests, actions, strict=True))
                ]
            runs.append(seen)
    tolerance = 0.0 if subject.repeats is Repeats.TO_THE_BIT else subject.tolerance
    for first, second in zip(*runs, strict=True):
        assert _close(first, second, tolerance), f"two equal runs differ, not the same {subject.repeats.value}"


async def check_reuse_equals_recompute(subject: Subject) -> None:
    """Later turns of a session give what a new session with the same context gives."""
    async with _engine(subject) as engine:
        requests = ragged_requests(6, subject.vocab_size, seed=1)
        for turn in range(4):
            actions = await engine.generate_many(requests)
            fresh = await engine.generate_many([replace(r, session=f"{r.session} new {turn}") for r in requests])
            for request, kept, new in zip(requests, actions, fresh, strict=True):
                assert _close(kept, new, subject.tolerance), f"turn {turn} of {request.session} depends on its cache"
            requests = [_next_turn(r, a, subject.vocab_size, turn) for r, a in zip(requests, actions, strict=True)]


async def check_rewritten_context(subject: Subject) -> None:
    """A context that doesn't extend the earlier one is read as it stands."""
    async with _engine(subject) as engine:
        request = ragged_requests(1, subject.vocab_size, seed=2)[0]
        await engine.generate(request)
        changed = request.context_ids.copy()
        changed[1] = (changed[1] + 1) % subject.vocab_size
        rewritten = replace(request, context_ids=changed)
        kept = await engine.generate(rewritten)
        new = await engine.generate(replace(rewritten, session="new"))
        assert _close(kept, new, subject.tolerance), "a rewritten context was answered from the old cache"


async def check_stop_token(subject: Subject) -> None:
    """An action ends with the first stop token, which belongs to it, and says "stop"."""
    async with _engine(subject) as engine:
        request = ragged_requests(1, subject.vocab_size, max_tokens=24)[0]
        free = (await engine.generate(request)).token_ids.tolist()
        stop = free[len(free) // 2]
        params = SamplingParams(max_tokens=24, stop_token_ids=(stop,))
        action = await engine.generate(replace(request, session="stopped", params=params))
        expected = free[: free.index(stop) + 1]
        assert action.token_ids.tolist() == expected, f"got {action.token_ids.tolist()}; expected {expected}"
        assert action.finish_reason == "stop", f"finish reason is {action.finish_reason!r}; expected 'stop'"


async def check_token_limit(subject: Subject) -> None:
    """Without a stop token the action has `max_tokens` tokens and says "length"."""
    async with _engine(subject) as engine:
        for limit in (1, 2, 9):
            request = ragged_requests(1, subject.vocab_size, max_tokens=limit, seed=limit)[0]
            action = await engine.generate(request)
            assert len(action.token_ids) == limit, f"{len(action.token_ids)} tokens under max_tokens {limit}"
            assert action.finish_reason == "length", f"finish reason is {action.finish_reason!r}; expected 'length'"


async def check_logprobs_are_the_trainers(subject: Subject) -> None:
    """At temperature 1 and top-p 1 the recorded log-probabilities are the trainer's, in the first and in later turns."""
    async with _engine(subject) as engine:
        requests = ragged_requests(6, subject.vocab_size, seed=4)
        for turn in range(3):
            actions = await engine.generate_many(requests)
            for request, action in zip(requests, actions, strict=True):
                _assert_reference(subject, 0, request.context_ids, action, f"turn {turn}")
            requests = [_next_turn(r, a, subject.vocab_size, turn) for r, a in zip(requests, actions, strict=True)]


def _assert_reference(subject: Subject, state: int, context: Int32Array, action: Action, where: str) -> None:
    expected = subject.reference(subject.states[state], context, action.token_ids)
    difference = float(np.abs(expected - action.rollout_logprobs).max())
    assert difference <= subject.tolerance, f"{where}: log-probabilities differ from the trainer's by {difference:.2e}"


async def check_greedy(subject: Subject) -> None:
    """Temperature 0 is a function of the context, whatever the seed, with log-probabilities at temperature 1."""
    async with _engine(subject) as engine:
        request = replace(
            ragged_requests(1, subject.vocab_size)[0], params=SamplingParams(temperature=0.0, max_tokens=12)
        )
        actions = [await engine.generate(replace(request, session=f"greedy {s}", seed=s)) for s in range(3)]
        assert len({a.token_ids.tobytes() for a in actions}) == 1, "greedy actions depend on the seed"
        _assert_reference(subject, 0, request.context_ids, actions[0], "greedy")


async def check_push_changes_weights(subject: Subject) -> None:
    """A push changes fingerprint, version and what is sampled; pushing the old weights brings the old fingerprint back."""
    async with _engine(subject) as engine:
        before = engine.fingerprint()
        assert before == fingerprint_like(subject.states[0], before), "the fingerprint isn't that of the first weights"
        await push(engine, subject.states[1], 1)
        assert engine.policy_version == 1 and engine.fingerprint() != before, (
            "a push left version or fingerprint as it was"
        )
        request = ragged_requests(1, subject.vocab_size)[0]
        action = await engine.generate(request)
        assert set(action.policy_versions.tolist()) == {1}, (
            f"tokens carry versions {set(action.policy_versions.tolist())}"
        )
        _assert_reference(subject, 1, request.context_ids, action, "after a push")
        assert await push(engine, subject.states[0], 2) == before, "equal weights have two fingerprints"


async def check_no_prefix_of_old_weights(subject: Subject) -> None:
    """A new session is never answered from keys and values of older weights, though its context was seen before."""
    async with _engine(subject) as engine:
        request = ragged_requests(1, subject.vocab_size)[0]
        await engine.generate(request)
        await push(engine, subject.states[1], 1)
        action = await engine.generate(replace(request, session="new"))
        _assert_reference(subject, 1, request.context_ids, action, "context seen under older weights")


async def check_versions_during_update(subject: Subject) -> None:
    """Weights that change during an action are seen in its versions, token by token, in order."""
    for max_tokens in (100, 250, 500):  # an engine too fast for the first lets the push land later
        async with _engine(subject) as engine:
            request = ragged_requests(1, subject.vocab_size, max_tokens=max_tokens)[0]
            running = asyncio.ensure_future(engine.generate(request))
            await asyncio.sleep(0.02)
            await push(engine, subject.states[1], 1)
            action = await running
            versions = action.policy_versions.tolist()
            assert versions == sorted(versions), "versions go back within an action"
            assert set(versions) <= {0, 1}, f"versions {sorted(set(versions))} were never loaded"
            old = versions.count(0)
            if not 0 < old < len(versions):
                continue
            expected = subject.reference(subject.states[0], request.context_ids, action.token_ids)[:old]
            difference = float(np.abs(expected - action.rollout_logprobs[:old]).max())
            assert difference <= subject.tolerance, f"tokens of version 0 differ from its weights by {difference:.2e}"
            return
    raise AssertionError(
        "no push landed within an action of up to 500 tokens: are updates held back until actions end?"
    )


async def check_cancel_frees_the_place(subject: Subject) -> None:
    """A cancelled call leaves its place to others, and its session can start again."""
    async with _engine(subject) as engine:
        requests = ragged_requests(8, subject.vocab_size, max_tokens=500, seed=5)
        running = [asyncio.ensure_future(engine.generate(r)) for r in requests]
        await asyncio.sleep(0.02)
        for task in running:
            task.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
        assert any(isinstance(end, asyncio.CancelledError) for end in ended), "no call could be cancelled"
        short = [replace(r, params=SamplingParams(max_tokens=4)) for r in requests]
        actions = await asyncio.wait_for(asyncio.gather(*(engine.generate(r) for r in short)), 60.0)
        for request, action in zip(short, actions, strict=True):
            new = await engine.generate(replace(request, session=request.session + " new"))
            assert _close(action, new, subject.tolerance), "a cancelled call changed what its session samples next"


async def check_many_sessions(subject: Subject) -> None:
    """32 episodes of three turns that come and go at their own pace give what each gives alone."""

    async def episode(engine: Engine, first: SampleRequest, index: int, suffix: str) -> Sequence[Action]:
        request, actions = replace(first, session=first.session + suffix), []
        for turn in range(3):
            actions.append(await engine.generate(request))
            await asyncio.sleep(0.001 * (index % 5))
            request = _next_turn(request, actions[-1], subject.vocab_size, 10 * index + turn)
        engine.end_session(request.session)
        return actions

    async with _engine(subject) as engine:
        firsts = ragged_requests(32, subject.vocab_size, max_tokens=8, seed=6)
        together = await asyncio.gather(*(episode(engine, first, i, "") for i, first in enumerate(firsts)))
        for index in range(0, 32, 4):
            alone = await episode(engine, firsts[index], index, " alone")
            for turn, (a, b) in enumerate(zip(together[index], alone, strict=True)):
                assert _close(a, b, subject.tolerance), f"episode {index} differs in turn {turn} in company"


CHECKS: tuple[Check, ...] = (
    check_action_is_whole,
    check_seed_decides,
    check_batch_independence,
    check_lockstep_repeats,
    check_reuse_equals_recompute,
    check_rewritten_context,
    check_stop_token,
    check_token_limit,
    check_logprobs_are_the_trainers,
    check_greedy,
    check_push_changes_weights,
    check_no_prefix_of_old_weights,
    check_versions_during_update,
    check_cancel_frees_the_place,
    check_many_sessions,
)
