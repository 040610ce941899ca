"""The folder through which weights reach a vLLM server, and weights for a trial whether all of them do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from sanderling.engine.torch_model import load_model
from sanderling.engine.weights import fingerprint
from sanderling.errors import WeightPushError

_WEIGHTS = "model.safetensors"
_BESIDE = (".json", ".jinja", ".txt", ".model", ".py")  # config, tokenizer, chat template, code of the model
# Relative to each weight. In SmolLM2, log-probabilities are off by 1.2 nats where the output head is left as it was, by 0.57
# for the embedding, 0.15 to 0.37 for the MLP of one layer and 0.04 for one query projection.
_NOISE = 0.2


class WeightsFolder:
    """A model folder with the weights that a server shall read.

    Tied weights are written twice, and its config says that they are not tied: vLLM's CPU build keeps a packed copy of the
    output head, which a reload of a tied model leaves as it was (0.32), so that the body is new and the head old.

    Args:
        path: where it is, or will be.
        source: the policy's Hugging Face folder.
        dtype: of the weights in it, "float32", "bfloat16" or "float16".
    """

    def __init__(self, path: Path, *, source: Path, dtype: str) -> None:
        self.path = path
        self._source = source
        self._dtype = dtype
        state = load_model(source).state_dict()
        self._shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        self.source_fingerprint = fingerprint(state, dtype)

    def write(self, state: Mapping[str, Any]) -> None:
        """Write `state` (exactly the names and shapes of the model's `state_dict()`).

        Raises:
            WeightPushError: names or shapes don't fit.
        """
        found = {name: tuple(tensor.shape) for name, tensor in state.items()}
        if found != self._shapes:
            names = found.keys() | self._shapes.keys()
            differing = sorted(name for name in names if found.get(name) != self._shapes.get(name))
            raise WeightPushError(
                f"the pushed weights differ from those of {self._source} in names or shapes: {differing[:3]} "
                f"({len(differing)} in all); expected exactly those of the model's state_dict()"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        stored: dict[str, torch.Tensor] = {}
        places: set[int] = set()
        for name, tensor in state.items():
            copy = tensor.detach().to("cpu", getattr(torch, self._dtype)).contiguous()
            stored[name] = copy.clone() if copy.data_ptr() in places else copy  # the format takes no shared storage
            places.add(copy.data_ptr())
        partial = self.path / f".{_WEIGHTS}"
        save_file(stored, partial, metadata={"format": "pt"})
        partial.replace(self.path / _WEIGHTS)
        for file in self._source.iterdir():
            if file.suffix in _BESIDE and not file.name.endswith(".index.json"):
                (self.path / file.name).write_bytes(_untied(file) if file.name == "config.json" else file.read_bytes())

    def write_source(self) -> None:
        """Write the policy's own weights."""
        self.write(load_model(self._source).state_dict())

    def digest(self) -> str:
        """Return the fingerprint of the weights in it."""
        return fingerprint(load_file(self.path / _WEIGHTS), self._dtype)

    def write_trial(self) -> Any:
        """Write weights each of which is off by a fifth, and return a model in float32 that holds them."""
        model = load_model(self._source).float()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in model.parameters():  # tied ones come once and stay tied
                changed = weight * (1 + _NOISE * torch.randn(weight.shape, generator=generator))
                weight.copy_(changed.to(getattr(torch, self._dtype)))
        self.write(model.state_dict())
        return model


def trial_difference(model: Any, context: Sequence[int], token_ids: Sequence[int], logprobs: Sequence[float]) -> float:
    """Return the mean absolute difference between a server's log-probabilities of `token_ids` and the model's, in nats."""
    ids = torch.tensor([*context, *token_ids])
    with torch.no_grad():
        rows = model(ids[None]).logits[0].log_softmax(-1)
    own = rows[torch.arange(len(context) - 1, len(ids) - 1), ids[len(context) :]]
    return float((own - torch.tensor(logprobs)).abs().mean())


def _untied(file: Path) -> bytes:
    config = json.loads(file.read_bytes())
    for part in (config, config.get("text_config")):
        if isinstance(part, dict):
            part["tie_word_embeddings"] = False
    return json.dumps(config, indent=2).encode()
