"""Settings of screening. Each acts or the run refuses to start."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

MONITOR = "monitor"


class MonitorConfig(BaseModel):
    """A language model that reads paid episodes. It may exclude one from training, and never pays.

    Its key is a secret and no setting: it is read from SANDERLING_MONITOR_KEY.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(
        "", description='OpenAI-compatible endpoint, such as "http://localhost:8000/v1"; empty: no model is asked'
    )
    model: str = Field("", description="name of the model there")
    timeout_s: float = Field(60.0, gt=0, description="seconds for one answer; without one the episode is excluded")

    @model_validator(mode="after")
    def _an_endpoint_has_a_model(self) -> MonitorConfig:
        if bool(self.url) != bool(self.model):
            raise ValueError(f"url = {self.url!r} and model = {self.model!r} belong together: give both or neither")
        return self


class ScreeningConfig(BaseModel):
    """What is looked for in finished episodes, and what follows from it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["act", "note", "off"] = Field(
        "act",
        description="act: a proven hack earns nothing, a suspected one is neither compared nor trained; note: findings are "
        "stored and counted, and change nothing; off: nothing is looked at",
    )
    dual: Literal["off", "auto", "passing", "unpaid"] = Field(
        "auto",
        description="which unpaid submissions an in-process grader sees too, whose verdict is never a reward: none; those "
        "whose last visible tests passed (in repositories also those with a hook file); or all. auto: passing, where the "
        "verifier can give away its hidden calls or tests",
    )
    confirmations: int = Field(
        2, ge=1, description="times that both gradings must disagree before it is a proof; more: rarer false alarms"
    )
    canary: Literal["none", "planted"] = Field(
        "none",
        description="planted: the agent's /tools gets a file that claims to hold hidden tests and holds a secret word; to "
        "meet the word again is a proof that it was read",
    )
    severities: dict[str, Literal["off", "info", "suspected", "proven"]] = Field(
        default_factory=dict,
        description="by name of a screen: what its findings count as, in place of its own severity",
    )
    own: tuple[str, ...] = Field((), description="further screens, each as module:name or path.py:name")
    monitor: MonitorConfig = MonitorConfig()
    stop_rate: float = Field(
        0.01,
        gt=0,
        le=1,
        description="the run stops itself when the lower end of the 95 % Wilson interval of the share of proven hacks is "
        "above it; 1: never",
    )
    stop_window: int = Field(3000, ge=1, description="the newest graded episodes over which that share is taken")
    accepted_through: int = Field(
        0,
        ge=0,
        description="step through which a person has looked at the proven hacks: the stop counts later steps only. A "
        "stopped run goes on when it is resumed with this set to its last step",
    )
    quarantine_proven: int = Field(
        3, ge=1, description="proven hacks in episodes of one task after which it isn't trained on any more"
    )
    quarantine_suspected: float = Field(
        0.05,
        gt=0,
        le=1,
        description="the same, when the lower Wilson end of its share of suspected episodes is above this; 1: never",
    )
    audit_s: float = Field(
        300.0,
        ge=0,
        description="seconds that a run which ends or stops itself may spend on auditing its quarantined tasks; 0: it only "
        "names the commands that do it",
    )
    readmitted: dict[str, int] = Field(
        default_factory=dict,
        description="by task id: the step at which it was quarantined. A resumed run takes it back and counts its episodes "
        "anew; nothing else takes a quarantined task back",
    )

    @model_validator(mode="after")
    def _a_model_proves_nothing(self) -> ScreeningConfig:
        if self.severities.get(MONITOR) == "proven":
            raise ValueError("severities.monitor = 'proven': what a language model thinks is no proof; use suspected")
        return self

    @model_validator(mode="after")
    def _off_is_off(self) -> ScreeningConfig:
        if self.mode == "off" and (self.own or self.monitor.url or self.canary == "planted"):
            raise ValueError(
                "mode = 'off' with own screens, a monitor or a canary: they would do nothing; set mode = 'note'"
            )
        return self
