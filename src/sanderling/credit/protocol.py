"""Who gets it: an estimator turns the rewards of a group into one advantage per turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sanderling.types import Group

Credit = Mapping[str, NDArray[np.float64]]
"""Advantages by trajectory id: one array (n_turns,) for each member of `group.graded()`, and no entry for any other."""


class CreditEstimator(Protocol):
    """A pure function of a group. It sees groups and turns; token arrays are written later, by `sanderling.batch`."""

    def __call__(self, group: Group) -> Credit:
        """Return the advantage of every turn of every graded member.

        Advantages have the unit of the reward (or none, where the estimator divides by a deviation) and are finite. A
        group that says nothing (no member, one member, all rewards equal) gets zeros.
        """
        ...
