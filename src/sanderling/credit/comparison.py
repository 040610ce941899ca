"""Numbers of one kind compared with each other: what every estimator does with the returns that it gathers."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sanderling.credit.episodes import settled

Normalise = Literal["std", "none", "leave-one-out"]
""""std": minus the mean, over the deviation. "none": minus the mean. "leave-one-out": minus the mean of the others."""


def compared(
    numbers: NDArray[np.float64], normalise: Normalise, *, eps: float = 0.0, ddof: int = 1
) -> NDArray[np.float64]:
    """Return how far each of n numbers is from the others, (n,); zeros where there is one, or no spread beyond rounding."""
    numbers = settled(numbers)
    n = len(numbers)
    if n < 2 or np.ptp(numbers) == 0.0:
        return np.zeros(n)
    centred = numbers - numbers.mean()
    if normalise == "std":
        return centred / (numbers.std(ddof=ddof) + eps)
    return centred * (n / (n - 1)) if normalise == "leave-one-out" else centred
