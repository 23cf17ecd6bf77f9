"""The photo demo: nothing of a scored photo is learned, and what is drawn of photos that nobody has is like others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def photos_in(folder: Path) -> Any:
    from demo_photo_data import Photos  # noqa: PLC0415 - an example, not a package

    rows = [f'{number}.jpg,"Photo number {number}, seen by {who}."' for number in range(310) for who in ("Ann", "Bob")]
    (folder / "captions.csv").write_text("image,caption\n" + "\n".join(rows) + "\n")
    return Photos(folder, folder / "captions.csv")


def test_no_caption_of_a_photo_that_is_scored_is_learned(tmp_path: Path) -> None:
    photos = photos_in(tmp_path)
    assert (len(photos.test), len(photos.validation)) == (200, 100)
    assert set(photos.test).isdisjoint(photos.validation)
    for part, left in (("test", 110), ("validation", 10)):
        learned = photos.learned(part)
        assert len(set(learned)) == left
        assert set(learned).isdisjoint(photos.test)
        assert set(learned).isdisjoint(photos.scored(part))
        texts = [text for each in photos.texts(learned) for text in each]
        assert len(texts) == 2 * left
        assert not {text for each in photos.texts(photos.scored(part)) for text in each}.intersection(texts)


@pytest.mark.parametrize("part", ["test", "validation"])
def test_nor_is_one_that_comes_with_texts(tmp_path: Path, part: Any) -> None:
    """Neither by the photo's name, nor as the same words under another name."""
    photos = photos_in(tmp_path)
    apart = {*photos.test, *photos.scored(part)}
    lines = [f"{number}.jpg#0\tA photo {number} that is told again" for number in range(310)]
    lines += [
        f"other-{number}.jpg#{n}\tPhoto number {number}: seen, by {who}!"
        for number in range(310)
        for n, who in enumerate(("Ann", "Eve"))
    ]
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n")
    found = photos.texts_of_others(tmp_path / "texts.txt", part)
    kept = 310 - len(apart)
    assert sorted(len(texts) for texts in found) == [1] * len(apart) + [2] * kept
    said = {text for texts in found for text in texts}
    assert said.isdisjoint(text for texts in photos.texts(apart) for text in texts)
    assert not any("again" in text for text in said)


def test_features_are_written_for_captions_of_known_words(tmp_path: Path) -> None:
    from demo_photo_data import PROMPT, vocabulary, write_features  # noqa: PLC0415

    captions = [["a dog", "a rare dog"], ["a rare cat"], ["a cat's dog", "a cat", "a dog"]]
    known = vocabulary(captions, least=2)
    assert {"a", "dog", "cat", "rare"} <= known
    assert "'" not in known
    known -= {"rare"}
    assert set(PROMPT.lower().rstrip(".").split()) <= known
    features = torch.arange(12.0).reshape(3, 2, 2)
    write_features(tmp_path, features, captions, known=known, name="some")
    entries = {entry["id"]: entry for entry in json.loads((tmp_path / "some.json").read_text())}
    assert sorted(entries) == ["00000-0", "00000-1", "00002-0", "00002-1"]
    assert [turn["value"] for turn in entries["00002-1"]["conversations"][1::2]] == ["a cat", "a dog"]
    assert np.load(tmp_path / "some" / entries["00002-1"]["image"]).tolist() == [[10.0, 11.0]]


def world(photos: int, *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Meanings of photos, and features of two views of each that hang on them: map, meanings, features."""
    draw = torch.Generator().manual_seed(seed)
    shown = torch.randn(4, 40, generator=draw)
    meant = torch.randn(photos, 4, generator=draw)
    noise = torch.randn(photos, 2, 40, generator=draw)
    return shown, meant, 3 + (meant @ shown)[:, None] + noise


def test_a_head_tells_the_same_of_the_features_that_are_likeliest() -> None:
    from demo_likely_photos import fit_head  # noqa: PLC0415

    _, meant, features = world(400)
    head, told = fit_head(features, meant, seed=0)
    assert told.std((0, 1)).tolist() == pytest.approx([1] * 4, abs=1e-3)
    assert (head.features(told) @ head.weight.T + head.bias - told).abs().max() < 0.01
    # What is told by heads of other photos is about as far off as what the head tells of photos that it never saw.
    _, new, unseen = world(4000, seed=0)
    off = [
        (1 - torch.corrcoef(torch.stack([one[:, 0, n], other[:, n]]))[0, 1] ** 2).item()
        for one, other in ((told, meant), (unseen[400:] @ head.weight.T + head.bias, new[400:]))
        for n in range(4)
    ]
    assert off[:4] == pytest.approx(off[4:], rel=0.35)


def test_what_is_drawn_is_as_far_off_as_what_is_told() -> None:
    """Told is twice the meaning and an error of variance 1: so it is of what is drawn."""
    from demo_likely_photos import likely  # noqa: PLC0415

    draw = torch.Generator().manual_seed(0)
    meant = torch.randn(2000, 3, generator=draw)
    told = 2 * meant[:, None] + torch.randn(2000, 1, 3, generator=draw)
    of = torch.tensor([[1.0, 0.0, -1.0], [0.0, 0.5, 2.0]])
    drawn = likely(told, meant, of=of, draws=4000, seed=0)
    assert drawn.shape == (2, 4000, 3)
    torch.testing.assert_close(drawn.mean(1), 2 * of, rtol=0, atol=0.15)
    torch.testing.assert_close(drawn.std(1), torch.ones(2, 3), rtol=0, atol=0.1)


def test_photos_whose_captions_say_the_same_mean_the_same() -> None:
    from demo_likely_photos import meaning  # noqa: PLC0415

    kinds = [["a dog runs", "the dog plays"], ["a man rides", "the man cycles"], ["a boat sails", "the boat swims"]]
    meant = meaning([kind for kind in kinds for _ in range(10)], seed=0)
    nearest = torch.cdist(meant, meant).sort(dim=1).indices[:, :10] // 10
    assert torch.equal(nearest, (torch.arange(30) // 10)[:, None].expand(-1, 10))
