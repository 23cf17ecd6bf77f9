"""Beam search finds the answers of transformers' own, and never one that is worth less than the greedy one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from omniloom.errors import ConfigError, InputError
from omniloom.generate.decoding import Generated, generate
from omniloom.generate.sampling import SamplingConfig
from omniloom.model.attention import AttendPacked
from omniloom.model.documents import Documents
from omniloom.model.llava import Llava
from tests.unit.hugging_face_pairs import ours_beside
from tests.unit.test_model_llava import pixels, prompt, their_llava

COUNTS = (1, 3, 0, 2)
PROMPTS = [prompt(count, 16) for count in COUNTS]
WORDS = 10


def answers(model: Llava, *, beams: int, stops: set[int], least: int = 0, only: int | None = None) -> list[Generated]:
    sampling = SamplingConfig(max_new_tokens=WORDS, min_new_tokens=least, beams=beams)
    if only is None:
        return generate(model, PROMPTS, sampling=sampling, stop_tokens=stops, images=pixels(6))
    first = sum(COUNTS[:only])
    images = pixels(6)[first : first + COUNTS[only]] if COUNTS[only] else None
    return generate(model, [PROMPTS[only]], sampling=sampling, stop_tokens=stops, images=images)


def test_answers_are_those_of_transformers(tmp_path: Path) -> None:
    theirs = their_llava(deviation=0.3)
    _, ours = ours_beside(theirs, tmp_path)
    stops = {answer.token_ids[2] for answer in answers(ours, beams=1, stops=set())[:2]}
    theirs.generation_config.eos_token_id = sorted(stops)
    lengths = set()
    for beams, least in ((2, 0), (4, 0), (3, 6)):
        found = answers(ours, beams=beams, stops=stops, least=least)
        first = 0
        for row, (tokens, count, answer) in enumerate(zip(PROMPTS, COUNTS, found, strict=True)):
            images = {"pixel_values": pixels(6)[first : first + count]} if count else {}
            first += count
            ids = torch.tensor([tokens])
            alone = theirs.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=WORDS, min_new_tokens=least,
                do_sample=False, num_beams=beams, pad_token_id=0, **images,
            )  # fmt: skip
            assert answer.token_ids == tuple(alone[0, len(tokens) :].tolist()), (beams, least, row)
            assert answer.ended == (answer.token_ids[-1] in stops)
            assert answers(ours, beams=beams, stops=stops, least=least, only=row) == [answer]
            lengths.add(len(answer.token_ids))
    assert len(lengths) > 2


def test_many_beams_are_worth_no_less_than_one(tmp_path: Path) -> None:
    _, ours = ours_beside(their_llava(deviation=0.3), tmp_path)
    text = PROMPTS[2]

    def worth(answer: Generated) -> float:
        ids = torch.tensor([*text, *answer.token_ids])
        with torch.no_grad():
            attend = AttendPacked(Documents.of_lengths([len(ids)]), ids.device)
            scores = ours.language_model.logits(ours.language_model(ours.language_model.embed(ids), attend))
        said = torch.log_softmax(scores, -1)[len(text) - 1 : -1].gather(1, ids[len(text) :, None])
        return float(said.mean())

    greedy, searched = (answers(ours, beams=beams, stops=set(), only=2)[0] for beams in (1, 8))
    assert len(greedy.token_ids) == len(searched.token_ids) == WORDS
    assert worth(searched) >= worth(greedy)


def test_what_does_not_go_together(tmp_path: Path) -> None:
    for others in ({"temperature": 1.0}, {"repetition_penalty": 1.2}, {"stop": ("x",)}, {"beams": 0}):
        with pytest.raises(ConfigError, match="beams"):
            SamplingConfig(**({"beams": 2} | others))  # type: ignore[arg-type]
    _, ours = ours_beside(their_llava(), tmp_path)
    with torch.no_grad():
        ours.language_model.norm.weight.fill_(float("nan"))
    with pytest.raises(InputError, match="no finite numbers"):
        answers(ours, beams=2, stops=set())
