"""What holds for every conversation: tokens equal features, answers alone are learned, no image is cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.errors import SampleError
from omniloom.vlm.byte_tokenizer import ByteTokenizer
from omniloom.vlm.conversation import PlaceholderPolicy, read_conversation, write_conversation
from omniloom.vlm.encoded import EncodedSample, expand
from omniloom.vlm.image_processor import ImageProcessor
from omniloom.vlm.layouts import DynamicTiles
from omniloom.vlm.samples import ConversationSample
from omniloom.vlm.talks import TalkRules
from omniloom.vlm.task_encoder import LlavaSettings, LlavaTaskEncoder
from omniloom.vlm.template_table import CHAT_TEMPLATES, MEGATRON_FORMATS, chat_template

NAMES = sorted(CHAT_TEMPLATES | MEGATRON_FORMATS)
SPECIAL = sorted(set().union(*(chat_template(name).named_tokens for name in NAMES)) - {"bos", "eos"})
TOKENIZER = ByteTokenizer(SPECIAL)

words = st.lists(st.sampled_from([*"ab <>|/sé\n", "<image>", "</s>", "<|im_end|>"]), max_size=12).map("".join)
policies = st.builds(
    PlaceholderPolicy,
    unplaced=st.sampled_from(["prepend", "prepend-missing", "reject"]),
    surplus=st.sampled_from(["repeat", "reject"]),
    imageless=st.sampled_from(["delete", "reject"]),
)
rounds = st.lists(st.tuples(words, words), min_size=1, max_size=4)
sizes = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), max_size=3)


def _turns(talk: list[tuple[str, str]]) -> list[dict[str, object]]:
    return [{"from": role, "value": text} for pair in talk for role, text in zip(("human", "gpt"), pair, strict=True)]


@settings(max_examples=300, deadline=None)
@given(rounds, sizes, policies, st.sampled_from(NAMES), st.integers(20, 400), st.booleans())
def test_a_sample_is_refused_or_sound(
    talk: list[tuple[str, str]],
    shapes: list[tuple[int, int]],
    policy: PlaceholderPolicy,
    name: str,
    max_tokens: int,
    tags: bool,
) -> None:
    encoder = LlavaTaskEncoder(
        tokenizer=TOKENIZER,
        template=name,
        images=ImageProcessor(tile_pixels=28, tile_tokens=4, layout=DynamicTiles(max_tiles=4)),
        settings=LlavaSettings(max_tokens=max_tokens, tile_tags=tags, rules=TalkRules(placeholders=policy)),
    )
    images = [np.zeros((height, width, 3), np.uint8) for width, height in shapes]
    sample = ConversationSample(__key__="k", __restore_key__=(0, 0, 0), turns=_turns(talk), images=images)
    try:
        made = encoder.postencode_sample(encoder.preencode_sample(sample))
    except SampleError as error:
        assert error.reason in ("placeholder-count", "no-target", "image-over-budget")  # noqa: PT017 - refusals are fine
        return
    assert isinstance(made, EncodedSample)
    ids, labels = expand(made, image_id=-200)
    features = int((ids == -200).sum())
    assert len(ids) == made.total_tokens <= max_tokens
    assert features == 4 * sum(made.num_tiles) == 4 * (0 if made.pixels is None else len(made.pixels))
    assert (labels >= 0).any()
    assert labels[-1] == -100
    learned = labels >= 0
    assert (labels[learned] == ids[1:][learned[:-1]]).all(), "a label is the id that follows"
    # What is learned are the answers in their order, with their ends; the last one may be cut.
    template = chat_template(name)
    wanted = ""
    for _, answer in talk:
        text = answer.strip() if template.assistant.trim else answer
        end = template.assistant.after + (template.assistant.tail if template.learns_tail else "")
        wanted += template.assistant.lead + text + end.replace("«", "").replace("»", "").replace("eos", "<eos>")
    found = TOKENIZER.decode(made.labels[made.labels >= 0].tolist()).rstrip("\ufffd")
    assert wanted.startswith(found)


@given(rounds, st.integers(0, 3))
def test_a_conversation_is_written_and_read_again(talk: list[tuple[str, str]], images: int) -> None:
    policy = PlaceholderPolicy(unplaced="prepend-missing", surplus="repeat", imageless="delete")
    try:
        turns = read_conversation(_turns(talk), images=images, policy=policy)
    except SampleError:
        return
    places = sum(not isinstance(part, str) for turn in turns for part in turn.parts)
    again = read_conversation(write_conversation(turns), images=places)
    assert [[type(part) for part in turn.parts] for turn in again] == [
        [type(part) for part in turn.parts] for turn in turns
    ]
    assert [turn.text for turn in again] == [turn.text for turn in turns]
