"""The questions of one conversation as documents of their own, which share its images.

Data sets ask several things about one image in one conversation. Trained as it stands, a later answer can be read off
earlier ones ("Is it red?" "Yes." "What colour is it?"), and a model learns to do that in place of looking. Asked apart,
no question sees another, and the vision tower still sees each image once. Not for conversations whose questions take up
what was said before.
"""

from __future__ import annotations

import random
from dataclasses import replace

from omniloom.errors import SampleError
from omniloom.vlm.conversation import ImagePart, Part, Turn
from omniloom.vlm.talks import Talk


def questions_of(talk: Talk, *, most: int | None = None) -> list[Talk]:
    """Each question of a conversation with its answer, after all images that were shown by then.

    What the system says stays ahead of each. Images of earlier questions come first in the turn, with a line break
    after them. Questions without a learned answer are left out.

    Args:
        talk: the conversation; a running text, and a video, stay as they are.
        most: so many are drawn from `random`, and stay in their order; ``None``: all.

    Raises:
        SampleError: ``no-target``: none has a learned answer.
    """
    if talk.free or talk.video:
        return [talk]
    ahead = talk.turns[:1] if talk.turns[0].role == "system" else ()
    rounds = [each for each in _rounds(talk.turns[len(ahead) :]) if _is_learned(each[-1])]
    if not rounds:
        raise SampleError("no question of the conversation has an answer that is learned", reason="no-target")
    if most is not None and len(rounds) > most:
        rounds = [rounds[number] for number in sorted(random.sample(range(len(rounds)), most))]
    return [replace(talk, turns=(*ahead, *each)) for each in rounds]


def _rounds(turns: tuple[Turn, ...]) -> list[tuple[Turn, ...]]:
    """Turns up to and with each answer; the first of them shows what was shown before."""
    rounds: list[tuple[Turn, ...]] = []
    shown: list[ImagePart] = []
    asked: list[Turn] = []
    for turn in turns:
        asked.append(turn)
        if turn.role != "assistant":
            continue
        first = replace(asked[0], parts=(*_before(shown), *asked[0].parts)) if asked[0].role == "user" else asked[0]
        rounds.append((first, *asked[1:]))
        shown += [part for each in asked for part in each.parts if isinstance(part, ImagePart) and part not in shown]
        asked = []
    return rounds


def _before(shown: list[ImagePart]) -> tuple[Part, ...]:
    return (*shown, "\n") if shown else ()


def _is_learned(turn: Turn) -> bool:
    return turn.learned and bool(turn.parts)
