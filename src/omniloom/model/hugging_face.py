"""`hf:`: any causal language model of transformers in the place of our decoder, on one device or under FSDP.

transformers keeps packed documents apart by their positions, but only without an attention mask and without a cache;
with the cache that is on by default documents see each other silently. Some models never look at positions that
way. So the wrapper forbids the cache and tries the model once; a model that mixes documents gets them as rows of a
padded batch, in which a causal model cannot mix them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from omniloom.errors import ConfigError, InputError
from omniloom.model.attention import Attend, AttendPacked
from omniloom.model.config import DecoderConfig
from omniloom.model.decoder import LanguageModel
from omniloom.model.documents import Documents

REFERENCE = "hf:"
FAMILY = "hf"
_PROBE_TOKENS = 4
_UNBOUNDED_TOKENS = 2**20
_NO_PART_OF_A_MODEL = frozenset({"transformers_version", "_name_or_path", "dtype", "torch_dtype"})
_WANTED_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")


class HuggingFaceDecoder(LanguageModel):
    """A causal language model of transformers behind our interface.

    Attributes:
        packs: whether the model keeps packed documents apart, as tried as soon as it has values; if not, it gets padded
            rows. ``None``: it has had no values yet.
    """

    def __init__(self, model: nn.Module) -> None:
        """Wrap a ``...ForCausalLM``; one on the device ``meta`` is tried with its first batch."""
        super().__init__()
        self.model = model
        self.config = _describe(model.config)
        self.packs: bool | None = None
        self._buffers_lost = self.head_weight.is_meta
        if not self._buffers_lost:
            self._try()

    @classmethod
    def of_config(cls, config: DecoderConfig) -> HuggingFaceDecoder:
        """The model of a config, on the device that torch makes things on now.

        Raises:
            ConfigError: transformers is not installed, or does not know the model.
        """
        return cls(_made(config))

    @property
    def head_weight(self) -> Float[Tensor, "vocab dim"]:
        """The rows that score the words."""
        weight: Tensor = self._call("get_output_embeddings").weight
        return weight

    def embed(self, token_ids: Int[Tensor, " tokens"]) -> Float[Tensor, "tokens dim"]:
        """The embeddings of tokens."""
        embeddings: Tensor = self._call("get_input_embeddings")(token_ids)
        return embeddings

    def forward(self, embeddings: Float[Tensor, "tokens dim"], attend: Attend) -> Float[Tensor, "tokens dim"]:
        """The stream after the last layer and the last norm.

        Raises:
            InputError: `attend` is something else than plain packed documents, such as a cache.
            ConfigError: the model's scores are not the stream times its head.
        """
        if type(attend) is not AttendPacked:
            raise InputError(
                f"{type(attend).__name__} with a model of transformers; only packed documents work. "
                "`omniloom.generate` generates with it, without a cache."
            )
        if self.packs is None:
            self._try()
        if self.packs:
            return self._packed(embeddings, attend.positions)
        return self._rows(embeddings, attend.documents)

    def _packed(self, embeddings: Tensor, positions: Tensor) -> Tensor:
        return self._run(embeddings[None], position_ids=positions[None])[0]

    def _rows(self, embeddings: Tensor, documents: Documents) -> Tensor:
        padded = embeddings.new_zeros(len(documents), documents.longest, embeddings.shape[-1])
        numbers, positions = documents.numbers(embeddings.device), documents.positions(embeddings.device)
        return self._run(padded.index_put((numbers, positions), embeddings))[numbers, positions]

    def _run(self, embeddings: Tensor, **arguments: Tensor) -> Tensor:
        decoder = self._call("get_decoder")
        output = decoder(inputs_embeds=embeddings, attention_mask=None, use_cache=False, **arguments)
        stream: Tensor = output.last_hidden_state
        return stream

    @torch.no_grad()
    def _try(self) -> None:
        """Find out what the model does, without its dropout."""
        if self._buffers_lost:
            self._restore_buffers()
        training = self.model.training
        self.model.eval()
        try:
            self._refuse_more_than_a_head()
            self.packs = self._keeps_documents_apart()
        finally:
            self.model.train(training)

    def _keeps_documents_apart(self) -> bool:
        """Whether a second document comes out the same after two different first ones, and as if it were alone."""
        documents = Documents.of_lengths([_PROBE_TOKENS, _PROBE_TOKENS])
        positions = documents.positions(self.head_weight.device)
        rows = self.embed(self._probe(3 * _PROBE_TOKENS))
        first, other, second = rows.tensor_split(3)
        after_first = self._packed(torch.cat([first, second]), positions)[_PROBE_TOKENS:]
        after_other = self._packed(torch.cat([other, second]), positions)[_PROBE_TOKENS:]
        alone = self._run(second[None])[0]
        return bool(torch.equal(after_first, after_other) and torch.allclose(after_first, alone, rtol=1e-2, atol=1e-2))

    def _refuse_more_than_a_head(self) -> None:
        """Refuse scores that are not the stream times the head: a bias, a scale, a cap."""
        token_ids = self._probe(_PROBE_TOKENS)[None]
        expected = self.model(input_ids=token_ids, use_cache=False).logits
        stream = self._call("get_decoder")(input_ids=token_ids, use_cache=False).last_hidden_state
        tolerance = 1e-5 if expected.dtype == torch.float32 else 1e-2
        if not torch.allclose(self.logits(stream[0]), expected[0], rtol=tolerance, atol=tolerance * 0.1):
            raise ConfigError(
                f"{type(self.model).__name__} does more than a linear map after its last norm (a bias, a scale or a "
                "cap of its scores). Such models cannot be the language model of a LLaVA here."
            )

    def _probe(self, tokens: int) -> Tensor:
        weight = self.head_weight
        return torch.arange(tokens, device=weight.device) % weight.shape[0]

    def _call(self, name: str) -> Any:
        return getattr(self.model, name)()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> HuggingFaceDecoder:
        """What ``to`` and ``to_empty`` go through: it unties the head, and rounds tables of positions to bfloat16."""
        tables = {name: buffer for name, buffer in self.model.named_buffers() if buffer.is_floating_point()}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._call("tie_weights")
        for name, table in tables.items():
            moved = self.model.get_buffer(name)
            if moved.dtype != table.dtype:
                _set_buffer(self.model, name, table.to(moved.device))
        return self

    def _restore_buffers(self) -> None:
        """Values that no file holds, such as the speeds of rotary positions, and that memory from ``meta`` has not."""
        from accelerate import init_empty_weights  # noqa: PLC0415 - an extra

        with init_empty_weights(include_buffers=False):
            fresh = _made(self.config)
        for name, buffer in fresh.named_buffers():
            _set_buffer(self.model, name, buffer.to(self.head_weight.device))
        self._buffers_lost = False


def load_hugging_face(reference: str, *, dtype: torch.dtype | str = torch.float32) -> HuggingFaceDecoder:
    """The language model in a folder, or of a name on the hub; code that comes with weights is never run.

    Args:
        reference: a folder or name, with or without ``hf:`` before it.
        dtype: of the parameters; ``auto``: that of the files.

    Raises:
        ConfigError: transformers is not installed, or the model has values that are no parameters.
    """
    transformers = _transformers(reference)
    place = reference.removeprefix(REFERENCE)
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=dtype, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{reference}: transformers does not open it: {error}") from error
    model.eval()
    persistent = sorted(model.state_dict().keys() - dict(model.named_parameters(remove_duplicate=False)).keys())
    if persistent:
        raise ConfigError(
            f"{reference}: has values that are no parameters ({', '.join(persistent[:3])}); such models cannot be the "
            "language model of a LLaVA here."
        )
    return HuggingFaceDecoder(model)


def parameter_names(config: DecoderConfig) -> list[str]:
    """Names that transformers gives the parameters of a model that it runs; a tied head is the embedding."""
    with torch.device("meta"):
        return [name for name, _ in _made(config).named_parameters()]


def vocabulary_names(config: DecoderConfig) -> tuple[str, ...]:
    """Names that transformers gives what has a row for each word."""
    with torch.device("meta"):
        model: Any = _made(config)
    tables = (model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    return tuple(name for name, parameter in model.named_parameters() if any(parameter is table for table in tables))


def with_vocab_size(config: DecoderConfig, rows: int) -> DecoderConfig:
    """The config of a model with another number of words."""
    given = {**json.loads(config.transformers_config or "{}"), "vocab_size": rows}
    return replace(config, vocab_size=rows, transformers_config=json.dumps(given, sort_keys=True))


def local_folder(reference: str) -> Path:
    """The folder of ``hf:PATH``; of ``hf:OWNER/NAME``, that of the hub's cache, which is filled.

    Raises:
        ConfigError: neither is there.
    """
    place = reference.removeprefix(REFERENCE)
    if Path(place).is_dir():
        return Path(place)
    _transformers(reference)
    hub = import_module("huggingface_hub")
    try:
        return Path(hub.snapshot_download(place, allow_patterns=list(_WANTED_FILES)))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{reference}: neither a folder nor a name that the hub gives: {error}") from error


def _transformers(reference: str) -> Any:
    try:
        return import_module("transformers")
    except ImportError as error:
        raise ConfigError(f"{reference}: needs transformers. Run `pip install omniloom[hf]`.") from error


def _made(config: DecoderConfig) -> nn.Module:
    transformers = _transformers("hf:")
    given: Mapping[str, Any] = json.loads(config.transformers_config or "{}")
    try:
        theirs = transformers.AutoConfig.for_model(**given)
        model: nn.Module = transformers.AutoModelForCausalLM.from_config(theirs, trust_remote_code=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"hf: transformers {transformers.__version__} does not make the model: {error}") from error
    return model


def _set_buffer(model: nn.Module, name: str, value: Tensor) -> None:
    owner, _, own = name.rpartition(".")
    module = model.get_submodule(owner)
    module.register_buffer(own, value, persistent=own not in module._non_persistent_buffers_set)


def _describe(config: Any) -> DecoderConfig:
    """The sizes that a LLaVA asks for; the model itself is transformers' own."""
    heads = getattr(config, "num_attention_heads", None) or 1  # a recurrent model has none
    told = {name: value for name, value in config.to_diff_dict().items() if name not in _NO_PART_OF_A_MODEL}
    return DecoderConfig(
        family=FAMILY,
        vocab_size=config.vocab_size,
        dim=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        mlp_dim=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        max_positions=getattr(config, "max_position_embeddings", None) or _UNBOUNDED_TOKENS,
        tied_head=bool(config.tie_word_embeddings),
        transformers_config=json.dumps({"model_type": config.model_type, **told}, sort_keys=True),
    )
