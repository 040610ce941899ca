"""Starting weights with which the model can copy from its context before its first training step.

Copying needs two layers that work together: one carries each token's predecessors along, the next finds the place whose
predecessors are the present tokens and reads what stood there (Elhage et al. 2021, "induction heads"; Olsson et al. 2022,
arXiv 2209.11895). Training finds this circuit only after a long plateau, which would cost most of the budget here. It is
therefore written into the first two layers by hand; everything else starts at random, and all of it is trained.

Rows of one random orthonormal matrix give disjoint subspaces of the residual stream: P reads what is matched of a token,
S1 and S2 hold the P-part of the tokens one and two places back, S3 that of the last line number. A token that follows
`line 7` and a token in line 7 of the source thus have the same S3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

SCALE = 0.05  # of embeddings
CONSTANT = 4.0  # entry 0 of every embedding, and entry 1 of those that name a line, in units of SCALE
MATCHED = 20  # dimensions of P, S1, S2 and S3
CARRIED = 3.0  # strength of the predecessors in the residual stream, relative to the token itself
SHARPNESS = 2.5  # of the match
LINE_SHARPNESS = (1.7, 2.5, 4.0, 5.0)  # of the match of lines in layers 1, 2, 3, ...: later ones see it less clearly
OFFSET_STRENGTH = 80.0  # sum of the scores' amplitudes of a head that looks a fixed number of places back
LIKENESS = 0.8  # share of the variance that tokens of one group have in common
LINE_READERS = (4, 5)  # heads of each later layer that look along the line that is named, its number passed over
POINTERS = 2  # heads of each later layer that can name the line of what they look at
POINTED = 3.0  # strength of that
PASSED_OVER = 4.0  # strength of that
READ = 10.0  # strength of what the match heads read
LINE_READ = 10.0  # the same of those that look along a line


@torch.no_grad()
def write_copying_circuit(model: Any, generator: torch.Generator, alike: Sequence[Sequence[int]] = ()) -> None:
    """Write embeddings, three heads of layer 0 and four heads of layer 1, in place.

    The tokens of each group in `alike` start with like embeddings, so that one is found where another was: `line 7`
    leads to what stands behind the line number 7.

    Needs 6 or more heads of 32 or more dimensions and a rotary base so large that the last 10 frequencies hardly turn
    within an episode.
    """
    width = model.config.hidden_size
    embedding = model.get_input_embeddings().weight
    embedding.normal_(0.0, 1.0, generator=generator)
    for leader, *others in alike:
        embedding[others] = LIKENESS**0.5 * embedding[leader] + (1 - LIKENESS) ** 0.5 * embedding[others]
    marked = torch.zeros(len(embedding))
    marked[[token for group in alike for token in group]] = CONSTANT
    embedding[:, :2] = 0.0
    length = (width - CONSTANT**2 - marked**2) ** 0.5  # every row has the same length: norms must not move attention
    embedding *= (length / embedding.norm(dim=1))[:, None]
    embedding[:, 0] = CONSTANT
    embedding[:, 1] = marked
    embedding *= SCALE
    basis = _orthonormal(width, generator)
    matched, one_back, two_back, line = (basis[MATCHED * i : MATCHED * (i + 1)] for i in range(4))
    for head, (offset, place) in enumerate(((1, one_back), (2, two_back))):
        _look_back(model, head, offset)
        _carry(model, head, matched, place)
    _look_at_last_number(model, 2)
    _carry(model, 2, matched, line)
    half, third = MATCHED // 2, MATCHED // 3
    _match(model, 1, 0, [(matched, one_back)])
    _match(model, 1, 1, [(matched[:half], one_back[:half]), (one_back[:half], two_back[:half])])
    _match(model, 1, 2, [(matched[half:], one_back[half:]), (line[half:], line[half:])])
    rest = MATCHED - 2 * third
    pairs = [(matched[:third], one_back[:third]), (one_back[:third], two_back[:third]), (line[:rest], line[:rest])]
    _match(model, 1, 3, pairs)
    free = basis[4 * MATCHED :]
    for head, part in enumerate((0, 1, 2, 0)):
        _read(model, 1, head, free[part * 32 : (part + 1) * 32])
    for layer in range(1, model.config.num_hidden_layers):
        for head in LINE_READERS:
            _match(model, layer, head, [(line, line)], LINE_SHARPNESS[min(layer, len(LINE_SHARPNESS)) - 1])
            _pass_over_numbers(model, layer, head)
            part = 2 * (layer - 1) + head - LINE_READERS[0]
            _read(model, layer, head, free.roll(-32 * part, 0)[:32], LINE_READ)
    for layer in range(2, model.config.num_hidden_layers):
        for head in range(POINTERS):
            _point(model, layer, head, line, matched)


def _orthonormal(width: int, generator: torch.Generator) -> Tensor:
    """Return width - 2 orthonormal rows (width - 2, width) that are zero in entries 0 and 1."""
    square, _ = torch.linalg.qr(torch.randn(width - 2, width - 2, generator=generator))
    return torch.cat([torch.zeros(width - 2, 2), square], dim=1)


def _head(model: Any, head: int) -> slice:
    return slice(head * model.config.head_dim, (head + 1) * model.config.head_dim)


def _look_back(model: Any, head: int, offset: int) -> None:
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


def _look_at_last_number(model: Any, head: int) -> None:
    """Let a head of layer 0 look at the last token that names a line: entry 1 marks these, slow waves prefer near ones."""
    attention = model.model.layers[0].self_attn
    rows = _head(model, head)
    attention.q_proj.weight[rows] = 0.0
    attention.k_proj.weight[rows] = 0.0
    strength = math.sqrt(OFFSET_STRENGTH * math.sqrt(model.config.head_dim) / 6) / CONSTANT
    at = [rows.start + pair for pair in (2, 3, 4)]
    attention.q_proj.weight[at, 0] = strength
    attention.k_proj.weight[at, 1] = strength


def _carry(model: Any, head: int, read: Tensor, write: Tensor) -> None:
    """Let a head of layer 0 write the `read` part of the token it looks at to the place `write`."""
    attention = model.model.layers[0].self_attn
    rows = _head(model, head)
    attention.v_proj.weight[rows] = 0.0
    attention.o_proj.weight[:, rows] = 0.0
    attention.v_proj.weight[rows][: len(read)] = read
    attention.o_proj.weight[:, rows][:, : len(write)] = CARRIED * SCALE * write.T


def _match(model: Any, layer: int, head: int, pairs: list[tuple[Tensor, Tensor]], sharpness: float = SHARPNESS) -> None:
    """Let a head look where the key parts equal the query parts, on frequencies that hardly turn."""
    attention = model.model.layers[layer].self_attn
    rows = _head(model, head)
    turning = model.config.head_dim // 2
    slow = [*range(turning - MATCHED // 2, turning), *range(2 * turning - MATCHED // 2, 2 * turning)]
    attention.q_proj.weight[rows] = 0.0
    attention.k_proj.weight[rows] = 0.0
    start = rows.start
    at = [start + index for index in slow]
    attention.q_proj.weight[at] = sharpness * torch.cat([query for query, _ in pairs])
    attention.k_proj.weight[at] = sharpness * torch.cat([key for _, key in pairs])


def _pass_over_numbers(model: Any, layer: int, head: int) -> None:
    """Keep a head of a match from the tokens that name a line, above all from the one that asks."""
    attention = model.model.layers[layer].self_attn
    at = head * model.config.head_dim + model.config.head_dim // 2 - MATCHED // 2 - 1  # the next slowest frequency
    attention.q_proj.weight[at, 0] = PASSED_OVER
    attention.k_proj.weight[at, 1] = -PASSED_OVER


def _point(model: Any, layer: int, head: int, line: Tensor, matched: Tensor) -> None:
    """Let a head, wherever it looks, raise the tokens that name the line it looks at. Where to look is left to training."""
    attention = model.model.layers[layer].self_attn
    rows = _head(model, head)
    attention.v_proj.weight[rows] = 0.0
    attention.o_proj.weight[:, rows] = 0.0
    attention.v_proj.weight[rows][: len(line)] = line
    attention.o_proj.weight[:, rows][:, : len(matched)] = POINTED * SCALE * matched.T


def _read(model: Any, layer: int, head: int, read: Tensor, strength: float = READ) -> None:
    """Let a head add the `read` part of the token it looks at to the prediction."""
    attention = model.model.layers[layer].self_attn
    rows = _head(model, head)
    attention.v_proj.weight[rows] = read
    attention.o_proj.weight[:, rows] = strength * SCALE * read.T
