"""How long, how many: a number, a log-normal by two of its figures, or values to draw from."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

_Z99 = 2.3263478740408408  # 99th percentile of the standard normal


class Distribution(BaseModel):
    """Non-negative numbers. Times and lengths of agents' work have long tails, which a log-normal has too.

    In TOML: `3.0`, `{mean = 3.0, cv = 1.5}` (cv: standard deviation over mean), `{p50 = 2.0, p99 = 60.0}` or
    `{values = [1.0, 1.5, 40.0]}`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mean: float | None = Field(None, ge=0.0)
    cv: float = Field(0.0, ge=0.0)
    p50: float | None = Field(None, gt=0.0)
    p99: float | None = Field(None, gt=0.0)
    values: tuple[Annotated[float, Field(ge=0.0)], ...] = ()

    @model_validator(mode="after")
    def _one_way(self) -> Distribution:
        ways = [self.mean is not None, self.p50 is not None or self.p99 is not None, bool(self.values)]
        if sum(ways) != 1:
            raise ValueError("give a number, {mean, cv}, {p50, p99} or {values}, and one of them only")
        if ways[1] and (self.p50 is None or self.p99 is None or self.p99 < self.p50):
            raise ValueError(f"p50 = {self.p50} and p99 = {self.p99}: both are needed, and p99 is at least p50")
        if self.cv and self.mean is None:
            raise ValueError("cv stands beside mean only")
        return self

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return `count` independent numbers, (count,)."""
        if self.values:
            return random.choice(np.array(self.values, dtype=np.float64), count)
        center, width = self._log_normal()
        if width == 0.0:
            return np.full(count, self.mean if self.mean is not None else self.p50, dtype=np.float64)
        return np.exp(center + width * random.standard_normal(count))

    def expectation(self) -> float:
        """Return the mean."""
        if self.values:
            return float(np.mean(self.values))
        if self.mean is not None:
            return self.mean
        center, width = self._log_normal()
        return math.exp(center + width**2 / 2)

    def _log_normal(self) -> tuple[float, float]:
        """Return mean and standard deviation of the logarithm."""
        if self.mean is not None:
            width = math.sqrt(math.log1p(self.cv**2))
            return (math.log(self.mean) - width**2 / 2 if self.mean > 0 else 0.0), width if self.mean > 0 else 0.0
        assert self.p50 is not None and self.p99 is not None  # checked when it was made
        return math.log(self.p50), (math.log(self.p99) - math.log(self.p50)) / _Z99


def _number_as_mean(value: Any) -> Any:
    return {"mean": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


Drawn = Annotated[Distribution, BeforeValidator(_number_as_mean)]
"""A distribution as a field of a configuration: a plain number stands for itself."""
