"""A LLaVA of a few thousand numbers, and a loader of packed batches that are a function of their number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, VisionConfig
from omniloom.model.llava import Llava

LANGUAGE = DecoderConfig(
    family="llama", vocab_size=64, dim=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, mlp_dim=48
)
VISION = VisionConfig(
    family="clip", image_size=8, patch_size=4, dim=16, num_layers=2, num_heads=2, mlp_dim=24, position_rows=2,
    class_tokens=1, class_positions=1, pre_norm=True,
)  # fmt: skip
CONFIG = LlavaConfig(
    language=LANGUAGE,
    vision=VISION,
    projector=ProjectorConfig(input_dim=16, output_dim=32, hidden_dims=(32,)),
    image_token_id=63,
)
SETS = 3


def tiny_llava(seed: int = 0) -> Llava:
    torch.manual_seed(seed)
    model = Llava(CONFIG)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.05)
    return model


def packed_batch(number: int, *, documents: int = 2, features: bool = False) -> Any:
    """A batch of some documents; the first has an image, unless the number is a multiple of three.

    Of the documents from the third on each second one has an image, of odd and of even numbers in turn. With `features`
    images come as what a tower has made of them.
    """
    draw = torch.Generator().manual_seed(number)
    ids, labels, lengths, images = [], [], [], []
    for index in range(documents):
        length = int(torch.randint(8, 14, (), generator=draw))
        row = torch.randint(0, 62, (length,), generator=draw)
        if (index == 0 and number % 3) or (index > 1 and (number + index) % 2):
            row[1:5] = CONFIG.image_token_id
            images.append(torch.randn(*((4, 16) if features else (3, 8, 8)), generator=draw))
        target = torch.full_like(row, -100)
        target[5:-1] = row[6:]
        ids.append(row)
        labels.append(target)
        lengths.append(length)
    flat = torch.cat(ids)
    return SimpleNamespace(
        input_ids=flat,
        labels=torch.cat(labels),
        document_lengths=torch.tensor(lengths),
        images=torch.stack(images) if images else torch.zeros(0, 3, 8, 8),
        shown_tiles=torch.arange(len(images)),
        image_positions=(flat == CONFIG.image_token_id).nonzero()[:, 0],
        document_sets=torch.arange(documents) % SETS,
        __restore_key__=((0, 0, number, 0),),
    )


class TinyLoader:
    """Rank ``r`` of ``R`` gives the batches ``r, r + R, ...``, for ever."""

    def __init__(self, *, rank: int = 0, ranks: int = 1, documents: int = 2, features: bool = False) -> None:
        self.rank, self.ranks, self.taken, self.documents, self.features = rank, ranks, 0, documents, features

    def __iter__(self) -> TinyLoader:
        return self

    def __next__(self) -> Any:
        number = self.taken * self.ranks + self.rank
        self.taken += 1
        return packed_batch(number, documents=self.documents, features=self.features)

    def save_state_rank(self) -> dict[str, Any]:
        return {"taken_by_all": self.taken * self.ranks}

    def restore_state_rank(self, states: list[dict[str, Any]]) -> None:
        self.taken = states[0]["taken_by_all"] // self.ranks
