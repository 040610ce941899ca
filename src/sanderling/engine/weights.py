"""Names for weights: a digest that trainer and engine compute alike, and a push believed only when it matches."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from sanderling.engine.protocol import Engine
from sanderling.errors import WeightPushError

OWN_DTYPE = "own"
"""Dtype part of a fingerprint in which every tensor was hashed as it is stored."""


def fingerprint(state: Mapping[str, Any], dtype: str | None = None) -> str:
    """Return `"<dtype>:<32 hex digits>"`, a digest over names, dtypes, shapes and bytes, whatever the order of names.

    `state` maps names to torch tensors or numpy arrays. Where `dtype` is given ("float32", "bfloat16", "float16"),
    floating tensors are rounded to it first, so that a trainer that holds float32 masters can name the weights which a
    bfloat16 engine will hold after it loaded them. Two states compare only under the same dtype part. Cost: about one
    second per gigabyte.
    """
    total = hashlib.blake2b(digest_size=16)
    for name in sorted(state):
        shape, stored, data = _stored(state[name], dtype)
        total.update(f"{name}\0{stored}\0{shape}\0".encode())
        total.update(hashlib.blake2b(data, digest_size=16).digest())
    return f"{dtype or OWN_DTYPE}:{total.hexdigest()}"


def fingerprint_like(state: Mapping[str, Any], reference: str) -> str:
    """Return the fingerprint of `state` under the dtype part of another fingerprint."""
    dtype = reference.partition(":")[0]
    return fingerprint(state, None if dtype == OWN_DTYPE else dtype)


async def push(engine: Engine, state: Mapping[str, Any], version: int) -> str:
    """Push weights to an engine and return its fingerprint once it proved that it samples from them.

    Raises:
        WeightPushError: the engine's fingerprint is not that of `state`, or its policy version is not `version`.
    """
    expected = fingerprint_like(state, engine.fingerprint())
    answered = await engine.update_weights(state, version)
    if answered != expected or engine.fingerprint() != expected:
        raise WeightPushError(
            f"weights of version {version} were pushed, but the engine reports fingerprint {answered} and holds "
            f"{engine.fingerprint()}; expected {expected}. Nothing sampled since then belongs to version {version}: "
            "stop, and check how the engine loads weights"
        )
    if engine.policy_version != version:
        raise WeightPushError(
            f"the engine took the weights but reports policy version {engine.policy_version}; expected {version}"
        )
    return answered


def _stored(value: Any, dtype: str | None) -> tuple[tuple[int, ...], str, Any]:
    """Return shape, dtype name and raw bytes of a tensor or array, rounded to `dtype` where it is floating."""
    if isinstance(value, np.ndarray):
        rounded = value.astype(dtype) if dtype and value.dtype.kind == "f" and dtype != str(value.dtype) else value
        array = np.ascontiguousarray(rounded)
        return array.shape, str(array.dtype), array.reshape(-1).view(np.uint8)
    import torch  # only tensors come here, so torch is loaded already

    tensor = value.detach()
    if dtype and tensor.is_floating_point():
        tensor = tensor.to(getattr(torch, dtype))
    raw = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), raw
