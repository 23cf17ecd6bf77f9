r"""The chat templates that are known by name: one row each, and `chat_template` that finds it.

Sources: the model cards and tokenizer configurations of the models, Meta's prompt formats, mistral-common's tokenizers,
LLaVA's conversation styles, and for the rows of `MEGATRON_FORMATS` the outputs of Megatron-LM's multimodal tokenizer.
"""

from __future__ import annotations

import difflib
from dataclasses import replace

from omniloom.errors import ConfigError
from omniloom.vlm.template import ChatTemplate, TurnForm

_VICUNA_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)


def _chatml(name: str, **fields: object) -> ChatTemplate:
    def form(role: str) -> TurnForm:
        return TurnForm(before=f"«<|im_start|>»{role}\n", after="«<|im_end|>»", tail="\n")

    row = ChatTemplate(name=name, system=form("system"), user=form("user"), assistant=form("assistant"))
    return replace(row, **fields)  # type: ignore[arg-type]


def _llama3(name: str, pad: str) -> ChatTemplate:
    def form(role: str) -> TurnForm:
        before = f"«<|start_header_id|>»{role}«<|end_header_id|>»\n\n"
        return TurnForm(before=before, after="«<|eot_id|>»", trim=True)

    return ChatTemplate(
        name=name,
        begin="«<|begin_of_text|>»",
        system=form("system"),
        user=form("user"),
        assistant=form("assistant"),
        pad=pad,
    )


def _mistral(name: str, *, space: str = " ", **fields: object) -> ChatTemplate:
    row = ChatTemplate(
        name=name,
        begin="«bos»",
        user=TurnForm(before="«[INST]»", lead=space, after="«[/INST]»"),
        assistant=TurnForm(lead=space, after="«eos»"),
        system=TurnForm(tail="\n\n"),
        system_place="last-user",
    )
    return replace(row, **fields)  # type: ignore[arg-type]


def _mistral_v7(name: str, *, space: str) -> ChatTemplate:
    system = TurnForm(before="«[SYSTEM_PROMPT]»", lead=space, after="«[/SYSTEM_PROMPT]»")
    return _mistral(name, space=space, system=system, system_place="turn")


_NEMOTRON_PAD = "<SPECIAL_233>"


def _nemotron5(role: str) -> TurnForm:
    return TurnForm(before=f"«<SPECIAL_14>»{role}\n", after="«<SPECIAL_15>»", tail="\n")


def _aligned(role: str) -> TurnForm:
    return TurnForm(before=f"{role}\n", after="\n[PREFIX]")


_ROWS = (
    # Mistral-7B-Instruct v0.3 as Megatron's format `mistral` writes it: the system is left out.
    _mistral("mistral", system_place="drop", pad="<unk>"),
    # The same by Mistral's own rules, by the versions of its tokenizers.
    ChatTemplate(
        name="mistral-v1",
        begin="«bos»",
        user=TurnForm(before="[INST] ", after=" [/INST]"),
        assistant=TurnForm(lead=" ", after="«eos»"),
        system=TurnForm(tail="\n\n"),
        system_place="first-user",
    ),
    _mistral("mistral-v3"),
    _mistral("mistral-tekken", space=""),
    _mistral_v7("mistral-v7", space=" "),
    _mistral_v7("mistral-v7-tekken", space=""),
    ChatTemplate(
        name="llama2",
        user=TurnForm(before="«bos»[INST] ", after=" [/INST]", trim=True),
        assistant=TurnForm(lead=" ", after=" «eos»", trim=True),
        system=TurnForm(before="<<SYS>>\n", after="\n<</SYS>>\n\n"),
        system_place="first-user",
        pad="<unk>",
    ),
    _llama3("llama3", "<|end_of_text|>"),
    _llama3("llama3p1", "<|finetune_right_pad_id|>"),
    ChatTemplate(
        name="vicuna_v1",
        begin="«bos»",
        system=TurnForm(tail=" "),
        default_system=_VICUNA_SYSTEM,
        user=TurnForm(before="USER: ", tail=" "),
        assistant=TurnForm(before="ASSISTANT:", lead=" ", after="«eos»"),
        after_image="start",
        pad="<unk>",
    ),
    # LLaVA's first stage: the image, then the caption. The question is not seen.
    ChatTemplate(
        name="plain",
        begin="«bos»",
        user=TurnForm(),
        assistant=TurnForm(after="\n"),
        system_place="drop",
        ignores_user=True,
        after_image="start",
        pad="<unk>",
    ),
    _chatml("chatml"),
    _chatml("qwen2", default_system="You are a helpful assistant.", pad="<|endoftext|>"),
    _chatml(
        "qwen2.5",
        default_system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
        pad="<|endoftext|>",
    ),
    _chatml(
        "qwen3",
        last_assistant_before="«<|im_start|>»assistant\n«<think>»\n\n«</think>»\n\n",
        pad="<|endoftext|>",
    ),
    _chatml("yi", begin="«bos»"),
    ChatTemplate(
        name="nemotron",
        begin="«bos»",
        system=_nemotron5("system"),
        user=_nemotron5("user"),
        assistant=_nemotron5("assistant"),
        pad=_NEMOTRON_PAD,
    ),
    ChatTemplate(
        name="nemotron5-aligned",
        begin="«bos»",
        system=_aligned("System"),
        user=_aligned("User"),
        assistant=_aligned("Assistant"),
        pad=_NEMOTRON_PAD,
    ),
)

CHAT_TEMPLATES: dict[str, ChatTemplate] = {row.name: row for row in _ROWS}
"""The templates by name."""

# Megatron's masks go on after the end token to the start of the next turn, so the line end after it is learned too.
_AS_MEGATRON = {
    "nvlm-yi-34b": replace(CHAT_TEMPLATES["yi"], learns_tail=True),
    "qwen2p0": replace(CHAT_TEMPLATES["qwen2"], default_system=None, learns_tail=True),
    "qwen2p5": replace(CHAT_TEMPLATES["qwen2.5"], default_system=None, learns_tail=True),
    "nemotron5": replace(CHAT_TEMPLATES["nemotron"], learns_tail=True),
    "llama3p2": CHAT_TEMPLATES["llama3p1"],
}
MEGATRON_FORMATS: dict[str, ChatTemplate] = {name: replace(row, name=name) for name, row in _AS_MEGATRON.items()}
"""Values of Megatron's ``--tokenizer-prompt-format`` that differ from the rows above, with its masks."""

_ALIASES = {
    "vicuna": "vicuna_v1",
    "v1": "vicuna_v1",
    "llama3.1": "llama3p1",
    "llama3.2": "llama3p1",
    "llama3.3": "llama3p1",
    "nvlm": "nvlm-yi-34b",
}

IMAGE_TAGS: dict[str, tuple[str, str]] = {
    "": ("", ""),
    "nvlm": ("<Image>", "</Image>"),
    "internvl": ("«<img>»", "«</img>»"),
}
"""What stands around each image, by the names of Megatron's ``--image-tag-type``."""


def chat_template(name: str) -> ChatTemplate:
    """The chat template of this name.

    Raises:
        ConfigError: there is none; names the nearest.
    """
    known = CHAT_TEMPLATES | MEGATRON_FORMATS
    found = known.get(_ALIASES.get(name, name))
    if found is None:
        near = difflib.get_close_matches(name, [*known, *_ALIASES], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"there is no chat template {name!r}.{hint} There are {', '.join(known)}; or `model`, the one that "
            "came with the tokenizer."
        )
    return found
