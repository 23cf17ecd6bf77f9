"""How alike the text that a model read is to what stands there, as OCRBench v2 has it (Fu et al. 2024, section 3.3).

The mean of BLEU, METEOR, F1 of the sets of words, and one less the normalised edit distance. METEOR is nltk's: exact
words, Porter's stems and synonyms of WordNet, and not the official one with its table of paraphrases.
"""

from __future__ import annotations

import re
import warnings
from functools import cache
from typing import Any, NamedTuple

from omniloom.errors import ConfigError
from omniloom.evaluate.scores.anls import levenshtein

_CHINESE = re.compile("[\u4e00-\u9fa5]")


class PageText(NamedTuple):
    """Each between 0 and 1; the last is 0 where the texts are equal."""

    bleu: float
    meteor: float
    f1: float
    edit_share: float

    @property
    def mean(self) -> float:
        """What the four are worth together."""
        return (self.bleu + self.meteor + self.f1 + 1 - self.edit_share) / 4


def page_text(said: str, right: str, *, synonyms: bool = True) -> PageText:
    """Compare two texts; not both may be empty.

    Args:
        said: by the model.
        right: what stands there.
        synonyms: whether METEOR takes synonyms of WordNet for equal.

    Raises:
        ConfigError: nltk or jieba is missing, or, with synonyms, WordNet's files.
    """
    words, others = _words(said, right)
    known = set(words) & set(others)
    shares = [len(known) / len(set(each)) if each else 0.0 for each in (words, others)]
    return PageText(
        bleu=_bleu(words, others),
        meteor=_meteor(words, others, synonyms),
        f1=2 * shares[0] * shares[1] / sum(shares) if known else 0.0,
        edit_share=levenshtein(said, right) / max(len(said), len(right)),
    )


def _words(said: str, right: str) -> tuple[list[str], list[str]]:
    if _CHINESE.search(said) or _CHINESE.search(right):
        return _chinese_words(said), _chinese_words(right)
    return said.split(), right.split()


def _bleu(said: list[str], right: list[str]) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of each order of n-grams of which none is shared
        return float(_nltk().bleu([right], said))


def _meteor(said: list[str], right: list[str], synonyms: bool) -> float:
    measure = _nltk().meteor_score
    return float(measure.meteor_score([right], said, wordnet=_wordnet() if synonyms else _NoSynonyms()))


class _NoSynonyms:
    """A WordNet without words."""

    def synsets(self, word: str) -> list[Any]:
        """None of them."""
        del word
        return []


@cache
def _nltk() -> Any:
    try:
        from nltk import translate  # noqa: PLC0415 - heavy, and only OCRBench v2 wants it
    except ImportError as missing:
        raise ConfigError("OCRBench v2 takes BLEU and METEOR from nltk: pip install omniloom[eval].") from missing
    return translate


@cache
def _wordnet() -> Any:
    from nltk.corpus import wordnet  # noqa: PLC0415 - as above, where its absence is told

    try:
        wordnet.ensure_loaded()
    except (LookupError, OSError) as missing:
        raise ConfigError(
            "METEOR's synonyms are WordNet's, which nltk does not find. Run `python -m nltk.downloader wordnet`, put "
            "its files into nltk_data/corpora/wordnet below your home, or take --variant without-synonyms."
        ) from missing
    return wordnet


def _chinese_words(text: str) -> list[str]:
    words: list[str] = _cutter().lcut(text)
    return words


@cache
def _cutter() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own escapes and of pkg_resources
            import jieba  # noqa: PLC0415 - heavy, and only OCRBench v2 wants it
    except ImportError as missing:
        raise ConfigError("OCRBench v2 finds words of Chinese with jieba: pip install omniloom[eval].") from missing
    jieba.setLogLevel("ERROR")
    return jieba.Tokenizer()
