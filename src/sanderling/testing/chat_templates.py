"""Small chat templates of the kinds that models come with, and a tokenizer folder for each. For tests of chats.

They are as short as their kind allows, and differ where real ones do: who shows the tools, whether there is a system role, what
is trimmed, what is left out of earlier turns, how a turn is opened and closed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_CORPUS = (
    "def clamp(value, low, high):\n    if value < low:\n        return low\n    return min(value, high)\n",
    '<tool_call>\n{"name": "read_file", "arguments": {"path": "solution.py", "start": 1}}\n</tool_call>\n',
    "<think>\nThe test says that total is wrong.\n</think>\n\nsystem user assistant tool\n",
)

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

_TOOLS = """\
{{- '\\n\\n# Tools\\n<tools>' }}
{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}
{{- '\\n</tools>\\nCall one as\\n<tool_call>\\n{"name": <name>, "arguments": <object>}\\n</tool_call>' }}"""

_TURNS = """\
{%- for message in messages %}
{%- if message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' + SAID + '<|im_end|>\\n' }}
{%- elif message.role != 'system' %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}"""

_HEAD = (
    "{{- '<|im_start|>system\\n' + (messages[0].content if messages[0].role == 'system' else '') }}"
    "{%- if tools %}" + _TOOLS + "{% endif %}{{- '<|im_end|>\\n' }}"
)

HERMES = (
    _HEAD
    + _TURNS.replace("SAID", "message.content")
    + "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_BARE = "(message.content.split('</think>') | last).lstrip('\\n')"

THINKING = (  # thinking is left out of every turn but the one that is being written
    _HEAD
    + _TURNS.replace("SAID", _BARE)
    + "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"
)

FORGETFUL = (  # of what was said and answered, the last two turns are shown
    _HEAD
    + _TURNS.replace("SAID", "message.content").replace(
        "{%- for message in messages %}",
        "{%- set messages = messages[:2] + (messages[2:][-4:] if messages | length > 2 else []) %}"
        "{%- for message in messages %}",
    )
    + "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

LLAMA = """\
{{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

MISTRAL = """\
{{- bos_token }}
{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set turns = messages[1:] %}
{%- else %}{% set system = none %}{% set turns = messages %}{% endif %}
{%- for message in turns %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{%- if message.role == 'user' %}
{{- '[INST] ' + (system + '\\n\\n' if loop.last and system else '') + message.content + '[/INST]' }}
{%- else %}{% generation %}{{ ' ' + message.content | trim + eos_token }}{% endgeneration %}{% endif %}
{%- endfor %}"""

GEMMA = """\
{{- bos_token }}
{%- for message in messages %}
{%- if message.role not in ('user', 'assistant') %}{{ raise_exception('only user and assistant') }}{% endif %}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\\n' + message.content | trim }}
{{- '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A template, the special tokens that it writes, and what is known of it."""

    template: str
    special: tuple[str, ...]
    end: str  # with which an action ends
    only_grows: bool = True  # no context ever changes what stood before


_IM = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
KINDS: dict[str, Kind] = {
    "chatml": Kind(template=CHATML, special=_IM, end="<|im_end|>"),
    "hermes": Kind(template=HERMES, special=_IM, end="<|im_end|>"),
    "thinking": Kind(template=THINKING, special=_IM, end="<|im_end|>", only_grows=False),
    "forgetful": Kind(template=FORGETFUL, special=_IM, end="<|im_end|>", only_grows=False),
    "llama": Kind(
        template=LLAMA,
        special=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        end="<|eot_id|>",
    ),
    # A system message would move with the last task, so the codec puts the instructions before the first one.
    "mistral": Kind(template=MISTRAL, special=("<s>", "</s>", "[INST]", "[/INST]"), end="</s>"),
    "gemma": Kind(template=GEMMA, special=("<bos>", "<start_of_turn>", "<end_of_turn>"), end="<end_of_turn>"),
}
"""By name: what models call ChatML, Hermes with tools, Qwen-like without old thinking, and so on."""


def write_chat_tokenizer(folder: Path, kind: Kind, *, vocab: int = 400) -> Path:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja of a byte-level BPE; return the folder.

    Where the special tokens begin with a begin-of-text token, that is `bos_token`; the last one is `eos_token`.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(kind.special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": kind.special[0], "eos_token": kind.end}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), "utf-8")
    (folder / "chat_template.jinja").write_text(kind.template, "utf-8")
    return folder
