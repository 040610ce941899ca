"""A byte-level BPE for numbered Python source and the calls of the line editor.

The pieces that BPE may merge are chosen so that one decision of the policy is about one token: a line number with the
indentation behind it, `line N`, an operator with its spaces, a keyword with its space, one digit. Names stand without a
leading space in code, so that a name is the same tokens wherever it occurs and can be copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from sanderling.harness.codec import ACT, END

PAD = "<|pad|>"
SPECIAL_TOKENS = (PAD, END, ACT)
VOCABULARY = 1024
ALWAYS = 1_000  # repetitions that make a piece one token
LINES, INDENTATIONS = 15, (0, 4, 8, 12)  # line numbers and indentations that are one token, whatever the texts hold

PIECES = "|".join(
    [
        r"\n[0-9]{1,2} +",  # number and indentation of a source line
        r"line [0-9]{1,2}",
        r"sub\|",
        r"=>",
        r" (?:not in|is not|and|or|in|is|if|else|for) ",
        r"(?:return|if|elif|while|for|not|def|raise|import|from|in|yield|lambda) ",
        r" ?[A-Za-z_]+",
        r"[0-9]",
        r" ?(?:[-+*/%<>=!&|^]|//|\*\*|<<|>>|==|!=|<=|>=|->|:=|[-+*/%&|^]=|//=|\*\*=) ",  # an operator between spaces
        r", ",
        r"[^\w\s]",
        r"\n+",
        r" +",
        r"\s",
        r"\w",
    ]
)


def train_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> Tokenizer:
    """Train the tokenizer on `texts`. Deterministic: equal texts in equal order give an equal tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    heads = [f"line {number}" for number in range(1, LINES + 1)]
    numbers = [f"\n{number}{' ' * (1 + depth)}" for number in range(2, LINES + 1) for depth in INDENTATIONS]
    tokenizer.train_from_iterator([*texts, *(heads + numbers) * ALWAYS], trainer)
    tokenizer.encode_special_tokens = True
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and the tokenizer_config.json that `transformers.AutoTokenizer` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 1536,
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n", "utf-8")
