"""Whether a policy may fold its context, as a setting."""

from __future__ import annotations

from enum import StrEnum


class Summaries(StrEnum):
    """What becomes of the action that wrote a summary."""

    OFF = "off"  # the policy can't fold
    TRAINED = "trained"  # it is trained like every other action
    UNTRAINED = "untrained"  # its tokens get no gradient
