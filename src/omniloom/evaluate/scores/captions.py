"""Caption scores as the COCO evaluation computes them: BLEU, ROUGE-L and CIDEr-D.

Formulas: BLEU, Papineni et al. 2002; ROUGE-L, Lin 2004; CIDEr-D, Vedantam et al. 2015. Where the papers leave room,
the choices are those of the coco-caption evaluation, which published figures come from. METEOR and SPICE are left out:
they need Java.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from omniloom.errors import ConfigError

Tokens = Sequence[str]
Ngram = tuple[str, ...]

LONGEST_NGRAM = 4
ROUGE_BETA = 1.2
CIDER_SIGMA = 6.0
CIDER_SCALE = 10.0
_TINY, _SMALL = 1e-15, 1e-9  # as the COCO evaluation keeps logarithms and divisions from zero


class CorpusScore(NamedTuple):
    """A score of a whole set and of each of its items.

    Attributes:
        score: of the set; a share, where 1 is printed as 100.
        items: of each item, in the order given.
    """

    score: float
    items: list[float]


class BleuScore(NamedTuple):
    """Corpus BLEU.

    Attributes:
        scores: BLEU-1 to BLEU-4.
        guess: n-grams in the candidates, for n of 1 to 4.
        correct: those that a reference has too, clipped.
        candidate_length: tokens of all candidates.
        reference_length: tokens of the references that are nearest in length.
    """

    scores: tuple[float, float, float, float]
    guess: tuple[int, int, int, int]
    correct: tuple[int, int, int, int]
    candidate_length: int
    reference_length: int


def bleu(candidates: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> BleuScore:
    """Corpus BLEU-1 to BLEU-4 with the reference length nearest to the candidate's.

    Args:
        candidates: tokens of the caption of each image.
        references: tokens of its references.
    """
    _check(candidates, references)
    guess, correct = [0] * LONGEST_NGRAM, [0] * LONGEST_NGRAM
    candidate_length = reference_length = 0
    for candidate, several in zip(candidates, references, strict=True):
        length = len(candidate)
        candidate_length += length
        reference_length += min((abs(len(one) - length), len(one)) for one in several)[1]
        most: Counter[Ngram] = Counter()
        for one in several:
            most |= _ngrams(one)
        for n in range(LONGEST_NGRAM):
            guess[n] += max(0, length - n)
        for ngram, count in _ngrams(candidate).items():
            correct[len(ngram) - 1] += min(count, most[ngram])
    scores, product = [], 1.0
    ratio = (candidate_length + _TINY) / (reference_length + _SMALL)
    brevity = math.exp(1 - 1 / ratio) if ratio < 1 else 1.0
    for n in range(LONGEST_NGRAM):
        product *= (correct[n] + _TINY) / (guess[n] + _SMALL)
        scores.append(product ** (1 / (n + 1)) * brevity)
    return BleuScore(
        (scores[0], scores[1], scores[2], scores[3]),
        (guess[0], guess[1], guess[2], guess[3]),
        (correct[0], correct[1], correct[2], correct[3]),
        candidate_length,
        reference_length,
    )


def rouge_l(candidates: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> CorpusScore:
    """ROUGE-L with beta 1.2: the best precision and the best recall over the references, each on its own.

    Args:
        candidates: tokens of the caption of each image.
        references: tokens of its references.
    """
    _check(candidates, references)
    items = []
    for candidate, several in zip(candidates, references, strict=True):
        common = [(_longest_common_subsequence(candidate, one), len(one)) for one in several]
        # A caption without tokens is one empty token there, as is an empty reference: both then score nothing.
        precision = max(length / max(1, len(candidate)) for length, _ in common)
        recall = max(length / max(1, size) for length, size in common)
        both = recall + ROUGE_BETA**2 * precision
        items.append((1 + ROUGE_BETA**2) * precision * recall / both if precision and recall else 0.0)
    return CorpusScore(_mean(items), items)


def cider_d(
    candidates: Sequence[Tokens],
    references: Sequence[Sequence[Tokens]],
    *,
    document_references: Sequence[Sequence[Tokens]] | None = None,
) -> CorpusScore:
    """CIDEr-D without stemming, scaled by 10: what coco-caption prints as "CIDEr".

    Args:
        candidates: tokens of the caption of each image.
        references: tokens of its references.
        document_references: references from which the document frequencies are taken; ``None``: those of the images
            that are scored, as the COCO evaluation does. So a subset of images has other scores than the whole.
    """
    _check(candidates, references)
    documents = references if document_references is None else document_references
    frequency: Counter[Ngram] = Counter()
    for several in documents:
        frequency.update({ngram for one in several for ngram in _ngrams(one)})
    log_documents = math.log(len(documents)) if documents else 0.0
    log_frequency = {ngram: math.log(count) for ngram, count in frequency.items()}
    items = []
    for candidate, several in zip(candidates, references, strict=True):
        ours = _Weighted.of(candidate, log_documents, log_frequency)
        similar = sum(_similarity(ours, _Weighted.of(one, log_documents, log_frequency)) for one in several)
        items.append(CIDER_SCALE * similar / len(several))
    return CorpusScore(_mean(items), items)


class Rarity(NamedTuple):
    """How rare n-grams are in a collection of texts, as CIDEr weighs them: the logarithm of (texts / those with it).

    Attributes:
        log_texts: logarithm of the number of texts.
        log_counts: of the number of texts that have an n-gram; those that none has are left out.
    """

    log_texts: float
    log_counts: Mapping[Ngram, float]

    @classmethod
    def in_texts(cls, texts: Iterable[Tokens]) -> Rarity:
        """In these texts, of which there is one at least."""
        counts: Counter[Ngram] = Counter()
        number = 0
        for number, tokens in enumerate(texts, 1):  # noqa: B007 - the last one is their number
            counts.update(_ngrams(tokens).keys())
        return cls(math.log(max(number, 1)), {ngram: math.log(count) for ngram, count in counts.items()})


ALL_ALIKE = Rarity(1.0, {})
"""Each n-gram weighs as much as any other."""


def agreement(candidates: Sequence[Tokens], *, rarity: Rarity = ALL_ALIKE) -> list[float]:
    """How much each of some texts that say the same is like all of them, by CIDEr-D's cosine.

    The one with the highest is the choice of minimum Bayes risk (Kumar and Byrne 2004) under this likeness.

    Args:
        candidates: tokens of each; at least one.
        rarity: how much n-grams weigh. By default they are alike, so that a choice hangs on its candidates alone.

    Returns:
        The mean likeness of each, from 0 to 1; higher for what several say alike.
    """
    counted = Counter(map(tuple, candidates))
    weighted = {one: _Weighted.of(one, rarity.log_texts, rarity.log_counts) for one in counted}
    worth = {
        one: math.fsum(count * _similarity(ours, weighted[other]) for other, count in counted.items()) / len(candidates)
        for one, ours in weighted.items()
    }
    return [worth[tuple(one)] for one in candidates]


class _Weighted(NamedTuple):
    """The n-grams of a caption, weighted by frequency, and the norm of the weights for each n."""

    weights: Mapping[Ngram, float]
    norms: tuple[float, ...]
    bigrams: int

    @classmethod
    def of(cls, tokens: Tokens, log_documents: float, log_frequency: Mapping[Ngram, float]) -> _Weighted:
        weights: dict[Ngram, float] = {}
        squares = [0.0] * LONGEST_NGRAM
        for ngram, count in _ngrams(tokens).items():
            weight = count * (log_documents - log_frequency.get(ngram, 0.0))
            weights[ngram] = weight
            squares[len(ngram) - 1] += weight * weight
        return cls(weights, tuple(map(math.sqrt, squares)), max(0, len(tokens) - 1))


def _similarity(candidate: _Weighted, reference: _Weighted) -> float:
    """Cosine of clipped weights, averaged over n, less for another length (counted in bigrams)."""
    products = [0.0] * LONGEST_NGRAM
    theirs = reference.weights
    for ngram, weight in candidate.weights.items():
        other = theirs.get(ngram)
        if other is not None:
            products[len(ngram) - 1] += min(weight, other) * other
    difference = candidate.bigrams - reference.bigrams
    penalty = math.exp(-(difference**2) / (2 * CIDER_SIGMA**2))
    total = 0.0
    for product, ours, other in zip(products, candidate.norms, reference.norms, strict=True):
        total += (product / (ours * other) if ours and other else product) * penalty
    return total / LONGEST_NGRAM


def _ngrams(tokens: Tokens) -> Counter[Ngram]:
    """All n-grams of a caption, counted."""
    counts: Counter[Ngram] = Counter()
    for n in range(1, LONGEST_NGRAM + 1):
        counts.update(zip(*(tokens[start:] for start in range(n)), strict=False))
    return counts


def _longest_common_subsequence(one: Tokens, other: Tokens) -> int:
    """Its length, by one addition of a long integer a token (Hyyro 2004)."""
    places: dict[str, int] = {}
    for index, token in enumerate(one):
        places[token] = places.get(token, 0) | 1 << index
    everything = (1 << len(one)) - 1
    row = everything
    for token in other:
        matches = row & places.get(token, 0)
        row = ((row + matches) | (row - matches)) & everything
    return len(one) - row.bit_count()


def _check(candidates: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> None:
    if len(candidates) != len(references) or not all(references):
        raise ConfigError(
            f"caption scores: {len(candidates)} candidates and {len(references)} lists of references found; one list "
            "of at least one reference for each candidate expected"
        )


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else 0.0
