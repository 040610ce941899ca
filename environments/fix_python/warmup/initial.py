"""Starting weights with which the model can copy from its context before its first training step.

Copying needs two layers that work together: one carries each token's predecessors along, the next finds the place whose
predecessors are the present tokens and reads what stood there (Elhage et al. 2021, "induction heads"; Olsson et al. 2022,
arXiv 2209.11895). Training finds this circuit only after a long plateau, which would cost most of the budget here. It is
therefore written into the first two layers by hand; everything else starts at random, and all of it is trained.

Notation: d = width, e = token embedding divided by its scale, so that its entries have variance 1. Rows of one random
orthonormal matrix give disjoint subspaces of the residual stream: P reads what is matched, S1 and S2 hold the P-part of
the tokens one and two places back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

SCALE = 0.05  # of embeddings
CONSTANT = 4.0  # entry 0 of every embedding, in units of SCALE: heads that look at places only read it
MATCHED = 20  # dimensions of P, S1 and S2
CARRIED = 3.0  # strength of the predecessors in the residual stream, relative to the token itself
SHARPNESS = 2.5  # of the match
OFFSET_STRENGTH = 80.0  # sum of the scores' amplitudes of a head that looks a fixed number of places back
LIKENESS = 0.8  # share of the variance that tokens of one group have in common
READ = 10.0  # strength of what the match heads read


@torch.no_grad()
def write_copying_circuit(
    model: LlamaForCausalLM, generator: torch.Generator, alike: Sequence[Sequence[int]] = ()
) -> None:
    """Write embeddings, two heads of layer 0 and three heads of layer 1, in place.

    The tokens of each group in `alike` start with like embeddings, so that one is found where another was: `set 7 | `
    leads to what stands behind the line number 7.

    Needs 6 or more heads of 32 or more dimensions and a rotary base so large that the last 10 frequencies hardly turn
    within an episode.
    """
    width = model.config.hidden_size
    embedding = model.get_input_embeddings().weight
    embedding.normal_(0.0, SCALE, generator=generator)
    for leader, *others in alike:
        embedding[others] = LIKENESS**0.5 * embedding[leader] + (1 - LIKENESS) ** 0.5 * embedding[others]
    embedding[:, 0] = CONSTANT * SCALE
    basis = _orthonormal(width, generator)
    matched, one_back, two_back = basis[:MATCHED], basis[MATCHED : 2 * MATCHED], basis[2 * MATCHED : 3 * MATCHED]
    for head, (offset, place) in enumerate(((1, one_back), (2, two_back))):
        _look_back(model, head, offset)
        _carry(model, head, matched, place)
    half = MATCHED // 2
    first, second = slice(0, half), slice(half, MATCHED)
    # head 0 matches one token, heads 1 and 2 match two tokens in a row, each on its own half of the dimensions
    _match(model, 0, [(matched, one_back)])
    for head, part in ((1, first), (2, second)):
        _match(model, head, [(matched[part], one_back[part]), (one_back[part], two_back[part])])
    free = basis[3 * MATCHED :]
    for head in range(3):
        _read(model, head, free[head * 32 : (head + 1) * 32])


def _orthonormal(width: int, generator: torch.Generator) -> Tensor:
    """Return width - 1 orthonormal rows (width - 1, width) that are zero in entry 0."""
    square, _ = torch.linalg.qr(torch.randn(width - 1, width - 1, generator=generator))
    return torch.cat([torch.zeros(width - 1, 1), square], dim=1)


def _head(model: LlamaForCausalLM, head: int) -> slice:
    return slice(head * model.config.head_dim, (head + 1) * model.config.head_dim)


def _look_back(model: LlamaForCausalLM, head: int, offset: int) -> None:
    """Let a head of layer 0 look exactly `offset` places back, whatever stands there.

    Query and key read the constant entry only. With rotary angles w_i, the score of a key n places back is
    sum_i A_i cos(w_i (n - offset)), which is largest at n = offset.
    """
    attention = model.model.layers[0].self_attn
    pairs = model.config.head_dim // 2
    angles = model.config.rope_parameters["rope_theta"] ** (-torch.arange(pairs) / pairs)
    strength = math.sqrt(OFFSET_STRENGTH * math.sqrt(model.config.head_dim) / 6) / CONSTANT
    query, key = torch.zeros(2 * pairs), torch.zeros(2 * pairs)
    key[:6] = strength  # the six fastest frequencies tell neighbouring places apart
    query[:6] = strength * torch.cos(angles[:6] * offset)
    query[pairs : pairs + 6] = -strength * torch.sin(angles[:6] * offset)
    rows = _head(model, head)
    attention.q_proj.weight[rows] = 0.0
    attention.k_proj.weight[rows] = 0.0
    attention.q_proj.weight[rows, 0] = query
    attention.k_proj.weight[rows, 0] = key


def _carry(model: LlamaForCausalLM, head: int, read: Tensor, write: Tensor) -> None:
    """Let a head of layer 0 write the `read` part of the token it looks at to the place `write`."""
    attention = model.model.layers[0].self_attn
    rows = _head(model, head)
    attention.v_proj.weight[rows] = 0.0
    attention.o_proj.weight[:, rows] = 0.0
    attention.v_proj.weight[rows][: len(read)] = read
    attention.o_proj.weight[:, rows][:, : len(write)] = CARRIED * SCALE * write.T


def _match(model: LlamaForCausalLM, head: int, pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Let a head of layer 1 look where the key parts equal the query parts, on frequencies that hardly turn."""
    attention = model.model.layers[1].self_attn
    rows = _head(model, head)
    turning = model.config.head_dim // 2
    slow = [*range(turning - MATCHED // 2, turning), *range(2 * turning - MATCHED // 2, 2 * turning)]
    attention.q_proj.weight[rows] = 0.0
    attention.k_proj.weight[rows] = 0.0
    start = rows.start
    at = [start + index for index in slow]
    attention.q_proj.weight[at] = SHARPNESS * torch.cat([query for query, _ in pairs])
    attention.k_proj.weight[at] = SHARPNESS * torch.cat([key for _, key in pairs])


def _read(model: LlamaForCausalLM, head: int, read: Tensor) -> None:
    """Let a head of layer 1 add the `read` part of the token it looks at to the prediction."""
    attention = model.model.layers[1].self_attn
    rows = _head(model, head)
    attention.v_proj.weight[rows] = read
    attention.o_proj.weight[:, rows] = READ * SCALE * read.T
