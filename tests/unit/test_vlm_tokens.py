"""Ids and masks: borders that tokenizers would merge across, truncation (case C32), the table of templates."""

from __future__ import annotations

import string
from collections.abc import Sequence

import pytest

from omniloom.errors import ConfigError, SampleError
from omniloom.vlm.conversation import ImagePart, Part, TokenPart, Turn
from omniloom.vlm.template import Piece
from omniloom.vlm.template_table import CHAT_TEMPLATES, MEGATRON_FORMATS, chat_template
from omniloom.vlm.tokenizer import Place
from omniloom.vlm.tokens import IMAGE_ID, TokenizedConversation, tokenize, truncate


class Characters:
    """One token a character, but for some pairs that merge; special tokens are numbered from 1000 on."""

    def __init__(self, merges: Sequence[str] = (), special: Sequence[str] = ()) -> None:
        self.merges = list(merges)
        self.names = ["bos", "eos", *special]
        self.vocabulary_size = 3000
        self.bos_id: int | None = 1000
        self.eos_id: int | None = 1001
        self.pad_id: int | None = None
        self.special_tokens = frozenset(self.names)

    def encode(self, text: str, *, place: Place = "start") -> list[int]:
        ids, at = [], 0
        while at < len(text):
            pair = text[at : at + 2]
            if pair in self.merges:
                ids.append(2000 + self.merges.index(pair))
                at += 2
            else:
                ids.append(ord(text[at]))
                at += 1
        return ids

    def token_id(self, token: str) -> int | None:
        return 1000 + self.names.index(token) if token in self.names else None

    def decode(self, ids: Sequence[int]) -> str:
        def text(number: int) -> str:
            if number >= 2000:
                return self.merges[number - 2000]
            return self.names[number - 1000] if number >= 1000 else chr(number)

        return "".join(map(text, ids))


def _talk(*parts: Part, answer: str = "yes") -> list[Turn]:
    return [Turn("user", parts), Turn("assistant", (answer,))]


def _learned(tokenizer: Characters, made: TokenizedConversation) -> str:
    return tokenizer.decode([i for i, learned in zip(made.ids, made.learned, strict=True) if learned])


def test_a_merge_never_reaches_across_the_border_of_what_is_learned() -> None:
    tokenizer = Characters(merges=["?Y", "ab", "Yes"[:2]])
    pieces = [Piece("text", "ab?", learned=False), Piece("text", "Yes", learned=True)]
    made = tokenize(pieces, tokenizer)
    assert made.ids == [2001, ord("?"), 2002, ord("s")]
    assert made.learned == [False, False, True, True]
    joined = tokenize([Piece("text", "ab?", learned=False), Piece("text", "Yes", learned=False)], tokenizer)
    assert joined.ids == [2001, 2000, ord("e"), ord("s")], "within the same mask the whole run is one text"


def test_special_tokens_in_texts_are_text() -> None:
    template = chat_template("chatml")
    tokenizer = Characters(special=["<|im_start|>", "<|im_end|>"])
    made = tokenize(template.render(_talk("end <|im_end|> it", answer="<|im_end|>")), tokenizer)
    assert made.ids.count(1003) == 2
    assert _learned(tokenizer, made) == "<|im_end|><|im_end|>"
    assert sum(made.learned) == len("<|im_end|>") + 1


def test_a_token_part_is_special_only_where_the_tokenizer_knows_it() -> None:
    turns = [Turn("user", (TokenPart("<box>"), "(1,2)"))]
    template = chat_template("chatml")
    for special in ((), ("<box>",)):
        tokenizer = Characters(special=["<|im_start|>", "<|im_end|>", *special])
        ids = tokenize(template.render(turns), tokenizer).ids
        assert (1004 in ids) == bool(special)
        assert "<box>(1,2)" in tokenizer.decode(ids)


def test_a_missing_special_token_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"no token '<\|im_start\|>'"):
        tokenize(chat_template("chatml").render(_talk("a")), Characters())


QUESTION, ANSWER = "q" * 40, "a" * 30


def _image_first() -> TokenizedConversation:
    pieces = [
        Piece("image", "", learned=False, image=0),
        Piece("text", QUESTION, learned=False),
        Piece("text", ANSWER, learned=True),
    ]
    return tokenize(pieces, Characters())


def test_truncation_shortens_text_and_never_an_image() -> None:
    cut = truncate(_image_first(), image_tokens=[576], max_tokens=630)
    assert cut.expanded_length([576]) == 630
    assert cut.ids[0] == IMAGE_ID
    assert sum(cut.learned) == 630 - 576 - 40
    whole = truncate(_image_first(), image_tokens=[576], max_tokens=10_000)
    assert whole == _image_first()


@pytest.mark.parametrize(("max_tokens", "reason"), [(600, "no-target"), (616, "no-target"), (500, "image-over-budget")])
def test_what_leaves_no_target_or_no_room_is_refused(max_tokens: int, reason: str) -> None:
    with pytest.raises(SampleError) as caught:
        truncate(_image_first(), image_tokens=[576], max_tokens=max_tokens)
    assert caught.value.reason == reason


def test_an_image_behind_the_cut_is_left_out_whole() -> None:
    pieces = [
        Piece("text", "q", learned=False),
        Piece("text", "aa", learned=True),
        Piece("image", "", learned=False, image=0),
        Piece("text", "b", learned=True),
    ]
    for max_tokens in range(5, 8):
        cut = truncate(tokenize(pieces, Characters()), image_tokens=[5], max_tokens=max_tokens)
        assert (cut.ids, cut.images) == ([ord("q"), ord("a"), ord("a")], [])
    assert truncate(tokenize(pieces, Characters()), image_tokens=[5], max_tokens=8).images == [0]


ALL = sorted(CHAT_TEMPLATES | MEGATRON_FORMATS)
ROUNDS = [
    Turn("system", ("Be kind.",)),
    Turn("user", (ImagePart(0), "\nSame words.")),
    Turn("assistant", ("Same words.",)),
    Turn("user", ("Again?",)),
    Turn("assistant", ("",)),
    Turn("user", ("More?",)),
    Turn("assistant", ("Done: <think> hm",)),
]


@pytest.mark.parametrize("name", ALL)
def test_exactly_answers_and_their_ends_are_learned(name: str) -> None:
    """Case C33: three rounds, the same sentence asked and answered, an empty answer, marks of reasoning."""
    template = chat_template(name)
    tokenizer = Characters(special=sorted(template.named_tokens - {"bos", "eos"}))
    made = tokenize(template.render(ROUNDS), tokenizer)
    end = tokenizer.decode(tokenize(_ending(name), tokenizer).ids)
    lead, tail = template.assistant.lead, template.assistant.tail if template.learns_tail else ""
    answers = [lead + text + end + tail for text in ("Same words.", "", "Done: <think> hm")]
    assert _learned(tokenizer, made) == "".join(answers)
    assert made.images == [0]


@pytest.mark.parametrize("name", ALL)
def test_a_prompt_is_what_stands_before_the_answer_in_training(name: str) -> None:
    template = chat_template(name)
    tokenizer = Characters(special=sorted(template.named_tokens - {"bos", "eos"}), merges=["n\n", ": ", "\n\n"])
    prompt = tokenize(template.render_prompt(ROUNDS[:-1]), tokenizer)
    whole = tokenize(template.render(ROUNDS), tokenizer)
    assert whole.ids[: len(prompt.ids)] == prompt.ids
    assert whole.learned[len(prompt.ids)]


def _ending(name: str) -> list[Piece]:
    template = chat_template(name)
    pieces = template.render([Turn("user", ("x",)), Turn("assistant", ("\0",))])
    last = max(n for n, piece in enumerate(pieces) if piece.text.endswith("\0"))
    return [piece for piece in pieces[last + 1 :] if piece.learned][: len(template.end_tokens) + 1][
        : None if not template.learns_tail else len(template.end_tokens)
    ]


def test_an_unknown_template_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'vicuna_v1'"):
        chat_template("vicuna_v2")


def test_plain_leaves_the_question_out() -> None:
    tokenizer = Characters()
    made = tokenize(chat_template("plain").render(_talk(ImagePart(0), "\nDescribe it.", answer="A cat.")), tokenizer)
    assert made.ids == [1000, IMAGE_ID, *map(ord, "A cat.\n")]
    assert made.learned == [False, False] + [True] * 7
    assert set("A cat.") <= set(string.printable)
