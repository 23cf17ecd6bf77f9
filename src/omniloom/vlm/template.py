r"""Chat templates as data, and what a conversation looks like in one: a list of pieces, each learned or not.

A form is written as text in which special tokens stand between guillemets: ``«<|im_start|>»user\n``. ``«bos»`` and
``«eos»`` are the tokenizer's own. What a special token is, is thereby decided here and never by searching the text of
a sample. The mask of what is learned is made together with the pieces, so it cannot slip.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from omniloom.errors import SampleError
from omniloom.vlm.conversation import ImagePart, Part, TokenPart, Turn

PieceKind = Literal["text", "special", "known-or-text", "image"]
_SPECIAL = re.compile(r"«([^»]+)»")


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a rendered conversation.

    Attributes:
        kind: plain text, a special token by name, one if the tokenizer knows it and text otherwise, or an image.
        text: the text or the name of the token; empty for an image.
        learned: whether the model is trained to write it.
        image: which image of the sample; -1 for text.
    """

    kind: PieceKind
    text: str
    learned: bool
    image: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnForm:
    """How a turn is written: ``before lead content after tail``.

    Attributes:
        before: never learned. For the assistant it is what a prompt ends with.
        lead: joined with the content into one text (a space that the first word takes along); learned with it.
        after: ends the turn; learned where the content is.
        tail: between this turn and the next one; learned only with `ChatTemplate.learns_tail`.
        trim: whether white space around the content is taken off.
    """

    before: str = ""
    lead: str = ""
    after: str = ""
    tail: str = ""
    trim: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    r"""A chat template.

    Attributes:
        name: as recipes and the command line call it.
        user: form of the user's turns.
        assistant: form of the assistant's.
        system: form of the system's; what `system_place` joins into a user turn, if it does.
        begin: comes first, never learned.
        system_place: ``turn``: a turn of its own; ``first-user``, ``last-user``: its form stands before the content of
            that turn; ``drop``: left out.
        default_system: what the system says where a conversation does not; ``None``: nothing.
        last_assistant_before: in place of ``assistant.before`` in the last turn, where that differs.
        learns_tail: whether the tail of the assistant's turns is learned, as Megatron's target masks have it.
        ignores_user: the user's texts are left out and only images stay (LLaVA's first stage).
        after_image: what text after an image is like to the tokenizer: LLaVA's own code starts a new string there.
        pad: name of the token that fills up batches; ``None``: the tokenizer's.
    """

    name: str
    user: TurnForm
    assistant: TurnForm
    system: TurnForm | None = None
    begin: str = ""
    system_place: Literal["turn", "first-user", "last-user", "drop"] = "turn"
    default_system: str | None = None
    last_assistant_before: str | None = None
    learns_tail: bool = False
    ignores_user: bool = False
    after_image: Literal["after-special", "start"] = "after-special"
    pad: str | None = None

    def render(self, turns: Sequence[Turn], *, image_tags: tuple[str, str] = ("", "")) -> list[Piece]:
        """The pieces of a conversation, in order.

        Args:
            turns: the conversation; a system turn can only be the first.
            image_tags: forms before and after each image, such as ``("<Image>", "</Image>")``.

        Raises:
            SampleError: ``bad-role``: a system turn in the middle.
        """
        system, spoken = self._split_system(turns)
        pieces = list(specials_and_texts(self.begin))
        last = len(spoken) - 1
        users = [number for number, turn in enumerate(spoken) if turn.role == "user"]
        host = {"first-user": users[:1], "last-user": users[-1:]}.get(self.system_place, [])
        if system is not None and self.system is not None and self.system_place == "turn":
            pieces += self._turn(system, self.system, image_tags)
        for number, turn in enumerate(spoken):
            if turn.role == "assistant":
                form = self.assistant
                if number == last and self.last_assistant_before is not None:
                    form = replace(form, before=self.last_assistant_before)
                pieces += self._turn(turn, form, image_tags)
                continue
            if number in host and system is not None and self.system is not None:
                joined = self._turn(system, self.system, image_tags)
                turn = Turn("user", (*_texts(joined), *turn.parts))  # noqa: PLW2901 - the same turn, with more in it
            pieces += self._turn(turn, self.user, image_tags)
        return pieces

    def render_prompt(self, turns: Sequence[Turn], *, image_tags: tuple[str, str] = ("", "")) -> list[Piece]:
        """The pieces up to where the model is to go on: the turns and what precedes the assistant's content.

        They are exactly those that precede the answer in training; a lead (the space before the first word) belongs to
        the answer.
        """
        answer = Turn("assistant", ("\0",))
        pieces = self.render([*turns, answer], image_tags=image_tags)
        first_learned = max(n for n, piece in enumerate(pieces) if piece.learned and "\0" in piece.text)
        return pieces[:first_learned]

    @property
    def end_tokens(self) -> tuple[str, ...]:
        """Names of the special tokens that end the assistant's turn; ``eos`` is the tokenizer's."""
        return tuple(piece.text for piece in specials_and_texts(self.assistant.after) if piece.kind == "special")

    @property
    def named_tokens(self) -> frozenset[str]:
        """Names of all special tokens that the tokenizer must have."""
        forms = [self.begin, self.last_assistant_before or ""]
        for form in (self.user, self.assistant, self.system or TurnForm()):
            forms += [form.before, form.lead, form.after, form.tail]
        return frozenset(piece.text for text in forms for piece in specials_and_texts(text) if piece.kind == "special")

    def _split_system(self, turns: Sequence[Turn]) -> tuple[Turn | None, list[Turn]]:
        spoken = list(turns)
        system: Turn | None = spoken.pop(0) if spoken and spoken[0].role == "system" else None
        if any(turn.role == "system" for turn in spoken):
            raise SampleError("a system turn stands after the first turn; only the first can be one", reason="bad-role")
        if system is None and self.default_system is not None:
            system = Turn("system", (self.default_system,))
        if system is not None and self.system_place == "drop":
            images = tuple(part for part in system.parts if isinstance(part, ImagePart))
            if images:
                raise SampleError(
                    f"template {self.name} leaves out the system turn, which holds {len(images)} images",
                    reason="placeholder-count",
                )
            system = None
        return system, spoken

    def _turn(self, turn: Turn, form: TurnForm, image_tags: tuple[str, str]) -> list[Piece]:
        learned = turn.role == "assistant" and turn.learned
        parts: Sequence[Part] = turn.parts
        if self.ignores_user and turn.role == "user":
            parts = [part for part in parts if isinstance(part, ImagePart)]
        if form.trim:
            parts = trimmed(parts)
        pieces = list(specials_and_texts(form.before))
        pieces += specials_and_texts(form.lead, learned=learned)
        for part in parts:
            if isinstance(part, ImagePart):
                pieces += specials_and_texts(image_tags[0])
                pieces.append(Piece("image", "", learned=False, image=part.index))
                pieces += specials_and_texts(image_tags[1])
            elif isinstance(part, TokenPart):
                pieces.append(Piece("known-or-text", part.name, learned))
            else:
                pieces.append(Piece("text", part, learned))
        pieces += specials_and_texts(form.after, learned=learned)
        pieces += specials_and_texts(form.tail, learned=learned and self.learns_tail)
        return pieces


@cache
def specials_and_texts(form: str, *, learned: bool = False) -> tuple[Piece, ...]:
    """The pieces of a form: special tokens, which stand between guillemets, and the texts between them."""
    parts = enumerate(_SPECIAL.split(form))
    return tuple(Piece("special" if number % 2 else "text", part, learned) for number, part in parts if part)


def _texts(pieces: Sequence[Piece]) -> Iterator[Part]:
    """The pieces of a system turn as parts of the user turn that takes them in."""
    for piece in pieces:
        if piece.kind == "image":
            yield ImagePart(piece.image)
        else:
            yield TokenPart(piece.text) if piece.kind == "known-or-text" else piece.text


def trimmed(parts: Sequence[Part]) -> list[Part]:
    """The parts without white space at their beginning and end, and without empty ones."""
    left = list(parts)
    if left and isinstance(left[0], str):
        left[0] = left[0].lstrip()
    if left and isinstance(left[-1], str):
        left[-1] = left[-1].rstrip()
    return [part for part in left if part != ""]
