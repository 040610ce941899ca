"""The chat template of a model folder, rendered as transformers renders it, without transformers.

A template is a Jinja program that somebody else wrote, so it runs in Jinja's sandbox and sees plain values only: messages,
tool schemas, and the special tokens by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sanderling.errors import ModelError

Message = Mapping[str, str]
"""`role` and `content`."""
Schema = Mapping[str, Any]
"""A tool as JSON schema: {"type": "function", "function": {"name", "description", "parameters"}}."""

DEFAULT, TOOL_USE = "default", "tool_use"


class _Generation(Extension):
    """`{% generation %}` marks what a model wrote; it prints its body."""

    tags = {"generation"}  # noqa: RUF012  (Jinja's own contract)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class ChatTemplate:
    """One template with the special tokens that it may name.

    `strftime_now`, with which some templates print the date, stands still at the moment at which the template was loaded, so
    that midnight changes no conversation.
    """

    def __init__(self, source: str, variables: Mapping[str, str] | None = None) -> None:
        """Compile the template.

        Raises:
            ModelError: it isn't a Jinja template.
        """
        self._variables = dict(variables or {})
        try:
            self._template = _compile(source)
        except TemplateError as error:
            raise ModelError(
                f"the chat template can't be compiled: {error}; mend the model folder's template"
            ) from error

    def render(
        self, messages: Sequence[Message], tools: Sequence[Schema] | None = None, *, add_generation_prompt: bool
    ) -> str:
        """Return the text of a conversation, markers included; with `add_generation_prompt` the next turn is opened.

        Raises:
            ModelError: the template refuses the conversation, or fails on it.
        """
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                tools=None if tools is None else json.loads(json.dumps(list(tools))),
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._variables,
            )
        except (
            Exception
        ) as error:  # a template is a program: it can fail in any way, and that is always the template's doing
            roles = ", ".join(message["role"] for message in messages)
            raise ModelError(
                f"the chat template fails on the roles {roles}: {type(error).__name__}: {error}"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplates:
    """The templates of a model folder by name; most have one, called "default"."""

    sources: Mapping[str, str]
    variables: Mapping[str, str]  # special tokens by name, such as bos_token

    def choose(self, *, with_tools: bool) -> ChatTemplate:
        """Return the template for a conversation with or without tools.

        Raises:
            ModelError: several templates and none is the default, or it can't be compiled.
        """
        name = TOOL_USE if with_tools and TOOL_USE in self.sources else DEFAULT
        if name not in self.sources:
            raise ModelError(
                f"the model has the chat templates {', '.join(sorted(self.sources))} and none is 'default'"
            )
        return ChatTemplate(self.sources[name], self.variables)


def read_chat_templates(folder: Path, settings: Mapping[str, Any]) -> ChatTemplates | None:
    """Return the templates of a model folder, or None where it has none.

    Args:
        folder: `chat_template.jinja` and `additional_chat_templates/*.jinja` come before what the settings hold.
        settings: the content of tokenizer_config.json.
    """
    sources: dict[str, str] = {}
    file, more = folder / "chat_template.jinja", folder / "additional_chat_templates"
    if file.is_file():
        sources[DEFAULT] = file.read_text("utf-8")
    if more.is_dir():
        sources |= {one.stem: one.read_text("utf-8") for one in sorted(more.glob("*.jinja"))}
    inline = settings.get("chat_template")
    if not sources and isinstance(inline, str):
        sources[DEFAULT] = inline
    elif not sources and isinstance(inline, list):
        sources = {entry["name"]: entry["template"] for entry in inline}
    variables = {key: text for key, value in settings.items() if (text := _token_text(key, value)) is not None}
    return ChatTemplates(sources=sources, variables=variables) if sources else None


def _token_text(key: str, value: Any) -> str | None:
    text = value.get("content") if isinstance(value, dict) else value
    return text if key.endswith("_token") and isinstance(text, str) else None


def _compile(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    return environment.from_string(source, globals={"raise_exception": _refuse, "strftime_now": _clock()})


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter writes for HTML; templates expect JSON as it is."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _clock() -> Callable[[str], str]:
    started = datetime.now()
    return started.strftime
