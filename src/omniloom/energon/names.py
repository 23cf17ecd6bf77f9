"""The table: where each of Energon's names is at home, and which of its modules have it."""

from __future__ import annotations

_ADAPTERS = "omniloom.energon.adapters"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_HOMES = {
    "omniloom": (
        "SourceInfo edataclass Sample CaptioningSample ImageSample ImageClassificationSample InterleavedSample "
        "MultiChoiceVQASample OCRSample SimilarityInterleavedSample TextSample VidQASample VQASample VQAOCRSample "
        "CrudeSample Batch batch_list batch_stack batch_pad_stack concat_pad AVDecoder "
        "AVData get_clips_uniform get_single_frames_uniform AVMetadata ImageMetadata "
        "MediaMetadataBase MediaMetadataType Cooker cooker basic_sample_keys stateless get_stateless "
        "get_failure_tolerance FileStore FileStoreDecoder SystemFileStore WebdatasetFileStore JsonlFileStore "
        "DecodeFileStore PrimaryFileStore CachePool NoCachePool FileStoreCachePool Lazy DirectLazy MockLazy "
        "add_source_info get_source_info Blender SkipSample IgnoreSample FatalSampleError"
    ),
    "omniloom.data.side.store": "FileStoreWrapper",
    "omniloom.data.side.cache_pool": "FileCacheLazy CacheFileLazy",
    "omniloom.data.media.av_parts": "AVWebdatasetDecoder",
    "omniloom.data.media.av_index": "AVProbeIndex AVProbeIndexEntry",
    "omniloom.data.media.metadata": "serialize_media_metadata deserialize_media_metadata",
    "omniloom.data.index.media_filter": "MediaFilterConfig MediaFilterStrategy",
    f"{_ADAPTERS}.encoders": "SampleDecoder TaskEncoder DefaultTaskEncoder AugmentTaskEncoder",
    f"{_ADAPTERS}.workers": "WorkerConfig",
    f"{_ADAPTERS}.getters": "get_train_dataset get_val_dataset get_val_datasets",
    f"{_ADAPTERS}.loaders": "SavableDataLoader get_loader get_savable_loader",
    f"{_ADAPTERS}.handlers": "log_exception reraise_exception",
    f"{_ADAPTERS}.epath": "EPath DEFAULT_PROFILE_NAME NVDATASET_CACHE_DIR",
    f"{_ADAPTERS}.fork_hooks": (
        "before_fork_hook after_in_parent_fork_hook after_in_child_fork_hook ForkMixin DataclassForkMixin WeakCallbacks"
    ),
    f"{_ADAPTERS}.random_state": "SystemRng SystemRngState WorkerRng",
    f"{_ADAPTERS}.error_context": (
        "ErrorContext handle_restore_errors legacy_handler add_sample_restore_key set_sample_restore_key"
    ),
    f"{_ADAPTERS}.opening": "load_config",
    f"{_ADAPTERS}.jsonl_index": "IJsonlIndexReader IJsonlIndexWriter",
    f"{_ADAPTERS}.dataset_types": (
        "EnergonDatasetType get_dataset_type check_dataset_info_present get_dataset_info get_info_shard_files "
        "ensure_local_copy ShardInfo WebdatasetInfo WebdatasetMeta WebdatasetSplits"
    ),
    f"{_ADAPTERS}.warps": "TransformMapper CustomTransform",
    f"{_ADAPTERS}.merge_transform": "MergeTransform",
    f"{_ADAPTERS}.warp_mappers": (
        "ResizeMapper RandomResizedCropMapper RandomHorizontalFlipMapper RandomVerticalFlipMapper "
        "RandomRotationMapper RandomCropMapper CenterCropMapper RandomPerspectiveMapper"
    ),
    f"{_ADAPTERS}.formatting": "default_get_batch_keys format_sample_compact format_sample_detailed",
    f"{_ADAPTERS}.media_folder": "prepare_filesystem_dataset",
    f"{_ADAPTERS}.factories": (
        "BaseCoreDatasetFactory BaseWebdatasetFactory CrudeJsonlDatasetFactory get_dataset_from_config"
    ),
    f"{_ADAPTERS}.mixes": (
        "DatasetBlendMode LoadedDataset LoadedDatasetList TraversedDatasetReference DatasetLoader Metadataset "
        "MetadatasetV2 load_dataset traverse_metadataset prepare_metadataset"
    ),
    f"{_ADAPTERS}.collating": "generic_batch generic_concat homogeneous_concat_mix",
    f"{_ADAPTERS}.reading": "load_yaml load_yaml_json collapse DatasetSubset",
    f"{_ADAPTERS}.loader_interface": "DatasetLoaderInterface",
    f"{_ADAPTERS}.joined": "JoinedWebdatasetFactory",
    f"{_ADAPTERS}.savable": "Savable SavableDataset BaseWrapperDataset SampleIndex get_sample_restore_key",
    f"{_ADAPTERS}.av_readers": "AVReader AVReaderByFrames AVReaderByPts",
    f"{_ADAPTERS}.av_files": "av_open initialize_av_container",
    f"{_ADAPTERS}.watchdog": "Watchdog",
    f"{_ADAPTERS}.own_files": (
        "ModuleLoader RetryReadStream ThreadLocalSqlite ConfigEntry get_rclone_config_path read_rclone_config "
        "read_rclone_config_at_path"
    ),
    f"{_ADAPTERS}.shard_index": (
        "ITAR_SUFFIX ITarSamplePointer ITarRawSamplePartPointer TarIndexReader TarIndexWriter get_itar_byte_offset "
        "open_itar"
    ),
    f"{_ADAPTERS}.shard_readers": (
        "ITarReader ShardInfosITarReader JoinIndexFileITarReader SqliteITarEntryReader IJsonlReader"
    ),
    f"{_ADAPTERS}.index_files": "SqliteIndexReader JoinIndexReader JoinIndexWriter DuplicateSampleKeyError",
    f"{_ADAPTERS}.aggregating": "AggregatorPool BaseAggregator",
    f"{_ADAPTERS}.unique_keys": "TarPatcher TarPatcherError TarScanResult DatasetScanResult",
    f"{_ADAPTERS}.worker_shares": "Sharder",
    f"{_ADAPTERS}.typed_values": "JsonParser to_json_object split_field_access field_access",
    f"{_ADAPTERS}.constants": "JOIN_INDEX_FILENAME INDEX_BATCH_SIZE split_name_re skip_meta_re",
    f"{_ADAPTERS}.state_files": "RankStateIterable detect_and_replicate_pattern natural_sort_key",
    f"{_ADAPTERS}.join_loader": "JoinDatasetLoader JoinedDatasetInfo",
    f"{_ADAPTERS}.deprecations": "OldSkipSample deprecated warn_deprecated",
    f"{_ADAPTERS}.references": (
        "AuxDatasetReference AuxFilesystemReference DatasetReference MetadatasetBlend MetadatasetBlendEpochized "
        "MetadatasetJoin"
    ),
    f"{_ADAPTERS}.wrappers": (
        "BatchDataset BlendDataset ConcatDataset EpochizeDataset FilterDataset GroupBatchDataset IterMapDataset "
        "LimitDataset MapDataset MixBatchDataset PackingDataset RepeatDataset ShuffleBufferDataset"
    ),
}

_LEGACY = _words(
    "CaptioningWebdataset ImageWebdataset ImageClassificationWebdataset InterleavedWebdataset "
    "MultiChoiceVQAWebdataset OCRWebdataset SimilarityInterleavedWebdataset TextWebdataset VidQAWebdataset "
    "VQAWebdataset VQAOCRWebdataset CrudeWebdataset"
)

_COMMANDS = _words("analyze_debug checkpoint info lint mount prepare prepare_media preview")

HOME: dict[str, tuple[str, str]] = {
    **{name: (module, name) for module, names in _HOMES.items() for name in names.split()},
    **{name: (f"{_ADAPTERS}.factories", f"LEGACY_FACTORIES[{name}]") for name in _LEGACY},
    "__version__": ("omniloom._version", "__version__"),
    "BasicDataLoader": (f"{_ADAPTERS}.loaders", "SavableDataLoader"),
    "DefaultCrudeJsonlDatasetFactory": (f"{_ADAPTERS}.factories", "CrudeJsonlDatasetFactory"),
    "DefaultDecoderWebdatasetFactory": (f"{_ADAPTERS}.factories", "TypedWebdatasetFactory"),
    "DefaultGenericWebdatasetFactory": (f"{_ADAPTERS}.factories", "TypedWebdatasetFactory"),
    "StandardWebdatasetFactory": (f"{_ADAPTERS}.factories", "TypedWebdatasetFactory"),
    "EmptyDatasetError": ("omniloom.errors", "DatasetError"),
    "SampleException": ("omniloom.errors", "SampleError"),
    "JsonValueError": ("omniloom.errors", "ConfigError"),
    "FieldAccessError": ("omniloom.errors", "SampleError"),
    "SYSTEM_EXCEPTIONS": ("omniloom.data.pipeline.faults", "PROGRAM_FAULTS"),
    "PinMemoryMixin": ("omniloom.data.kinds", "_Fields"),
    "ExtendableDataclassMixin": ("omniloom.data.kinds", "_Fields"),
    "GcDataset": (f"{_ADAPTERS}.wrappers", "Transparent"),
    "LogSampleDataset": (f"{_ADAPTERS}.wrappers", "Transparent"),
    "WatchdogDataset": (f"{_ADAPTERS}.wrappers", "Transparent"),
    "main": ("omniloom.tools.energon_commands", "main"),
    "command_redist": ("omniloom.tools.state", "redeal"),
    "command_info": ("omniloom.tools.state", "show"),
    **{f"{name}_command": ("omniloom.tools.energon_commands", f"COMMANDS[{name}]") for name in _COMMANDS},
    "WebdatasetPreparator": (f"{_ADAPTERS}.factories", "BaseWebdatasetFactory"),
    "JsonlPreparator": (f"{_ADAPTERS}.factories", "CrudeJsonlDatasetFactory"),
    "WebdatasetSampleLoaderDataset": (f"{_ADAPTERS}.dataset", "EngineDataset"),
    "SavableDatasetWrapper": (f"{_ADAPTERS}.wrappers", "Transparent"),
    "SimpleSavableDatasetWrapper": (f"{_ADAPTERS}.wrappers", "Transparent"),
    "FilteredSample": ("builtins", "dict"),
    "SavableCheckpoint": ("builtins", "dict"),
    "SavableDatasetCheckpoint": ("builtins", "dict"),
    "SavableDatasetState": ("builtins", "dict"),
    "FlexState": ("builtins", "dict"),
    "State": ("builtins", "dict"),
    "SavableDataLoaderState": ("builtins", "dict"),
    "ImageDecoderType": ("builtins", "str"),
    "AVDecoderType": ("builtins", "str"),
    "MAIN_FOLDER_NAME": ("omniloom.data.index.layout", "MAIN_FOLDER"),
    "INDEX_SQLITE_FILENAME": ("omniloom.data.index.layout", "DATABASE"),
    "INDEX_UUID_FILENAME": ("omniloom.data.index.layout", "UUID_FILE"),
    "INFO_JSON_FILENAME": ("omniloom.data.index.layout", "INFO_JSON"),
    "INFO_YAML_FILENAME": ("omniloom.data.index.layout", "INFO_YAML"),
    "SPLIT_YAML_FILENAME": ("omniloom.data.index.layout", "SPLIT_YAML"),
}
"""Name to module and attribute; ``table[key]`` is an entry of a dict of that module."""

EXPORTED = _words(
    "AugmentTaskEncoder BaseCoreDatasetFactory BaseWebdatasetFactory basic_sample_keys batch_list batch_pad_stack "
    "batch_stack Batch BatchDataset BlendDataset CachePool CaptioningSample CaptioningWebdataset concat_pad "
    "ConcatDataset cooker Cooker CrudeJsonlDatasetFactory CrudeSample CrudeWebdataset DatasetLoader "
    "DatasetLoaderInterface DecodeFileStore DefaultCrudeJsonlDatasetFactory DefaultDecoderWebdatasetFactory "
    "DefaultGenericWebdatasetFactory DefaultTaskEncoder DirectLazy edataclass EpochizeDataset FileCacheLazy FileStore "
    "FileStoreCachePool FileStoreDecoder FilterDataset GcDataset generic_batch generic_concat get_loader "
    "get_savable_loader get_train_dataset get_val_dataset get_val_datasets GroupBatchDataset homogeneous_concat_mix "
    "ImageClassificationSample ImageClassificationWebdataset ImageSample ImageWebdataset InterleavedSample "
    "InterleavedWebdataset IterMapDataset JoinedWebdatasetFactory Lazy LimitDataset load_dataset log_exception "
    "LogSampleDataset MapDataset Metadataset MetadatasetV2 MixBatchDataset MockLazy MultiChoiceVQASample "
    "MultiChoiceVQAWebdataset NoCachePool OCRSample OCRWebdataset PackingDataset PrimaryFileStore prepare_metadataset "
    "RepeatDataset reraise_exception Sample SampleDecoder SavableDataLoader SavableDataset traverse_metadataset "
    "ShuffleBufferDataset SimilarityInterleavedSample SimilarityInterleavedWebdataset SkipSample SourceInfo "
    "StandardWebdatasetFactory stateless SystemFileStore TaskEncoder TextSample TextWebdataset VidQASample "
    "VidQAWebdataset VQAOCRWebdataset VQASample VQAWebdataset WorkerConfig __version__"
)
"""The names that Energon's package exports."""

HIDDEN = _words(
    "FatalSampleError SampleException VQAOCRSample IgnoreSample WebdatasetFileStore JsonlFileStore FileStoreWrapper "
    "AVDecoder AVData AVWebdatasetDecoder get_clips_uniform get_single_frames_uniform EPath BasicDataLoader "
    "WatchdogDataset DatasetBlendMode LoadedDataset LoadedDatasetList TraversedDatasetReference Blender "
    "get_dataset_from_config EmptyDatasetError AVMetadata ImageMetadata DEFAULT_PROFILE_NAME BaseWrapperDataset Savable"
)
"""Names that are in some module of Energon only, or only in its guides; here they are at the top, too."""

_TASK_ENCODER = (
    "AugmentTaskEncoder Batch DefaultTaskEncoder TaskEncoder batch_list batch_pad_stack batch_stack generic_batch "
    "stateless"
)
_COOKING = "Cooker basic_sample_keys cooker"
_GETTERS = "get_train_dataset get_val_dataset get_val_datasets"
_MIX_FUNCTIONS = "concat_pad generic_concat homogeneous_concat_mix"
_CACHE = (
    "CachePool DecodeFileStore DirectLazy FileCacheLazy FileStore FileStoreCachePool FileStoreDecoder Lazy MockLazy "
    "NoCachePool PrimaryFileStore SystemFileStore"
)
_MEDIA_METADATA = (
    "AVMetadata ImageMetadata MediaMetadataBase MediaMetadataType deserialize_media_metadata serialize_media_metadata"
)
_WEBDATASET = (
    "AVData AVDecoder BaseWebdatasetFactory DefaultDecoderWebdatasetFactory DefaultGenericWebdatasetFactory "
    "EmptyDatasetError JoinedWebdatasetFactory SampleDecoder StandardWebdatasetFactory"
)
_FLAVORS = {
    "captioning": "CaptioningSample CaptioningWebdataset",
    "crude": "CrudeSample CrudeWebdataset",
    "image": "ImageSample ImageWebdataset",
    "image_classification": "ImageClassificationSample ImageClassificationWebdataset",
    "interleaved": "InterleavedSample InterleavedWebdataset",
    "multichoice_vqa": "MultiChoiceVQASample MultiChoiceVQAWebdataset",
    "ocr": "OCRSample OCRWebdataset",
    "similarity_interleaved": "SimilarityInterleavedSample SimilarityInterleavedWebdataset",
    "text": "TextSample TextWebdataset",
    "vid_qa": "VidQASample VidQAWebdataset",
    "vqa": "VQASample VQAWebdataset",
    "vqa_and_ocr": "VQAOCRSample VQAOCRWebdataset",
}
_JSONL = "CrudeJsonlDatasetFactory DefaultCrudeJsonlDatasetFactory"
_BASE = "BaseCoreDatasetFactory PinMemoryMixin Sample SavableDataset"
_WRAPPERS = {
    "base": "BaseWrapperDataset SampleIndex get_sample_restore_key",
    "batch_dataset": "BatchDataset",
    "blend_dataset": "BlendDataset",
    "concat_dataset": "ConcatDataset",
    "epochize_dataset": "EpochizeDataset",
    "filter_dataset": "FilterDataset",
    "gc_dataset": "GcDataset",
    "group_batch_dataset": "GroupBatchDataset",
    "iter_map_dataset": "IterMapDataset",
    "limit_dataset": "LimitDataset",
    "log_sample_dataset": "LogSampleDataset",
    "map_dataset": "MapDataset",
    "mix_batch_dataset": f"MixBatchDataset {_MIX_FUNCTIONS}",
    "packing_dataset": "PackingDataset",
    "repeat_dataset": "RepeatDataset",
    "shuffle_buffer_dataset": "ShuffleBufferDataset",
    "skip": "SkipSample=OldSkipSample",
    "watchdog_dataset": "WatchdogDataset",
}
_METADATASET = (
    "DatasetLoader DatasetLoaderInterface Metadataset MetadatasetV2 load_dataset prepare_metadataset "
    "traverse_metadataset"
)


_MAPPERS = (
    "CenterCropMapper RandomCropMapper RandomHorizontalFlipMapper RandomPerspectiveMapper RandomResizedCropMapper "
    "RandomRotationMapper RandomVerticalFlipMapper ResizeMapper TransformMapper"
)


def _under(parent: str, children: dict[str, str]) -> dict[str, str]:
    return {f"{parent}.{child}": names for child, names in children.items()}


MODULES: dict[str, str] = {
    "av": "AVData AVDecoder AVWebdatasetDecoder get_clips_uniform get_single_frames_uniform",
    "av.av_data": "AVData",
    "av.av_decoder": "AVDecoder AVWebdatasetDecoder",
    "av.av_init": "av_open initialize_av_container",
    "av.av_reader": "AVProbeIndex AVProbeIndexEntry AVReader AVReaderByFrames AVReaderByPts",
    "av.utils": "get_clips_uniform get_single_frames_uniform",
    "bracecollapse": "collapse",
    "cache": _CACHE,
    "cache.base": "CachePool FileStore FileStoreDecoder FileStoreWrapper Lazy MockLazy PrimaryFileStore",
    "cache.file_cache_pool": "CacheFileLazy FileCacheLazy FileStoreCachePool",
    "cache.file_store": "DecodeFileStore JsonlFileStore SystemFileStore WebdatasetFileStore",
    "cache.no_cache": "DirectLazy NoCachePool",
    "cli": "",
    "cli.main": " ".join(["main", *(f"{name}_command" for name in _COMMANDS)]),
    "dataset_config": "get_dataset_from_config load_config",
    "deprecation": "deprecated warn_deprecated",
    "edataclass": "edataclass",
    "epathlib": "DEFAULT_PROFILE_NAME EPath",
    "epathlib.epath": "DEFAULT_PROFILE_NAME EPath NVDATASET_CACHE_DIR",
    "epathlib.rclone_config": ("ConfigEntry get_rclone_config_path read_rclone_config read_rclone_config_at_path"),
    "errors": (
        "ErrorContext FatalSampleError SYSTEM_EXCEPTIONS SampleException SkipSample handle_restore_errors "
        "log_exception reraise_exception"
    ),
    "eyaml": "load_yaml load_yaml_json",
    "flavors": " ".join(
        [*_FLAVORS.values(), _JSONL, _BASE, _WEBDATASET, "AVDecoderType ImageDecoderType WebdatasetMeta"]
    ),
    **_under("flavors", _FLAVORS),
    "flavors.base_dataset": (
        f"{_BASE} ExtendableDataclassMixin FlexState State add_sample_restore_key legacy_handler set_sample_restore_key"
    ),
    "flavors.jsonl": _JSONL,
    "flavors.jsonl.crude_jsonl_dataset": _JSONL,
    "flavors.jsonl.ijsonl": "IJsonlIndexReader IJsonlIndexWriter",
    "flavors.jsonl.ijsonl_reader": "IJsonlReader",
    "flavors.jsonl.jsonl_prepare": "JsonlPreparator",
    "flavors.webdataset": f"{_WEBDATASET} AVDecoderType ImageDecoderType MAIN_FOLDER_NAME WebdatasetMeta",
    "flavors.webdataset.aggregator_pool": "AggregatorPool BaseAggregator",
    "flavors.webdataset.base_webdataset": "BaseWebdatasetFactory",
    "flavors.webdataset.config": (
        "INDEX_BATCH_SIZE INDEX_SQLITE_FILENAME INDEX_UUID_FILENAME INFO_JSON_FILENAME INFO_YAML_FILENAME "
        "JOIN_INDEX_FILENAME MAIN_FOLDER_NAME SPLIT_YAML_FILENAME skip_meta_re split_name_re"
    ),
    "flavors.webdataset.default_decoder_webdataset": "DefaultDecoderWebdatasetFactory",
    "flavors.webdataset.default_generic_webdataset": "DefaultGenericWebdatasetFactory",
    "flavors.webdataset.empty_dataset_error": "EmptyDatasetError",
    "flavors.webdataset.field_access": "FieldAccessError field_access split_field_access",
    "flavors.webdataset.indexing": "DuplicateSampleKeyError JoinIndexReader JoinIndexWriter SqliteIndexReader",
    "flavors.webdataset.itar": (
        "ITAR_SUFFIX ITarRawSamplePartPointer ITarSamplePointer TarIndexReader TarIndexWriter get_itar_byte_offset "
        "open_itar"
    ),
    "flavors.webdataset.itar_reader": ("ITarReader JoinIndexFileITarReader ShardInfosITarReader SqliteITarEntryReader"),
    "flavors.webdataset.joined_webdataset": "JoinedWebdatasetFactory",
    "flavors.webdataset.metadata": (
        "EnergonDatasetType WebdatasetMeta check_dataset_info_present get_dataset_info get_dataset_type "
        "get_info_shard_files"
    ),
    "flavors.webdataset.prepare": "WebdatasetPreparator",
    "flavors.webdataset.sample_decoder": "AVDecoderType ImageDecoderType SampleDecoder",
    "flavors.webdataset.sample_loader": "WebdatasetSampleLoaderDataset",
    "flavors.webdataset.sharder": "Sharder",
    "flavors.webdataset.standard_webdataset": "StandardWebdatasetFactory",
    "flavors.webdataset.structs": "DatasetSubset FilteredSample ShardInfo WebdatasetInfo WebdatasetSplits",
    "flavors.webdataset.tar_patcher": "DatasetScanResult TarPatcher TarPatcherError TarScanResult",
    "flavors.webdataset.thread_local_sqlite": "ThreadLocalSqlite",
    "fork_hook": (
        "DataclassForkMixin ForkMixin WeakCallbacks after_in_child_fork_hook after_in_parent_fork_hook before_fork_hook"
    ),
    "loader": "get_loader get_savable_loader",
    "local_copy": "ensure_local_copy",
    "media": _MEDIA_METADATA,
    "media.extractor": "MediaFilterConfig MediaFilterStrategy",
    "media.filesystem_prepare": "prepare_filesystem_dataset",
    "media.metadata": _MEDIA_METADATA,
    "metadataset": _METADATASET,
    "metadataset.dataset_loader": "DatasetLoader",
    "metadataset.join_dataset_loader": "JoinDatasetLoader JoinedDatasetInfo",
    "metadataset.loader": "load_dataset prepare_metadataset traverse_metadataset",
    "metadataset.loader_interface": (
        "DatasetBlendMode DatasetLoaderInterface LoadedDataset LoadedDatasetList TraversedDatasetReference"
    ),
    "metadataset.metadataset": "Metadataset",
    "metadataset.metadataset_v2": (
        "AuxDatasetReference AuxFilesystemReference DatasetReference MetadatasetBlend MetadatasetBlendEpochized "
        "MetadatasetJoin MetadatasetV2 Subset=DatasetSubset"
    ),
    "savable": "Savable",
    "module_loader": "ModuleLoader",
    "retry_stream": "RetryReadStream",
    "rng": "SystemRng SystemRngState WorkerRng",
    "sample_utils": "default_get_batch_keys format_sample_compact format_sample_detailed",
    "savable_loader": (
        "BasicDataLoader SavableCheckpoint SavableDataLoader SavableDataLoaderState SavableDatasetCheckpoint "
        "SavableDatasetState SavableDatasetWrapper SimpleSavableDatasetWrapper"
    ),
    "state": "FlexState",
    "source_info": "SourceInfo add_source_info get_source_info",
    "task_encoder": f"{_TASK_ENCODER} {_COOKING} {_GETTERS}",
    "task_encoder.base": f"{_TASK_ENCODER} get_failure_tolerance get_stateless",
    "task_encoder.cooking": _COOKING,
    "task_encoder.loader": _GETTERS,
    "tools": "",
    **{f"tools.{name}": f"command={name}_command" for name in _COMMANDS},
    "tools.checkpoint": (
        "command=checkpoint_command command_info command_redist RankStateIterable detect_and_replicate_pattern "
        "natural_sort_key"
    ),
    "transforms": f"CustomTransform MergeTransform {_MAPPERS}",
    "transforms.custom": "CustomTransform",
    "transforms.mappers": _MAPPERS,
    "transforms.merge": "MergeTransform",
    "typed_converter": "JsonParser JsonValueError to_json_object",
    "watchdog": "Watchdog",
    "worker": "WorkerConfig",
    "wrappers": " ".join(_WRAPPERS.values()),
    **_under("wrappers", _WRAPPERS),
}
"""Energon's modules below its package, and the names in them; ``name=other``: under a name of the module's own."""


def is_package(module: str) -> bool:
    """Whether modules lie below one of Energon's."""
    return any(other.startswith(f"{module}.") for other in MODULES)
