"""Pieces become ids and the mask of what is learned; truncation that cuts neither an image nor the last target.

Ids are what the tokenizer gives of each run of text between special tokens and images, so that merges within a run
happen as they would in the whole string. Where learned and ignored text meet within a run, the border is kept: the
model generates from exactly the ids that stand before it, so no token may reach across. If the tokenizer of its own
accord puts a border there, the ids are those of the whole run; if it would merge across, each side is encoded alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from omniloom.errors import ConfigError, SampleError
from omniloom.vlm.template import Piece
from omniloom.vlm.tokenizer import Place, Tokenizer

IGNORE_ID = -100
"""Label of a token that is not learned, as cross-entropy losses know it."""
IMAGE_ID = -200
"""Id of an image's place where the tokenizer has no token of its own for it."""


@dataclass(frozen=True, slots=True)
class TokenizedConversation:
    """A conversation as ids; each image is one id until the model puts its features there.

    Attributes:
        ids: token ids.
        learned: for each id, whether the model is trained to give it.
        images: image of the sample at each image id, in order.
        image_id: id of the places of images.
    """

    ids: list[int]
    learned: list[bool]
    images: list[int]
    image_id: int

    @property
    def labels(self) -> list[int]:
        """The ids, with `IGNORE_ID` where nothing is learned; not shifted."""
        return [number if learned else IGNORE_ID for number, learned in zip(self.ids, self.learned, strict=True)]

    @property
    def has_target(self) -> bool:
        """Whether anything is learned. The first id never is: nothing stands before it."""
        return any(self.learned[1:])

    def expanded_length(self, image_tokens: Sequence[int]) -> int:
        """Tokens once each image has its features.

        Args:
            image_tokens: tokens of each image of the sample.
        """
        return len(self.ids) - len(self.images) + sum(image_tokens[image] for image in self.images)


def tokenize(
    pieces: Sequence[Piece],
    tokenizer: Tokenizer,
    *,
    image_id: int = IMAGE_ID,
    after_image: Place = "after-special",
) -> TokenizedConversation:
    """Ids and mask of a rendered conversation.

    Args:
        pieces: what a template made of the conversation.
        tokenizer: gives the ids.
        image_id: id of the places of images.
        after_image: what text after an image is like to the tokenizer.

    Raises:
        ConfigError: the tokenizer lacks a special token of the template.
    """
    made = TokenizedConversation([], [], [], image_id)
    place: Place = "start"
    run: list[Piece] = []
    for piece in [*(_decided(piece, tokenizer) for piece in pieces), None]:
        if piece is not None and piece.kind == "text":
            run.append(piece)
            continue
        _add_run(made, run, tokenizer, place)
        run = []
        if piece is not None:
            is_image = piece.kind == "image"
            number = image_id if is_image else special_id(tokenizer, piece.text)
            _add(made, [number], piece)
            if is_image:
                made.images.append(piece.image)
            place = after_image if is_image else "after-special"
    return made


def special_id(tokenizer: Tokenizer, name: str) -> int:
    """Id of a special token by name; ``bos`` and ``eos`` are the tokenizer's own.

    Raises:
        ConfigError: the tokenizer has none.
    """
    found = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id}[name] if name in ("bos", "eos") else None
    found = tokenizer.token_id(name) if found is None and name not in ("bos", "eos") else found
    if found is None:
        raise ConfigError(
            f"the tokenizer has no token {name!r}, which the chat template needs. Choose the template that belongs to "
            "the model, or add the token."
        )
    return found


def _decided(piece: Piece, tokenizer: Tokenizer) -> Piece:
    """The piece; a token that need not exist is special or text, as the tokenizer has it."""
    if piece.kind != "known-or-text":
        return piece
    return replace(piece, kind="text" if tokenizer.token_id(piece.text) is None else "special")


def _add_run(made: TokenizedConversation, run: list[Piece], tokenizer: Tokenizer, place: Place) -> None:
    """The ids of neighbouring texts: merged where they are alike, cut where learned meets ignored."""
    spans: list[Piece] = []
    for piece in run:
        if spans and spans[-1].learned == piece.learned:
            spans[-1] = replace(spans[-1], text=spans[-1].text + piece.text)
        else:
            spans.append(piece)
    before = ""
    before_ids: list[int] = []
    for number, span in enumerate(spans):
        where: Place = place if number < 2 else "inside"
        whole = tokenizer.encode(before + span.text, place=where)
        if whole[: len(before_ids)] == before_ids:
            ids = whole[len(before_ids) :]
        else:
            ids = tokenizer.encode(span.text, place="inside")
        _add(made, ids, span)
        before = span.text
        before_ids = ids if number == 0 else tokenizer.encode(before, place="inside")


def _add(made: TokenizedConversation, ids: list[int], piece: Piece) -> None:
    made.ids.extend(ids)
    made.learned.extend([piece.learned] * len(ids))


def truncate(tokens: TokenizedConversation, *, image_tokens: Sequence[int], max_tokens: int) -> TokenizedConversation:
    """The conversation cut at the right to a length, never within an image.

    Args:
        tokens: the conversation.
        image_tokens: tokens of each image of the sample.
        max_tokens: length with the features of images, at least 1.

    Returns:
        At most ``max_tokens`` long; images behind the cut are left out whole.

    Raises:
        SampleError: ``image-over-budget``: an image alone is longer; ``no-target``: nothing learned is left.
    """
    largest = max((image_tokens[image] for image in tokens.images), default=0)
    if largest > max_tokens:
        raise SampleError(
            f"an image takes {largest} tokens, {max_tokens} are allowed. Raise max_tokens, or use fewer tiles.",
            reason="image-over-budget",
        )
    keep, used, images = 0, 0, 0
    for number in tokens.ids:
        is_image = number == tokens.image_id
        used += image_tokens[tokens.images[images]] if is_image else 1
        if used > max_tokens:
            break
        keep += 1
        images += is_image
    cut = replace(
        tokens,
        ids=tokens.ids[:keep],
        learned=tokens.learned[:keep],
        images=tokens.images[:images],
    )
    if not cut.has_target:
        what = "nothing is learned" if not tokens.has_target else f"{max_tokens} tokens end before the first answer"
        raise SampleError(f"no target: {what}", reason="no-target")
    return cut
