"""Slots: whatever joins, leaves, grows and is evicted, every session's content stays its own."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sanderling.engine.sessions import Session, SlotTable
from sanderling.engine.torch_kv_cache import SlotCache, Window


class Slots(RuleBasedStateMachine):
    """A table and a real cache of one layer, against a plain record of what each session stored."""

    def __init__(self) -> None:
        super().__init__()
        self.table = SlotTable()
        self.cache = SlotCache(1, slots=4, capacity=6)
        self.table.resize(4)
        self.sessions: dict[str, Session] = {}
        self.content: dict[str, list[float]] = {}
        self.counter = 0.0

    @rule(names=st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=3))
    def join(self, names: set[str]) -> None:
        fresh = [n for n in sorted(names) if n not in self.sessions or not self.sessions[n].active]
        if self.table.active + len(fresh) > 4:
            return
        joining = [self.table.find(n) or Session(n) for n in fresh]
        for victim in self.table.join(joining):
            self.content.pop(victim.name)
        self.sessions = {s.name: s for s in [*self.sessions.values(), *joining] if s.slot is not None}
        for session in joining:
            self.content.setdefault(session.name, [])
        self.settle()
        self.write(joining)

    @rule(data=st.data())
    @precondition(lambda self: self.table.active)
    def leave(self, data: st.DataObject) -> None:
        active = [s for s in self.sessions.values() if s.active]
        leaving = data.draw(st.lists(st.sampled_from(active), min_size=1, unique=True))
        for session in leaving:
            session.ended = data.draw(st.booleans())
        self.table.leave(leaving)
        for session in leaving:
            if session.ended:
                del self.sessions[session.name], self.content[session.name]
        self.settle()

    @rule()
    @precondition(lambda self: self.table.active)
    def step(self) -> None:
        self.write([s for s in self.sessions.values() if s.active])

    @rule(extra=st.integers(0, 3))
    def resize(self, extra: int) -> None:
        longest = max((s.cached for s in self.table.sessions()), default=0)
        slots = max(len(self.table.sessions()), 4) + extra
        capacity = max(longest + 2, 6)
        self.cache.resize(slots=slots, capacity=capacity, sources=self.table.resize(slots), length=longest)

    def settle(self) -> None:
        self.cache.copy_slots(self.table.take_moves())

    def write(self, sessions: list[Session]) -> None:
        room = [s for s in sessions if s.cached < self.cache.capacity and s.slot is not None]
        if not room:
            return
        values = []
        for session in room:
            self.counter += 1.0
            self.content[session.name].append(self.counter)
            values.append(self.counter)
        index = torch.tensor([s.slot for s in room])
        positions = torch.tensor([[s.cached] for s in room])
        longest = max(s.cached for s in room)
        self.cache.window = Window(rows=index, length=longest + 1, slots=index[:, None], positions=positions)
        states = torch.tensor(values).view(-1, 1, 1, 1)
        self.cache.update(states, -states, 0)
        for session in room:
            session.cached += 1

    @invariant()
    def active_ones_come_first(self) -> None:
        slots = sorted(s.slot for s in self.sessions.values() if s.active and s.slot is not None)
        assert slots == list(range(self.table.active))

    @invariant()
    def content_is_kept(self) -> None:
        layer = self.cache.layers[0]
        for session in self.table.sessions():
            stored = self.content[session.name]
            assert session.cached == len(stored)
            if stored:
                assert layer.keys[session.slot, 0, : session.cached, 0].tolist() == stored
                assert layer.values[session.slot, 0, : session.cached, 0].tolist() == [-v for v in stored]

    @invariant()
    def names_and_slots_agree(self) -> None:
        names = [s.name for s in self.table.sessions()]
        assert len(names) == len(set(names)) and set(names) == set(self.content)


TestSlots = Slots.TestCase
TestSlots.settings = settings(max_examples=60, stateful_step_count=40)


def test_a_batch_that_returns_together_is_not_moved() -> None:
    table = SlotTable()
    table.resize(8)
    sessions = [Session(f"s{i}") for i in range(6)]
    table.join(sessions)
    for session in sessions:
        session.cached = 5
    for session in (sessions[2], sessions[0], sessions[5], sessions[1], sessions[3], sessions[4]):
        table.leave([session])
    table.take_moves()
    table.join(sessions)
    assert table.take_moves() == []


def test_a_place_is_filled_by_one_that_stays() -> None:
    table = SlotTable()
    table.resize(8)
    sessions = [Session(f"s{i}") for i in range(8)]
    table.join(sessions)
    for session in sessions:
        session.cached = 5
    table.leave(sessions[4:])
    assert table.take_moves() == [], "the last ones leave: nobody moves"
    table.leave([sessions[0], sessions[3]])
    assert len(table.take_moves()) == 2, "one stays behind the leaving ones, and swaps places with the first"


def test_the_idle_session_used_longest_ago_is_evicted() -> None:
    table = SlotTable()
    table.resize(3)
    a, b, c, d = (Session(name) for name in "abcd")
    table.join([a, b, c])
    for session in (b, a):
        session.cached = 1
        table.leave([session])
    assert table.join([d]) == [b]
    assert table.find("a") is a and table.find("b") is None and c.active


def test_common_prefix() -> None:
    session = Session("s", ids=np.array([1, 2, 3, 4], dtype=np.int32), cached=3)
    assert session.common_prefix(np.array([1, 2, 3, 4, 5], dtype=np.int32)) == 3, "only what is cached counts"
    assert session.common_prefix(np.array([1, 2, 9, 4], dtype=np.int32)) == 2
    assert session.common_prefix(np.array([1, 2], dtype=np.int32)) == 2
    assert session.common_prefix(np.array([9], dtype=np.int32)) == 0
