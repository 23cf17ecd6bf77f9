"""`LlavaTaskEncoder` on samples of every kind, alone and within the loader."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import omniloom
from omniloom.data.convert.llava import convert_llava
from omniloom.errors import ConfigError, SampleError
from omniloom.vlm.encoded import EncodedPack, EncodedSample, LlavaBatch, expand
from omniloom.vlm.image_processor import ImageProcessor
from omniloom.vlm.layouts import DynamicTiles
from omniloom.vlm.prompts import PromptPools
from omniloom.vlm.samples import ConversationSample, OfflineTargetAspectRatioSample, SampleListSample
from omniloom.vlm.talks import MEGATRON_RULES
from omniloom.vlm.task_encoder import LlavaSettings, LlavaTaskEncoder
from omniloom.vlm.tokenizer import HuggingFaceTokenizer

tokenizers = pytest.importorskip("tokenizers")
SPECIAL = ["<|im_start|>", "<|im_end|>", "<pad>", "<box>", "</box>"]


def _tokenizer() -> HuggingFaceTokenizer:
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet)
    bpe.train_from_iterator(["the user and the assistant"], trainer)
    return HuggingFaceTokenizer(bpe, eos_token="<|im_end|>", pad_token="<pad>")


def _encoder(*, tiles: int = 6, **settings: Any) -> LlavaTaskEncoder:
    images = ImageProcessor(tile_pixels=28, tile_tokens=4, layout=DynamicTiles(max_tiles=tiles))
    return LlavaTaskEncoder(
        tokenizer=_tokenizer(),
        template="chatml",
        images=images,
        settings=LlavaSettings(**{"max_tokens": 400, **settings}),
    )


def _png(width: int = 60, height: int = 30, colour: int = 0) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), (colour, 99, 10)).save(stream, "PNG")
    return stream.getvalue()


def _fields(key: str = "k", **flavors: Any) -> dict[str, Any]:
    return {"__key__": key, "__restore_key__": (0, 0, 0), "__subflavors__": flavors or None}


def _texts(encoder: LlavaTaskEncoder, sample: Any) -> tuple[str, str]:
    """What the model reads (images as ``*``) and what it learns."""
    random.seed(0)
    made = encoder.preencode_sample(sample)
    assert isinstance(made, EncodedSample)
    decode = encoder.tokenizer.decode
    cut = np.flatnonzero(made.ids == encoder.settings.image_id)
    pieces = [decode(part[1:] if n else part) for n, part in enumerate(np.split(made.ids, cut))]
    return "*".join(pieces), decode(made.labels[made.labels >= 0])


def test_captions() -> None:
    read, learned = _texts(_encoder(), omniloom.CaptioningSample(**_fields(), image=_png(), caption=" A cat. \n"))
    prompts = PromptPools.standard().pool("CaptioningPretraining", "raw")
    assert read in {f"<|im_start|>user\n*\n{p}\n<|im_end|>\n<|im_start|>assistant\nA cat.<|im_end|>\n" for p in prompts}
    assert learned == "A cat.<|im_end|>"
    lines = omniloom.CaptioningSample(**_fields(SplitByLine=True), image=_png(), caption="one\n\ntwo")
    assert _texts(_encoder(), lines)[1] in ("one<|im_end|>", "two<|im_end|>")


def test_questions() -> None:
    encoder = _encoder(rules=MEGATRON_RULES)
    sample = omniloom.VQASample(**_fields(), image=_png(), context="What?", answers="A cat.")
    read, learned = _texts(encoder, sample)
    assert read == (
        "<|im_start|>system\nAnswer the questions.<|im_end|>\n<|im_start|>user\n*\nWhat?<|im_end|>\n"
        "<|im_start|>assistant\nA cat.<|im_end|>\n"
    )
    assert learned == "A cat.<|im_end|>"
    placed = omniloom.VQASample(**_fields(), image=_png(), context="See <image>. What?", answers="x")
    assert "See *. What?" in _texts(encoder, placed)[0]
    stage_one = omniloom.VQASample(**_fields("llava_1"), image=_png(), context="unread", answers="A cat.")
    assert _texts(encoder, stage_one)[0] == "<|im_start|>user\n*\n<|im_end|>\n<|im_start|>assistant\nA cat.<|im_end|>\n"
    document = omniloom.VQASample(**_fields("docvqa_7"), image=_png(), context="Total?", answers="5")
    read = _texts(encoder, document)[0]
    assert "*\nTotal?<|im_end|>" in read or "using the text in the image directly.<|im_end|>" in read


def test_weighted_answers() -> None:
    answers = ["red", "blue", "never"]
    sample = omniloom.VQASample(
        **_fields(), image=_png(), context="?", answers=answers, answer_weights=torch.tensor([1.0, 3.0, 0.0])
    )
    encoder = _encoder()
    drawn: list[str] = []
    for _ in range(400):
        labels = encoder.preencode_sample(sample).labels  # type: ignore[union-attr]
        drawn.append(encoder.tokenizer.decode(labels[labels >= 0]).removesuffix("<|im_end|>"))
    assert set(drawn) == {"red", "blue"}
    assert 240 <= drawn.count("blue") <= 350, "three of four, within five deviations"
    sample.answer_weights = torch.tensor([1.0])
    with pytest.raises(SampleError, match="for 3 answers"):
        encoder.preencode_sample(sample)


def test_choices() -> None:
    sample = omniloom.MultiChoiceVQASample(
        **_fields(), image=_png(), context="Which?", choices=["cat", "dog"], correct_choice_idx=1
    )
    read, learned = _texts(_encoder(), sample)
    asked = "*\nWhich?\nA. cat\nB. dog\nAnswer with the option's letter from the given choices directly.<|im_end|>"
    assert asked in read
    assert learned == "B<|im_end|>"
    sample.correct_choice_idx = 2
    with pytest.raises(SampleError) as caught:
        _encoder().preencode_sample(sample)
    assert caught.value.reason == "bad-choice"


def test_documents() -> None:
    boxes = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    words = {"words_text": ["Hi", "you"], "words_boxes": boxes}
    pages = omniloom.OCRSample(**_fields("pdfa-1"), image=_png(), text="Hi <image> you")
    assert _texts(_encoder(), pages)[1] == "Hi  you<|im_end|>"
    multi = omniloom.OCRSample(**_fields(task="ocr-multi"), image=_png(), text="", **words)
    learned = _texts(_encoder(), multi)[1]
    assert learned == "<ref>Hi</ref><box>(1,2),(3,4)</box><ref>you</ref><box>(5,6),(7,8)</box><|im_end|>"
    grounded = omniloom.OCRSample(**_fields(), image=_png(), text="Hi", words_boxes=[1, 2, 3, 4, 5, 6, 7, 8])
    quad = "<quad>(1,2),(3,4),(5,6),(7,8)</quad>"
    for seed in range(6):
        random.seed(seed)
        made = _encoder().preencode_sample(grounded)
        labels = made.labels[made.labels >= 0]  # type: ignore[union-attr]
        learned = _tokenizer().decode(labels)
        assert learned in ("<ref>Hi</ref><|im_end|>", f"{quad}<|im_end|>")
    with pytest.raises(SampleError, match="no boxes"):
        _encoder().preencode_sample(omniloom.OCRSample(**_fields(), image=_png(), text="Hi"))


TURNS = [
    {"from": "human", "value": "<image-2> or <image-1>?"},
    {"from": "gpt", "value": "The <image>."},
    {"from": "human", "value": "Sure?"},
    {"from": "gpt", "value": "Yes."},
]


def test_conversations_with_several_images_in_any_order() -> None:
    images = [_png(28, 28, 1), _png(56, 28, 2)]
    for sample in (
        ConversationSample(**_fields(), turns=TURNS, images=images),
        omniloom.SimilarityInterleavedSample(**_fields(), images=images, texts=TURNS),
    ):
        encoder = _encoder()
        read, learned = _texts(encoder, sample)
        assert "* or *?" in read
        assert learned == "The <image>.<|im_end|>Yes.<|im_end|>"
        made = encoder.postencode_sample(encoder.preencode_sample(sample))
        assert isinstance(made, EncodedSample)
        assert made.num_tiles == [3, 1], "two tiles and a thumbnail of the second image, then the first"
        assert made.pixels is not None
        red = (made.pixels[:, 0].mean(axis=(1, 2)) * 0.26862954 + 0.48145466) * 255
        assert red.round().tolist() == [2, 2, 2, 1]


def test_text_alone() -> None:
    made = _encoder().preencode_sample(ConversationSample(**_fields(), turns=TURNS[2:], images=[]))
    assert isinstance(made, EncodedSample)
    assert (made.num_tiles, made.total_tokens) == ([], len(made.ids))


def test_grids_that_were_chosen_before() -> None:
    sample = OfflineTargetAspectRatioSample(**_fields(), images=[_png()], texts=TURNS[2:], target_aspect_ratio=[[1, 4]])
    encoder = _encoder()
    made = encoder.postencode_sample(encoder.preencode_sample(sample))
    assert isinstance(made, EncodedSample)
    assert made.num_tiles == [5]


def test_packs_that_were_made_before() -> None:
    inner = [ConversationSample(**_fields(str(n)), turns=TURNS[2:], images=[_png()]) for n in range(2)]
    pack = SampleListSample(**_fields("p"), samples=inner)
    encoder = _encoder()
    made = encoder.preencode_sample(pack)
    assert isinstance(made, EncodedPack)
    batch = encoder.batch([encoder.postencode_sample(made)])
    assert isinstance(batch, LlavaBatch)
    assert batch.document_lengths.tolist() == [one.total_tokens for one in made.samples]
    with pytest.raises(SampleError) as caught:
        _encoder(max_tokens=60).preencode_sample(SampleListSample(**_fields("p"), samples=inner * 9))
    assert caught.value.reason in ("oversize", "no-target")


def test_videos_become_frames() -> None:
    frames = torch.arange(20, dtype=torch.uint8)[:, None, None, None].expand(20, 3, 40, 30).clone()
    sample = omniloom.VidQASample(**_fields(), video=frames, context="How many?", answers=["20"])
    encoder = _encoder(video_frames=5)
    made = encoder.postencode_sample(encoder.preencode_sample(sample))
    assert isinstance(made, EncodedSample)
    assert made.num_tiles == [5]
    assert made.pixels is not None
    red = (made.pixels[:, 0].mean(axis=(1, 2)) * 0.26862954 + 0.48145466) * 255
    assert red.round().tolist() == [0, 4, 9, 14, 19]
    turns = [{"from": "human", "value": "<video>\nWhat?"}, {"from": "gpt", "value": "x"}]
    flagged = omniloom.SimilarityInterleavedSample(**_fields(has_video=True), images=frames, texts=turns)
    assert encoder.preencode_sample(flagged).num_tiles == [5]  # type: ignore[union-attr]


def test_tile_tags_stand_before_each_tile() -> None:
    encoder = _encoder(tile_tags=True)
    sample = ConversationSample(**_fields(), turns=[{"role": "user", "content": "<image>"}, TURNS[3]], images=[_png()])
    made = encoder.preencode_sample(sample)
    assert isinstance(made, EncodedSample)
    ids, _ = expand(made, image_id=-200)
    text = encoder.tokenizer.decode(np.where(ids < 0, encoder.tokenizer.token_id("<pad>"), ids))
    tile = "<pad>" * 4
    assert f"<tile_1>{tile}<tile_2>{tile}<tile_global_thumbnail>{tile}" in text
    assert made.total_tokens == len(ids)


def test_augmentation_changes_colours_by_the_seed_and_nothing_else() -> None:
    encoder = _encoder()

    def pixels(seed: int, **flavors: Any) -> Any:
        sample = ConversationSample(**_fields(**flavors), turns=TURNS[2:], images=[_png(colour=120)])
        random.seed(seed)
        return encoder.postencode_sample(encoder.preencode_sample(sample)).pixels  # type: ignore[union-attr]

    plain = pixels(0)
    assert np.array_equal(plain, pixels(1, augmentation=False))
    changed = pixels(1, augmentation=True)
    assert changed.shape == plain.shape
    assert not np.array_equal(changed, plain)
    assert np.array_equal(changed, pixels(1, augmentation=True))


def test_answers_of_weight_0_are_read_only() -> None:
    turns = [{**turn, "weight": 0} if turn["value"] == "The <image>." else turn for turn in TURNS]
    sample = ConversationSample(**_fields(), turns=turns, images=[_png(), _png()])
    read, learned = _texts(_encoder(), sample)
    assert "The <image>.<|im_end|>" in read
    assert learned == "Yes.<|im_end|>"
    turns = [{**turn, "weight": 0} for turn in TURNS]
    with pytest.raises(SampleError) as caught:
        _encoder().preencode_sample(ConversationSample(**_fields(), turns=turns, images=[_png(), _png()]))
    assert caught.value.reason == "no-target"


def test_running_texts_are_learned_without_a_template() -> None:
    encoder = _encoder()
    read, learned = _texts(encoder, omniloom.TextSample(**_fields(), text="Once <image> upon"))
    assert read == learned == "Once <image> upon<|im_end|>"
    sample = omniloom.InterleavedSample(**_fields(), sequence=["A ", _png(), " and ", _png(28, 28), "."])
    read, learned = _texts(encoder, sample)
    assert read == "A * and *.<|im_end|>"
    assert learned == "A  and .<|im_end|>"
    made = encoder.postencode_sample(encoder.preencode_sample(sample))
    assert made.num_tiles == [3, 1]  # type: ignore[union-attr]


def test_tiles_of_a_pack_are_limited() -> None:
    encoder = _encoder(pack_tokens=4000, pack_tiles=7)
    samples = [
        encoder.preencode_sample(ConversationSample(**_fields(str(n)), turns=TURNS[2:], images=[_png()]))
        for n in range(5)
    ]
    packs = encoder.select_samples_to_pack(samples, last=True)
    assert sorted(len(pack) for pack in packs.packs) == [1, 2, 2], "3 tiles each"  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="pack_tiles=0"):
        LlavaSettings(max_tokens=10, pack_tiles=0)


def test_images_do_not_push_the_text_out() -> None:
    sample = ConversationSample(**_fields(), turns=TURNS[2:], images=[_png(200, 100)] * 2)
    made = _encoder(max_tokens=120).preencode_sample(sample)
    assert isinstance(made, EncodedSample)
    assert made.total_tokens <= 120
    assert (made.labels >= 0).sum() > 3


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match="might fit no pack"):
        LlavaSettings(max_tokens=100, pack_tokens=50)
    with pytest.raises(ConfigError, match="image_tags='x' found"):
        LlavaSettings(max_tokens=100, image_tags="x")
    with pytest.raises(ConfigError, match="no token"):
        LlavaTaskEncoder(
            tokenizer=_tokenizer(),
            template="llama3",
            images=ImageProcessor(tile_pixels=28, tile_tokens=4),
            settings=LlavaSettings(max_tokens=100),
        )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted set of 30 conversations with 0 to 2 images; two that fit no policy."""
    root = tmp_path_factory.mktemp("vlm")
    (root / "images").mkdir()
    draw = random.Random(0)
    entries = []
    for number in range(30):
        names = [f"{number}_{k}.png" for k in range(draw.choice([0, 1, 1, 2]))]
        for name in names:
            (root / "images" / name).write_bytes(_png(draw.randint(10, 200), draw.randint(10, 200), number))
        asked = "<image>\n" * len(names) + f"Number {number}?"
        if number in (7, 8):
            asked = "<image>" * 3 + asked
        turns = [{"from": "human", "value": asked}, {"from": "gpt", "value": "word " * draw.randint(1, 20)}]
        entries.append({"id": f"s{number}", "image": names, "conversations": turns})
    (root / "data.json").write_text(json.dumps(entries))
    convert_llava(root / "data.json", images=root / "images", out=root / "out")
    return root / "out"


def _loaded(prepared: Path, encoder: LlavaTaskEncoder, *, workers: int = 0, **settings: Any) -> Any:
    config = omniloom.WorkerConfig(rank=0, world_size=1, num_workers=workers)
    dataset = omniloom.get_val_dataset(
        prepared, split_part="train", task_encoder=encoder, worker_config=config, **settings
    )
    return omniloom.get_savable_loader(dataset)


def test_the_loader_gives_packs_in_which_tokens_and_features_agree(prepared: Path) -> None:
    loader = _loaded(prepared, _encoder(pack_tokens=500), packing_buffer_size=10, batch_size=1)
    keys: list[str] = []
    for batch in loader:
        assert batch.document_lengths.sum() == len(batch.input_ids) <= 500
        assert (batch.input_ids == -200).sum() == batch.num_tiles.sum() * 4 == len(batch.images) * 4
        ends = batch.document_lengths.cumsum(0) - 1
        assert (batch.labels[ends] == -100).all()
        for labels in batch.labels.split(batch.document_lengths.tolist()):
            assert (labels >= 0).any()
        keys += batch.document_keys
    assert sorted(keys) == sorted(f"s{number}" for number in range(30) if number not in (7, 8))
    counted = loader.stats()
    assert "placeholder-count" in str(counted)


def test_rows_of_parquet_are_conversations_as_they_are(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    pictures = [{"bytes": _png(60, 30, n), "path": None} for n in range(3)]
    llava = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A box."}]
    one = {"image": pictures[:1], "conversations": [llava]}
    two = {"images": [pictures[1:]], "texts": [[{"user": "Which <image>?", "assistant": "The 2nd."}]]}
    for name, table, tiles, learned in (("one", one, [3], "A box."), ("two", two, [3, 3], "The 2nd.")):
        parquet.write_table(pyarrow.table(table), tmp_path / f"{name}.parquet")
        (batch,) = _loaded(tmp_path / f"{name}.parquet", _encoder(), batch_size=1)
        assert batch.num_tiles.tolist() == tiles
        assert _tokenizer().decode(batch.labels[batch.labels >= 0].tolist()) == f"{learned}<|im_end|>"


def test_no_pixel_is_decoded_before_a_pack_is_chosen(prepared: Path) -> None:
    seen: list[Any] = []

    class Watching(LlavaTaskEncoder):
        def select_samples_to_pack(self, samples: list[Any], *, last: bool = False) -> Any:
            seen.extend(image.is_decoded for sample in samples for image in sample.images)
            return super().select_samples_to_pack(samples, last=last)

    plain = _encoder(pack_tokens=500)
    watching = Watching(tokenizer=plain.tokenizer, template="chatml", images=plain.images, settings=plain.settings)
    assert len(list(_loaded(prepared, watching, packing_buffer_size=10, batch_size=1))) > 3
    assert len(seen) > 20
    assert not any(seen)


def test_a_policy_keeps_what_another_refuses(prepared: Path) -> None:
    batches = list(_loaded(prepared, _encoder(rules=MEGATRON_RULES, form="megatron"), batch_size=1))
    entries = json.loads((prepared.parent / "data.json").read_text())
    hopeless = [entry for entry in (entries[7], entries[8]) if len(entry["image"]) > 1]
    assert len(batches) == 30 - len(hopeless)
    assert all(batch["labels"].shape[1] == batch["tokens"].shape[1] + 1 for batch in batches)


def test_workers_give_what_the_caller_would(prepared: Path) -> None:
    alone = list(_loaded(prepared, _encoder(pack_tokens=500), packing_buffer_size=10, batch_size=2))
    helped = list(_loaded(prepared, _encoder(pack_tokens=500), packing_buffer_size=10, batch_size=2, workers=2))
    assert len(alone) == len(helped)
    for one, other in zip(alone, helped, strict=True):
        assert one.document_keys == other.document_keys
        assert torch.equal(one.input_ids, other.input_ids)
        assert torch.equal(one.labels, other.labels)
        assert torch.equal(one.images, other.images)
