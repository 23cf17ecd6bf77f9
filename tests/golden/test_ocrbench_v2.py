"""OCRBench v2 against its own program: 784 answers of all thirty types, made at random and by hand.

The program is that of Yuliang-Liu/MultimodalOCR at 794c36d; its polygons were computed by shapely, and a second run had
a WordNet without words.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from omniloom.errors import ConfigError
from omniloom.evaluate.scores.ocrbench_v2 import RULES
from omniloom.evaluate.scores.page_text import page_text
from omniloom.evaluate.tasks.ocrbench_v2 import OCRBENCH_V2

pytest.importorskip("nltk", reason="needs omniloom[eval]")
FILE = Path(__file__).parent / "scores/ocrbench_v2_made.json"


def _has_synonyms() -> bool:
    try:
        page_text("a car", "an auto")
    except ConfigError:
        return False
    return True


def rows() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return loaded


def test_each_answer_is_worth_what_the_program_says() -> None:
    items, known = OCRBENCH_V2.read(FILE), rows()
    scores = OCRBENCH_V2.score(items, [row["predict"] for row in known], "without-synonyms")
    for row, worth in zip(known, scores.items, strict=True):
        official = row.get("score_without_synonyms", row["score"])
        assert worth == pytest.approx(official, abs=1e-12), (row["type"], row["answers"], row["predict"])
    assert {row["type"] for row in known} == RULES.keys()
    assert len(RULES) == 30
    partly = Counter(row["type"] for row in known if 0 < row["score"] < 1)
    assert len(partly) > 20  # the made answers tell right from wrong rules


@pytest.mark.skipif(not _has_synonyms(), reason="needs WordNet's files in nltk_data/corpora/wordnet")
def test_with_synonyms_too() -> None:
    items, known = OCRBENCH_V2.read(FILE), rows()
    scores = OCRBENCH_V2.score(items, [row["predict"] for row in known], "published")
    assert scores.items == pytest.approx([row["score"] for row in known], abs=1e-12)


def test_means_are_those_of_the_second_program() -> None:
    """The lines of its get_score.py."""
    scores = OCRBENCH_V2.score(OCRBENCH_V2.read(FILE), [row["predict"] for row in rows()], "without-synonyms")
    assert {name: round(value / 100, 3) for name, value in scores.metrics.items()} == {
        "english": 0.558,
        "chinese": 0.536,
    }
    assert {name: round(value / 100, 3) for name, value in scores.groups["english"].items()} == {
        "text_recognition": 0.510,
        "text_detection": 0.361,
        "text_spotting": 0.602,
        "relationship_extraction": 0.551,
        "element_parsing": 0.619,
        "mathematical_calculation": 0.440,
        "visual_text_understanding": 0.722,
        "knowledge_reasoning": 0.662,
    }


def test_what_does_not_count_is_left_out() -> None:
    ignored = [number for number, row in enumerate(rows()) if row.get("ignore")]
    assert len(ignored) == 1
    items = OCRBENCH_V2.read(FILE)
    alone = OCRBENCH_V2.score([items[ignored[0]]], ["a text"], "without-synonyms")
    assert alone.metrics == {}
    assert list(alone.items) == [0.0]


def test_a_broken_file_of_truth_is_told(tmp_path: Path) -> None:
    row = {"id": 7, "type": "text counting en", "question": "How many?", "answers": ["many"], "image_path": "a.jpg"}
    file = tmp_path / "OCRBench_v2.json"
    file.write_text(json.dumps([row | {"eval": "regression"}]))
    with pytest.raises(ConfigError, match=r"item 7 \(text counting en\).*many"):
        OCRBENCH_V2.score(OCRBENCH_V2.read(file), ["3"], "published")
    file.write_text(json.dumps([row | {"type": "singing"}]))
    with pytest.raises(ConfigError, match="item 7 is of type 'singing'"):
        OCRBENCH_V2.score(OCRBENCH_V2.read(file), ["3"], "published")
