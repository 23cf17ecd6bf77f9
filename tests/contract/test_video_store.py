"""A video in an object store: what is wanted is read by range, and counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omniloom.data.media.audio import read_audio
from omniloom.data.media.video import VideoReader
from omniloom.errors import StorageError
from omniloom.storage.open import open_store
from omniloom.storage.range_file import open_range
from omniloom.storage.store import Store
from tests.contract.made_clips import make_large_video, make_sound


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    pytest.importorskip("obstore")
    server_module = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    secrets = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **secrets).create_bucket(Bucket="videos")
    yield open_store(
        "s3://videos", endpoint=endpoint, region="us-east-1", client_options={"allow_http": True},
        access_key_id="test", secret_access_key="test",
    )  # fmt: skip
    server.stop()


def test_eight_frames_out_of_a_bucket_read_a_part_of_the_video(store: Store) -> None:
    video = make_large_video(240)
    store.write("s3://videos/large.mp4", video)
    file = open_range("s3://videos/large.mp4", store=store)
    with VideoReader(file) as reader:
        assert len(reader.uniform_frames(8)) == 8
    assert file.size_bytes == len(video) > 30 << 20
    assert file.fetched_bytes < len(video) / 6
    assert file.requests < 60


def test_a_span_of_sound_out_of_a_bucket(store: Store) -> None:
    sound = make_sound("wav", rate=48_000, duration_seconds=60.0)
    store.write("s3://videos/long.wav", sound)
    file = open_range("s3://videos/long.wav", store=store)
    span = read_audio(file, start_seconds=30.0, stop_seconds=31.0, rate=16_000)
    assert span.samples.shape == (1, 16_000)
    assert file.fetched_bytes < len(sound) / 4
    with pytest.raises(StorageError):
        open_range("s3://videos/absent.mp4", store=store)
