"""Keys and values of many sequences of different lengths, kept in one buffer per layer.

A sequence lives in a slot. The batch of a decoding step is slots 0..n-1, so the model reads a view of the buffer and
nothing is copied from step to step; who sits in which slot is decided in `sessions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from sanderling.engine.sessions import SlotCopy


@dataclass(slots=True, kw_only=True)
class Window:
    """What the next forward pass of b rows with W new tokens each reads and writes; shared by all layers."""

    rows: slice | torch.Tensor  # slots of the rows: a run of them (a view) or an index (b,) (a copy)
    length: int  # keys that the longest row can see, new ones included
    slots: torch.Tensor  # (b, W), where the new tokens go; padding goes to the spare slot
    positions: torch.Tensor  # (b, W), of the new tokens in their slots


class SlotLayer(CacheLayerMixin):
    """One layer's buffers, (slots + 1, heads, capacity, head size); the last slot takes the writes of padding.

    What attention reads of a head lies in one piece: a decoding step is bound by that reading.
    """

    is_sliding = False

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()
        self._cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = self._allocate(key_states)
        self.values = self._allocate(value_states)
        self.is_initialized = True

    def _allocate(self, states: torch.Tensor) -> torch.Tensor:
        # Zeros, because masked places are still multiplied by a zero weight, which a stray NaN would survive.
        shape = (self._cache.slots + 1, states.shape[1], self._cache.capacity, states.shape[3])
        return torch.zeros(shape, dtype=states.dtype, device=states.device)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new states (b, heads, W, size) and return those of the whole rows, (b, heads, length, size)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return self._extend(self.keys, key_states), self._extend(self.values, value_states)

    def _extend(self, buffer: torch.Tensor | None, states: torch.Tensor) -> torch.Tensor:
        assert buffer is not None
        window = self._cache.window
        buffer[window.slots, :, window.positions] = states.transpose(1, 2)
        seen = buffer[:, :, : window.length]
        return seen[window.rows] if isinstance(window.rows, slice) else seen.index_select(0, window.rows)

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        return self._cache.window.length, 0

    def get_seq_length(self, cache_position: Any = None) -> int:
        return 0  # rows differ; positions are always passed to the model

    def get_max_length(self) -> int:
        return self._cache.capacity

    def get_max_cache_shape(self) -> int:  # the older name of get_max_length
        return self._cache.capacity


class SlotCache(Cache):
    """A `transformers` cache over slots. The caller sets `window` before each forward pass."""

    def __init__(self, num_layers: int, *, slots: int, capacity: int) -> None:
        self.slots = slots
        self.capacity = capacity
        nowhere = torch.empty(0, 0, dtype=torch.long)
        self.window = Window(rows=slice(0, 0), length=0, slots=nowhere, positions=nowhere)
        self._slot_layers = [SlotLayer(self) for _ in range(num_layers)]
        super().__init__(layers=list(self._slot_layers))

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token over all layers; 0 before the first forward pass."""
        return sum(buffer[0, :, 0].numel() * buffer.element_size() for buffer in self._buffers())

    def copy_slots(self, copies: Sequence[SlotCopy]) -> None:
        """Carry out all copies at once: each reads what its source held before any of them."""
        targets = {copy.target for copy in copies}
        for buffer in self._buffers():
            seen = [buffer[copy.source, :, : copy.length] for copy in copies]
            kept = [part.clone() if copy.source in targets else part for copy, part in zip(copies, seen, strict=True)]
            for copy, part in zip(copies, kept, strict=True):
                buffer[copy.target, :, : copy.length] = part

    def resize(self, *, slots: int, capacity: int, sources: list[int], length: int) -> None:
        """Move to buffers of another size; slot i of the new ones is slot `sources[i]` of the old ones."""
        self.slots, self.capacity = slots, capacity
        for layer in self._slot_layers:
            layer.keys, layer.values = (
                None if old is None else _resized(old, slots, capacity, sources, length)
                for old in (layer.keys, layer.values)
            )

    def wipe(self, slot: int) -> None:
        """Overwrite a slot with zeros, after it held values that aren't finite."""
        for buffer in self._buffers():
            buffer[slot].zero_()

    def _buffers(self) -> list[torch.Tensor]:
        both = (buffer for layer in self._slot_layers for buffer in (layer.keys, layer.values))
        return [buffer for buffer in both if buffer is not None]


def _resized(old: torch.Tensor, slots: int, capacity: int, sources: list[int], length: int) -> torch.Tensor:
    new = torch.zeros((slots + 1, old.shape[1], capacity, old.shape[3]), dtype=old.dtype, device=old.device)
    if sources and length:
        index = torch.tensor(sources, device=old.device)
        new[: len(sources), :, :length] = old[:, :, :length].index_select(0, index)
    return new
