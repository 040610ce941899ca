"""The nouns of the data path, in the order in which they come to be.

    Task -> Action + Observation = Turn -> Trajectory -> Verdict -> Member -> Group -> TrainingRow -> StepReport

All of them are frozen, hold numpy arrays or plain values, and import nothing above this layer. A stage is a function from
one noun to the next; no stage writes into another stage's nouns. Lengths stand behind each array: (T,) is the number of
tokens of that piece, (L,) the length of a training row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Float32Array = NDArray[np.float32]
BoolArray = NDArray[np.bool_]

FinishReason = Literal["stop", "length"]
ObservationSource = Literal["tool", "tests", "user", "web", "sub-agent", "system"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one episode may use. Every limit is enforced from outside the agent's processes.

    Seconds are wall clock unless the name says cpu. Tokens count the whole context: prompt, actions and observations.
    """

    sandbox_create_s: float = 30.0
    setup_s: float = 60.0
    command_s: float = 10.0
    command_cpu_s: float = 10.0
    model_call_s: float = 120.0
    episode_s: float = 1200.0  # in the episode's own tools; waiting for the engine or a sandbox is not charged
    grading_s: float = 300.0
    output_bytes: int = 65_536  # kept per stream and command: head and tail
    disk_mb: int = 64
    memory_mb: int = 512
    processes: int = 64
    max_turns: int = 30
    max_context_tokens: int = 4096
    max_action_tokens: int = 512
    max_bad_calls: int = 5  # malformed calls in a row that end the episode with FORMAT_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem to work on. It holds no answer: hidden material belongs to the verifier.

    Example::

        Task(id="fix_python/train/clamp/boundary-0", prompt="Fix solution.py.", base={"solution.py": b"def clamp(...): ..."})
    """

    id: str
    prompt: str
    base: Mapping[str, bytes]  # workspace files by relative POSIX path
    setup: tuple[tuple[str, ...], ...] = ()  # commands run once in the sandbox before the first turn
    editable: tuple[str, ...] = ()  # paths (fnmatch patterns) that may change in a submission; others are refused
    env: Mapping[str, str] = field(default_factory=dict)  # variables of every command
    workdir: str = (
        ""  # absolute path at which the workspace is seen as well, for tasks written for one; "": nowhere else
    )
    image: str = ""  # container image that it needs; "": the sandbox backend's own system
    limits: Limits = field(default_factory=Limits)
    metadata: Mapping[str, str] = field(
        default_factory=dict
    )  # for reports: family, topic, split; of these the loop reads `Environment.task_kind` alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What the policy did in one turn: exactly the token ids that the engine sampled, stop token included."""

    token_ids: Int32Array  # (T,)
    rollout_logprobs: Float32Array  # (T,) log-probability under the distribution that was sampled from
    policy_versions: Int32Array  # (T,) version of the weights that sampled each token
    text: str
    finish_reason: FinishReason  # "length": cut by a token limit before the policy ended its action


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the world answered. Its tokens stand in the context and are never trained on."""

    token_ids: Int32Array  # (T,) may be empty after the last action
    text: str
    source: ObservationSource = "tool"
    exit_code: int | None = None  # None: no process ran
    duration_s: float = 0.0
    omitted_bytes: int = 0
    bad_calls: tuple[str, ...] = ()  # kinds of the invalid calls in the action that this answers, such as "malformed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One action and its observation. `reward` is 0.0 unless the environment pays per turn."""

    action: Action
    observation: Observation
    reward: float = 0.0
    state_key: str | None = None  # digest of the world in which the action was taken; None where it has none
    score: float | None = (
        None  # how good the environment finds the state that the turn left behind; None: it doesn't say
    )


class StopReason(StrEnum):
    """How an episode ended; see docs/names.md for what follows from each."""

    SUBMITTED = "submitted"
    GAVE_UP = "gave_up"
    FORMAT_ERROR = "format_error"
    SANDBOX_BROKEN = "sandbox_broken"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"  # the context is full
    MAX_ACTION_TOKENS = "max_action_tokens"  # one action was cut by its own limit
    TIMEOUT = "timeout"
    SANDBOX_LOST = "sandbox_lost"
    ENGINE_ERROR = "engine_error"
    VERIFIER_ERROR = "verifier_error"
    CANCELLED = "cancelled"

    @property
    def truncated(self) -> bool:
        """The budget ended the episode, not the policy: a critic bootstraps here."""
        return self in _TRUNCATED

    @property
    def infrastructure(self) -> bool:
        """Our fault: ungraded, retried, outside every statistic."""
        return self in _INFRASTRUCTURE

    @property
    def policy_failure(self) -> bool:
        """The policy's own doing without a submission: reward 0, no grading needed."""
        return self in (StopReason.GAVE_UP, StopReason.FORMAT_ERROR, StopReason.SANDBOX_BROKEN)


_TRUNCATED = frozenset({StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.MAX_ACTION_TOKENS, StopReason.TIMEOUT})
_INFRASTRUCTURE = frozenset(
    {StopReason.SANDBOX_LOST, StopReason.ENGINE_ERROR, StopReason.VERIFIER_ERROR, StopReason.CANCELLED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one trajectory consumed."""

    sampled_tokens: int = 0
    observation_tokens: int = 0
    commands: int = 0
    bad_calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds of wall clock by phase, waiting included."""

    sandbox_s: float = 0.0
    sample_s: float = 0.0
    tools_s: float = 0.0
    grade_s: float = 0.0
    total_s: float = 0.0


class Branching(StrEnum):
    """What a trajectory with a parent is."""

    ROW = "row"  # goes on with its parent's episode under a rewritten context: the same sample, the same reward
    FORK = "fork"  # goes on from a state of its parent with fresh actions: a sample and an episode of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """The record of one episode (one branch of it, where an episode has several).

    The full token sequence is `prompt_ids` followed by each turn's action and observation ids.
    """

    id: str  # unique in a run: "<group_id>/<sample index>.<attempt>"
    task_id: str
    group_id: str
    attempt: int  # 0, then 1, 2, ... for retries after an infrastructure failure
    prompt_ids: Int32Array  # (T,)
    turns: tuple[Turn, ...]
    stop: StopReason
    detail: str = ""  # one line about the stop, such as the error of a lost sandbox
    isolation: str = "unknown"  # what contained the agent's commands, as the sandbox backend names it
    parent_id: str | None = None
    forked_at: int | None = None  # number of turns shared with the parent
    branching: Branching = Branching.ROW  # how it relates to its parent; without one it says nothing
    # of the root: commands and timing of the whole episode; of a branch: its own tokens and bad calls
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)

    @property
    def terminal(self) -> bool:
        """The episode reached an end of its own (as against being cut by a budget or by a failure of ours)."""
        return not (self.stop.truncated or self.stop.infrastructure)

    @property
    def begins_episode(self) -> bool:
        """It is the first row of an episode: no parent, or a fork."""
        return self.parent_id is None or self.branching is Branching.FORK

    @property
    def num_action_tokens(self) -> int:
        return sum(len(turn.action.token_ids) for turn in self.turns)

    def token_ids(self) -> Int32Array:
        """Return the whole sequence (L,), as the engine saw and extended it."""
        pieces = [self.prompt_ids]
        for turn in self.turns:
            pieces += [turn.action.token_ids, turn.observation.token_ids]
        return np.concatenate(pieces).astype(np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One change in the workspace that was not taken over into the submission, and why."""

    path: str
    reason: str  # such as "symbolic link", "not an editable path", "larger than 1 MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The change that leaves the sandbox: whole plain files under editable paths, nothing else."""

    files: Mapping[str, bytes]
    refused: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Why a verdict is what it is. Invariant 8 is checked on it before anything is paid."""

    required: int  # checks that had to pass
    executed: int  # checks that were executed exactly once and reported over the trusted channel
    passed: int
    canary_failed: bool  # a check that must fail did fail
    processes_gone: bool  # no process of the agent was alive when grading began, none of the grader's child after it
    channel: str  # "observation" where the child never holds expected values
    isolation: str  # of the grading sandbox
    notes: tuple[str, ...] = ()  # mechanisms seen: refused paths, first failing check, forged reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """A number that the work earned, in [0, 1] unless the verifier documents another range."""

    reward: float
    evidence: Evidence | None = None  # None only where no grading was needed (the policy ended without a submission)
    components: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ungraded:
    """A failure of ours. It holds no number and enters no statistic."""

    cause: str
    phase: Literal["sandbox", "sampling", "tools", "grading", "scheduling"]


Verdict = Graded | Ungraded


class Membership(StrEnum):
    MEMBER = "member"  # enters the baseline
    EXCLUDED = "excluded"


class Gradient(StrEnum):
    FULL = "full"  # every action token is trained
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disposition:
    """Three separate decisions, taken before any statistic: who enters the baseline, what it earned, what is trained."""

    membership: Membership
    reward: float | None  # None: unknown; only an excluded member may have it
    gradient: Gradient
    reason: str  # stop reason or rule that decided

    def __post_init__(self) -> None:
        if self.membership is Membership.MEMBER and self.reward is None:
            raise ValueError(f"a member of the baseline needs a reward, got None (reason {self.reason!r})")
        if self.membership is Membership.EXCLUDED and self.gradient is not Gradient.NONE:
            raise ValueError(f"an excluded trajectory can't be trained (reason {self.reason!r})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something a screen noticed, kept beside the trajectory."""

    trajectory_id: str
    screen: str
    severity: Literal["info", "suspected", "proven"]
    turn: int | None
    quote: str
    explanation: str


class Signal(StrEnum):
    """What a run may know besides the reward at the end. An estimator says which of them it can't do without."""

    SIBLINGS = "siblings"  # at least two episodes per group
    STATE_KEYS = "state keys"  # `Turn.state_key`
    TURN_REWARDS = "turn rewards"  # `Turn.reward`
    TURN_SCORES = "turn scores"  # `Turn.score`
    TURN_VALUES = "turn values"  # `Values.at_turns`
    TOKEN_VALUES = "token values"  # `Values.at_tokens`
    FORKS = "forks"  # trajectories whose `branching` is FORK


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What a trajectory was expected to earn from each point on, in units of the reward, by a critic or by forks.

    A value belongs to the state before an action or token, and includes nothing that was earned before.
    """

    at_turns: NDArray[np.float64]  # (n_turns,) when each action began
    at_tokens: NDArray[np.float64] | None = None  # (n_action_tokens,) before each action token of all turns
    at_end: float | None = None  # behind the last observation; read only where a budget ended the episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A trajectory with its verdict and what was decided about it."""

    trajectory: Trajectory
    verdict: Verdict
    disposition: Disposition
    findings: tuple[Finding, ...] = ()
    values: Values | None = None  # None: nobody estimated them


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Siblings: trajectories of one task sampled to be compared with each other."""

    id: str
    task_id: str
    members: tuple[Member, ...]

    def roots(self) -> tuple[Member, ...]:
        """Return one member for each episode: its first row. What counts episodes counts these; forks are episodes."""
        return tuple(m for m in self.members if m.trajectory.begins_episode)

    def graded(self) -> tuple[Member, ...]:
        """Return the members that enter the baseline; statistics never see any other.

        An episode of several rows has a member for each: `credit.episodes` gathers them, and it counts once.
        """
        return tuple(m for m in self.members if m.disposition.membership is Membership.MEMBER)

    def rewards(self) -> NDArray[np.float64]:
        """Return the rewards of `graded()`, (n,)."""
        return np.array([m.disposition.reward for m in self.graded()], dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One token sequence for the trainer. All arrays are (L,); everything is zero off the mask by construction.

    `weights` carry every denominator, so that the loss is a plain sum and no cut of the batch changes it. Position t holds
    the quantities of the token at t itself (not of its successor).
    """

    trajectory_id: str
    token_ids: Int32Array
    loss_mask: BoolArray
    turn_of_token: Int32Array  # index of the turn, -1 for the prompt
    rollout_logprobs: Float32Array
    policy_versions: Int32Array
    advantages: Float32Array
    weights: Float32Array
    returns: Float32Array | None = None  # critic targets
    values: Float32Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One optimiser step as it is written to metrics.jsonl; names are declared in `sanderling.report.metrics`."""

    step: int
    policy_version: int
    metrics: Mapping[str, float]
    timing: Mapping[str, float]
    counts: Mapping[str, int]


JsonValue = Any
"""A value made of None, bool, int, float, str, lists and string-keyed dicts."""
