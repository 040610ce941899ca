"""What a run says of itself before it begins: everything that decides what its numbers mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sanderling.assemble import Policy
from sanderling.config import Config
from sanderling.environment import Environment
from sanderling.sandbox.protocol import Capabilities
from sanderling.types import Limits


def announcement(
    config: Config,
    environment: Environment,
    policy: Policy,
    both_limits: tuple[Limits, Limits],
    sandbox: Capabilities,
    estimator: Any,
) -> Iterator[str]:
    """Yield one line for each thing that a reader of the run has to know; limits are those of practice and of evaluations."""
    limits, measured = both_limits
    from sanderling.engine.torch_model import native_bfloat16

    judge = f", judged by {config.verifier}" if config.verifier else ""
    judge += f", harness {config.harness}" if config.harness else ""
    yield (
        f"environment {environment.name} {environment.version}{judge}, policy {config.policy}, sandbox "
        f"{config.sandbox.backend} (isolation {sandbox.isolation}), seed {config.seed}"
    )
    yield (
        f"{config.steps} steps of {config.rollout.groups_per_step} tasks x {config.rollout.group_size} episodes, credit "
        f"{config.credit.estimator}, staleness at most {config.rollout.max_staleness}, at most {limits.max_turns} turns and "
        f"{limits.max_context_tokens} tokens; an episode cut by a limit gets reward "
        f"{'of the state left behind' if config.rollout.truncated_reward == 'grade' else '0'} and "
        f"{_when_cut(config)}"
    )
    if (forks := config.rollout.forks).continuations:
        where = "one of its turns" if forks.turns == "one" else "each of its turns"
        yield (
            f"each episode is forked before {where}, {forks.continuations} times, and the forks "
            f"{'are trained' if forks.use == 'tree' else 'measure values alone'}"
        )
    if config.critic.model != "none":
        yield (
            f"value model: {config.critic.model}, {config.critic.updates_per_step} updates per step, the policy waits "
            f"{config.critic.warmup_steps} steps; where a limit cut an episode: {getattr(estimator, 'at_budget', 'terminal')}"
        )
    if (measured.max_turns, measured.max_context_tokens) != (limits.max_turns, limits.max_context_tokens):
        yield f"evaluations: at most {measured.max_turns} turns and {measured.max_context_tokens} tokens"
    if policy.window in (limits.max_context_tokens, measured.max_context_tokens):
        yield f"contexts end at {policy.window} tokens, which is all that the model can read"
    if config.trainer.processes > 1:
        yield f"each update is shared by {config.trainer.processes} processes"
    if coarsest_dtype(config) == "bfloat16" and not native_bfloat16(config.engine.device):
        yield f"{config.engine.device} has no bfloat16 instructions: float32 may be as fast"
    if config.trust.certificate == "none":
        yield "no certificate: nobody has examined whether this environment's rewards are earned"
    for risk in sandbox.open_risks:
        yield f"open in this sandbox mode: {risk}"
    if config.control != "none":
        yield f"negative control: {config.control}; nothing should be learnt"


def _when_cut(config: Config) -> str:
    rollout = config.rollout
    penalty = f" (less {rollout.truncated_penalty})" if rollout.truncated_penalty else ""
    if rollout.truncated_membership == "drop":
        return f"counts nowhere{penalty}"
    return ("is trained" if rollout.truncated_gradient == "train" else "is not trained") + penalty


def coarsest_dtype(config: Config) -> str:
    """Return the dtype whose rounding sampler and trainer may differ by."""
    return "bfloat16" if "bfloat16" in (config.engine.dtype, config.trainer.compute_dtype) else "float32"
