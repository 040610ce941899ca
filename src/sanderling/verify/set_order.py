"""In which order graded code walks sets of strings."""

from __future__ import annotations

import random


def order_of_sets(task_id: str, seed: int) -> dict[str, str]:
    """Return the environment of a grading's child: an order of its own for each seed, and the same one for an equal seed.

    An agent's commands all have one order, so that an episode repeats. Code that is right in that order only should not be
    paid, so grading has others.
    """
    return {"PYTHONHASHSEED": str(random.Random(f"order of sets {task_id} {seed}").getrandbits(32))}
