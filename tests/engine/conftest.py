"""Tiny real models for the engine tests, made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sanderling.engine.torch_engine import TorchEngine
from sanderling.engine.torch_model import load_model
from sanderling.testing.engine_conformance import Subject
from sanderling.testing.engines import tiny_llama_folder
from sanderling.types import Int32Array

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


def reference_for(folder: Path) -> Any:
    """Return a function (state, context, action ids) -> log-probabilities by one plain forward pass, without a cache."""
    model = load_model(folder)

    def logprobs(state: Mapping[str, Any], context: Int32Array, action: Int32Array) -> NDArray[np.floating]:
        model.load_state_dict(dict(state))
        ids = torch.from_numpy(np.concatenate([context, action]).astype(np.int64))
        with torch.no_grad():
            rows = model(ids[None]).logits[0].log_softmax(-1)
        start = len(context)
        return rows[torch.arange(start - 1, len(ids) - 1), ids[start:]].numpy()

    return logprobs


def subject_for(folder: Path, other: Path, **settings: Any) -> Subject:
    states = (load_model(folder).state_dict(), load_model(other).state_dict())
    vocab = load_model(folder).config.vocab_size
    return Subject(
        make=lambda: TorchEngine(load_model(folder), threads=1, **settings),
        states=states,
        vocab_size=vocab,
        reference=reference_for(folder),
    )


@pytest.fixture(scope="session")
def subject(llama_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    other = tiny_llama_folder(tmp_path_factory.mktemp("models") / "other-llama", seed=1)
    return subject_for(llama_folder, other, max_batch=8)


@pytest.fixture(scope="session")
def make_subject() -> Callable[..., Subject]:
    return subject_for
