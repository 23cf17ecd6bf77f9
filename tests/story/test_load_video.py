"""Videos in shards, through the loader: decoders in batches, from this process and from workers."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from tests.contract.made_clips import make_video, number_of

import omniloom
from omniloom.data.index.prepare import prepare_dataset
from omniloom.data.media.av_threads import spare_threads

CLIPS = 6


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("videos")
    with tarfile.open(root / "a.tar", "w") as archive:
        for number in range(CLIPS):
            video = make_video(frames=10 + number)
            for part, data in (("mp4", video), ("txt", b"what happens?")):
                member = tarfile.TarInfo(f"{number:04}.{part}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    prepare_dataset(root, num_workers=0)
    (root / ".nv-meta/dataset.yaml").write_text(
        "sample_type:\n  __module__: megatron.energon\n  __class__: VidQASample\n"
        "field_map:\n  video: mp4\n  context: txt\n"
    )
    return root


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_holds_decoders(shards: Path, workers: int) -> None:
    dataset = omniloom.get_val_dataset(
        shards,
        split_part="train",
        batch_size=2,
        worker_config=omniloom.WorkerConfig(rank=0, world_size=1, num_workers=workers),
    )
    lengths = []
    for batch in omniloom.get_loader(dataset):
        for decoder in batch.video:
            assert isinstance(decoder, omniloom.AVDecoder)
            frames = omniloom.get_single_frames_uniform(decoder, 2)
            last = number_of(frames[1].permute(1, 2, 0).numpy())
            lengths.append(last + 1)
    assert sorted(lengths) == [10 + number for number in range(CLIPS)]


class ThreadsEncoder(omniloom.DefaultTaskEncoder):
    """Tells how many pieces of a video are decoded at once where a sample is made."""

    def encode_sample(self, sample: omniloom.VidQASample) -> omniloom.VidQASample:
        sample.context = str(spare_threads())
        return sample


def test_a_worker_decodes_a_video_in_one_piece_for_it_works_on_several_at_once_if_it_can(shards: Path) -> None:
    said = {}
    for threads in (1, 3):
        config = omniloom.WorkerConfig(rank=0, world_size=1, num_workers=2, decode_threads=threads)
        dataset = omniloom.get_val_dataset(
            shards, split_part="train", batch_size=2, worker_config=config, task_encoder=ThreadsEncoder()
        )
        said[threads] = {context for batch in omniloom.get_loader(dataset) for context in batch.context}
    assert said == {1: {"1"}, 3: {"1"}}
