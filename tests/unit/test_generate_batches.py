"""Batches of mixed lengths and numbers of images answer as each prompt does alone; equal tiles are seen once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.errors import InputError
from omniloom.generate.decoding import Generated, generate
from omniloom.generate.features import different_tiles, embed_prompts
from omniloom.generate.sampling import SamplingConfig
from omniloom.model.llava import Llava
from tests.contract.tiny_llava import CONFIG, tiny_llava
from tests.unit.hugging_face_pairs import ours_beside
from tests.unit.test_model_llava import pixels, prompt, their_llava

PLACE = CONFIG.image_token_id
TILE_TOKENS = CONFIG.image_tokens(8, 8)


@cache
def loud_llava() -> Llava:
    """Weights large enough that answers differ from prompt to prompt."""
    torch.set_num_threads(1)
    model = tiny_llava(seed=4)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(parameter.numel()))
    return model.eval()


def letters(ids: Sequence[int]) -> str:
    """One letter a word."""
    return "".join(chr(ord("A") + word) for word in ids)


@st.composite
def questions(draw: st.DrawFn) -> list[tuple[list[int], list[int]]]:
    """Some prompts, each with the numbers of its tiles; some tiles come again and again."""
    made = []
    for _ in range(draw(st.integers(1, 5))):
        tiles = draw(st.lists(st.integers(0, 2), max_size=3))
        words = draw(st.lists(st.integers(0, 61), min_size=1, max_size=12))
        made.append(([1, *[PLACE] * (TILE_TOKENS * len(tiles)), *words], tiles))
    return made


@settings(max_examples=25, deadline=None)
@given(
    asked=questions(),
    sampling=st.sampled_from(
        [
            SamplingConfig(max_new_tokens=8),
            SamplingConfig(max_new_tokens=8, temperature=0.8, top_k=20, top_p=0.9, seed=3),
            SamplingConfig(max_new_tokens=8, temperature=1.5, repetition_penalty=1.4, min_new_tokens=3),
            SamplingConfig(max_new_tokens=8, repetition_penalty=1.2, stop=("AB", "k", "Qz")),
        ]
    ),
    limit=st.integers(1, 9),
)
def test_a_batch_answers_as_one_by_one(
    asked: list[tuple[list[int], list[int]]], sampling: SamplingConfig, limit: int
) -> None:
    tiles = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    limits = [1 + (limit * row) % 9 for row in range(len(asked))]

    def answers(rows: list[int]) -> list[Generated]:
        used = [number for row in rows for number in asked[row][1]]
        return generate(
            loud_llava(),
            [asked[row][0] for row in rows],
            sampling=sampling,
            stop_tokens={5, 6},
            images=tiles[used] if used else None,
            keys=[f"item-{row}" for row in rows],
            limits=[limits[row] for row in rows],
            text_of=letters,
        )

    together = answers(list(range(len(asked))))
    assert together == [answers([row])[0] for row in range(len(asked))]
    for answer, most in zip(together, limits, strict=True):
        assert len(answer.token_ids) <= min(most, 8)
        assert answer.ended or len(answer.token_ids) == min(most, 8)


def test_equal_tiles_are_seen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = loud_llava()
    tiles = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))[[0, 1, 0, 0, 1]]
    assert different_tiles(tiles) == ([0, 1], [0, 1, 0, 0, 1])
    ids = torch.tensor([[1] + [PLACE] * TILE_TOKENS] * 5).flatten()
    with torch.no_grad():
        expected = model.embed(ids, images=tiles)
        seen: list[int] = []
        tower = Llava.image_features

        def counted(self: Llava, images: list[torch.Tensor]) -> torch.Tensor:
            seen.extend(len(group) for group in images)
            return tower(self, images)

        monkeypatch.setattr(Llava, "image_features", counted)
        ours, names = embed_prompts(model, ids.tolist(), images=tiles, device=ids.device)
    assert seen == [2]
    assert (ours - expected).abs().max() < 1e-5
    first = [1, *range(-1, -TILE_TOKENS - 1, -1)]
    other = [1, *range(-TILE_TOKENS - 1, -2 * TILE_TOKENS - 1, -1)]
    assert names.tolist() == first + other + first + first + other
    with pytest.raises(InputError, match=f"{4 * TILE_TOKENS} image features for {5 * TILE_TOKENS} placeholders"):
        embed_prompts(model, ids.tolist(), images=tiles[:4], device=ids.device)


def test_the_text_of_each_step_is_told() -> None:
    told: list[tuple[int, str]] = []
    sampling = SamplingConfig(max_new_tokens=4)
    prompts = [[1, 2], [3, 4, 5]]
    answers = generate(
        loud_llava(),
        prompts,
        sampling=sampling,
        limits=[2, 4],
        on_words=lambda row, ids: told.append((row, letters(ids))),
    )
    words = [letters(answer.token_ids) for answer in answers]
    expected = [(row, words[row][: step + 1]) for step in range(4) for row in range(2) if step < len(words[row])]
    assert told == expected


def test_what_does_not_fit_together_is_refused() -> None:
    model, sampling = loud_llava(), SamplingConfig()
    with pytest.raises(InputError, match=r"images of shape \(3, 8, 8\)"):
        generate(model, [[1, PLACE]], sampling=sampling, images=torch.zeros(3, 8, 8))
    with pytest.raises(InputError, match="1 keys for 2 prompts"):
        generate(model, [[1], [2]], sampling=sampling, keys=["a"])
    with pytest.raises(InputError, match="3 limits for 1 prompts"):
        generate(model, [[1]], sampling=sampling, limits=[1, 2, 3])
    with pytest.raises(InputError, match="a limit of 0 words"):
        generate(model, [[1]], sampling=sampling, limits=[0])
    with pytest.raises(InputError, match=r"stop texts \['x'\]"):
        generate(model, [[1]], sampling=SamplingConfig(stop=("x",)))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_told(temperature: float, value: float) -> None:
    model = tiny_llava().language_model.eval()
    model.embed_tokens.weight.data[7] = value
    sampling = SamplingConfig(temperature=temperature, repetition_penalty=1.1)
    assert generate(model, [[1, 2]], sampling=sampling, limits=[1])
    with pytest.raises(InputError, match="prompt 1: the scores after 0 words are no finite numbers"):
        generate(model, [[1, 2], [3, 7]], sampling=sampling)


def test_penalty_and_least_length_are_those_of_transformers(tmp_path: Path) -> None:
    theirs = their_llava(deviation=0.5)
    _, ours = ours_beside(theirs, tmp_path)
    prompts = [prompt(count, 16) for count in (1, 3, 0, 2)]
    free = generate(ours, prompts, sampling=SamplingConfig(max_new_tokens=14), images=pixels(6))
    stop = free[0].token_ids[2]
    theirs.generation_config.eos_token_id = stop
    for penalty, least in ((1.0, 0), (1.3, 0), (1.0, 9), (0.8, 5)):
        sampling = SamplingConfig(max_new_tokens=14, min_new_tokens=least, repetition_penalty=penalty)
        answers = generate(ours, prompts, sampling=sampling, stop_tokens={stop}, images=pixels(6))
        first = 0
        for tokens, count, answer in zip(prompts, (1, 3, 0, 2), answers, strict=True):
            images = {"pixel_values": pixels(6)[first : first + count]} if count else {}
            first += count
            row = torch.tensor([tokens])
            alone = theirs.generate(
                input_ids=row,
                attention_mask=torch.ones_like(row),
                max_new_tokens=14,
                min_new_tokens=least,
                do_sample=False,
                repetition_penalty=penalty,
                pad_token_id=0,
                **images,
            )
            assert list(answer.token_ids) == alone[0, len(tokens) :].tolist()
