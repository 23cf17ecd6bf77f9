"""Kept features: loss and gradients are those of looking anew, and no tile is looked at twice, in later runs too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from omniloom.errors import ConfigError
from omniloom.model.build import build
from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, VisionConfig
from omniloom.model.documents import Documents
from omniloom.model.initialize import initialize
from omniloom.model.llava import Llava, ShownTiles
from omniloom.train.kept_features import KeptFeatures, fingerprint

IMAGE, SIDE = 95, 32
CONFIG = LlavaConfig(
    language=DecoderConfig(
        family="llama", vocab_size=96, dim=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, mlp_dim=48
    ),
    vision=VisionConfig(
        family="dinov2", image_size=SIDE, patch_size=8, dim=24, num_layers=2, num_heads=2, mlp_dim=48, position_rows=4,
        class_tokens=1, class_positions=1, post_norm=True,
    ),
    projector=ProjectorConfig(input_dim=24, output_dim=32, hidden_dims=(32,), norm="layer", reduction="pool", factor=2),
    image_token_id=IMAGE, feature_layers=(-1,), norm_features=True,
)  # fmt: skip


def model(*, seed: int = 0, tower_trained: bool = False) -> Llava:
    made = build(CONFIG)
    assert isinstance(made, Llava)
    initialize(made, generator=torch.Generator().manual_seed(seed), standard_deviation=0.2)
    made.vision_tower.requires_grad_(tower_trained)
    return made


def tiles(number: int, seed: int = 5) -> torch.Tensor:
    return torch.randn(number, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def loss_of(of: Llava, images: torch.Tensor | ShownTiles, places: int) -> torch.Tensor:
    ids = torch.tensor([*[IMAGE] * 4, 3, 4, 5] * places)
    labels = torch.tensor([*[-100] * 4, 4, 5, 6] * places)
    return of.loss(ids, labels=labels, documents=Documents.of_lengths([7] * places), images=images).total


def test_loss_and_gradients_are_those_of_looking_anew(tmp_path: Path) -> None:
    plain, keeping = model(), model()
    KeptFeatures(keeping, tmp_path)
    for seed in (5, 6, 5):
        losses = [loss_of(each, tiles(3, seed), 3) for each in (plain, keeping)]
        assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
        for loss in losses:
            loss.backward()  # type: ignore[no-untyped-call]
    for (name, one), other in zip(plain.named_parameters(), keeping.parameters(), strict=True):
        if name.startswith("vision_tower."):
            assert other.grad is None
        else:
            torch.testing.assert_close(other.grad, one.grad, rtol=1e-4, atol=1e-5)


def test_a_tile_is_looked_at_once_here_and_in_the_next_run(tmp_path: Path) -> None:
    keeping = model()
    kept = KeptFeatures(keeping, tmp_path)
    first = loss_of(keeping, tiles(3), 3)
    shown = ShownTiles(tiles(3), torch.tensor([0, 1, 2, 1, 0]))
    loss_of(keeping, shown, 5)
    assert kept.looked_at == 3
    changed = tiles(3)
    changed[1, 0, 0, 0] += 1e-3
    loss_of(keeping, changed, 3)
    assert kept.looked_at == 4
    kept.close()

    again = model()
    found = KeptFeatures(again, tmp_path)
    # In another order, other company: to the bit.
    assert torch.equal(again.seen(changed.flip(0)), keeping.seen(changed).flip(0))
    assert torch.equal(loss_of(again, tiles(3), 3), first)
    assert found.looked_at == 0
    found.close()
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1


def test_precision_weights_and_reduction_tell_features_apart(tmp_path: Path) -> None:
    keeping = model()
    kept = KeptFeatures(keeping, tmp_path)
    with torch.autocast("cpu", torch.bfloat16):
        lower = keeping.seen(tiles(1))
    higher = keeping.seen(tiles(1))
    assert kept.looked_at == 2
    assert not torch.equal(lower.float(), higher)
    kept.close()
    other = KeptFeatures(model(seed=1), tmp_path)
    assert fingerprint(model(seed=1)) != fingerprint(model())
    assert other.looked_at == 0
    assert not torch.equal(other.seen(tiles(1)), higher)
    assert len([each for each in tmp_path.iterdir() if each.is_dir()]) == 1  # the second has written nothing yet
    other.close()
    assert len([each for each in tmp_path.iterdir() if each.is_dir()]) == 2


def test_what_cannot_be_kept_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"vision_tower\.train"):
        KeptFeatures(model(tower_trained=True), tmp_path)
    broken = tmp_path / fingerprint(model()) / "broken.safetensors"
    broken.parent.mkdir()
    broken.write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00not a header at all")
    with pytest.raises(ConfigError, match=r"broken\.safetensors: holds no features .* Remove it"):
        KeptFeatures(model(), tmp_path)
