"""A language model behind an OpenAI-compatible endpoint, asked for one text. For statements and monitors, not for rollouts."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from dataclasses import dataclass

from sanderling.errors import ConfigError, EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpoint:
    """Where to ask."""

    url: str  # up to and without /chat/completions, such as "http://localhost:8000/v1"
    model: str
    key: str = ""
    timeout_s: float = 120.0
    attempts: int = 2

    async def ask(self, prompt: str, *, temperature: float) -> str:
        """Return the answer, without space around it.

        Raises:
            ConfigError: the address is none. EngineError: no usable answer in `attempts` attempts.
        """
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"the endpoint is {self.url!r}; expected an address such as 'http://localhost:8000/v1'")
        body = {"model": self.model, "messages": [{"role": "user", "content": prompt}], "temperature": temperature}
        trouble = ""
        for _ in range(self.attempts):
            try:
                text = (await asyncio.to_thread(self._post, body)).strip()
                if text:
                    return text
                trouble = "it answered nothing"
            except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
                trouble = f"{type(error).__name__}: {error}"
        raise EngineError(f"{self.url} gave no answer: {trouble}")

    def _post(self, body: object) -> str:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        address = f"{self.url.rstrip('/')}/chat/completions"
        request = urllib.request.Request(address, data=json.dumps(body).encode(), headers=headers)
        with urllib.request.urlopen(request, timeout=self.timeout_s) as reply:
            return str(json.load(reply)["choices"][0]["message"]["content"] or "")
