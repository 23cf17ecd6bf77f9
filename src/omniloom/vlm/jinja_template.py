"""Any Hugging Face ``chat_template``: ids and mask by construction, without ``{% generation %}`` marks.

An answer is learned up to and with the first special token behind it, which ends the turn.

The template is rendered with a mark in place of every text and every image. What comes out is the template's own
scaffolding with the marks in it; there the texts and images are put back. So the border of every turn is known whatever
the template writes around it, and a text that looks like a special token stays text. What the template does to texts
(most trim them) is found out by rendering marks with white space around them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from omniloom.errors import ConfigError, SampleError
from omniloom.vlm.conversation import ImagePart, Part, TokenPart, Turn
from omniloom.vlm.template import Piece, specials_and_texts, trimmed
from omniloom.vlm.tokenizer import Place

# Noncharacters: no tokenizer's template writes them, and JSON data sets are refused where texts hold them.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_MARKS = re.compile(f"[{_OPEN}{_CLOSE}]")
_MESSAGE_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, kw_only=True)
class JinjaTemplate:
    """A chat template in Jinja, as ``tokenizer_config.json`` and ``chat_template.jinja`` hold them.

    Attributes:
        source: the template.
        special_tokens: names of special tokens; what of them the template writes is a token.
        bos_token: what the template knows by this name.
        eos_token: what the template knows by this name.
        variables: more variables for the template, such as ``{"enable_thinking": False}``.
        name: for messages.
        pad: name of the token that fills up batches; ``None``: the tokenizer's.
        after_image: what text after an image is like to the tokenizer.
    """

    source: str
    special_tokens: frozenset[str]
    bos_token: str | None = None
    eos_token: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    name: str = "chat_template"
    pad: str | None = None
    after_image: Place = "after-special"

    @classmethod
    def of(cls, tokenizer: Any, **variables: Any) -> JinjaTemplate:
        """The template that came with a `HuggingFaceTokenizer`.

        Raises:
            ConfigError: it came with none.
        """
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError("the tokenizer came without a chat_template. Choose one by name, such as 'chatml'.")
        return cls(
            source=tokenizer.chat_template,
            special_tokens=tokenizer.special_tokens,
            bos_token=tokenizer.bos_token,
            eos_token=tokenizer.eos_token,
            variables=variables,
        )

    def render(self, turns: Sequence[Turn], *, image_tags: tuple[str, str] = ("", "")) -> list[Piece]:
        """The pieces of a conversation, in order. Arguments as for `ChatTemplate.render`.

        Raises:
            SampleError: ``template``: the template refuses the conversation, or does not write all of it once.
        """
        texts, messages = self._marked(turns)
        scaffold = self._rendered(messages, generation=False)
        pieces: list[Piece] = []
        turn, ended, seen = -1, True, []
        for number, part in enumerate(_MARK.split(scaffold)):
            if number % 2:
                mark = int(part)
                seen.append(mark)
                turn, content = texts[mark]
                role = turns[turn].role
                if isinstance(content, ImagePart):
                    pieces += specials_and_texts(image_tags[0], turn=turn)
                    pieces.append(Piece("image", "", learned=False, image=content.index, turn=turn))
                    pieces += specials_and_texts(image_tags[1], turn=turn)
                elif isinstance(content, TokenPart):
                    pieces.append(Piece("known-or-text", content.name, role == "assistant", turn=turn))
                else:
                    pieces.append(Piece("text", content, role == "assistant", turn=turn))
                ended = role != "assistant"
                continue
            for piece in self._scaffold(part, turn):
                # White space that a template puts between an answer and its end token is written by the model as well.
                learned = not ended
                ended = ended or piece.kind == "special"
                pieces.append(Piece(piece.kind, piece.text, learned, turn=turn))
        if seen != list(range(len(texts))):
            raise SampleError(
                f"{self.name} does not write every text of the conversation exactly once, in order: {seen} of "
                f"{len(texts)} came",
                reason="template",
            )
        self._check(texts, messages, scaffold)
        return pieces

    def render_prompt(self, turns: Sequence[Turn], *, image_tags: tuple[str, str] = ("", "")) -> list[Piece]:
        """The pieces up to where the model is to go on, with the template's own generation prompt."""
        pieces = self.render(turns, image_tags=image_tags)
        _, messages = self._marked(turns)
        plain, prompt = (self._rendered(messages, generation=flag) for flag in (False, True))
        if not prompt.startswith(plain):
            raise SampleError(f"{self.name} writes turns differently with a generation prompt", reason="template")
        return [*pieces, *self._scaffold(prompt[len(plain) :], len(turns))]

    @property
    def end_tokens(self) -> tuple[str, ...]:
        """Names of the special tokens that end the assistant's turn."""
        pieces = self.render([Turn("user", ("a",)), Turn("assistant", ("b",))])
        return tuple(piece.text for piece in pieces if piece.learned and piece.kind == "special")

    def _marked(self, turns: Sequence[Turn]) -> tuple[list[tuple[int, Part]], list[dict[str, Any]]]:
        """The contents in order, each with its turn, and messages with marks in their place."""
        contents: list[tuple[int, Part]] = []
        messages: list[dict[str, Any]] = []
        for number, turn in enumerate(turns):
            parts = list(turn.parts) or [""]
            if turn.role not in self._trimming:
                self._trimming[turn.role] = self._trims(turn.role)
            trims = self._trimming[turn.role]
            if trims:
                parts = trimmed(parts) or [""]
            marks = []
            for part in parts:
                if isinstance(part, str) and _MARKS.search(part):
                    raise SampleError(f"turn {number} holds a noncharacter U+FDD0 or U+FDD1", reason="template")
                marks.append(f"{_OPEN}{len(contents)}{_CLOSE}")
                contents.append((number, part))
            messages.append({"role": turn.role, "content": "".join(marks)})
        return contents, messages

    def _check(self, texts: list[tuple[int, Part]], messages: list[dict[str, Any]], scaffold: str) -> None:
        """See that the template does to the texts themselves what it does to marks: nothing."""

        def written(match: re.Match[str]) -> str:
            content = texts[int(match[1])][1]
            return match[0] if isinstance(content, ImagePart) else _text_of(content)

        real = [{**message, "content": _MARK.sub(written, message["content"])} for message in messages]
        if self._rendered(real, generation=False) != _MARK.sub(written, scaffold):
            raise SampleError(
                f"{self.name} changes a text of this conversation (reasoning that is cut out of earlier turns, say). "
                "Change the texts to what it writes.",
                reason="template",
            )

    @cached_property
    def _special(self) -> re.Pattern[str]:
        """The special tokens, long ones first."""
        return re.compile(f"({'|'.join(map(re.escape, sorted(self.special_tokens, key=len, reverse=True)))})")

    @cached_property
    def _trimming(self) -> dict[str, bool]:
        """What `_trims` found, by role."""
        return {}

    def _trims(self, role: str) -> bool:
        """Whether the template takes white space off a text of this role."""
        mark = f"{_OPEN}0{_CLOSE}"
        talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        if role == "system":
            talk = [{"role": "system", "content": f" \n{mark} \n"}, *talk]
        else:
            talk[_MESSAGE_ROLES.index(role) - 1]["content"] = f" \n{mark} \n"
        return f" \n{mark} \n" not in self._rendered(talk, generation=False)

    def _scaffold(self, text: str, turn: int) -> list[Piece]:
        """What the template itself writes: special tokens, and texts between them."""
        if not self.special_tokens or not text:
            return [Piece("text", text, learned=False, turn=turn)] if text else []
        found = self._special.split(text)
        kinds = ("text", "special")
        return [Piece(kinds[n % 2], part, learned=False, turn=turn) for n, part in enumerate(found) if part]  # type: ignore[arg-type]

    def _rendered(self, messages: list[dict[str, Any]], *, generation: bool) -> str:
        import jinja2  # noqa: PLC0415 - checked in `_compiled`

        names = {"bos_token": self.bos_token or "", "eos_token": self.eos_token or ""}
        try:
            return str(
                _compiled(self.source).render(
                    messages=messages, add_generation_prompt=generation, **names, **self.variables
                )
            )
        except jinja2.TemplateError as error:
            raise SampleError(f"{self.name}: {error}", reason="template") from error


def _text_of(part: Part) -> str:
    return part if isinstance(part, str) else part.name if isinstance(part, TokenPart) else ""


_CACHE: dict[str, Any] = {}


def _compiled(source: str) -> Any:
    """The compiled template, in Jinja's sandbox and with the functions that `transformers` gives templates."""
    found = _CACHE.get(source)
    if found is None:
        try:
            from jinja2 import TemplateError  # noqa: PLC0415 - an extra
            from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError("a Hugging Face chat_template needs `pip install omniloom[vlm]`") from error

        def raise_exception(message: str) -> None:
            raise TemplateError(message)

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = lambda value, **kw: json.dumps(value, ensure_ascii=False, **kw)
        environment.globals["raise_exception"] = raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            found = _CACHE[source] = environment.from_string(_without_generation_marks(source))
        except TemplateError as error:
            raise ConfigError(f"the chat_template is no sound Jinja: {error}") from error
    return found


def _without_generation_marks(source: str) -> str:
    return re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", source)
