"""Short answers that are compared with what is right: ChartQA's relaxed accuracy, OCRBench's containment."""

from __future__ import annotations

from collections.abc import Sequence

RELAXED_SHARE = 0.05
_CASE_MATTERS = "HME100k"


def relaxed_accuracy(prediction: str, answer: str) -> float:
    """ChartQA's rule (Masry et al. 2022): 1 for a number within 5% of the right one, or for the same text.

    A trailing ``%`` divides by 100. A right answer of 0 has no 5%: then the texts are compared, without case.
    """
    said, right = _number(prediction), _number(answer)
    if said is not None and right:
        return float(abs(said - right) / abs(right) <= RELAXED_SHARE)
    return float(prediction.strip().lower() == answer.strip().lower())


def ocrbench_correct(prediction: str, answers: Sequence[str], *, dataset: str) -> float:
    """OCRBench's rule (Liu et al. 2024): 1 where one of the right answers is contained in the prediction.

    Args:
        prediction: what the model said.
        answers: those that are right; more than one of them in the prediction counts once.
        dataset: name of the part; the formulas of HME100k are compared with their case and without spaces.
    """
    if dataset == _CASE_MATTERS:
        said = _one_line(prediction).replace(" ", "")
        return float(any(_one_line(answer).replace(" ", "") in said for answer in answers))
    said = _one_line(prediction.lower())
    return float(any(_one_line(answer.lower()) in said for answer in answers))


def _one_line(text: str) -> str:
    return text.strip().replace("\n", " ")


def _number(text: str) -> float | None:
    text = text.strip()
    try:
        return float(text.rstrip("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None
