"""Templates render, and prompts encode, exactly as transformers does it."""

from __future__ import annotations

import json

import pytest
from chats import READ, fast

from sanderling.errors import ModelError
from sanderling.harness.chat_template import ChatTemplate
from sanderling.harness.tokenizer import FastTokenizer
from sanderling.testing.chat_templates import KINDS, write_chat_tokenizer

CONVERSATIONS = [
    [("user", 'Fix <it> & "that".\n')],
    [("system", "You fix."), ("user", "Fix ünïcode 🐦.")],
    [("user", "Fix."), ("assistant", "<think>\nhm\n</think>\n\n  done \n"), ("user", "Really?")],
    [("system", "S"), ("user", "U"), ("assistant", "A"), ("tool", "one"), ("tool", "two"), ("assistant", "B")],
]


@pytest.mark.parametrize("kind", KINDS)
def test_rendering_and_ids_are_those_of_transformers(kind, tmp_path):
    from transformers import PreTrainedTokenizerFast

    ours = fast(kind, tmp_path)
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path / kind)
    compared = 0
    for turns in CONVERSATIONS:
        messages = [{"role": role, "content": content} for role, content in turns]
        for tools in (None, [READ]):
            for opened in (True, False):
                try:
                    expected = theirs.apply_chat_template(
                        messages, tools=tools, add_generation_prompt=opened, tokenize=False
                    )
                except Exception:
                    with pytest.raises(ModelError, match="the chat template fails on the roles"):
                        _render(ours, messages, tools, opened)
                    continue
                text = _render(ours, messages, tools, opened)
                assert text == expected
                ids = theirs.apply_chat_template(
                    messages, tools=tools, add_generation_prompt=opened, tokenize=True, return_dict=False
                )
                assert ours.encode_marked(text) == ids
                assert ours.decode_marked(ids) == text
                compared += 1
    assert compared >= 4


def _render(tokenizer, messages, tools, opened):
    template = tokenizer.chat_templates.choose(with_tools=bool(tools))
    return template.render(messages, tools, add_generation_prompt=opened)


def test_a_model_may_have_a_template_for_tools(tmp_path):
    folder = write_chat_tokenizer(tmp_path, KINDS["chatml"])
    (folder / "chat_template.jinja").unlink()
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools {{ tools | length }}"}]
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": named}))
    tokenizer = FastTokenizer(folder)
    assert _render(tokenizer, [], None, True) == "plain"
    assert _render(tokenizer, [], [READ], True) == "tools 1"
    (folder / "chat_template.jinja").write_text("the file comes first")
    assert _render(FastTokenizer(folder), [], [READ], True) == "the file comes first"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": named[1:]}))
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="none is 'default'"):
        _render(FastTokenizer(folder), [], None, True)


def test_a_folder_without_a_template_has_none(tmp_path):
    folder = write_chat_tokenizer(tmp_path, KINDS["chatml"])
    (folder / "chat_template.jinja").unlink()
    assert FastTokenizer(folder).chat_templates is None


def test_a_model_says_how_it_ends_in_its_generation_settings(tmp_path):
    folder = write_chat_tokenizer(tmp_path, KINDS["chatml"])
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 1]}))
    assert FastTokenizer(folder).ending_ids == (2, 1)
    assert FastTokenizer(folder).special_tokens == ("<|im_start|>", "<|im_end|>", "<|endoftext|>")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% set _ = messages.append(1) %}",
        "{{ messages[0].missing.deeper }}",
        "{{ raise_exception('never') }}",
    ],
)
def test_a_template_is_somebody_elses_program(source):
    with pytest.raises(ModelError, match="the chat template fails on the roles user"):
        ChatTemplate(source).render([{"role": "user", "content": ""}], add_generation_prompt=True)


def test_a_template_that_is_none_is_refused():
    with pytest.raises(ModelError, match="can't be compiled"):
        ChatTemplate("{% for %}")


def test_generation_blocks_and_the_clock():
    template = ChatTemplate("{% generation %}{{ strftime_now('%Y') }}{% endgeneration %}")
    first = template.render([], add_generation_prompt=False)
    assert first.isdigit() and len(first) == 4
