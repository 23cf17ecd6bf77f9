"""A tower without class token, folded by two: put together by the command, it computes what transformers' parts do."""

import pytest
import torch
from click.testing import CliRunner

from omniloom.conversion.combine import combine
from omniloom.conversion.loading import load_model
from omniloom.conversion.published import Published, open_published
from omniloom.errors import ConfigError
from omniloom.model.build import build
from omniloom.model.documents import Documents
from omniloom.tools.main import commands
from omniloom.weights.source import InMemory

from .model_zoo import VISION_FAMILIES, coded_weights, language, vision

transformers = pytest.importorskip("transformers")

PATCH_PIXELS, FOLD, WORDS = 16, 2, 300


def parts(folder, *, image_pixels, tower="tower"):
    torch.manual_seed(0)
    siglip = transformers.SiglipVisionModel(
        transformers.SiglipVisionConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2,
            image_size=image_pixels, patch_size=PATCH_PIXELS,
        )
    ).eval()  # fmt: skip
    language = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=WORDS, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2,
        )
    ).eval()  # fmt: skip
    siglip.save_pretrained(folder / tower)
    language.save_pretrained(folder / "language")
    given = ("--language-model", folder / "language", "--vision-model", folder / tower, "--out", folder / "both")
    words = ["weights", "combine", *map(str, given), "--pixel-shuffle", "--feature-layers", "-1"]
    done = CliRunner().invoke(commands, words)
    assert done.exit_code == 0, done.output
    return siglip, language, folder / "both"


def folded(features, *, side):
    """Squares of `FOLD` by `FOLD` patches, each one token: row by row within the square."""
    cells = features.unflatten(1, (side, side))
    tokens = [
        torch.cat(
            [cells[:, FOLD * row + down, FOLD * column + along] for down in range(FOLD) for along in range(FOLD)], 1
        )
        for row in range(side // FOLD)
        for column in range(side // FOLD)
    ]
    return torch.stack(tokens, 1)


def test_siglip_folded_by_two_computes_what_its_parts_do(tmp_path):
    tower, language, both = parts(tmp_path, image_pixels=64)
    model, config = load_model(both), open_published(both).config
    image = torch.randn(1, 3, 64, 64)
    assert config.image_tokens(64, 64) == 4
    ids = torch.tensor([5, 6, *[config.image_token_id] * 4, 7, 8, 9])
    with torch.no_grad():
        ours = model(ids, documents=Documents.of_lengths([len(ids)]), images=image)
        features = folded(tower(image, output_hidden_states=True).hidden_states[-1], side=4)
        assert features.shape == (1, 4, 4 * 32)
        first, second = model.projector.fc1, model.projector.fc2
        shown = second(torch.nn.functional.gelu(first(features)))
        embedded = language.get_input_embeddings()(ids.clamp(max=WORDS - 1))
        embedded[2:6] = shown[0]
        theirs = language(inputs_embeds=embedded[None]).logits[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_grid_that_does_not_fold_is_refused_with_what_would_fit(tmp_path):
    _, _, both = parts(tmp_path, image_pixels=80)
    config = open_published(both).config
    with pytest.raises(ConfigError, match=r"folds 2x2 neighbours, but the image has 5x5 patches"):
        config.image_tokens(80, 80)
    assert config.image_tokens(96, 96) == 9


@torch.no_grad()
def test_a_summary_is_what_dinov2s_classifier_takes(tmp_path):
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=2, image_size=56, patch_size=14, num_labels=5,
    )  # fmt: skip
    classifier = transformers.Dinov2ForImageClassification(config).eval()
    classifier.dinov2.save_pretrained(tmp_path / "tower")
    parts(tmp_path, image_pixels=64, tower="other")
    words = ["--norm-features", "--feature-layers", "-1", "--summary", "--projector-hidden-dim", "24"]
    given = ["--language-model", tmp_path / "language", "--vision-model", tmp_path / "tower", "--out", tmp_path / "one"]
    done = CliRunner().invoke(commands, ["weights", "combine", *map(str, given), *words])
    assert done.exit_code == 0, done.output
    model, image = load_model(tmp_path / "one"), torch.randn(2, 3, 56, 56)
    seen = model.seen(image)
    assert seen.shape == (2, 1, 64)
    assert model.projector.fc1.weight.shape == (24, 64)
    torch.testing.assert_close(classifier.classifier(seen[:, 0]), classifier(image).logits, rtol=1e-4, atol=1e-5)
    wrong = CliRunner().invoke(commands, ["weights", "combine", *map(str, given), "--summary", "--pixel-shuffle"])
    assert "--pixel-shuffle and --summary exclude each other" in wrong.output
    megatron = [*given[:-1], tmp_path / "theirs", "--to", "megatron"]
    told = CliRunner().invoke(commands, ["weights", "combine", *map(str, megatron), *words, "--dry-run"])
    assert told.exit_code == 0, told.output
    assert "Megatron keeps or folds patches; this model's reduction is summary." in told.output


PREFIX_TOKENS = {"siglip": 0, "dinov2-registers": 5, "radio": None}  # the others have a class token alone


@pytest.mark.parametrize("family", sorted(VISION_FAMILIES))
@pytest.mark.parametrize(("reduction", "patches"), [("none", 16), ("pixel_shuffle", 4), ("pool", 4), ("summary", 1)])
@pytest.mark.parametrize("keep_class_token", [None, False, True])
@pytest.mark.parametrize("feature_layers", [(-1,), (1, 2)])
def test_every_way_to_put_parts_together_gives_as_many_features_as_it_says(
    family, reduction, patches, keep_class_token, feature_layers
):
    text, tower = language("llama"), vision(family)
    given = [Published(None, "hf", config, InMemory(coded_weights(config))) for config in (text, tower)]
    prefix = PREFIX_TOKENS.get(family, 1)
    prefix = tower.prefix_tokens if prefix is None else prefix
    how = {"reduction": reduction, "keep_class_token": keep_class_token, "feature_layers": feature_layers}
    refused = None
    if keep_class_token and prefix and reduction in ("pixel_shuffle", "summary"):
        refused = f"keep_class_token with {reduction}"
    elif reduction == "summary" and not tower.class_tokens:
        refused = f"{tower.family} has no class token"
    if refused is not None:
        with pytest.raises(ConfigError, match=refused):
            combine(*given, **how)
        return
    config = combine(*given, **how).config
    torch.manual_seed(0)
    with torch.no_grad():
        features = build(config).image_features([torch.randn(2, 3, 56, 56)])
    assert features.shape == (2 * config.image_tokens(56, 56), text.dim)
    assert config.image_tokens(56, 56) == patches + (prefix if keep_class_token else 0)
