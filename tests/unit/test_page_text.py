"""How alike two pages of text are: each part by hand, and what is told where a library is missing."""

from __future__ import annotations

import sys

import pytest

from omniloom.errors import ConfigError
from omniloom.evaluate.scores import page_text as module
from omniloom.evaluate.scores.page_text import page_text

pytest.importorskip("nltk", reason="needs omniloom[eval]")
pytest.importorskip("jieba", reason="needs omniloom[eval]")


def test_equal_texts() -> None:
    """METEOR of one chunk of n words is 1 - (1/n)^3 / 2 (Banerjee and Lavie 2005)."""
    found = page_text("one two three four", "one two three four", synonyms=False)
    assert found == pytest.approx((1, 1 - 0.5 / 64, 1, 0))
    assert found.mean == pytest.approx((4 - 0.5 / 64) / 4)


def test_each_part_by_hand() -> None:
    said, right = "the cat sat", "the dog sat"
    found = page_text(said, right, synonyms=False)
    assert found.f1 == pytest.approx(2 / 3)
    assert found.edit_share == pytest.approx(3 / 11)  # c-a-t becomes d-o-g
    # Two words match, in two chunks: a penalty of a half; precision and recall are 2/3.
    assert found.meteor == pytest.approx(2 / 3 * 0.5)
    assert found.bleu == pytest.approx(0, abs=1e-60)


def test_stems_match_in_meteor() -> None:
    assert page_text("running", "runs", synonyms=False).meteor > 0
    assert page_text("cats", "dogs", synonyms=False).meteor == 0


def test_nothing_said() -> None:
    assert page_text("", "a text", synonyms=False) == (0, 0, 0, 1)


def test_chinese_is_cut_into_words() -> None:
    found = page_text("我爱北京天安门", "我爱北京", synonyms=False)
    assert found.f1 == pytest.approx(6 / 7)  # 我, 爱, 北京 of 我, 爱, 北京, 天安门
    assert found.edit_share == pytest.approx(3 / 7)


@pytest.mark.parametrize(("library", "texts"), [("nltk", ("a", "b")), ("jieba", ("我", "你"))])
def test_a_missing_library_is_told(library: str, texts: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for cached in (module._nltk, module._cutter):
        cached.cache_clear()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=r"omniloom\[eval\]"):
        page_text(*texts, synonyms=False)


def test_missing_synonyms_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk  # noqa: PLC0415 - not always installed
    from nltk.corpus.reader.wordnet import WordNetCorpusReader  # noqa: PLC0415 - as above

    module._wordnet.cache_clear()
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(nltk.corpus, "wordnet", nltk.corpus.util.LazyCorpusLoader("wordnet", WordNetCorpusReader, None))
    with pytest.raises(ConfigError, match=r"nltk.downloader wordnet.*without-synonyms"):
        page_text("a", "b")
    module._wordnet.cache_clear()
