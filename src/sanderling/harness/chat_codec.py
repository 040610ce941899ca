"""A chat, laid out by the model's own template: system message, task and tools, then actions and what they were answered.

Tokens in, tokens out. The prompt is encoded once; what the engine sampled is never encoded; an observation is encoded once, as
that which the template puts between an action and the next one. Which pieces these are is found by rendering conversations
with known texts in them and comparing, so any template will do.

Where a template changes what stood before (thinking of earlier turns left out, old turns dropped), the context is not an
extension of the last one any more. Then a new row begins with the context as the template writes it now. Where it differs in
white space alone (many templates trim what the model wrote), the ids stay as they were sampled.

Text of tasks and tools can't become a marker: a special token that is spelled out in it is encoded as plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sanderling.errors import ModelError
from sanderling.harness.chat_template import ChatTemplate, Message, Schema
from sanderling.harness.chat_transcript import ChatTranscript
from sanderling.harness.marked_text import MarkedText
from sanderling.harness.tokenizer import ChatTokenizer, Tokenizer
from sanderling.types import Int32Array

_JSON_CALL = re.compile(r'<tool_call>\s*\{\s*"(name|arguments)"')  # other models write XML between the same tags
_OPEN_THINKING = re.compile(r"<think>\s*\Z")
_SAID, _SEEN, _TASK = "sanderling said this", "sanderling saw that", "sanderling asked for it"
_TOOLS_INTRODUCTION = (
    "# Tools\n\nThese are the tools, as JSON schemas:\n<tools>\n{schemas}\n</tools>\n\nA tool is called by a JSON object "
    'between tags, with arguments as its schema says:\n<tool_call>\n{{"name": "...", "arguments": {{...}}}}\n</tool_call>'
)


class SystemPlace(StrEnum):
    """Where the instructions stand."""

    SYSTEM = "system"  # in a message of their own
    FIRST_USER = "first_user"  # before the task, for templates without a system role


class ToolsPlace(StrEnum):
    """Who shows the tools to the model."""

    NOWHERE = "nowhere"  # there are none
    TEMPLATE = "template"  # the template does, and answers have the role "tool"
    SYSTEM = "system"  # we do, behind the instructions; the template knows none, or another form of calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a conversation is put into messages."""

    system: SystemPlace
    tools: ToolsPlace

    @property
    def role(self) -> str:
        """The role of what an action is answered."""
        return "tool" if self.tools is ToolsPlace.TEMPLATE else "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """What a template puts around texts."""

    opened: str  # the part of an action that the generation prompt writes for the model, such as "<think>\\n"
    generation: str  # the whole generation prompt
    end_id: int  # the token with which an action ends


class ChatCodec:
    """Implements `harness.protocol.Codec` on any tokenizer with a chat template."""

    def __init__(self, tokenizer: Tokenizer, *, system: str, tools: Sequence[Schema] = ()) -> None:
        """Find out what the template does.

        Args:
            tokenizer: of a model folder with a chat template.
            system: the instructions.
            tools: JSON schemas. A template that names each of them and shows a JSON call between `<tool_call>` tags
                declares them itself; otherwise they stand behind the instructions.

        Raises:
            ModelError: there is no template, it can't lay out a conversation of several turns, or it doesn't end an
                action with a special token.
        """
        templates = tokenizer.chat_templates if isinstance(tokenizer, ChatTokenizer) else None
        if templates is None or not isinstance(tokenizer, ChatTokenizer):
            raise ModelError(
                "the policy has no chat template, which this harness needs; use an instruction-tuned model, put a "
                "chat_template.jinja into the model's folder, or choose another harness"
            )
        self.tokenizer: ChatTokenizer = tokenizer
        self.text = MarkedText(tokenizer)
        self._system = system
        self._schemas = tuple(tools)
        self._special_ids = {tokenizer.special_id(token) for token in tokenizer.special_tokens}
        self._template: ChatTemplate = templates.choose(with_tools=bool(tools))
        self.layout, self.pieces = self._examine()

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys([self.pieces.end_id, *self.tokenizer.ending_ids]))

    def encode_prompt(self, text: str) -> Int32Array:
        return self.open(text).prompt_ids

    def open(self, prompt: str) -> ChatTranscript:
        return ChatTranscript(self, prompt)

    def decode_action(self, token_ids: Int32Array) -> str:
        """Return the whole message: what the template opened for the model, and what it wrote. Special tokens stay."""
        return self.pieces.opened + self.tokenizer.decode_marked(self.without_end(token_ids))

    def without_end(self, token_ids: Int32Array) -> list[int]:
        """Return the ids of an action without the token that ended it."""
        ids = token_ids.tolist()
        return ids[:-1] if ids and ids[-1] in self.stop_token_ids else ids

    def first_special(self, token_ids: Sequence[int]) -> int | None:
        """Return the first special token among ids; None: there is none."""
        return next((token for token in token_ids if token in self._special_ids), None)

    def messages(self, prompt: str, layout: Layout | None = None) -> list[Message]:
        """Return the messages before the first action."""
        layout = layout or self.layout
        system = self._system
        if layout.tools is ToolsPlace.SYSTEM:
            schemas = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in self._schemas)
            system = f"{system}\n\n{_TOOLS_INTRODUCTION.format(schemas=schemas)}"
        system, task = self.text.mark(system), self.text.mark(prompt)
        if layout.system is SystemPlace.FIRST_USER:
            return [{"role": "user", "content": f"{system}\n\n{task}"}]
        return [{"role": "system", "content": system}, {"role": "user", "content": task}]

    def answers(self, observations: Sequence[str], layout: Layout | None = None) -> list[Message]:
        """Return the messages that answer an action: one per call where the template has a role for that."""
        role = (layout or self.layout).role
        texts = observations if role == "tool" else ["\n".join(observations)]
        return [{"role": role, "content": self.text.mark(text)} for text in texts]

    def render(self, messages: Sequence[Message], *, open_turn: bool, layout: Layout | None = None) -> str:
        """Return the marked text of a conversation.

        Raises:
            ModelError: the template refuses it.
        """
        by_template = (layout or self.layout).tools is ToolsPlace.TEMPLATE
        tools = self._schemas if by_template else None
        return self._template.render(messages, tools, add_generation_prompt=open_turn)

    def _examine(self) -> tuple[Layout, Pieces]:
        """Return the first layout that the template can carry, and its pieces."""
        problems = []
        for layout in self._layouts():
            try:
                self._check(layout)
                return layout, self._pieces(layout)
            except ModelError as error:
                problems.append(f"{layout.tools.value} tools, {layout.system.value} instructions: {error}")
        raise ModelError(
            "the chat template can't lay out a conversation of several turns; tried "
            + "; ".join(dict.fromkeys(problems))
        )

    def _layouts(self) -> Iterator[Layout]:
        places = [ToolsPlace.TEMPLATE, ToolsPlace.SYSTEM] if self._schemas else [ToolsPlace.NOWHERE]
        for tools in places:
            for system in SystemPlace:
                yield Layout(system=system, tools=tools)

    def _check(self, layout: Layout) -> None:
        """Render two turns, and look whether everything that the model has to read is there, in order.

        Raises:
            ModelError: it isn't.
        """
        said = [{"role": "assistant", "content": f"{_SAID} {turn}"} for turn in (1, 2)]
        seen = [self.answers([f"{_SEEN} {turn}, a", f"{_SEEN} {turn}, b"], layout) for turn in (1, 2)]
        conversation = [*self.messages(_TASK, layout), said[0], *seen[0], said[1], *seen[1]]
        rendered = self.render(conversation, open_turn=True, layout=layout)
        first = conversation[0]["content"]
        expected = [first, *([] if _TASK in first else [_TASK]), said[1]["content"], f"{_SEEN} 2, a", f"{_SEEN} 2, b"]
        at = 0
        for text in expected:
            found = rendered.find(text.strip(), at)
            if found < 0:
                raise ModelError(f"{text[:40]!r} isn't shown, or not in its place")
            at = found + len(text.strip())
        if layout.tools is ToolsPlace.TEMPLATE:
            missing = [s["function"]["name"] for s in self._schemas if s["function"]["name"] not in rendered]
            if missing or not _JSON_CALL.search(rendered):
                raise ModelError(
                    f"the template doesn't show {', '.join(missing) or 'a call as JSON between <tool_call> tags'}"
                )

    def _pieces(self, layout: Layout) -> Pieces:
        before = self.messages(_TASK, layout)
        closed = self.render(before, open_turn=False, layout=layout)
        opened = self.render(before, open_turn=True, layout=layout)
        said = [*before, {"role": "assistant", "content": _SAID}, *self.answers([_SEEN], layout)]
        whole = self.render(said, open_turn=True, layout=layout)
        generation = opened[len(closed) :] if opened.startswith(closed) else ""
        header = whole[len(closed) : whole.rindex(_SAID)] if whole.startswith(closed) else generation
        behind = whole[whole.rindex(_SAID) + len(_SAID) : whole.rindex(_SEEN)]
        end = self.first_special(self.text.encode(behind))
        if end is None:
            raise ModelError(
                f"nothing ends an action: after the model's text the template writes {behind!r}, which has no special token"
            )
        rest = generation[len(header) :] if generation.startswith(header) else ""
        if not rest and (thinking := _OPEN_THINKING.search(generation)):  # where history shows an empty thought instead
            rest = thinking[0]
        return Pieces(opened=rest, generation=generation, end_id=end)
