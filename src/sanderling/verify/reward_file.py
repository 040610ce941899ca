"""The reward that a Harbor test script leaves in /logs/verifier, read strictly: what isn't exactly a reward is none."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_BYTES = 65_536


class NoReward(ValueError):
    """The file holds no valid reward; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReward:
    """What a script paid. Any finite number: the range is the task's own."""

    reward: float
    components: Mapping[str, float] = field(default_factory=dict)


def parse_reward_json(content: bytes) -> FileReward:
    """Return the reward in `reward.json`: an object of finite numbers, with the key `reward` or with one key only.

    Raises:
        NoReward: it is empty, no such object, or it doesn't say which of its numbers is the reward.
    """
    if not content.strip():
        raise NoReward("reward.json is empty")
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NoReward(f"reward.json is no JSON: {str(error)[:100]}") from error
    if not isinstance(data, dict) or not data:
        raise NoReward(f"reward.json holds a {type(data).__name__}; expected an object of numbers")
    for key, value in data.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise NoReward(f"reward.json: {key[:40]!r} is {str(value)[:40]!r}; expected a finite number")
    if "reward" not in data and len(data) > 1:
        raise NoReward(f"reward.json has {', '.join(list(data)[:5])[:100]} and no 'reward'")
    reward = data["reward"] if "reward" in data else next(iter(data.values()))
    return FileReward(reward=float(reward), components={key: float(value) for key, value in data.items()})


def parse_reward_text(content: bytes) -> FileReward:
    """Return the reward in `reward.txt`: one finite number and white space.

    Raises:
        NoReward: it is empty or anything else.
    """
    text = content.decode("ascii", "replace").strip()
    if not text:
        raise NoReward("reward.txt is empty")
    try:
        value = float(text)
    except ValueError:
        raise NoReward(f"reward.txt holds {text[:40]!r}; expected one number") from None
    if not math.isfinite(value):
        raise NoReward(f"reward.txt holds {text[:40]!r}; expected a finite number")
    return FileReward(reward=value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond any float
        return False
