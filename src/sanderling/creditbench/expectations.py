"""Expectations that were written down before the bench ran, and what a run says of them."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sanderling.creditbench.learning import Curves, paired_difference
from sanderling.creditbench.quality import Quality, log_ratio


class Expectation(BaseModel):
    """One claim with a bound; the file expectations.toml says what each measure is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    claim: str = Field(min_length=1)
    environment: str
    arm: str
    measure: Literal["cosine", "turns", "signal", "area"]
    against: str | None = None
    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _is_a_claim(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError(f"{self.claim!r} has no bound; give at_least or at_most")
        if (self.against is not None) != (self.measure in ("turns", "area")):
            raise ValueError(f"{self.claim!r}: measure {self.measure!r} with against = {self.against!r}")
        return self


class Answer(StrEnum):
    MET = "met"
    NOT_MET = "not met"
    OPEN = "open"  # the interval holds the bound
    UNMEASURED = "unmeasured"  # the run left the environment or the arm out


class Checked(BaseModel):
    """An expectation with its answer and the interval (value, low, high) that gave it."""

    model_config = ConfigDict(frozen=True)

    expectation: Expectation
    answer: Answer
    found: tuple[float, float, float] | None = None

    def as_json(self) -> dict[str, Any]:
        return {**self.expectation.model_dump(exclude_none=True), "answer": self.answer.value, "found": self.found}


@cache
def expectations() -> tuple[Expectation, ...]:
    """Return the shipped expectations."""
    text = files("sanderling.creditbench").joinpath("expectations.toml").read_text("utf-8")
    return tuple(Expectation.model_validate(entry) for entry in tomllib.loads(text)["expectation"])


def check(
    expectation: Expectation,
    qualities: Mapping[str, Mapping[str, Quality]],
    curves: Mapping[str, Mapping[str, Curves]],
) -> Checked:
    """Compare an expectation with what was measured."""
    found = _found(expectation, qualities, curves)
    if found is None:
        return Checked(expectation=expectation, answer=Answer.UNMEASURED)
    _, low, high = found
    bounds = (
        -math.inf if expectation.at_least is None else expectation.at_least,
        math.inf if expectation.at_most is None else expectation.at_most,
    )
    if low >= bounds[0] and high <= bounds[1]:
        answer = Answer.MET
    elif high < bounds[0] or low > bounds[1]:
        answer = Answer.NOT_MET
    else:
        answer = Answer.OPEN
    return Checked(expectation=expectation, answer=answer, found=found)


def _found(
    expectation: Expectation,
    qualities: Mapping[str, Mapping[str, Quality]],
    curves: Mapping[str, Mapping[str, Curves]],
) -> tuple[float, float, float] | None:
    measured = curves if expectation.measure == "area" else qualities
    here: Mapping[str, Any] = measured.get(expectation.environment, {})
    arm, other = here.get(expectation.arm), here.get(expectation.against or expectation.arm)
    if arm is None or other is None:
        return None
    match expectation.measure:
        case "area":
            difference, half = paired_difference(arm.areas, other.areas)
            return (difference, difference - half, difference + half)
        case "signal":
            signal = float(arm.has_signal)
            return (signal, signal, signal)
        case "cosine" if arm.cosine is not None:
            return (arm.cosine.value, arm.cosine.low, arm.cosine.high)
        case "turns" if arm.turns_for_snr_1 is not None and other.turns_for_snr_1 is not None:
            ratio = log_ratio(arm.turns_for_snr_1, other.turns_for_snr_1)
            return (math.exp(ratio.value), math.exp(ratio.low), math.exp(ratio.high))
        case _:
            return None


UNEARNED = 1.25
"""How many times fewer turns than RLOO's can't come from a baseline: a perfect one saves the noise of 8 siblings."""


def unearned(null: Mapping[str, Quality], told_more: Mapping[str, bool]) -> list[str]:
    """Return the arms that are better in the null environment than what they were told allows.

    Nothing of the outcome shows there before the end, so that no estimator can know which turns mattered. One that needs
    far fewer turns than RLOO knows the process, and what it shows elsewhere says nothing.

    Args:
        null: what was measured in the environment "null", RLOO included.
        told_more: of each arm, whether it is told about turns or the process on purpose.
    """
    reference = null["rloo"].turns_for_snr_1 if "rloo" in null else None
    if reference is None:
        return []
    found = []
    for name, quality in null.items():
        if told_more.get(name, False) or quality.turns_for_snr_1 is None:
            continue
        if math.exp(log_ratio(reference, quality.turns_for_snr_1).low) > UNEARNED:
            found.append(name)
    return found
