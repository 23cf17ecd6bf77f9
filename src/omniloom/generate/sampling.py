"""Which word comes next: the likeliest, or one drawn, after the scores were bent and cut.

The order is that of transformers: repetition penalty, least number of words, temperature, top-k, top-p. A draw hangs
on the seed, the key of the answer and the number of its word alone, so an answer is the same in any batch, on any
rank, and after a resume.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from omniloom.errors import ConfigError

NO_WORD = -1
_DRAW_BITS = 53


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How words are chosen, and when an answer is over. The default is the likeliest word, again and again.

    Attributes:
        max_new_tokens: at most so many words an answer, the one that ends it included.
        min_new_tokens: no stop token before so many words; stop strings end an answer all the same.
        temperature: divides the scores; 0 takes the likeliest word.
        top_k: words to draw from, the likeliest ones (and those that score the same as the last); 1 takes the
            likeliest, ``None`` all.
        top_p: above 0, at most 1: the fewest likeliest words that together have this probability; ``None`` all.
            With both, top-k comes first.
        repetition_penalty: above 0; scores of words in the prompt or in the answer are divided by it where they are
            positive, multiplied where negative (Keskar et al., CTRL, equation of section 4.1, in the form that
            is in use); 1 does nothing.
        stop: texts that end an answer; neither they nor what follows is part of it.
        seed: of the draws.
        beams: beginnings of an answer that grow side by side, of which the likeliest whole answer is taken; see
            `omniloom.generate.beams`. 1: there is one.
    """

    max_new_tokens: int = 64
    min_new_tokens: int = 0
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int = 0
    beams: int = 1

    def __post_init__(self) -> None:
        for wrong, what in (
            (self.beams < 1, f"beams {self.beams}; at least 1"),
            (
                self.beams > 1 and (self.draws or self.repetition_penalty != 1 or bool(self.stop)),
                f"beams {self.beams} with a temperature, a repetition penalty or stop texts; one without the others",
            ),
            (self.max_new_tokens < 1, f"max_new_tokens {self.max_new_tokens}; at least 1"),
            (
                not 0 <= self.min_new_tokens <= self.max_new_tokens,
                f"min_new_tokens {self.min_new_tokens}; from 0 to max_new_tokens, {self.max_new_tokens},",
            ),
            (
                not (math.isfinite(self.temperature) and self.temperature >= 0),
                f"temperature {self.temperature}; 0 for the likeliest word, or a positive number",
            ),
            (self.top_k is not None and self.top_k < 1, f"top_k {self.top_k}; at least 1, or None for all words,"),
            (
                self.top_p is not None and not 0 < self.top_p <= 1,
                f"top_p {self.top_p}; above 0 and at most 1, or None for all words,",
            ),
            (
                not (math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0),
                f"repetition_penalty {self.repetition_penalty}; a positive number, 1 for none,",
            ),
            ("" in self.stop, "stop holds an empty text; texts of at least one character"),
            (
                not self.temperature and (self.top_p is not None or (self.top_k or 1) > 1),
                f"top_k {self.top_k} and top_p {self.top_p} at temperature 0, where nothing is drawn; a temperature",
            ),
        ):
            if wrong:
                raise ConfigError(f"{what} expected.")

    @property
    def draws(self) -> bool:
        """Whether words are drawn at all."""
        return self.temperature > 0 and self.top_k != 1


def bent_scores(
    logits: Float[Tensor, "rows vocab"],
    *,
    sampling: SamplingConfig,
    seen: Bool[Tensor, "rows vocab"] | None = None,
    forbidden: Bool[Tensor, "rows vocab"] | None = None,
) -> Float[Tensor, "rows vocab"]:
    """The scores that a word is chosen by; minus infinity where it cannot be.

    Args:
        logits: scores of all words.
        sampling: how.
        seen: words in each row's prompt or answer, for the repetition penalty.
        forbidden: words that may not come now.
    """
    scores = logits.float()
    if seen is not None and sampling.repetition_penalty != 1:
        penalty = sampling.repetition_penalty
        scores = torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)
    if forbidden is not None:
        scores = scores.masked_fill(forbidden, -math.inf)
    if not sampling.draws:
        return scores
    scores = scores / sampling.temperature
    if sampling.top_k is not None:
        least = scores.topk(min(sampling.top_k, scores.shape[-1])).values[:, -1:]
        scores = scores.masked_fill(scores < least, -math.inf)
    return scores if sampling.top_p is None else _likeliest_share(scores, sampling.top_p)


def _likeliest_share(scores: Tensor, share: float) -> Tensor:
    """Without the least likely words that together have no more than the rest of the probability."""
    ascending, words = scores.sort(dim=-1)
    left_out = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - share
    left_out[:, -1] = False
    return scores.masked_fill(left_out.scatter(-1, words, left_out), -math.inf)


def draw(scores: Float[Tensor, "rows vocab"], *, seed: int, keys: Sequence[str], step: int) -> Int[Tensor, " rows"]:
    """A word of each row by its probability.

    Args:
        scores: minus infinity where a word cannot come.
        seed: of all draws.
        keys: names of the answers.
        step: how many words each answer has.
    """
    mass = scores.double().softmax(dim=-1).cumsum(dim=-1)
    whole = mass[:, -1:]
    numbers = [uniform(seed, key, step) for key in keys]
    share = torch.tensor(numbers, dtype=torch.float64, device=mass.device)[:, None]
    # Strictly below the whole: the first word whose mass exceeds it has a probability.
    aim = torch.minimum(share * whole, torch.nextafter(whole, torch.zeros_like(whole)))
    return torch.searchsorted(mass, aim, right=True)[:, 0]


def uniform(seed: int, key: str, step: int) -> float:
    """A number from 0 up to 1, without 1: the leading 53 bits of a SHA-256 of the three."""
    digest = hashlib.sha256(f"{seed}\n{step}\n{key}".encode("utf-8", "surrogatepass")).digest()
    return math.ldexp(int.from_bytes(digest[:8], "big") >> (64 - _DRAW_BITS), -_DRAW_BITS)


class Chooser:
    """Chooses the next word of each running answer; remembers what was said where that counts.

    Args:
        sampling: how.
        prompts: token ids; those outside of the vocabulary (placeholders) are passed over.
        keys: one a prompt; draws hang on it.
        vocab_size: words to choose from.
        stop_tokens: words that `SamplingConfig.min_new_tokens` holds back.
        device: of the scores.
    """

    def __init__(
        self,
        sampling: SamplingConfig,
        *,
        prompts: Sequence[Sequence[int]],
        keys: Sequence[str],
        vocab_size: int,
        stop_tokens: Collection[int],
        device: torch.device,
    ) -> None:
        self._sampling = sampling
        self._keys = list(keys)
        self._step = 0
        self._stops = torch.zeros(1, vocab_size, dtype=torch.bool, device=device)
        self._stops[:, [word for word in stop_tokens if word < vocab_size]] = True
        self._seen: Tensor | None = None
        if sampling.repetition_penalty != 1:
            self._seen = torch.zeros(len(prompts), vocab_size, dtype=torch.bool, device=device)
            for row, prompt in enumerate(prompts):
                self._seen[row, [word for word in set(prompt) if 0 <= word < vocab_size]] = True

    def choose(self, logits: Float[Tensor, "rows vocab"]) -> Int[Tensor, " rows"]:
        """One more word of each row; `NO_WORD` where the scores are no numbers."""
        sampling = self._sampling
        held_back = self._stops.expand(logits.shape) if self._step < sampling.min_new_tokens else None
        scores = bent_scores(logits, sampling=sampling, seen=self._seen, forbidden=held_back)
        if sampling.draws:
            words = draw(scores, seed=sampling.seed, keys=self._keys, step=self._step)
        else:
            words = scores.argmax(dim=-1)
        self._step += 1
        if self._seen is not None:
            self._seen.scatter_(1, words[:, None].clamp(max=logits.shape[-1] - 1), True)
        # Told by a word and not by an error: asking here would wait for the device.
        return words.where(scores.amax(dim=-1).isfinite(), NO_WORD)

    def keep(self, places: Sequence[int]) -> None:
        """Go on with these rows only."""
        self._keys = [self._keys[place] for place in places]
        if self._seen is not None:
            self._seen = self._seen[list(places)]
