"""Fingerprints name weights; a push that changes nothing is noticed."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch

from sanderling.engine.weights import fingerprint, fingerprint_like, push
from sanderling.errors import WeightPushError
from sanderling.testing.engines import Fault, Scripted, ScriptedEngine

STATE = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4), "n": torch.tensor([1, 2])}


def test_equal_weights_have_equal_fingerprints() -> None:
    reordered = {name: STATE[name].clone() for name in ("n", "b", "a")}
    assert fingerprint(STATE) == fingerprint(reordered)
    assert fingerprint({k: v.numpy() for k, v in STATE.items()}) == fingerprint(STATE), "numpy and torch agree"
    strided = {**STATE, "a": torch.arange(6.0).view(3, 2).T.contiguous().T.T.contiguous()}
    strided["a"] = STATE["a"].T.contiguous().T  # the same values in another memory layout
    assert fingerprint(strided) == fingerprint(STATE)


@pytest.mark.parametrize(
    "other",
    [
        {**STATE, "a": STATE["a"] + torch.tensor([[0, 0, 0], [0, 0, 1e-6]])},
        {**STATE, "a": STATE["a"].view(3, 2)},
        {**STATE, "a": STATE["a"].double()},
        {"a": STATE["a"], "c": STATE["b"], "n": STATE["n"]},
        {"a": STATE["a"], "n": STATE["n"]},
    ],
    ids=["one ulp-sized step", "shape", "dtype", "name", "fewer"],
)
def test_other_weights_have_other_fingerprints(other: dict[str, torch.Tensor]) -> None:
    assert fingerprint(other) != fingerprint(STATE)


def test_swapped_tensors_are_noticed() -> None:
    x, y = torch.zeros(3), torch.ones(3)
    assert fingerprint({"x": x, "y": y}) != fingerprint({"x": y, "y": x})


def test_a_master_copy_names_the_rounded_weights() -> None:
    rounded = {k: v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in STATE.items()}
    engine_side = fingerprint(rounded, "bfloat16")
    assert engine_side.startswith("bfloat16:") and fingerprint_like(STATE, engine_side) == engine_side


def scripted() -> ScriptedEngine:
    return ScriptedEngine(script=[Scripted(token_ids=[1])])


def test_push_returns_the_fingerprint() -> None:
    engine = scripted()
    state = {"weight": np.ones(2, dtype=np.float32)}
    assert asyncio.run(push(engine, state, 5)) == fingerprint(state) == engine.fingerprint()
    assert engine.policy_version == 5


def test_a_push_that_does_nothing_is_noticed() -> None:
    engine = scripted()
    engine.faults.add(Fault.IGNORES_PUSHES)
    with pytest.raises(WeightPushError, match=r"weights of version 1 were pushed, but the engine reports"):
        asyncio.run(push(engine, {"weight": np.ones(2, dtype=np.float32)}, 1))
    with pytest.raises(WeightPushError, match="policy version 0; expected 2"):
        asyncio.run(push(engine, engine.weights, 2))
