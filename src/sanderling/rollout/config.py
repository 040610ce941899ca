"""Settings of the rollout stage. Each acts or the run refuses to start."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sanderling.types import Signal


class TaskOrder(StrEnum):
    """How often the kinds of tasks come."""

    ADAPTIVE = "adaptive"
    UNIFORM = "uniform"


class LimitOverrides(BaseModel):
    """Limits that replace those of the tasks; None keeps the task's own. Units are in the names."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sandbox_create_s: float | None = Field(None, gt=0)
    setup_s: float | None = Field(None, gt=0)
    command_s: float | None = Field(None, gt=0)
    command_cpu_s: float | None = Field(None, gt=0)
    model_call_s: float | None = Field(None, gt=0)
    episode_s: float | None = Field(None, gt=0)
    overhead_s: float | None = Field(None, gt=0)
    grading_s: float | None = Field(None, gt=0)
    output_bytes: int | None = Field(None, ge=1024)
    disk_mb: int | None = Field(None, ge=1)
    memory_mb: int | None = Field(None, ge=16)
    processes: int | None = Field(None, ge=1)
    max_turns: int | None = Field(None, ge=1)
    max_context_tokens: int | None = Field(None, ge=16)
    max_action_tokens: int | None = Field(None, ge=1)
    max_bad_calls: int | None = Field(None, ge=1)

    def as_overrides(self) -> dict[str, float | int]:
        return {key: value for key, value in self.model_dump().items() if value is not None}


class SamplingConfig(BaseModel):
    """How actions are drawn while training."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(
        1.0, ge=0.0, description="0 is greedy; anything but 1 trains another policy than it samples"
    )
    top_p: float = Field(1.0, gt=0.0, le=1.0, description="below 1 the sampler's mass differs from the trainer's")
    on_mismatch: Literal["refuse", "allow"] = Field(
        "refuse", description="what to do when the start-up check finds that sampler and trainer mean different things"
    )


class ForkConfig(BaseModel):
    """Whether episodes go on from states of other ones: several continuations of one beginning."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    continuations: int = Field(
        0, ge=0, description="episodes that go on from each fork with fresh actions; 0: nothing is forked"
    )
    turns: Literal["one", "every"] = Field(
        "one", description="one: fork each episode before one of its turns, drawn evenly; every: before each of them"
    )
    use: Literal["tree", "value"] = Field(
        "tree",
        description="tree: forks are trained like any episode, the turns that they share with their parent once; value: "
        "they only measure how good their beginning is (Monte-Carlo credit) and are neither trained nor in a baseline",
    )

    @model_validator(mode="after")
    def _values_before_every_turn(self) -> ForkConfig:
        if not self.continuations and (self.use, self.turns) != ("tree", "one"):
            raise ValueError(
                f"use = {self.use!r}, turns = {self.turns!r} with continuations = 0: nothing is forked; set continuations to "
                "at least 1"
            )
        if self.use == "value" and self.turns != "every":
            raise ValueError(
                f"use = 'value' with turns = {self.turns!r}: credit of a turn is the value after it minus the value before it, "
                "so every turn has to be forked; set turns = 'every'"
            )
        return self


class RolloutConfig(BaseModel):
    """How many episodes run, when, and what becomes of those that do not end by themselves."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    groups_per_step: int = Field(8, ge=1, description="tasks per optimiser step")
    group_size: int = Field(8, ge=1, description="episodes per task")
    max_staleness: int = Field(
        0, ge=0, description="optimiser updates that a trained token may be behind; 0 is synchronous training"
    )
    schedule: Literal["auto", "lockstep", "continuous"] = Field(
        "auto",
        description="lockstep: turns of all episodes are sampled together, which makes a run repeatable to the bit; "
        "continuous: every episode goes at its own pace; auto: lockstep when max_staleness is 0",
    )
    task_order: TaskOrder = Field(
        TaskOrder.ADAPTIVE,
        description="adaptive: kinds of tasks whose groups come out all paid or all unpaid are drawn less often, where the "
        "environment says what kinds there are; uniform: every task once per epoch",
    )
    retries: int = Field(2, ge=0, description="further attempts for an episode that failed through our fault")
    truncated_reward: Literal["grade", "zero"] = Field(
        "zero", description="an episode cut by a turn, token or time limit: grade the state left behind, or pay nothing"
    )
    truncated_gradient: Literal["train", "mask"] = Field(
        "train",
        description="whether the tokens of an episode cut by a turn or token limit are trained; those of one cut by the "
        "time limit always are, because the policy chose what took so long",
    )
    truncated_membership: Literal["member", "drop"] = Field(
        "member",
        description="whether an episode cut by a turn or token limit stays in its group's baseline; drop: it counts nowhere "
        "and is not trained. Dropping prefers short episodes: what is dropped depends on what the policy did",
    )
    truncated_penalty: float = Field(
        0.0, ge=0.0, description="taken off the reward of an episode cut by a turn, token or time limit"
    )
    overlong_tokens: int | None = Field(
        None,
        ge=1,
        description="action tokens from which an episode is overlong (arXiv 2503.14476, eq. 13): its reward falls in a line "
        "over the overlong_buffer tokens before, to 1 less at this length and beyond; None: length is free",
    )
    overlong_buffer: int = Field(1024, ge=1, description="action tokens over which that penalty rises to 1")
    forks: ForkConfig = ForkConfig()

    @model_validator(mode="after")
    def _lockstep_is_synchronous(self) -> RolloutConfig:
        if self.schedule == "lockstep" and self.max_staleness > 0:
            raise ValueError(
                f"schedule = 'lockstep' with max_staleness = {self.max_staleness}: lockstep waits for all episodes of a "
                "step, so nothing could ever be stale; set max_staleness = 0 or schedule = 'continuous'"
            )
        return self

    @model_validator(mode="after")
    def _truncation_settings_act(self) -> RolloutConfig:
        if self.truncated_membership == "drop" and self.truncated_gradient == "mask":
            raise ValueError(
                "truncated_gradient = 'mask' has no effect with truncated_membership = 'drop', which leaves such episodes out "
                "altogether; set one of them"
            )
        if self.overlong_tokens is None and self.overlong_buffer != type(self).model_fields["overlong_buffer"].default:
            raise ValueError(
                f"overlong_buffer = {self.overlong_buffer} has no effect without overlong_tokens; set that as well"
            )
        if self.overlong_tokens is not None and self.overlong_buffer > self.overlong_tokens:
            raise ValueError(
                f"overlong_buffer = {self.overlong_buffer} is longer than overlong_tokens = {self.overlong_tokens}: even an "
                "episode without a token would be punished; lower it"
            )
        return self

    def for_evaluation(self) -> RolloutConfig:
        """Return the settings with which a policy is measured: every episode counts, with what the verifier says; no forks."""
        plain = {
            "truncated_membership": "member",
            "truncated_penalty": 0.0,
            "overlong_tokens": None,
            "forks": ForkConfig(),
        }
        return self.model_copy(update=plain)

    @property
    def signals(self) -> frozenset[Signal]:
        """What credit may count on because of these settings."""
        forked = {"tree": Signal.FORKS, "value": Signal.TURN_VALUES}[self.forks.use]
        found = {forked} if self.forks.continuations else set()
        return frozenset(found | ({Signal.SIBLINGS} if self.group_size > 1 else set()))

    @property
    def lockstep(self) -> bool:
        return self.schedule == "lockstep" or (self.schedule == "auto" and self.max_staleness == 0)
