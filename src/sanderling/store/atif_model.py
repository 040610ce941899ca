"""ATIF, the agent trajectory interchange format, version 1.8: the documents that `atif.py` writes, checked field by field.

Every object forbids unknown fields, as the format's own readers do. Parts that no trajectory of ours has (images, sub-agents in
the same document) are left out.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION = "ATIF-v1.8"


class _Object(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class AtifAgent(_Object):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None


class AtifMetrics(_Object):
    """What one model call used. `logprobs` belong to `completion_token_ids`, one each."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _one_logprob_per_token(self) -> AtifMetrics:
        ids, logprobs = self.completion_token_ids, self.logprobs
        if ids is not None and logprobs is not None and len(ids) != len(logprobs):
            raise ValueError(f"{len(logprobs)} logprobs for {len(ids)} completion tokens")
        return self


class AtifToolCall(_Object):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class AtifResult(_Object):
    source_call_id: str | None = None
    content: str | None = None
    extra: dict[str, Any] | None = None


class AtifObservation(_Object):
    results: list[AtifResult]


class AtifStep(_Object):
    step_id: int = Field(ge=1)
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    message: str
    reasoning_content: str | None = None
    tool_calls: list[AtifToolCall] | None = None
    observation: AtifObservation | None = None
    metrics: AtifMetrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = Field(default=None, ge=0)
    extra: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _only_agents_call_models(self) -> AtifStep:
        agents_own = (self.model_name, self.reasoning_content, self.tool_calls, self.metrics)
        if self.source != "agent" and any(value is not None for value in agents_own):
            raise ValueError(f"a step of the {self.source} has no model, reasoning, tool calls or metrics")
        return self


class AtifFinalMetrics(_Object):
    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = Field(default=None, ge=0)
    extra: dict[str, Any] | None = None


class AtifTrajectory(_Object):
    """One document."""

    schema_version: Literal["ATIF-v1.8"] = SCHEMA_VERSION
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: AtifAgent
    steps: list[AtifStep] = Field(min_length=1)
    notes: str | None = None
    final_metrics: AtifFinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    extra: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _steps_are_counted(self) -> AtifTrajectory:
        numbers = [step.step_id for step in self.steps]
        if numbers != list(range(1, len(numbers) + 1)):
            raise ValueError(f"step ids are {numbers[:5]}..., expected 1, 2, 3, ...")
        for step in self.steps:
            known = {call.tool_call_id for call in step.tool_calls or ()}
            for result in step.observation.results if step.observation else ():
                if result.source_call_id is not None and result.source_call_id not in known:
                    raise ValueError(f"step {step.step_id}: result of an unknown call {result.source_call_id!r}")
        return self
