"""Any Hugging Face ``chat_template``: ids and mask by construction, without ``{% generation %}`` marks.

What is learned is what the model has to write: from the end of the template's own generation prompt, up to and with the
first special token behind the answer, which ends the turn.

The template is rendered with a mark in place of every text and every image. What comes out is the template's own
scaffolding with the marks in it; there the texts and images are put back. So the border of every turn is known whatever
the template writes around it, and a text that looks like a special token stays text. What the template does to texts
(most trim them) is found out by rendering marks with white space around them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from omniloom.errors import ConfigError, SampleError
from omniloom.vlm.conversation import ImagePart, Part, TokenPart, Turn
from omniloom.vlm.template import Piece, PieceKind, specials_and_texts, trimmed
from omniloom.vlm.tokenizer import Place

# Noncharacters: no tokenizer's template writes them, and JSON data sets are refused where texts hold them.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_MARKS = re.compile(f"[{_OPEN}{_CLOSE}]")
OWN_TEMPLATE = "model"
"""As recipes and the command line call the template that came with a tokenizer."""

_MESSAGE_ROLES = ("system", "user", "assistant")


class _Marked(NamedTuple):
    """Messages with marks, what the marks stand for (with its turn), and images that the template is given as parts."""

    messages: list[dict[str, Any]]
    contents: list[tuple[int, Part]]
    images: list[int]


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
        image_token: what the template writes for an image, such as ``<|image_pad|>``; then it is given images as parts
            of messages, and puts around them what the model knows. ``None``: images stand in the text, in tags.
        after_image: what text after an image is like to the tokenizer.
    """

    source: str
    special_tokens: frozenset[str]
    bos_token: str | None = None
    eos_token: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    name: str = "chat_template"
    pad: str | None = None
    image_token: str | None = None
    after_image: Place = "after-special"

    @classmethod
    def of(cls, tokenizer: Any, *, image_token: str | None = None, **variables: Any) -> JinjaTemplate:
        """The template that came with a `HuggingFaceTokenizer`.

        Args:
            tokenizer: the tokenizer.
            image_token: what its template writes for an image.
            variables: more variables for the template.

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
            image_token=image_token,
        )

    def render(self, turns: Sequence[Turn], *, image_tags: tuple[str, str] = ("", "")) -> list[Piece]:
        """The pieces of a conversation, in order. Arguments as for `ChatTemplate.render`.

        With `image_token`, what stands around an image is the template's own, and the tags are not used.

        Raises:
            SampleError: ``template``: the template refuses the conversation, or does not write all of it once.
        """
        marked = self._marked(turns)
        scaffold = self._rendered(marked.messages, generation=False)
        pieces: list[Piece] = []
        images = iter(marked.images)
        turn, answered, seen = -1, False, []
        at = 0
        for match in [*_MARK.finditer(scaffold), None]:
            stop = len(scaffold) if match is None else match.start()
            following = None if match is None else marked.contents[int(match[1])][0]
            if following is not None and not turns[following].learned:
                following = None
            lead = self._lead(marked, scaffold, start=at, stop=stop, turn=turn, following=following)
            written = self._after_content(scaffold[at : stop - lead], answered=answered)
            for piece in [*written, *self._scaffold(scaffold[stop - lead : stop], learned=True)]:
                if piece.kind == "special" and piece.text == self.image_token:
                    pieces.append(Piece("image", "", learned=False, image=next(images, -1)))
                else:
                    pieces.append(piece)
            if match is None:
                break
            at = match.end()
            seen.append(int(match[1]))
            turn, content = marked.contents[seen[-1]]
            answered = turns[turn].role == "assistant" and turns[turn].learned
            pieces += _content_pieces(content, image_tags, learned=answered)
        lost = seen != list(range(len(marked.contents)))
        if lost or next(images, None) is not None or any(p.kind == "image" and p.image < 0 for p in pieces):
            raise SampleError(
                f"{self.name} does not write every text and image of the conversation exactly once, in order: texts "
                f"{seen} of {len(marked.contents)} came",
                reason="template",
            )
        self._check(marked, scaffold)
        return pieces

    def render_prompt(self, turns: Sequence[Turn], *, image_tags: tuple[str, str] = ("", "")) -> list[Piece]:
        """The pieces up to where the model is to go on, with the template's own generation prompt."""
        pieces = self.render(turns, image_tags=image_tags)
        messages = self._marked(turns).messages
        plain, prompt = (self._rendered(messages, generation=flag) for flag in (False, True))
        if not prompt.startswith(plain):
            raise SampleError(f"{self.name} writes turns differently with a generation prompt", reason="template")
        return [*pieces, *self._scaffold(prompt[len(plain) :])]

    @property
    def end_tokens(self) -> tuple[str, ...]:
        """Names of the special tokens that end the assistant's turn."""
        pieces = self.render([Turn("user", ("a",)), Turn("assistant", ("b",))])
        return tuple(piece.text for piece in pieces if piece.learned and piece.kind == "special")

    def doubts(self) -> list[str]:
        """What a model that is trained with this template would not learn, or would be asked otherwise, in words."""
        talk = [Turn("user", ("question",)), Turn("assistant", ("answer",))]
        try:
            pieces, prompt = self.render(talk), self.render_prompt(talk[:1])
        except SampleError as error:
            return [f"{self.name} does not write a question and its answer: {error}"]
        found = []
        if not "".join(piece.text for piece in pieces if piece.learned).partition("answer")[2]:
            found.append(f"{self.name} ends an answer with nothing: what is trained with it does not learn to stop.")
        whole, asked = ("".join(piece.text for piece in each) for each in (pieces, prompt))
        if not whole.startswith(asked):
            before = whole.partition("answer")[0]
            found.append(
                f"{self.name} asks with {asked[-40:]!r} and trains on {before[-40:]!r} before an answer: a model would "
                "be asked what it was not trained on. `template_variables` may choose another way."
            )
        return found

    def _marked(self, turns: Sequence[Turn]) -> _Marked:
        """The contents in order, each with its turn, and messages with marks in their place."""
        marked = _Marked([], [], [])
        for number, turn in enumerate(turns):
            parts = list(turn.parts) or [""]
            if turn.role not in self._trimming:
                self._trimming[turn.role] = self._trims(turn.role)
            if self._trimming[turn.role]:
                parts = trimmed(parts) or [""]
            written: list[str | None] = []
            for part in parts:
                if isinstance(part, str) and _MARKS.search(part):
                    raise SampleError(f"turn {number} holds a noncharacter U+FDD0 or U+FDD1", reason="template")
                if isinstance(part, ImagePart) and self.image_token is not None:
                    marked.images.append(part.index)
                    written.append(None)
                    continue
                written.append(f"{_OPEN}{len(marked.contents)}{_CLOSE}")
                marked.contents.append((number, part))
            marked.messages.append({"role": turn.role, "content": self._content(written)})
        return marked

    def _lead(self, marked: _Marked, scaffold: str, *, start: int, stop: int, turn: int, following: int | None) -> int:
        """Characters before a content that the model has to write as well: those behind the generation prompt.

        Such as the space before a word, or an empty pair of marks of reasoning.
        """
        if following is None or following == turn or marked.messages[following]["role"] != "assistant":
            return 0
        prompt = self._rendered(marked.messages[:following], generation=True)
        if not scaffold.startswith(prompt) or len(prompt) > stop:
            return 0
        return stop - max(len(prompt), start)

    def _content(self, written: Sequence[str | None]) -> str | list[dict[str, str]]:
        """The content of a message: a text, or parts for templates that want those; ``None`` is an image."""
        if not self._wants_parts:
            return "".join(text or "" for text in written)
        return [{"type": "image"} if text is None else {"type": "text", "text": text} for text in written]

    def _after_content(self, text: str, *, answered: bool) -> list[Piece]:
        """What the template writes after a content. After an answer it is learned as far as it ends the turn.

        That is up to the first special token; in templates without one, what also stands after the last answer.
        """
        pieces = self._scaffold(text)
        if not answered:
            return pieces
        last = next((n for n, piece in enumerate(pieces) if piece.kind == "special"), None)
        if last is not None and pieces[last].text != self.image_token:
            return [replace(piece, learned=n <= last) for n, piece in enumerate(pieces)]
        if not pieces or pieces[0].kind == "special":
            return pieces
        first = pieces[0].text
        pairs = enumerate(zip(first, self._ending, strict=False))
        end = next((n for n, (one, other) in pairs if one != other), min(len(first), len(self._ending)))
        parts = ((first[:end], True), (first[end:], False))
        return [*(Piece("text", part, learned) for part, learned in parts if part), *pieces[1:]]

    @cached_property
    def _ending(self) -> str:
        """What stands after the last answer of a conversation."""
        mark = f"{_OPEN}0{_CLOSE}"
        talk = [{"role": name, "content": self._content([text])} for name, text in (("user", "a"), ("assistant", mark))]
        return _MARK.split(self._rendered(talk, generation=False))[-1]

    @cached_property
    def _wants_parts(self) -> bool:
        """Whether the template looks for the content of messages in parts."""
        if self.image_token is not None:
            return True
        mark = f"{_OPEN}0{_CLOSE}"
        try:
            return mark not in self._rendered([{"role": "user", "content": mark}], generation=False)
        except SampleError:
            return True

    def _check(self, marked: _Marked, scaffold: str) -> None:
        """See that the template does to the texts themselves what it does to marks: nothing."""

        def written(match: re.Match[str]) -> str:
            content = marked.contents[int(match[1])][1]
            return match[0] if isinstance(content, ImagePart) else _text_of(content)

        def real(content: Any) -> Any:
            if isinstance(content, str):
                return _MARK.sub(written, content)
            return [{**p, "text": _MARK.sub(written, p["text"])} if "text" in p else p for p in content]

        messages = [{**message, "content": real(message["content"])} for message in marked.messages]
        if self._rendered(messages, generation=False) != _MARK.sub(written, scaffold):
            raise SampleError(
                f"{self.name} changes a text of this conversation (reasoning that is cut out of earlier turns, say). "
                "Change the texts to what it writes.",
                reason="template",
            )

    @cached_property
    def _special(self) -> re.Pattern[str]:
        """The special tokens, long ones first."""
        tokens = self.special_tokens | ({self.image_token} if self.image_token else set())
        return re.compile(f"({'|'.join(map(re.escape, sorted(tokens, key=len, reverse=True)))})")

    @cached_property
    def _trimming(self) -> dict[str, bool]:
        """What `_trims` found, by role."""
        return {}

    def _trims(self, role: str) -> bool:
        """Whether the template takes white space off a text of this role."""
        padded = f" \n{_OPEN}0{_CLOSE} \n"
        talk = [{"role": name, "content": self._content([text])} for name, text in (("user", "a"), ("assistant", "b"))]
        if role == "system":
            talk = [{"role": "system", "content": self._content([padded])}, *talk]
        else:
            talk[_MESSAGE_ROLES.index(role) - 1]["content"] = self._content([padded])
        return padded not in self._rendered(talk, generation=False)

    def _scaffold(self, text: str, *, learned: bool = False) -> list[Piece]:
        """What the template itself writes: special tokens, and texts between them."""
        if not (self.special_tokens or self.image_token) or not text:
            return [Piece("text", text, learned)] if text else []
        found = self._special.split(text)
        kinds = ("text", "special")
        return [Piece(kinds[n % 2], part, learned) for n, part in enumerate(found) if part]  # type: ignore[arg-type]

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


def _content_pieces(content: Part, image_tags: tuple[str, str], *, learned: bool) -> list[Piece]:
    if isinstance(content, ImagePart):
        image = Piece("image", "", learned=False, image=content.index)
        return [*specials_and_texts(image_tags[0]), image, *specials_and_texts(image_tags[1])]
    kind: PieceKind = "known-or-text" if isinstance(content, TokenPart) else "text"
    return [Piece(kind, _text_of(content), learned)]


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
