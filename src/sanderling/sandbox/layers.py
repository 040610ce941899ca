"""Layers and the stores that hold them, as the backend counts them. The launcher does the mounting."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Store:
    """One size-limited tmpfs. It lives while any sandbox stands on a layer of it."""

    name: str
    pristine_bytes: int = 0  # what the base takes; the agent's limit comes on top
    users: int = 0


@dataclass(slots=True, kw_only=True)
class Stack:
    """The layers of one sandbox, lowest first, and the store that takes its next one."""

    store: Store
    layers: list[str]
    held: list[Store] = field(default_factory=list)  # every store that a layer of ours lies in
    next_number: int = 1

    def next_layer(self) -> str:
        """Return the name of the next upper layer."""
        name = f"{self.store.name}/{self.next_number}"
        self.next_number += 1
        return name
