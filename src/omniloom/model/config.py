"""What a model is: frozen values that can be printed, compared and pickled; `families/` reads them from config.json.

Sizes are numbers of features, tokens or pixels as their names say. A wrong combination is a `ConfigError` here,
before any tensor exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from omniloom.errors import ConfigError

Norm = Literal["layer", "rms"]
Reduction = Literal["none", "pixel_shuffle", "pool", "summary"]
Positions = Literal["bicubic", "bicubic_antialias", "bilinear_antialias", "cropped"]


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """Rotary positions: how fast each pair of features turns with the position.

    Attributes:
        kind: ``default``, ``linear`` (all slower by ``factor``), ``llama3`` (slow ones slower, fast ones kept) or
            ``yarn`` (a ramp between both, with an attention factor).
        theta: base of the wave lengths.
        factor: how many times longer than ``original_positions`` the context became.
        low_frequency_factor, high_frequency_factor: the band of ``llama3`` in turns per ``original_positions``.
        original_positions: context in tokens before it was lengthened; ``llama3`` and ``yarn`` need it.
        beta_fast, beta_slow: the ramp of ``yarn`` in turns per ``original_positions``.
        attention_factor: what ``yarn`` multiplies cosine and sine by; ``None`` takes ``0.1 ln(factor) + 1``.
    """

    kind: Literal["default", "linear", "llama3", "yarn"] = "default"
    theta: float = 10_000.0
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_positions: int | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        if self.kind in {"llama3", "yarn"} and self.original_positions is None:
            raise ConfigError(
                f"rope of kind {self.kind!r} without original_positions. Give `original_max_position_embeddings` in "
                "the rope section of config.json."
            )


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """A language model: Llama, Mistral, Qwen2, Qwen3 and their like.

    Attributes:
        family: row of `omniloom.model.families.FAMILIES` that reads and writes its files.
        vocab_size: rows of the embedding, padding included.
        dim, mlp_dim: width of the residual stream and of the gated MLP.
        num_heads, num_kv_heads, head_dim: query heads, heads of keys and values, features of a head.
        max_positions: longest context in tokens that it was trained for.
        window: number of tokens a token sees, itself included; ``None`` is all before it.
        window_from_layer: the first layer with the window (Qwen2 keeps its lower layers full).
        qkv_bias, output_bias, mlp_bias: which linear maps have a bias.
        qk_norm: RMS norm of every query and key head (Qwen3).
        tied_head: the head is the embedding.
        transformers_config: of a model that transformers runs (``hf:``, `omniloom.model.hugging_face`), its config.json
            as text, which says everything; the fields here only say its sizes.
    """

    family: str
    vocab_size: int
    dim: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_dim: int
    rope: RopeConfig = RopeConfig()
    max_positions: int = 4096
    norm_eps: float = 1e-5
    activation: str = "silu"
    window: int | None = None
    window_from_layer: int = 0
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied_head: bool = False
    transformers_config: str | None = None

    def __post_init__(self) -> None:
        if self.transformers_config is not None:
            return  # transformers checks it
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"{self.family}: {self.num_heads} query heads cannot share {self.num_kv_heads} key heads. "
                "`num_attention_heads` has to be a multiple of `num_key_value_heads`."
            )
        if self.head_dim % 2:
            raise ConfigError(f"{self.family}: head_dim is {self.head_dim}; rotary positions need an even number.")
        if self.window is not None and self.window < 1:
            raise ConfigError(f"{self.family}: a window of {self.window} tokens. Use at least 1, or null for none.")

    def window_of(self, layer: int) -> int | None:
        """Tokens that a token of `layer` sees, itself included; ``None`` is all before it."""
        return self.window if layer >= self.window_from_layer else None


@dataclass(frozen=True, kw_only=True)
class VisionConfig:
    """A vision transformer: CLIP, SigLIP, InternViT, RADIO, DINOv2.

    Attributes:
        family: row of `omniloom.model.families.FAMILIES` that reads and writes its files.
        image_size: height and width in pixels that it was trained for.
        patch_size: height and width of a patch in pixels.
        position_rows: rows (and columns) of its grid of position embeddings.
        class_tokens, register_tokens: learned tokens before the patches, in this order.
        class_positions: leading rows of the position embedding that belong to class tokens.
        positions: how the grid is fitted to another: `omniloom.model.positions` has one function for each.
        patch_bias, qkv_bias: which linear maps have a bias; all others do.
        pre_norm, post_norm: a norm after the positions, a norm after the last layer.
        qk_norm: RMS norm of queries and keys over all heads together (InternViT-6B).
        layer_scale: a learned factor per feature after each half of a layer.
        gated_mlp: SwiGLU instead of two linear maps (DINOv2 giant, RADIO-G).
        pixel_mean, pixel_std: images are expected as ``(value in [0, 1] - mean) / std``, per channel.
    """

    family: str
    image_size: int
    patch_size: int
    dim: int
    num_layers: int
    num_heads: int
    mlp_dim: int
    position_rows: int
    activation: str = "gelu"
    norm: Norm = "layer"
    norm_eps: float = 1e-6
    class_tokens: int = 0
    register_tokens: int = 0
    class_positions: int = 0
    positions: Positions = "bicubic"
    patch_bias: bool = True
    qkv_bias: bool = True
    pre_norm: bool = False
    post_norm: bool = False
    qk_norm: bool = False
    layer_scale: bool = False
    gated_mlp: bool = False
    pixel_mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    pixel_std: tuple[float, float, float] = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        if self.dim % self.num_heads:
            raise ConfigError(f"{self.family}: {self.num_heads} heads do not divide a width of {self.dim}.")
        if self.class_positions > self.class_tokens:
            raise ConfigError(
                f"{self.family}: {self.class_positions} positions for {self.class_tokens} class tokens; "
                "at most one for each."
            )

    @property
    def prefix_tokens(self) -> int:
        """Tokens before the patches."""
        return self.class_tokens + self.register_tokens

    def grid(self, height_pixels: int, width_pixels: int) -> tuple[int, int]:
        """Rows and columns of patches of an image; what is left over below and at the right is not seen."""
        rows, columns = height_pixels // self.patch_size, width_pixels // self.patch_size
        if not rows or not columns:
            raise ConfigError(
                f"{self.family}: an image of {width_pixels}x{height_pixels} pixels is smaller than a patch of "
                f"{self.patch_size}. Enlarge it."
            )
        return rows, columns


@dataclass(frozen=True, kw_only=True)
class ProjectorConfig:
    """The map from image features to token embeddings.

    Attributes:
        input_dim: features of the tower, times the number of feature layers; before any reduction.
        output_dim: width of the language model.
        hidden_dims: widths between the linear maps; ``()`` is one linear map, ``(4096,)`` is LLaVA's MLP.
        bias: whether the linear maps have one; LLaVA's do, Megatron's do not.
        activation: between the linear maps.
        norm: norm of the inputs, or ``None``.
        reduction: ``pixel_shuffle`` folds `factor` x `factor` neighbours into one token of as many times the
            features, ``pool`` takes their mean, ``summary`` puts the class token beside the mean of all patches, which
            is one token of twice the features, ``none`` keeps every token.
    """

    input_dim: int
    output_dim: int
    hidden_dims: tuple[int, ...] = ()
    bias: bool = True
    activation: str = "gelu"
    norm: Norm | None = None
    norm_eps: float = 1e-5
    reduction: Reduction = "none"
    factor: int = 2

    @property
    def reduced_dim(self) -> int:
        """Features of a token after the reduction."""
        widened = {"pixel_shuffle": self.factor**2, "summary": 2}
        return self.input_dim * widened.get(self.reduction, 1)

    def tokens(self, rows: int, columns: int) -> int:
        """Number of tokens that a grid of features becomes.

        Raises:
            ConfigError: the reduction's factor does not divide the grid.
        """
        if self.reduction == "none":
            return rows * columns
        if self.reduction == "summary":
            return 1
        if rows % self.factor or columns % self.factor:
            raise ConfigError(
                f"{self.reduction} folds {self.factor}x{self.factor} neighbours, but the image has {rows}x{columns} "
                f"patches. Use an image size with a multiple of {self.factor} patches on each side."
            )
        return rows * columns // self.factor**2


@dataclass(frozen=True, kw_only=True)
class LlavaConfig:
    """A tower, a projector, a language model.

    Attributes:
        image_token_id: the id that stands for one image feature in `input_ids`; it may lie outside the vocabulary.
        feature_layers: outputs of the tower that are joined: 0 is what enters its first layer, ``n`` what leaves its
            ``n``-th, negative numbers count from the end. ``(-2,)`` is LLaVA's, ``(-1,)`` Megatron's.
        keep_class_token: also give the class and register tokens to the language model, before the patches; a
            reduction leaves them as they are.
        norm_features: apply the tower's last norm to the features.
    """

    language: DecoderConfig
    vision: VisionConfig
    projector: ProjectorConfig
    image_token_id: int
    feature_layers: tuple[int, ...] = (-2,)
    keep_class_token: bool = False
    norm_features: bool = False

    def __post_init__(self) -> None:
        depth = self.vision.num_layers
        wrong = [layer for layer in self.feature_layers if not -depth - 1 <= layer <= depth]
        if wrong or not self.feature_layers:
            raise ConfigError(
                f"feature_layers {self.feature_layers}: a tower of {depth} layers has {-depth - 1} to {depth}. "
                "Use (-2,) as LLaVA does, or (-1,) as Megatron does."
            )
        if self.kept_prefix_tokens and self.projector.reduction in ("pixel_shuffle", "summary"):
            raise ConfigError(
                f"keep_class_token with {self.projector.reduction}: a class token has fewer features than what is made "
                "of the patches. Leave one of both out, or pool."
            )
        if self.projector.reduction == "summary" and not self.vision.class_tokens:
            raise ConfigError(f"summary: {self.vision.family} has no class token. Pool the patches instead.")
        if self.norm_features and not self.vision.post_norm:
            raise ConfigError(f"norm_features: {self.vision.family} has no last norm. Set norm_features to false.")
        joined = self.vision.dim * len(self.feature_layers)
        if self.projector.input_dim != joined:
            raise ConfigError(
                f"the projector takes {self.projector.input_dim} features, the tower gives {joined}. "
                f"Set input_dim to {joined}."
            )
        if self.projector.output_dim != self.language.dim:
            raise ConfigError(
                f"the projector gives {self.projector.output_dim} features, the language model takes "
                f"{self.language.dim}. Set output_dim to {self.language.dim}."
            )

    @property
    def kept_prefix_tokens(self) -> int:
        """How many class and register tokens of a tile the language model gets: none where the tower has none."""
        return self.vision.prefix_tokens if self.keep_class_token else 0

    def image_tokens(self, height_pixels: int, width_pixels: int) -> int:
        """Placeholders that one image (or one tile) of this size needs in `input_ids`."""
        return self.kept_prefix_tokens + self.projector.tokens(*self.vision.grid(height_pixels, width_pixels))
