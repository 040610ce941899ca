"""When are two moments of two episodes the same state? A key per turn says so, from the workspace and what the agent has seen.

Credit by state groups compares turns with equal keys (GiGPO, arXiv 2505.10978, section 4.2). A key that is too coarse merges
states that differ, which biases their values; one that is too fine leaves every turn alone. Text that a tool printed holds
pieces that differ from run to run and say nothing: clock times, durations, temporary paths, addresses of objects. They are
taken out before anything is compared (`canonical_text`), and only there: the policy reads the text as it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

_TMP = r"(?:/private)?/(?:tmp|var/tmp|dev/shm|var/folders/\w\w/\w+/T)"
_UNIT = r"(?:nanoseconds?|microseconds?|milliseconds?|seconds?|secs?|minutes?|mins?|ns|us|µs|ms|s)"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?"

_VOLATILE: tuple[tuple[re.Pattern[str], str], ...] = (
    # what mkstemp, mkdtemp, mktemp and pytest make up, wherever it stands; what comes below such a folder is kept
    (re.compile(rf"{_TMP}/pytest-of-[\w.-]+/pytest-\d+"), "<temporary path>"),
    (re.compile(rf"{_TMP}/(?:[\w-]*[._-])?tmp\.?[A-Za-z0-9_]{{6,12}}(?![\w])"), "<temporary path>"),
    # as repr() writes them, and anything as long as a pointer
    (re.compile(r"\bat 0x[0-9a-fA-F]{4,16}\b"), "at <address>"),
    (re.compile(r"\b0x[0-9a-fA-F]{12,16}\b"), "<address>"),
    (re.compile(rf"\b\d{{4}}-\d{{2}}-\d{{2}}[T ]{_CLOCK}(?: ?(?:Z|UTC|[+-]\d{{2}}:?\d{{2}}))?(?!\w)"), "<time>"),
    (re.compile(rf"\b(?:{_DAY},? )?{_MONTH} +\d{{1,2}} {_CLOCK}(?: [A-Z]{{3,4}})?(?: \d{{4}})?\b"), "<time>"),
    (re.compile(r"(?<![\d:.])(?:[01]?\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d{1,9})?(?![\d:])"), "<time>"),
    # a number with a unit of time, as in "3 passed in 0.02s": decimals only, because "5 seconds" may be what was asked for
    (re.compile(rf"(?<![\w.])\d+\.\d+(?:e-?\d+)? ?{_UNIT}\b"), "<duration>"),
    (re.compile(rf"\b(in|after|took|for) \d+ ?{_UNIT}\b"), r"\1 <duration>"),
)


def canonical_text(text: str) -> str:
    """Return an observation without what differs between equal runs: times, durations, temporary paths, addresses.

    Idempotent; text without such pieces comes back as it is. Line ends and blanks at the ends of lines don't count.
    """
    for pattern, place in _VOLATILE:
        text = pattern.sub(place, text)
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


class Seen(StrEnum):
    """How much of what the agent has read belongs to the state, from coarse to fine."""

    NOTHING = (
        "nothing"  # the workspace alone: an agent that has read the failing test stands where one that hasn't does
    )
    SET = "set"  # the workspace and which observations were made, in whatever order and however often
    SEQUENCE = (
        "sequence"  # the workspace and all observations in their order; steps back never lead to an earlier state
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateIdentity:
    """How an environment tells states apart; `Environment.states` holds one.

    Example::

        Environment(..., states=StateIdentity(seen=Seen.NOTHING))
    """

    seen: Seen = Seen.SET
    canonical: Callable[[str], str] = canonical_text
    version: str = "1"  # part of every key; change it together with `canonical`, so that old and new keys never meet

    def observation(self, text: str) -> bytes:
        """Return a digest (16 bytes) of what an observation says."""
        return hashlib.blake2b(self.canonical(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def key(self, workspace: str, observations: Iterable[bytes]) -> str:
        """Return the key of a state: "<version>-<seen>:" and 40 hexadecimal digits.

        Args:
            workspace: `Sandbox.state_key()` in this moment.
            observations: `observation` of everything that the agent has read since the prompt, in order.
        """
        match self.seen:
            case Seen.NOTHING:
                read: list[bytes] = []
            case Seen.SET:
                read = sorted(set(observations))
            case Seen.SEQUENCE:
                read = list(observations)
        digest = hashlib.blake2b(workspace.encode() + b"\0", digest_size=20)
        digest.update(b"".join(read))
        return f"{self.form}:{digest.hexdigest()}"

    @property
    def form(self) -> str:
        """What a key begins with; keys of different forms can't be compared."""
        return f"{self.version}-{self.seen.value}"


def form_of(key: str) -> str:
    """Return the form of a recorded key; "" for a bare digest of the workspace."""
    return key.rpartition(":")[0]
