"""Images, video, audio and text in shards become training batches: blended, shuffled, exact, resumable.

Everything that users need is here by name; modules are loaded when a name is first used, so that
``import omniloom`` is quick and never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from omniloom._version import __version__

_MODULES = {
    "omniloom.errors": (
        "OmniloomError ConfigError StorageError DatasetError ShardError SampleError MissingKeyError FatalSampleError "
        "StateError InputError WeightsError WorkerError SkipSample IgnoreSample"
    ),
    "omniloom.data.sample": "SampleKey SourceInfo Span",
    "omniloom.data.kinds": (
        "edataclass Sample CaptioningSample ImageSample ImageClassificationSample InterleavedSample "
        "MultiChoiceVQASample OCRSample SimilarityInterleavedSample TextSample VidQASample VQASample VQAOCRSample "
        "CrudeSample Batch"
    ),
    "omniloom.data.collate": (
        "batch_list batch_stack batch_pad_stack concat_pad generic_batch generic_concat homogeneous_concat_mix "
        "concat_samples"
    ),
    "omniloom.data.media.decoder": "SampleDecoder",
    "omniloom.data.media.image": "decode_image image_size resize_image",
    "omniloom.data.media.image_options": "ImageOptions",
    "omniloom.data.media.image_orientation": "orient_points",
    "omniloom.data.media.av_decoder": "AVDecoder",
    "omniloom.data.media.av_data": "AVData",
    "omniloom.data.media.av_uniform": "get_clips_uniform get_single_frames_uniform",
    "omniloom.data.media.video": "VideoReader",
    "omniloom.data.media.audio": "read_audio",
    "omniloom.data.media.metadata": "AVMetadata ImageMetadata MediaMetadataBase MediaMetadataType",
    "omniloom.data.index.media_store": "MediaMetadataTable get_media_metadata",
    "omniloom.data.index.media_prepare": "add_media_metadata",
    "omniloom.data.pipeline.faults": "FaultPolicy",
    "omniloom.data.task": "TaskEncoder DefaultTaskEncoder AugmentTaskEncoder",
    "omniloom.data.cook": "Cooker cooker basic_sample_keys",
    "omniloom.data.stateless": "stateless get_stateless get_failure_tolerance",
    "omniloom.data.pipeline.best_fit": "BestFitPacker",
    "omniloom.data.pipeline.selection": "Selection",
    "omniloom.data.pipeline.buckets": "LengthBuckets AspectBuckets",
    "omniloom.data.side": (
        "FileStore FileStoreDecoder SystemFileStore WebdatasetFileStore JsonlFileStore DecodeFileStore "
        "PrimaryFileStore open_side_store CachePool NoCachePool FileStoreCachePool Lazy DirectLazy MockLazy "
        "add_source_info get_source_info"
    ),
    "omniloom.data.loader.config": "WorkerConfig",
    "omniloom.data.loader.dataset": "Dataset",
    "omniloom.data.loader.loader": "Loader",
    "omniloom.data.loader.state": "write_state",
    "omniloom.data.shards.write": "TarWriter",
    "omniloom.data.index.prepare": "prepare_dataset",
    "omniloom.data.mix.values": "Blender Curve source blend blend_epochized concat join",
    "omniloom.data.mix_preparation": "prepare_metadataset",
    "omniloom.vlm.task_encoder": "LlavaSettings LlavaTaskEncoder",
    "omniloom.data.open": ("get_train_dataset get_val_dataset get_val_datasets get_loader get_savable_loader"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = ["__version__", *_MODULE_OF]  # noqa: PLE0604 - all are names


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'omniloom' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
