"""A training step through omniloom with nanoVLM's weights: packed, only labelled rows scored."""

import torch
from meter import arguments
from train_step_clock import train
from train_step_nano_problem import nano_model
from train_step_problem import IMAGE, VOCAB, images, samples

from omniloom.model.build import build
from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, VisionConfig
from omniloom.model.documents import Documents

options = arguments("stage", "steps")
config = LlavaConfig(
    language=DecoderConfig(
        family="llama",
        vocab_size=VOCAB,
        dim=256,
        num_layers=4,
        num_heads=8,
        num_kv_heads=8,
        head_dim=32,
        mlp_dim=1024,
        tied_head=True,
    ),
    vision=VisionConfig(
        family="siglip",
        image_size=224,
        patch_size=14,
        dim=256,
        num_layers=4,
        num_heads=4,
        mlp_dim=1024,
        position_rows=16,
        activation="gelu_pytorch_tanh",
        post_norm=True,
    ),
    projector=ProjectorConfig(input_dim=256, output_dim=256, bias=False),
    image_token_id=IMAGE,
    feature_layers=(-1,),
    norm_features=True,
)
ours = build(config)
WORDS = {
    "vision_tower.patch_embed.": "vision_encoder.patch_embedding.conv.",
    "vision_tower.position_embed": "vision_encoder.patch_embedding.position_embedding",
    "vision_tower.post_norm.": "vision_encoder.layer_norm.",
    "vision_tower.layers.": "vision_encoder.blocks.",
    "projector.fc1.": "MP.proj.",
    "language_model.embed_tokens.": "decoder.token_embedding.",
    "language_model.layers.": "decoder.blocks.",
    "language_model.norm.": "decoder.norm.",
    ".attention_norm.": (".ln1.", ".norm1."),
    ".mlp_norm.": (".ln2.", ".norm2."),
    ".attention.o_proj.": ".attn.out_proj.",
    ".attention.": ".attn.",
}


def value_of(name: str, theirs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Their value for a parameter of ours; in their tower queries, keys and values are one matrix."""
    vision = name.startswith("vision_tower")
    for word, their in WORDS.items():
        name = name.replace(word, their if isinstance(their, str) else their[not vision])
    part = next((number for number, word in enumerate(("q_proj", "k_proj", "v_proj")) if f".{word}." in name), None)
    if not vision or part is None:
        return theirs[name]
    linear, _, last = name.rpartition(".")
    return theirs[f"{linear.rpartition('.')[0]}.qkv_proj.{last}"].chunk(3)[part]


weights = nano_model().state_dict()
with torch.no_grad():
    for name, parameter in ours.named_parameters():
        parameter.copy_(value_of(name, weights).reshape(parameter.shape))
del weights
ours.train()
if options.stage == 1:
    ours.requires_grad_(False)
    ours.projector.requires_grad_(True)

batch = samples()
input_ids = torch.tensor([word for sample in batch for word in sample.ids])
labels = torch.tensor([word for sample in batch for word in sample.labels])
documents = Documents.of_lengths(len(sample.ids) for sample in batch)
pixels = images()


def loss_of_batch() -> torch.Tensor:
    loss = ours.loss(input_ids, labels=labels, documents=documents, images=pixels)
    return loss.total / loss.tokens


train(loss_of_batch, ours.parameters(), steps=options.steps)
