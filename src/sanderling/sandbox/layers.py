"""Layers and the stores that hold them, as the backend counts them. The launcher does the mounting."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sanderling.sandbox import digests, workspace


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

    def obsolete(self) -> list[str]:
        """Return the layers of the own store that nobody else stands on, hence all of ours when it isn't shared."""
        mine = f"{self.store.name}/"
        return [layer for layer in self.layers if layer.startswith(mine)] if self.store.users == 1 else []


class Digests:
    """The state of a workspace, brought up to date by reading only the layers that came on top since."""

    def __init__(self) -> None:
        self._state: digests.State | None = None
        self._key: str | None = None
        self._unread: list[str] = []

    def copy(self) -> Digests:
        twin = Digests()
        twin._state, twin._key, twin._unread = self._state, self._key, list(self._unread)
        return twin

    def note(self, layer: str, *, workspace_changed: bool) -> None:
        """Take note of a new top layer."""
        if workspace_changed:
            self._unread.append(layer)
            self._key = None

    def note_squash(self) -> None:
        """Take note that the layers became one: what is unread of them is gone, so the next key reads everything."""
        if self._unread:
            self._state = None
            self._unread.clear()

    async def key(
        self, open_layer: Callable[[str], Awaitable[int]], scan: Callable[[], Awaitable[digests.State]]
    ) -> str:
        """Return the digest; `open_layer` gives a layer's workspace, `scan` the state of the merged one."""
        if self._key is None:
            if self._state is not None:
                self._state = await self._catch_up(self._state, open_layer)
            if self._state is None:
                self._state = await scan()
            self._unread.clear()
            self._key = digests.state_key(self._state)
        return self._key

    async def _catch_up(
        self, state: digests.State, open_layer: Callable[[str], Awaitable[int]]
    ) -> digests.State | None:
        for layer in self._unread:
            fd = await open_layer(layer)
            try:
                after = await asyncio.to_thread(workspace.apply_layer, state, fd)
            finally:
                os.close(fd)
            if after is None:
                return None
            state = after
        return state
