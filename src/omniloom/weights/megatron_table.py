"""What Megatron calls our tensors, how it lays them out, and where tensor parallelism cuts them: one table.

Names are those of `megatron.core`: of `GPTModel`, `CLIPViTModel`, `RADIOViTModel` and `MultimodalProjector`. Two
spellings of the norms before attention and MLP exist: Transformer Engine's, fused into the linear map that follows, and
the local one. Sizes are read from anything that has the attributes of our configs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

from omniloom.errors import WeightsError
from omniloom.weights.changes import Chain, Change, Fuse, FuseByGroup, PadRows, PadZeros, Reshape, Same
from omniloom.weights.table import Row, Table, repeated

NormStyle = Literal["te", "local"]
LANGUAGE, VISION, PROJECTION = "language_model.", "vision_model.", "vision_projection."
OUR_LANGUAGE, OUR_VISION, OUR_PROJECTION = "language_model.", "vision_tower.", "projector."
IGNORED = ("*_extra_state", "*_extra_state/shard_*", "*rotary_pos_emb.inv_freq")
_LAYER = "decoder.layers.{layer}."


class DecoderSizes(Protocol):
    """What a language model's table needs to know."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding without padding."""

    @property
    def num_layers(self) -> int:
        """Layers."""

    @property
    def num_heads(self) -> int:
        """Query heads."""

    @property
    def num_kv_heads(self) -> int:
        """Heads of keys and values."""

    @property
    def head_dim(self) -> int:
        """Channels of a head."""

    @property
    def mlp_dim(self) -> int:
        """Width of the MLP."""

    @property
    def qkv_bias(self) -> bool:
        """Whether queries, keys and values have a bias."""

    @property
    def output_bias(self) -> bool:
        """Whether the attention's output has a bias."""

    @property
    def mlp_bias(self) -> bool:
        """Whether the MLP has biases."""

    @property
    def qk_norm(self) -> bool:
        """Whether queries and keys are normed."""

    @property
    def tied_head(self) -> bool:
        """Whether the head is the embedding."""


class VisionSizes(Protocol):
    """What a tower's table needs to know."""

    @property
    def family(self) -> str:
        """Name of the family."""

    @property
    def patch_size(self) -> int:
        """Pixels of a patch's side."""

    @property
    def dim(self) -> int:
        """Width."""

    @property
    def num_layers(self) -> int:
        """Layers."""

    @property
    def num_heads(self) -> int:
        """Query heads."""

    @property
    def mlp_dim(self) -> int:
        """Width of the MLP."""

    @property
    def position_rows(self) -> int:
        """Rows of the grid of positions."""

    @property
    def norm(self) -> str:
        """Which norm; ``None`` is none."""

    @property
    def class_tokens(self) -> int:
        """Class tokens."""

    @property
    def register_tokens(self) -> int:
        """Register tokens."""

    @property
    def class_positions(self) -> int:
        """Positions that belong to class tokens."""

    @property
    def patch_bias(self) -> bool:
        """Whether patches have a bias."""

    @property
    def qkv_bias(self) -> bool:
        """Whether queries, keys and values have a bias."""

    @property
    def pre_norm(self) -> bool:
        """Whether a norm follows the positions."""

    @property
    def post_norm(self) -> bool:
        """Whether a norm follows the last layer."""

    @property
    def qk_norm(self) -> bool:
        """Whether queries and keys are normed."""

    @property
    def layer_scale(self) -> bool:
        """Whether halves of layers are scaled."""

    @property
    def gated_mlp(self) -> bool:
        """Whether the MLP is gated."""


class ProjectorSizes(Protocol):
    """What a projector's table needs to know."""

    @property
    def hidden_dims(self) -> tuple[int, ...]:
        """Widths between the linear maps."""

    @property
    def bias(self) -> bool:
        """Whether the linear maps have a bias."""

    @property
    def norm(self) -> str | None:
        """Which norm; ``None`` is none."""


def padded_vocabulary(vocab_size: int, *, tensor_parallel_size: int, divisible_by: int = 128) -> int:
    """Rows of Megatron's embedding: the vocabulary rounded up to a multiple of ``divisible_by * tensor_parallel_size``.

    >>> padded_vocabulary(32000, tensor_parallel_size=8)
    32768
    """
    step = divisible_by * tensor_parallel_size
    return -(-vocab_size // step) * step


def padded_heads(sizes: VisionSizes, *, tensor_parallel_size: int) -> int:
    """Heads of InternViT-6B with zero heads added behind, so that they divide among the ranks: 25, 26, 28 or 32.

    Megatron's formula, ``(24 // TP + 1) * TP`` for 25 heads. Other towers have as many heads as they have.
    """
    if not sizes.qk_norm:
        return sizes.num_heads
    return ((sizes.num_heads - 1) // tensor_parallel_size + 1) * tensor_parallel_size


def decoder_table(sizes: DecoderSizes, *, norms: NormStyle = "te", padded_vocab_size: int | None = None) -> Table:
    """What ``GPTModel`` calls the tensors of a language model.

    Args:
        sizes: the language model.
        norms: spelling of the norms.
        padded_vocab_size: rows of the embedding; ``None`` is the vocabulary without padding.
    """
    padding = PadRows(sizes.vocab_size, padded_vocab_size or sizes.vocab_size)
    by_group = FuseByGroup(sizes.num_heads, sizes.num_kv_heads, sizes.head_dim)
    gated = Fuse((sizes.mlp_dim, sizes.mlp_dim))
    ours = OUR_LANGUAGE + "layers.{layer}."
    layer = [
        *_norm_rows(ours, norms, kinds=("weight",)),
        Row(_three(ours, "weight"), f"{_LAYER}self_attention.linear_qkv.weight", by_group),
        Row(f"{ours}attention.o_proj.weight", f"{_LAYER}self_attention.linear_proj.weight"),
        Row(_gate_and_up(ours, "weight"), f"{_LAYER}mlp.linear_fc1.weight", gated),
        Row(f"{ours}mlp.down_proj.weight", f"{_LAYER}mlp.linear_fc2.weight"),
    ]
    if sizes.qkv_bias:
        layer.append(Row(_three(ours, "bias"), f"{_LAYER}self_attention.linear_qkv.bias", by_group))
    if sizes.output_bias:
        layer.append(Row(f"{ours}attention.o_proj.bias", f"{_LAYER}self_attention.linear_proj.bias"))
    if sizes.mlp_bias:
        layer.append(Row(_gate_and_up(ours, "bias"), f"{_LAYER}mlp.linear_fc1.bias", gated))
        layer.append(Row(f"{ours}mlp.down_proj.bias", f"{_LAYER}mlp.linear_fc2.bias"))
    if sizes.qk_norm:
        layer.extend(
            Row(f"{ours}attention.{one}_norm.weight", f"{_LAYER}self_attention.{one}_layernorm.weight") for one in "qk"
        )
    embedding = "embedding.word_embeddings.weight"
    head = [] if sizes.tied_head else [Row(f"{OUR_LANGUAGE}head.weight", "output_layer.weight", padding)]
    return Table(
        rows=(
            Row(f"{OUR_LANGUAGE}embed_tokens.weight", embedding, padding),
            *repeated(layer, layer=sizes.num_layers),
            Row(f"{OUR_LANGUAGE}norm.weight", "decoder.final_layernorm.weight"),
            *head,
        ),
        ignored=IGNORED,
        copies={"output_layer.weight": embedding} if sizes.tied_head else {},
    )


def vision_table(sizes: VisionSizes, *, norms: NormStyle = "te", padded_heads: int | None = None) -> Table:
    """What ``CLIPViTModel`` or ``RADIOViTModel`` calls the tensors of a tower.

    Args:
        sizes: the tower.
        norms: spelling of the norms; towers with LayerScale have the local one always.
        padded_heads: heads with dummy heads counted, for InternViT-6B; ``None`` is without.
    """
    radio = "radio" in sizes.family
    ours = OUR_VISION + "layers.{layer}."
    kinds = _norm_kinds(sizes.norm)
    style: NormStyle = "local" if sizes.layer_scale else norms
    attention = _vision_attention_rows(sizes, ours, padded_heads or sizes.num_heads)
    layer = [*_norm_rows(ours, style, kinds=kinds), *attention, *_vision_mlp_rows(sizes, ours)]
    if sizes.layer_scale:
        layer += [Row(f"{ours}attention_scale", f"{_LAYER}ls1"), Row(f"{ours}mlp_scale", f"{_LAYER}ls2")]
    rows = [*_embedding_rows(sizes, radio=radio), *repeated(layer, layer=sizes.num_layers)]
    if sizes.pre_norm:
        rows += [Row(f"{OUR_VISION}pre_norm.{kind}", f"ln_pre.{kind}") for kind in kinds]
    unplaced: tuple[str, ...] = ()
    if sizes.post_norm and sizes.family.startswith(("clip", "internvit")):
        unplaced = tuple(f"{OUR_VISION}post_norm.{kind}" for kind in kinds)
    elif sizes.post_norm:
        rows += [Row(f"{OUR_VISION}post_norm.{kind}", f"ln_post.{kind}") for kind in kinds]
    return Table(rows=tuple(rows), ignored=(*IGNORED, "mask_token"), unplaced=unplaced)


def projector_table(sizes: ProjectorSizes) -> Table:
    """What ``MultimodalProjector`` calls the tensors of a projector of one or two linear maps.

    Raises:
        WeightsError: Megatron has no such projector.
    """
    if len(sizes.hidden_dims) > 1:
        raise WeightsError(
            f"a projector of {len(sizes.hidden_dims) + 1} linear maps has no form in Megatron, which knows one or two"
        )
    kinds = ("weight", "bias") if sizes.bias else ("weight",)
    if not sizes.hidden_dims:
        if sizes.norm is not None:
            raise WeightsError("a projector of one linear map with a norm has no form in Megatron")
        return Table(tuple(Row(f"{OUR_PROJECTION}fc1.{kind}", f"encoder.{kind}") for kind in kinds), ignored=IGNORED)
    rows = [
        Row(f"{OUR_PROJECTION}{one}.{kind}", f"encoder.linear_{one}.{kind}") for one in ("fc1", "fc2") for kind in kinds
    ]
    if sizes.norm is not None:
        rows += [
            Row(f"{OUR_PROJECTION}norm.{kind}", f"encoder.linear_fc1.layer_norm_{kind}")
            for kind in _norm_kinds(sizes.norm)
        ]
    return Table(tuple(rows), ignored=IGNORED)


def _embedding_rows(sizes: VisionSizes, *, radio: bool) -> Iterable[Row]:
    dim, patch = sizes.dim, sizes.patch_size
    positions = sizes.class_positions + sizes.position_rows**2
    if radio:
        flat = Reshape((dim, 3, patch, patch), (dim, 3 * patch * patch))
        yield Row(f"{OUR_VISION}patch_embed.weight", "embedder.weight", flat)
        yield Row(f"{OUR_VISION}position_embed", "position_embeddings", Reshape((positions, dim), (1, positions, dim)))
    else:
        yield Row(f"{OUR_VISION}patch_embed.weight", "conv1.weight")
        yield Row(f"{OUR_VISION}position_embed", "position_embeddings.weight")
    if sizes.patch_bias:
        yield Row(f"{OUR_VISION}patch_embed.bias", "embedder.bias" if radio else "conv1.bias")
    tokens = sizes.class_tokens + sizes.register_tokens
    if not tokens:
        return
    kinds = {"class_token": sizes.class_tokens, "register_tokens": sizes.register_tokens}
    joined = Fuse(tuple(count for count in kinds.values() if count))
    shape: tuple[Change, ...] = () if radio else (Reshape((tokens, dim), (1, tokens, dim)),)
    yield Row(tuple(OUR_VISION + kind for kind, count in kinds.items() if count), "class_token", Chain(joined, shape))


def _vision_attention_rows(sizes: VisionSizes, ours: str, padded: int) -> Iterable[Row]:
    heads, head_dim = sizes.num_heads, sizes.dim // sizes.num_heads
    by_group: Change = FuseByGroup(heads, heads, head_dim)
    columns: Change = Same()
    channels: Change = Same()
    if padded != heads:
        by_group = Chain(by_group, (PadZeros(3 * heads * head_dim, 3 * padded * head_dim),))
        columns = PadZeros(heads * head_dim, padded * head_dim, axis=1)
        channels = PadZeros(heads * head_dim, padded * head_dim)
    theirs = f"{_LAYER}self_attention."
    yield Row(_three(ours, "weight"), f"{theirs}linear_qkv.weight", by_group)
    if sizes.qkv_bias:
        yield Row(_three(ours, "bias"), f"{theirs}linear_qkv.bias", by_group)
    yield Row(f"{ours}attention.o_proj.weight", f"{theirs}linear_proj.weight", columns)
    yield Row(f"{ours}attention.o_proj.bias", f"{theirs}linear_proj.bias")
    if sizes.qk_norm:
        yield Row(f"{ours}attention.q_norm.weight", f"{theirs}q_layernorm.weight", channels)
        yield Row(f"{ours}attention.k_norm.weight", f"{theirs}k_layernorm.weight", channels)


def _vision_mlp_rows(sizes: VisionSizes, ours: str) -> Iterable[Row]:
    for kind in ("weight", "bias"):
        if sizes.gated_mlp:
            gated = Fuse((sizes.mlp_dim, sizes.mlp_dim))
            yield Row(_gate_and_up(ours, kind), f"{_LAYER}mlp.linear_fc1.{kind}", gated)
            yield Row(f"{ours}mlp.down_proj.{kind}", f"{_LAYER}mlp.linear_fc2.{kind}")
        else:
            yield Row(f"{ours}mlp.fc1.{kind}", f"{_LAYER}mlp.linear_fc1.{kind}")
            yield Row(f"{ours}mlp.fc2.{kind}", f"{_LAYER}mlp.linear_fc2.{kind}")


def _norm_rows(ours: str, norms: NormStyle, *, kinds: tuple[str, ...]) -> Iterable[Row]:
    for kind in kinds:
        if norms == "te":
            yield Row(f"{ours}attention_norm.{kind}", f"{_LAYER}self_attention.linear_qkv.layer_norm_{kind}")
            yield Row(f"{ours}mlp_norm.{kind}", f"{_LAYER}mlp.linear_fc1.layer_norm_{kind}")
        else:
            yield Row(f"{ours}attention_norm.{kind}", f"{_LAYER}input_layernorm.{kind}")
            yield Row(f"{ours}mlp_norm.{kind}", f"{_LAYER}pre_mlp_layernorm.{kind}")


def _norm_kinds(norm: str) -> tuple[str, ...]:
    return ("weight", "bias") if norm == "layer" else ("weight",)


def _three(ours: str, kind: str) -> tuple[str, ...]:
    return tuple(f"{ours}attention.{one}_proj.{kind}" for one in "qkv")


def _gate_and_up(ours: str, kind: str) -> tuple[str, ...]:
    return (f"{ours}mlp.gate_proj.{kind}", f"{ours}mlp.up_proj.{kind}")
