"""Scores against the official programs: their outputs on real answers, to the last digit."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from omniloom.errors import ConfigError
from omniloom.evaluate.scores.anls import anls, levenshtein
from omniloom.evaluate.scores.binary import binary_scores, mme_score, pope_answer
from omniloom.evaluate.scores.captions import bleu, cider_d, rouge_l
from omniloom.evaluate.scores.choices import (
    first_capital,
    marked_answer,
    mmmu_choice,
    mvbench_correct,
    science_qa_choice,
    vlmevalkit_choice,
)
from omniloom.evaluate.scores.matching import ocrbench_correct, relaxed_accuracy
from omniloom.evaluate.scores.mathvista import mathvista_correct, mathvista_extraction, mathvista_prediction
from omniloom.evaluate.scores.open_answers import mmmu_open_correct, mmmu_open_values
from omniloom.evaluate.scores.treebank import caption_tokens, treebank_tokens
from omniloom.evaluate.scores.vqa import capped_accuracy, exact_match, normalise_answer, vqa_accuracy

HERE = Path(__file__).parent / "scores"
DATA = Path(__file__).resolve().parents[2] / "../shared/data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs the prediction files of ../shared/data")


def golden(name: str) -> Any:
    return json.loads((HERE / f"{name}.json").read_text())


def data(name: str) -> Any:
    return json.loads((DATA / name).read_text())


# Captions


def test_tokens_are_those_of_the_official_tool() -> None:
    probes = golden("treebank")
    together = treebank_tokens([text for text, _ in probes["together"]])
    alone = [treebank_tokens([text])[0] for text, _ in probes["alone"]]
    for tokens, (text, official) in zip([*together, *alone], [*probes["together"], *probes["alone"]], strict=True):
        assert tokens == official.strip().split(" "), text


def test_a_period_may_hang_on_the_next_caption() -> None:  # outputs of the official tool
    assert treebank_tokens(["the W.", "The next"]) == [["the", "w", "."], ["the", "next"]]
    assert treebank_tokens(["the W.", "a next"]) == [["the", "w."], ["a", "next"]]
    assert treebank_tokens(["one\ntwo", ""]) == [["one", "two"], []]
    assert caption_tokens(["A dog, (running)!!"]) == [["a", "dog", "-lrb-", "running", "-rrb-", "!!"]]


def _coco() -> tuple[list[list[str]], list[list[list[str]]]]:
    references = defaultdict(list)
    for one in data("coco_captions/captions_fakecap126_refs.json")["annotations"]:
        references[one["image_id"]].append(one["caption"])
    results = data("coco_captions/captions_fakecap126_results.json")
    flat = iter(caption_tokens([text for one in results for text in references[one["image_id"]]]))
    grouped = [[next(flat) for _ in references[one["image_id"]]] for one in results]
    return caption_tokens([one["caption"] for one in results]), grouped


@needs_data
def test_coco_captions() -> None:
    candidates, references = _coco()
    expected = golden("caption_reference_scores")["coco_fakecap_126"]
    scores = bleu(candidates, references)
    assert (scores.candidate_length, scores.reference_length) == (1216, 1228)
    assert scores.guess == (1216, 1090, 964, 838)
    assert scores.correct == (719, 308, 134, 58)
    assert list(scores.scores) == pytest.approx([expected[f"Bleu_{n}"] for n in range(1, 5)], abs=1e-13)
    assert rouge_l(candidates, references).score == pytest.approx(expected["ROUGE_L"], abs=1e-13)
    cider = cider_d(candidates, references)
    assert cider.score == pytest.approx(0.6277218728360188, abs=1e-13)
    assert sorted(cider.items) == pytest.approx(sorted(expected["per_image_CIDEr"]), abs=1e-12)


@needs_data
def test_a_thousand_captions_have_the_published_length() -> None:
    captions = [one["caption"] for one in data("coco_captions/captions_val2014_fakecap_results.json")]
    assert sum(map(len, caption_tokens(captions))) == 9893


@needs_data
@pytest.mark.parametrize(("kind", "cider", "rouge"), [("good", 0.5637, 0.4280), ("bad", 0.2790, 0.3121)])
def test_clipscore_examples(kind: str, cider: float, rouge: float) -> None:
    captions = data(f"metric_refs/clipscore/{kind}_captions.json")
    references = data("metric_refs/clipscore/refs.json")
    names = list(captions)
    candidates = caption_tokens([captions[name] for name in names])
    grouped = [caption_tokens(references[name]) for name in names]
    assert cider_d(candidates, grouped).score == pytest.approx(cider, abs=5e-5)
    assert rouge_l(candidates, grouped).score == pytest.approx(rouge, abs=5e-5)


@needs_data
def test_nlg_eval_examples() -> None:
    lines = [(DATA / f"metric_refs/nlg-eval/{name}.txt").read_text().splitlines() for name in ("hyp", "ref1", "ref2")]
    candidates, first, second = ([line.split() for line in each] for each in lines)
    references = [list(pair) for pair in zip(first, second, strict=True)]
    published = [0.550000, 0.428174, 0.284043, 0.201143]
    assert list(bleu(candidates, references).scores) == pytest.approx(published, abs=5e-7)
    assert rouge_l(candidates, references).score == pytest.approx(0.522104, abs=5e-7)
    assert cider_d(candidates, references).score == pytest.approx(1.242192, abs=5e-7)


def test_captions_without_words_and_without_references() -> None:
    references = [[["a", "dog"]], [["a", "cat"]]]
    assert rouge_l([[], ["a", "cat"]], references).items == [0.0, pytest.approx(1.0)]
    assert cider_d([[], ["a", "cat"]], references).items[0] == 0
    assert cider_d([["a"]], [[["a"]]]).score == 0  # one image alone: every word is in all documents
    with pytest.raises(ConfigError, match="2 candidates and 1 lists"):
        bleu([["a"], ["b"]], [[["a"]]])


# Short answers


def test_vqa_normalisation() -> None:
    for text, official, m4c in golden("vqa_normalise"):
        assert normalise_answer(text) == official, text
        assert normalise_answer(text, rule="m4c") == m4c, text


def test_vqa_accuracy() -> None:
    for case in golden("vqa_accuracy_cases"):
        official = vqa_accuracy(case["pred"], case["answers"])
        assert round(100 * official, 2) == pytest.approx(case["vqa_acc_official_pct"]), case
        assert vqa_accuracy(case["pred"], case["answers"], variant="m4c") == pytest.approx(case["textvqa_acc"]), case
    ten = ["yes"] * 10
    assert vqa_accuracy("Yes", ten) == 0  # the official program leaves texts alone where all people agree
    assert vqa_accuracy("Yes.", ten, variant="always-normalised") == 1
    assert [vqa_accuracy("a b", ["b"] * n + ["c"] * (10 - n)) for n in (1, 2, 3, 4)] == pytest.approx(
        [0.3, 0.6, 0.9, 1]
    )
    assert capped_accuracy("cat", ["cat", "cat", "dog"]) == pytest.approx(2 / 3)


def test_an_answer_of_nothing_is_never_right() -> None:
    assert exact_match("", ["A"]) == 0  # the article drops out, and two nothings are not a match
    assert exact_match("A", ["A"]) == 0
    assert exact_match("two dogs.", ["2 dogs"]) == 1
    with pytest.raises(ConfigError, match="no answers"):
        vqa_accuracy("x", [])


def test_anls() -> None:
    for case in golden("anls_cases"):
        paper = anls(case["pred"], case["gts"], boundary="paper")
        assert paper == pytest.approx(case["anls_paper_strict"], abs=1e-15), case
        assert anls(case["pred"], case["gts"]) == pytest.approx(case["anls_rrc_official"], abs=1e-15), case
    assert (levenshtein("kitten", "sitting"), levenshtein("", "abc")) == (3, 3)


@needs_data
def test_anls_of_whole_files() -> None:
    right = {one["questionId"]: one["answers"] for one in data("metric_refs/anls/gold_label.json")["data"]}
    said = data("metric_refs/anls/submission.json")
    mean = sum(anls(one["answer"], right[one["questionId"]], boundary="paper") for one in said) / len(said)
    assert round(mean, 3) == 0.378
    files = {}
    for name in ("ref", "out"):
        documents = [json.loads(line) for line in (DATA / f"metric_refs/anls/{name}.jsonl").read_text().splitlines()]
        files[name] = {
            (document["name"], one["key"]): one["values"] for document in documents for one in document["annotations"]
        }
    for boundary, expected in (("paper", 0.8333), ("rrc", 0.9167)):
        scores = [
            anls(
                files["out"][key][0]["value"],
                [text for one in values for text in one["value_variants"]],
                boundary=boundary,  # type: ignore[arg-type]
            )
            for key, values in files["ref"].items()
        ]
        assert sum(scores) / len(scores) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("said", "right", "score"),
    [
        ("105", "100", 1),
        ("105.1", "100", 0),
        ("-5", "5", 0),
        ("-5.1", "-5", 1),
        ("50%", "0.5", 1),
        ("50", "50%", 0),
        ("0", "0", 1),
        ("0.0", "0", 0),
        ("Yes ", "yes", 1),
        ("1,000", "1000", 0),
        ("", "a", 0),
    ],
)
def test_relaxed_accuracy(said: str, right: str, score: float) -> None:  # by hand, from the paper's rule
    assert relaxed_accuracy(said, right) == score


def test_ocrbench() -> None:  # by hand
    assert ocrbench_correct("It says CENTRE\nSTREET", ["centre street"], dataset="IIIT5K") == 1
    assert ocrbench_correct("both one and two", ["one", "two"], dataset="TextVQA") == 1
    assert ocrbench_correct("X ^ 2", ["x^2"], dataset="HME100k") == 0
    assert ocrbench_correct("x ^ 2 + 1", ["x^2"], dataset="HME100k") == 1


# Choices


@needs_data
def test_mmmu_of_llava() -> None:
    """330 of 900, each subject's line, and each parsed answer as the official program has them."""
    official = json.loads((DATA / "../fixtures/mmmu_official_parse.json").read_text())["llava1.5_13b"]
    guess, right, unparsed = random.Random(42), 0, 0
    for folder in sorted((DATA / "metric_refs/mmmu/example_outputs/llava1.5_13b").iterdir()):
        if not folder.is_dir():
            continue
        correct = 0
        items = json.loads((folder / "output.json").read_text())
        for item in items:
            theirs = official["parsed"][item["id"]]
            answers = item["answer"] if isinstance(item["answer"], list) else [item["answer"]]
            if item["question_type"] == "multiple-choice":
                letter = mmmu_choice(item["response"], item["index2ans"], fallback=guess)
                unparsed += mmmu_choice(item["response"], item["index2ans"]) is None
                assert letter == theirs["parsed"]
                good = letter in answers
            else:
                values = mmmu_open_values(item["response"])
                assert set(map(str, values)) == set(map(str, theirs["parsed"]))
                good = mmmu_open_correct(values, answers)
            assert good == (theirs["judge"] == "Correct"), item["id"]
            correct += good
        assert correct / len(items) == pytest.approx(official["per_subject"][folder.name]["acc"])
        right += correct
    assert (right, unparsed) == (330, 2)


def test_choices_in_megatrons_cases() -> None:  # outputs of its parser, which takes the first letter for none
    options = {"A": "a red cat", "B": "blue dog", "C": "green fish", "D": "none"}
    cases = {
        "B": "B", "(C)": "C", "The answer is B.": "B", "A or B": "B", "(A) then (D)": "D", "Answer: C": "C", "A)": "A",
        "I think the answer is blue dog because it is": "B", "": "A", "b": "A", "[B]": "A", "**D**": "A",
    }  # fmt: skip
    for response, letter in cases.items():
        assert mmmu_choice(response, options, fallback="first") == letter, response
    assert mmmu_choice("b", options) is None
    drawn = {mmmu_choice("", options, fallback="random", item=f"item {number}") for number in range(40)}
    assert drawn == set(options)
    assert mmmu_choice("", options, fallback="random", item="x") == mmmu_choice(
        "?", options, fallback="random", item="x"
    )
    assert marked_answer(r"so \boxed{B}, no: \boxed{C}") == "C"


def test_science_qa_parser() -> None:  # the documented rules, by hand
    choices = ["yes", "no", "perhaps"]
    said = ["B", "C. perhaps", "The answer is A.", "The answer is A. The answer is B.", "D", "maybe", ""]
    assert [science_qa_choice(text, choices) for text in said] == [1, 2, 0, -1, -1, -1, -1]


@needs_data
def test_mathvista_of_llava() -> None:
    """261 of 1,000, and each item as stored."""
    items = data("metric_refs/mathvista/llava/output_llava_llama_2_13b.json").values()
    right = 0
    for item in items:
        kinds = {name: item[name] for name in ("question_type", "answer_type", "choices")}
        prediction = mathvista_prediction(item["extraction"], **kinds, precision=item["precision"])
        assert prediction == item["prediction"]
        assert mathvista_correct(prediction, item["answer"]) == item["true_false"]
        right += item["true_false"]
    assert right == 261


def test_mathvista_extraction_without_a_language_model() -> None:  # the documented rules, by hand
    free = {"question_type": "free_form", "answer_type": "integer"}
    assert mathvista_extraction("12", **free) == "12"  # type: ignore[arg-type]
    assert mathvista_extraction('So. The answer is "14".', **free) == "14"  # type: ignore[arg-type]
    assert mathvista_extraction("about twelve", **free) is None  # type: ignore[arg-type]
    assert mathvista_extraction("", **free) == ""  # type: ignore[arg-type]
    assert (
        mathvista_prediction("(b) two", question_type="multi_choice", answer_type="text", choices=["one", "two"])
        == "two"
    )
    assert (
        mathvista_prediction("tvo", question_type="multi_choice", answer_type="text", choices=["one", "two"]) == "two"
    )
    assert mathvista_prediction("1.25", question_type="free_form", answer_type="float", precision=1) == "1.2"


def test_yes_and_no() -> None:  # by hand
    said = ("Yes, there is.", "No, there is not.", "There is not a dog. Yes", "a knot")
    assert [pope_answer(text) for text in said] == [True, False, False, True]
    pairs = [(True, True)] * 3 + [(True, False)] + [(False, True)] * 2 + [(False, False)] * 4
    scores = binary_scores(pairs)
    assert scores == pytest.approx((0.7, 0.75, 0.6, 2 * 0.75 * 0.6 / 1.35, 0.4, 10))
    assert binary_scores([]).f1 == 0
    assert mme_score({"1.png": [True, True], "2.png": [True, False]}) == 100 * (0.75 + 0.5)


# Videos

MVBENCH_OPTIONS = {"A": "red cat.", "B": "blue dog", "C": "b", "D": "Dog"}


@pytest.mark.parametrize("row", golden("video_choices"), ids=lambda row: repr(row["said"])[:30])
def test_choices_about_videos(row: dict[str, Any]) -> None:
    """Outputs of BradyFU/Video-MME's eval_your_results.py and of check_ans in Ask-Anything's mvbench.ipynb."""
    said = row["said"]
    assert (first_capital(said.strip()) or "") == row["video_mme"]
    for letter, text in MVBENCH_OPTIONS.items():
        official = row["mvbench"][letter] and bool(said.strip())  # saying nothing is right there
        assert mvbench_correct(said, letter, text) == official


VLMEVALKIT = golden("vlmevalkit_choices")


@pytest.mark.parametrize("row", VLMEVALKIT["rows"], ids=lambda row: repr(row["said"])[:30])
def test_letters_of_vlmevalkit(row: dict[str, Any]) -> None:
    """Outputs of `can_infer` of open-compass/VLMEvalKit e8e78f0, where the letter is an option's."""
    for name, options in VLMEVALKIT["options"].items():
        assert vlmevalkit_choice(row["said"], options) == row["letters"][name], name
