"""Every module and name of Energon 7.4 that its users' code and its own tests import, as written down from it."""

EXPORTED = """
AugmentTaskEncoder BaseCoreDatasetFactory BaseWebdatasetFactory basic_sample_keys batch_list
batch_pad_stack batch_stack Batch BatchDataset BlendDataset CachePool CaptioningSample
CaptioningWebdataset concat_pad ConcatDataset cooker Cooker CrudeJsonlDatasetFactory CrudeSample
CrudeWebdataset DatasetLoader DatasetLoaderInterface DecodeFileStore DefaultCrudeJsonlDatasetFactory
DefaultDecoderWebdatasetFactory DefaultGenericWebdatasetFactory DefaultTaskEncoder DirectLazy
edataclass EpochizeDataset FileCacheLazy FileStore FileStoreCachePool FileStoreDecoder FilterDataset
GcDataset generic_batch generic_concat get_loader get_savable_loader get_train_dataset
get_val_dataset get_val_datasets GroupBatchDataset homogeneous_concat_mix ImageClassificationSample
ImageClassificationWebdataset ImageSample ImageWebdataset InterleavedSample InterleavedWebdataset
IterMapDataset JoinedWebdatasetFactory Lazy LimitDataset load_dataset log_exception LogSampleDataset
MapDataset Metadataset MetadatasetV2 MixBatchDataset MockLazy MultiChoiceVQASample
MultiChoiceVQAWebdataset NoCachePool OCRSample OCRWebdataset PackingDataset PrimaryFileStore
prepare_metadataset RepeatDataset reraise_exception Sample SampleDecoder SavableDataLoader
SavableDataset traverse_metadataset ShuffleBufferDataset SimilarityInterleavedSample
SimilarityInterleavedWebdataset SkipSample SourceInfo StandardWebdatasetFactory stateless
SystemFileStore TaskEncoder TextSample TextWebdataset VidQASample VidQAWebdataset VQAOCRWebdataset
VQASample VQAWebdataset WorkerConfig __version__
"""

HIDDEN = """
FatalSampleError SampleException VQAOCRSample IgnoreSample WebdatasetFileStore JsonlFileStore FileStoreWrapper
AVDecoder AVData AVWebdatasetDecoder get_clips_uniform get_single_frames_uniform EPath DEFAULT_PROFILE_NAME
BasicDataLoader WatchdogDataset DatasetBlendMode LoadedDataset LoadedDatasetList TraversedDatasetReference Blender
"""

_WRAPPERS = """
BatchDataset BlendDataset ConcatDataset EpochizeDataset FilterDataset GcDataset GroupBatchDataset IterMapDataset
LimitDataset LogSampleDataset MapDataset MixBatchDataset PackingDataset RepeatDataset ShuffleBufferDataset
SkipSample concat_pad generic_concat homogeneous_concat_mix
"""

_SAMPLES = """
CaptioningSample CaptioningWebdataset CrudeSample CrudeWebdataset ImageSample ImageWebdataset ImageClassificationSample
ImageClassificationWebdataset InterleavedSample InterleavedWebdataset MultiChoiceVQASample MultiChoiceVQAWebdataset
OCRSample OCRWebdataset SimilarityInterleavedSample SimilarityInterleavedWebdataset TextSample TextWebdataset
VidQASample VidQAWebdataset VQASample VQAWebdataset VQAOCRSample VQAOCRWebdataset
"""

MODULES = {
    # what is not at the top
    "errors": "FatalSampleError SampleException SkipSample SYSTEM_EXCEPTIONS ErrorContext handle_restore_errors "
    "log_exception reraise_exception",
    "flavors.vqa_and_ocr": "VQAOCRSample VQAOCRWebdataset",
    "cache.file_store": "WebdatasetFileStore JsonlFileStore SystemFileStore DecodeFileStore",
    "cache.base": "FileStoreWrapper FileStore FileStoreDecoder CachePool Lazy MockLazy PrimaryFileStore",
    "epathlib": "EPath DEFAULT_PROFILE_NAME",
    "savable_loader": "BasicDataLoader SavableDataLoader SavableDatasetWrapper SimpleSavableDatasetWrapper "
    "SavableDataLoaderState SavableDatasetCheckpoint SavableDatasetState SavableCheckpoint",
    "wrappers.watchdog_dataset": "WatchdogDataset",
    "metadataset.loader_interface": "DatasetBlendMode LoadedDataset LoadedDatasetList TraversedDatasetReference "
    "DatasetLoaderInterface",
    # the modules
    "av": "AVDecoder AVWebdatasetDecoder AVData get_clips_uniform get_single_frames_uniform",
    "av.av_decoder": "AVDecoder",
    "av.av_reader": "AVProbeIndex AVProbeIndexEntry AVReader AVReaderByFrames AVReaderByPts",
    "av.av_init": "av_open initialize_av_container",
    "av.av_data": "AVData",
    "av.utils": "get_clips_uniform get_single_frames_uniform",
    "cache": "CachePool DecodeFileStore DirectLazy FileCacheLazy FileStore FileStoreCachePool FileStoreDecoder Lazy "
    "MockLazy NoCachePool PrimaryFileStore SystemFileStore",
    "cache.file_cache_pool": "FileStoreCachePool FileCacheLazy CacheFileLazy",
    "cache.no_cache": "NoCachePool DirectLazy",
    "epathlib.epath": "EPath NVDATASET_CACHE_DIR",
    "epathlib.rclone_config": "read_rclone_config get_rclone_config_path",
    "flavors": f"{_SAMPLES} BaseCoreDatasetFactory BaseWebdatasetFactory CrudeJsonlDatasetFactory "
    "DefaultCrudeJsonlDatasetFactory DefaultDecoderWebdatasetFactory DefaultGenericWebdatasetFactory "
    "JoinedWebdatasetFactory StandardWebdatasetFactory Sample SampleDecoder SavableDataset AVData AVDecoder "
    "AVDecoderType EmptyDatasetError ImageDecoderType PinMemoryMixin WebdatasetMeta",
    "flavors.base_dataset": "Sample SavableDataset BaseCoreDatasetFactory PinMemoryMixin ExtendableDataclassMixin "
    "State FlexState add_sample_restore_key set_sample_restore_key legacy_handler",
    "flavors.webdataset.config": "MAIN_FOLDER_NAME INDEX_SQLITE_FILENAME INDEX_UUID_FILENAME INFO_JSON_FILENAME "
    "INFO_YAML_FILENAME SPLIT_YAML_FILENAME JOIN_INDEX_FILENAME INDEX_BATCH_SIZE split_name_re skip_meta_re",
    "flavors.webdataset.metadata": "EnergonDatasetType get_dataset_type WebdatasetMeta",
    "flavors.webdataset.structs": "DatasetSubset FilteredSample ShardInfo WebdatasetInfo WebdatasetSplits",
    "flavors.webdataset.sharder": "Sharder",
    "flavors.webdataset.itar": "TarIndexReader TarIndexWriter",
    "flavors.webdataset.itar_reader": "ITarReader JoinIndexFileITarReader ShardInfosITarReader SqliteITarEntryReader",
    "flavors.webdataset.indexing": "JoinIndexReader JoinIndexWriter SqliteIndexReader DuplicateSampleKeyError",
    "flavors.webdataset.prepare": "WebdatasetPreparator",
    "flavors.webdataset.aggregator_pool": "AggregatorPool BaseAggregator",
    "flavors.webdataset.field_access": "FieldAccessError field_access split_field_access",
    "flavors.webdataset.sample_decoder": "SampleDecoder",
    "flavors.webdataset.sample_loader": "WebdatasetSampleLoaderDataset",
    "flavors.webdataset.joined_webdataset": "JoinedWebdatasetFactory",
    "flavors.webdataset.empty_dataset_error": "EmptyDatasetError",
    "flavors.webdataset.tar_patcher": "TarPatcher TarPatcherError",
    "flavors.webdataset.thread_local_sqlite": "ThreadLocalSqlite",
    "flavors.jsonl": "CrudeJsonlDatasetFactory DefaultCrudeJsonlDatasetFactory",
    "flavors.jsonl.ijsonl": "IJsonlIndexReader IJsonlIndexWriter",
    "flavors.jsonl.ijsonl_reader": "IJsonlReader",
    "flavors.jsonl.jsonl_prepare": "JsonlPreparator",
    "flavors.jsonl.crude_jsonl_dataset": "CrudeJsonlDatasetFactory DefaultCrudeJsonlDatasetFactory",
    "media": "AVMetadata ImageMetadata MediaMetadataBase MediaMetadataType serialize_media_metadata "
    "deserialize_media_metadata",
    "media.extractor": "MediaFilterConfig MediaFilterStrategy",
    "media.filesystem_prepare": "prepare_filesystem_dataset",
    "metadataset": "DatasetLoader DatasetLoaderInterface Metadataset MetadatasetV2 load_dataset prepare_metadataset "
    "traverse_metadataset",
    "metadataset.loader": "load_dataset prepare_metadataset traverse_metadataset",
    "metadataset.metadataset": "Metadataset",
    "metadataset.metadataset_v2": "MetadatasetV2 AuxFilesystemReference",
    "metadataset.dataset_loader": "DatasetLoader",
    "metadataset.join_dataset_loader": "JoinDatasetLoader",
    "task_encoder": "TaskEncoder DefaultTaskEncoder AugmentTaskEncoder Batch Cooker cooker basic_sample_keys "
    "batch_list batch_pad_stack batch_stack generic_batch stateless get_train_dataset get_val_dataset get_val_datasets",
    "task_encoder.base": "TaskEncoder DefaultTaskEncoder AugmentTaskEncoder get_stateless get_failure_tolerance",
    "task_encoder.cooking": "Cooker cooker basic_sample_keys",
    "task_encoder.loader": "get_train_dataset get_val_dataset get_val_datasets",
    "transforms": "TransformMapper ResizeMapper RandomResizedCropMapper CenterCropMapper RandomCropMapper "
    "RandomHorizontalFlipMapper RandomVerticalFlipMapper RandomRotationMapper RandomPerspectiveMapper MergeTransform "
    "CustomTransform",
    "wrappers": _WRAPPERS,
    "dataset_config": "load_config get_dataset_from_config",
    "loader": "get_loader get_savable_loader",
    "rng": "WorkerRng SystemRng SystemRngState",
    "sample_utils": "default_get_batch_keys format_sample_compact format_sample_detailed",
    "source_info": "SourceInfo add_source_info get_source_info",
    "fork_hook": "before_fork_hook after_in_parent_fork_hook after_in_child_fork_hook ForkMixin DataclassForkMixin "
    "WeakCallbacks",
    "edataclass": "edataclass",
    "deprecation": "warn_deprecated deprecated",
    "eyaml": "load_yaml load_yaml_json",
    "typed_converter": "JsonParser to_json_object JsonValueError",
    "module_loader": "ModuleLoader",
    "bracecollapse": "collapse",
    "local_copy": "ensure_local_copy",
    "retry_stream": "RetryReadStream",
    "watchdog": "Watchdog",
    "savable": "Savable",
    "state": "FlexState",
    "worker": "WorkerConfig",
    **{
        f"tools.{name}": "command"
        for name in ("prepare", "prepare_media", "info", "lint", "mount", "preview", "analyze_debug")
    },
    "tools.checkpoint": "command command_redist command_info RankStateIterable natural_sort_key "
    "detect_and_replicate_pattern",
    "cli.main": "main prepare_media_command",
}
