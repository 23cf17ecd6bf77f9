"""Pieces become ids and the mask of what is learned; truncation that cuts neither an image nor the last target.

Ids are what the tokenizer gives of each run of text between special tokens and images, so that merges within a run
happen as they would in the whole string. Where learned and ignored text meet within a run, the border is kept: the
model generates from exactly the ids that stand before it, so no token may reach across. If the tokenizer of its own
accord puts a border there, the ids are those of the whole run; if it would merge across, each side is encoded alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

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
    known: dict[str, int] = {}
    for piece in pieces:
        kind = piece.kind
        if kind == "known-or-text":
            kind = "text" if tokenizer.token_id(piece.text) is None else "special"
        if kind == "text":
            run.append(piece)
            continue
        if run:
            _add_run(made, run, tokenizer, place)
            run = []
        if kind == "image":
            made.ids.append(image_id)
            made.images.append(piece.image)
            place = after_image
        else:
            if piece.text not in known:
                known[piece.text] = special_id(tokenizer, piece.text)
            made.ids.append(known[piece.text])
            place = "after-special"
        made.learned.append(piece.learned)
    _add_run(made, run, tokenizer, place)
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


def _add_run(made: TokenizedConversation, run: list[Piece], tokenizer: Tokenizer, place: Place) -> None:
    """The ids of neighbouring texts: merged where they are alike, cut where learned meets ignored."""
    before = ""
    before_ids: list[int] = []
    where = place
    for learned, pieces in groupby(run, key=lambda piece: piece.learned):
        text = "".join(piece.text for piece in pieces)
        ids = tokenizer.encode(before + text, place=where)
        if before:
            own = tokenizer.encode(text, place="inside")
            ids = ids[len(before_ids) :] if ids[: len(before_ids)] == before_ids else own
            before_ids, where = own, "inside"
        else:
            before_ids = ids
        made.ids.extend(ids)
        made.learned.extend([learned] * len(ids))
        before = text


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
