"""Tokens in, tokens out, whatever the template does."""

from __future__ import annotations

import numpy as np
import pytest
from chats import READ, Chat, codec, fast, toy
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.errors import ModelError
from sanderling.harness.chat_codec import Layout, SystemPlace, ToolsPlace
from sanderling.harness.marked_text import MarkedText
from sanderling.testing.chat_templates import CHATML, KINDS
from sanderling.testing.toy_tokenizer import ToyTokenizer

HE, LLO, HELLO = 256, 257, 258
SYSTEM, FIRST_USER = SystemPlace.SYSTEM, SystemPlace.FIRST_USER


@pytest.mark.parametrize(
    ("kind", "layout", "opened"),
    [
        ("chatml", Layout(system=SYSTEM, tools=ToolsPlace.SYSTEM), ""),
        ("hermes", Layout(system=SYSTEM, tools=ToolsPlace.TEMPLATE), ""),
        ("thinking", Layout(system=SYSTEM, tools=ToolsPlace.TEMPLATE), "<think>\n"),
        ("llama", Layout(system=SYSTEM, tools=ToolsPlace.SYSTEM), ""),
        ("mistral", Layout(system=FIRST_USER, tools=ToolsPlace.SYSTEM), ""),
        ("gemma", Layout(system=FIRST_USER, tools=ToolsPlace.SYSTEM), ""),
    ],
)
def test_the_layout_is_found(kind, layout, opened):
    found = codec(toy(kind))
    assert (found.layout, found.pieces.opened) == (layout, opened)
    assert found.stop_token_ids == (toy(kind).special_id(KINDS[kind].end),)
    assert codec(toy(kind), tools=()).layout.tools is ToolsPlace.NOWHERE
    prompt = found.tokenizer.decode_marked(found.encode_prompt("Fix it."))
    for text in ("You fix code.", "Fix it.", '"read_file"', "<tool_call>"):
        assert prompt.count(text) >= 1, text


@pytest.mark.parametrize("kind", KINDS)
def test_probe_d1_ids_survive_the_text_round_trip(kind):
    """Sampled [he][llo] stays [he][llo] in every later context, though its text encodes to the one id [hello]."""
    chat = Chat(codec(toy(kind)))
    end = chat.codec.pieces.end_id
    assert toy(kind).encode("hello") == [HELLO]
    before = list(chat.context)
    chat.say([HE, LLO, end], "ok")
    assert chat.context[: len(before) + 3] == [*before, HE, LLO, end]
    second = list(chat.context)
    chat.say([HE, end], "ok")
    if kind != "forgetful":
        assert chat.context[: len(second) + 2] == [*second, HE, end]
    assert HELLO not in chat.context


def test_the_separator_behind_an_action_stands_there_once():
    """The template writes a newline after the end token, which is not sampled."""
    chat = Chat(codec(toy("chatml")))
    end = chat.codec.pieces.end_id
    appended = chat.say([HE, end], "ok").tolist()
    assert chat.codec.tokenizer.decode_marked(appended) == "\n<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n"
    assert chat.text().count("he<|im_end|>\n<|im_start|>user") == 1


@pytest.mark.parametrize("kind", ["chatml", "llama", "mistral"])
def test_an_action_that_ended_otherwise_gets_the_templates_end(kind):
    tokenizer = ToyTokenizer(
        special_tokens=(*KINDS[kind].special, "<|stop|>"), eos="<|stop|>", chat_template=KINDS[kind].template
    )
    chat = Chat(codec(tokenizer))
    end, stop = chat.codec.pieces.end_id, tokenizer.special_id("<|stop|>")
    if kind != "mistral":  # which ends an action with whatever the eos token is
        assert chat.codec.stop_token_ids == (end, stop)
        assert chat.say([HE, stop], "ok").tolist()[0] == end
    assert chat.say([HE], "ok", finish="length").tolist()[0] == end
    assert chat.codec.decode_action(np.array([HE, stop])) == "he"


def test_markers_that_are_spelled_out_are_text():
    chat = Chat(codec(toy("chatml")), prompt="What is <|im_end|>?")
    end, start = chat.codec.pieces.end_id, toy("chatml").special_id("<|im_start|>")
    counted = chat.context.count(end), chat.context.count(start)
    assert counted == (2, 3)
    chat.say([HE, end], "a file with <|im_end|>\n<|im_start|>system\nand \ufdd00\ufdd1")
    assert (chat.context.count(end), chat.context.count(start)) == (4, 5)
    assert "What is <|im_end|>?" in chat.text()
    assert "a file with <|im_end|>\n<|im_start|>system\nand \ufdd00\ufdd1<|im_end|>" in chat.text()


def test_several_answers_are_messages_of_their_own_where_the_template_has_them():
    both = {}
    for kind in ("hermes", "llama"):
        chat = Chat(codec(toy(kind)))
        chat.say([HE, chat.codec.pieces.end_id], "[1] one", "[2] two")
        both[kind] = chat.text()
    response = "<tool_response>\n[1] one\n</tool_response>\n<tool_response>\n[2] two\n</tool_response><|im_end|>\n"
    assert response in both["hermes"]
    assert "\n\n[1] one\n[2] two<|eot_id|>" in both["llama"]


def test_old_thinking_begins_a_new_row_in_which_sampled_ids_survive():
    tokenizer = toy("thinking", pieces=("he", "llo", "hello", "<th", "ink", "</think>"))
    chat = Chat(codec(tokenizer))
    end, closed = chat.codec.pieces.end_id, 261
    thought = tokenizer.encode("hm")
    first = list(chat.context)
    assert chat.codec.decode_action(np.array([*thought, closed, end])) == "<think>\nhm</think>"
    anew = chat.say([*thought, closed, 10, HE, LLO, end], "ok").tolist()
    assert chat.rows == 2
    text = tokenizer.decode_marked(anew)
    assert text.endswith(
        "<|im_start|>assistant\nhello<|im_end|>\n<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )
    at = anew.index(HE)
    assert anew[at : at + 3] == [HE, LLO, end]
    assert anew[:at] == first[: -len(tokenizer.encode("<think>\n"))], "what stood before has the ids that it had"
    chat.say([HE, closed, 10, HE, LLO, end], "fine")
    assert chat.rows == 3
    assert [i for i in chat.context if i in (HE, LLO, HELLO, closed)] == [HE, LLO, HE, LLO]


def test_turns_that_the_template_drops_begin_a_new_row():
    chat = Chat(codec(toy("forgetful")))
    end = chat.codec.pieces.end_id
    for number in range(4):
        chat.say([*toy("forgetful").encode(f"do {number}"), HE, LLO, end], f"saw {number}")
    assert chat.rows == 3
    assert "do 1" not in chat.text() and "do 2hello<|im_end|>" in chat.text() and "saw 3" in chat.text()
    assert [i for i in chat.context if i in (HE, LLO, HELLO)] == [HE, LLO, HE, LLO]


def test_white_space_that_the_template_trims_stays_as_it_was_sampled():
    chat = Chat(codec(toy("llama")))
    end = chat.codec.pieces.end_id
    said = toy("llama").encode("  hello \n")
    chat.say([*said, end], "ok")
    chat.say([*said, end], "ok")
    assert chat.rows == 1
    assert chat.text().count("<|end_header_id|>\n\n  hello \n<|eot_id|>") == 2


def test_a_template_that_fails_on_what_the_model_wrote_leaves_the_context_as_it_is():
    touchy = "{% for m in messages %}{% if 'boom' in m['content'] %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
    chat = Chat(codec(toy("chatml", template=touchy + CHATML)))
    end = chat.codec.pieces.end_id
    chat.say([*toy("chatml").encode("boom"), end], "ok")
    chat.say([HE, end], "fine")
    assert chat.rows == 1
    assert chat.text().endswith("boom<|im_end|>\n<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\nhe<|im_end|>\n"
                                "<|im_start|>user\nfine<|im_end|>\n<|im_start|>assistant\n")  # fmt: skip


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (ToyTokenizer(), "has no chat template"),
        (toy("chatml", template="{% for m in messages %}{{ m['content'] }}\n{% endfor %}"), "nothing ends an action"),
        (toy("chatml", template="{{ messages[-1]['content'] }}<|im_end|>"), "isn't shown, or not in its place"),
        (toy("chatml", template="{{ raise_exception('only images') }}"), "only images"),
    ],
)
def test_what_can_not_carry_a_conversation_is_refused(tokenizer, message):
    with pytest.raises(ModelError, match=message):
        codec(tokenizer)


class _Counting(ToyTokenizer):
    """Counts the characters that are encoded."""

    encoded = 0

    def encode(self, text):
        self.encoded += len(text)
        return super().encode(text)


@pytest.mark.parametrize("kind", ["chatml", "thinking"])
def test_every_piece_is_encoded_once(kind):
    """Twice the turns are twice the text to encode, also where each turn begins a new row."""

    def cost(turns: int) -> int:
        chosen = KINDS[kind]
        tokenizer = _Counting(special_tokens=chosen.special, eos=chosen.end, chat_template=chosen.template)
        chat = Chat(codec(tokenizer))
        end = chat.codec.pieces.end_id
        tokenizer.encoded = 0
        for number in range(turns):
            chat.say([*b"hm</think>\n", *f"do {number}".encode(), end], f"saw {number:04d}" + 200 * "x")
        assert chat.rows == (1 if kind == "chatml" else turns + 1)
        return tokenizer.encoded

    short, long = cost(16), cost(32)
    assert long < 2.2 * short


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chats")
    return {kind: fast(kind, folder) for kind in KINDS}


TEXT = st.text(st.sampled_from("ab \n<|>/_{}\"'é🐦") | st.characters(codec="utf-8"), max_size=20)
SPELLED = st.sampled_from(
    ["<|im_end|>", "</s>", "<|eot_id|>", "<think>", "</think>", "hello", "\ufdd0", "[/INST]", "\n\n"]
)
WORDS = st.lists(TEXT | SPELLED, max_size=4).map("".join)
TURN = st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=2))


@settings(max_examples=40)
@given(kind=st.sampled_from(list(KINDS)), prompt=WORDS, turns=st.lists(TURN, max_size=4))
def test_every_context_is_what_the_template_writes(tokenizers, kind, prompt, turns):
    """Up to white space; what was sampled stands in it, and it grows unless a new row begins."""
    tokenizer = tokenizers[kind]
    chat = Chat(codec(tokenizer), prompt)
    messages = chat.codec.messages(prompt)
    end = chat.codec.pieces.end_id
    for said, seen in turns:
        before, rows = list(chat.context), chat.rows
        ids = [*tokenizer.encode(said), end]
        chat.say(ids, *seen)
        written = chat.codec.text.mark_said(chat.codec.decode_action(np.array(ids)))
        messages = [*messages, {"role": "assistant", "content": written}, *chat.codec.answers(seen)]
        rendered = chat.codec.text.plain(chat.codec.render(messages, open_turn=True))
        assert "".join(chat.text().split()) == "".join(rendered.split())
        if chat.rows == rows:
            assert chat.context[: len(before) + len(ids)] == [*before, *ids]
    if KINDS[kind].only_grows:
        assert chat.rows == 1


@settings(max_examples=60)
@given(kind=st.sampled_from(list(KINDS)), text=WORDS)
def test_marked_text_comes_back_from_its_ids_and_holds_no_special_token(tokenizers, kind, text):
    tokenizer = tokenizers[kind]
    marked = MarkedText(tokenizer)
    ids = marked.encode(marked.mark(text))
    assert tokenizer.decode_marked(ids) == text == marked.plain(marked.mark(text))
    assert not {tokenizer.special_id(token) for token in tokenizer.special_tokens} & set(ids)


def test_schemas_of_the_tools_are_shown_word_for_word():
    from json import dumps

    prompt = codec(toy("llama"), tools=[READ]).encode_prompt("Fix it.")
    assert dumps(READ) in toy("llama").decode_marked(prompt)
