"""Which session sits in which cache slot. Plain bookkeeping: the copies that follow from it are carried out elsewhere.

Slots 0..active-1 hold the sessions that are being sampled, so that a decoding step reads one run of slots. Idle sessions
(between two turns of their episode) and free slots come after them. Joining and leaving swap slots; `take_moves` hands
out the copies that the swaps amount to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from sanderling.types import Int32Array


@dataclass(slots=True, eq=False)
class Session:
    """What is cached of one episode: keys and values of `ids[:cached]`, computed by weights as old as `kv_version`."""

    name: str
    ids: Int32Array = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    cached: int = 0
    kv_version: int = 0
    slot: int | None = None
    last_used: int = 0
    active: bool = False
    ended: bool = False

    def common_prefix(self, context_ids: Int32Array) -> int:
        """Return how many cached tokens are also the first tokens of `context_ids`."""
        length = min(self.cached, len(context_ids))
        differs = np.flatnonzero(self.ids[:length] != context_ids[:length])
        return int(differs[0]) if len(differs) else length


@dataclass(frozen=True, slots=True)
class SlotCopy:
    """The first `length` tokens of slot `source` go to slot `target`."""

    target: int
    source: int
    length: int


class SlotTable:
    """The sessions by slot and by name."""

    def __init__(self) -> None:
        self.active = 0
        self._slots: list[Session | None] = []
        self._by_name: dict[str, Session] = {}
        self._source_of: dict[int, int] = {}  # slot -> slot where its content still lies
        self._clock = 0

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, name: str) -> Session | None:
        return self._by_name.get(name)

    def sessions(self) -> list[Session]:
        """Return all sessions with a slot, in the order of the slots."""
        return [session for session in self._slots if session is not None]

    def idle(self) -> list[Session]:
        """Return the sessions that aren't being sampled, least recently used first."""
        return sorted((s for s in self.sessions() if not s.active), key=lambda s: s.last_used)

    def join(self, sessions: Iterable[Session]) -> list[Session]:
        """Make sessions active, in slots active, active + 1, ...; return the idle sessions evicted for want of slots.

        Sessions that hold a slot are taken in the order of their slots, so a batch that comes back together is not moved.
        """
        evicted = []
        for session in sorted(sessions, key=lambda s: len(self._slots) if s.slot is None else s.slot):
            if session.slot is None:
                victim = self._give_slot(session)
                if victim is not None:
                    evicted.append(victim)
            assert session.slot is not None
            self._swap(session.slot, self.active)
            self.active += 1
            session.active = True
            self._by_name[session.name] = session
        return evicted

    def leave(self, sessions: Iterable[Session]) -> None:
        """Make active sessions idle, or forget those that have ended."""
        # From the last slot on, so that a place is filled by one that stays.
        for session in sorted(sessions, key=lambda s: s.slot or 0, reverse=True):
            assert session.active and session.slot is not None
            self._swap(session.slot, self.active - 1)
            self.active -= 1
            session.active = False
            self._clock += 1
            session.last_used = self._clock
            if session.ended or session.cached == 0:
                self.forget(session)

    def forget(self, session: Session) -> None:
        """Free the slot of an idle session."""
        assert not session.active and session.slot is not None
        self._slots[session.slot] = None
        self._source_of.pop(session.slot, None)
        session.slot = None
        session.cached = 0
        self._by_name.pop(session.name, None)

    def take_moves(self) -> list[SlotCopy]:
        """Return the pending copies, which belong together."""
        moves = []
        for target, source in self._source_of.items():
            session = self._slots[target]
            if session is not None and session.cached and target != source:
                moves.append(SlotCopy(target, source, session.cached))
        self._source_of = {}
        return moves

    def resize(self, slots: int) -> list[int]:
        """Change the number of slots, closing the gaps; return for each occupied new slot the old one.

        Moves must have been taken before. At least as many slots as sessions are needed.
        """
        assert not self._source_of and len(self.sessions()) <= slots
        kept = self.sessions()
        sources = [session.slot for session in kept if session.slot is not None]
        for slot, session in enumerate(kept):
            session.slot = slot
        self._slots = [*kept, *[None] * (slots - len(kept))]
        return sources

    def clear(self) -> None:
        """Forget everything, active sessions included."""
        for session in self.sessions():
            session.slot, session.cached, session.active = None, 0, False
        self._slots = [None] * len(self._slots)
        self._by_name = {}
        self._source_of = {}
        self.active = 0

    def _give_slot(self, session: Session) -> Session | None:
        """Put a session without a slot into a free one, evicting the idle session used longest ago where none is free."""
        victim = None
        free = next((i for i in range(self.active, len(self._slots)) if self._slots[i] is None), None)
        if free is None:
            victim = next(s for s in self.idle())
            free = victim.slot
            self.forget(victim)
        assert free is not None
        self._slots[free] = session
        session.slot = free
        return victim

    def _swap(self, a: int, b: int) -> None:
        if a == b:
            return
        first, second = self._slots[a], self._slots[b]
        self._slots[a], self._slots[b] = second, first
        source_a, source_b = self._source_of.get(a, a), self._source_of.get(b, b)
        self._source_of[a], self._source_of[b] = source_b, source_a
        if first is not None:
            first.slot = b
        if second is not None:
            second.slot = a
