"""The letter environment through a chat whose template forgets: every episode of three turns has two rows."""

from __future__ import annotations

from sanderling.environment import Environment
from sanderling.harness.chat_codec import ChatCodec
from sanderling.harness.protocol import Codec, Conversation, Reply
from sanderling.harness.tokenizer import Tokenizer
from sanderling.sandbox.protocol import Sandbox
from sanderling.testing.letters import ANSWER
from sanderling.types import Int32Array, StopReason, Task

TEMPLATE = (
    "{%- for m in messages[:2] + messages[2:][-2:] %}"
    "{{ '<|' + ('assistant' if m['role'] == 'assistant' else 'user') + '|>' + m['content'] + '<|end|>' }}"
    "{%- endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


class OpenChat(ChatCodec):
    """Random weights hardly ever emit the end marker, so every token may be the last one of an action."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return tuple(range(320))

    def without_end(self, token_ids: Int32Array) -> list[int]:
        return token_ids.tolist()


class ThreeTurns:
    """What is said in three turns is the answer."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._turns = 0
        self._said = ""

    async def act(self, text: str) -> Reply:
        self._turns += 1
        self._said += text
        if self._turns < 3:
            return Reply(text=f"go on {self._turns}")
        await self._sandbox.write_file(ANSWER, self._said.encode())
        return Reply(text="", stop=StopReason.SUBMITTED)


class ChatLetters:
    """Made with the environment that it is for; see the setting `harness`."""

    def __init__(self, environment: Environment) -> None:
        assert environment.name == "letters"

    def prompt(self, task: Task) -> str:
        return task.prompt

    def start(self, task: Task, sandbox: Sandbox) -> Conversation:
        return ThreeTurns(sandbox)

    def codec(self, tokenizer: Tokenizer) -> Codec:
        return OpenChat(tokenizer, system="Write.")
