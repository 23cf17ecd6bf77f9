"""`hf:`: any causal language model of transformers in the place of our decoder, on one device or under FSDP.

transformers keeps packed documents apart by their positions, but only without an attention mask and without a cache;
with the cache that is on by default documents see each other silently. Some models never look at positions that
way. So the wrapper forbids the cache and tries the model once; a model that mixes documents gets them as rows of a
padded batch, in which a causal model cannot mix them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from omniloom.errors import ConfigError, InputError
from omniloom.model.attention import Attend, AttendPacked
from omniloom.model.config import DecoderConfig
from omniloom.model.decoder import LanguageModel
from omniloom.model.documents import Documents

_PROBE_TOKENS = 4
_UNBOUNDED_TOKENS = 2**20


class HuggingFaceDecoder(LanguageModel):
    """A causal language model of transformers behind our interface.

    Attributes:
        packs: whether the model keeps packed documents apart, as tried at the start; if not, it gets padded rows.
    """

    def __init__(self, model: nn.Module) -> None:
        """Wrap a ``...ForCausalLM`` that has its weights."""
        super().__init__()
        self.model = model
        self.config = _describe(model.config)
        self.packs = False
        if not self.head_weight.is_meta:
            self._refuse_more_than_a_head()
            self.packs = self._keeps_documents_apart()

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
        """
        if type(attend) is not AttendPacked:
            raise InputError(
                f"{type(attend).__name__} with a model of transformers; only packed documents work. "
                "`omniloom.generate` generates with it, without a cache."
            )
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

    @torch.no_grad()
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


def load_hugging_face(reference: str, *, dtype: torch.dtype = torch.float32) -> HuggingFaceDecoder:
    """The language model in a folder, or of a name on the hub; code that comes with weights is never run.

    Args:
        reference: a folder or name, with or without ``hf:`` before it.
        dtype: of the parameters.

    Raises:
        ConfigError: transformers is not installed.
    """
    try:
        transformers = import_module("transformers")
    except ImportError as error:
        raise ConfigError(f"{reference}: needs transformers. Run `pip install omniloom[hf]`.") from error
    place = reference.removeprefix("hf:")
    model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=dtype, trust_remote_code=False)
    return HuggingFaceDecoder(model)


def _describe(config: Any) -> DecoderConfig:
    """The sizes that a LLaVA asks for; the model itself is transformers' own."""
    heads = getattr(config, "num_attention_heads", None) or 1  # a recurrent model has none
    return DecoderConfig(
        family="hf",
        vocab_size=config.vocab_size,
        dim=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        mlp_dim=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        max_positions=getattr(config, "max_position_embeddings", None) or _UNBOUNDED_TOKENS,
        tied_head=bool(config.tie_word_embeddings),
    )
