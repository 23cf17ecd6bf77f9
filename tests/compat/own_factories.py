"""Factories that data sets of the tests name in their dataset.yaml, as users of Energon write them."""

from omniloom.energon.flavors.webdataset import BaseWebdatasetFactory, DefaultDecoderWebdatasetFactory

from omniloom import energon


@energon.edataclass
class Shouted(energon.Sample):
    text: str
    loud: int = 0


class ShoutedWebdataset(DefaultDecoderWebdatasetFactory[Shouted]):
    __sample_type__ = Shouted

    def __init__(self, path, *, loud: int = 1, **kwargs):
        super().__init__(path, **kwargs)
        self.loud = loud

    def load_sample(self, sample):
        made = super().load_sample(sample)
        made.text, made.loud = made.text.upper(), self.loud
        return made


class BytesWebdataset(BaseWebdatasetFactory):
    __sample_type__ = energon.TextSample

    def __init__(self, path, *, split_part, training, worker_config, only: str = ""):
        super().__init__(
            path,
            split_part=split_part,
            training=training,
            worker_config=worker_config,
            part_filter=lambda part: part == "txt",
        )
        self.only = only

    def sample_filter(self, key):
        return key.endswith(self.only)

    def load_sample(self, sample):
        return energon.TextSample(
            **energon.basic_sample_keys(sample), text=f"{len(sample['txt'])} bytes of {sorted(sample)[-1]}"
        )


class ByFolder(energon.DatasetLoaderInterface):
    """All data sets of a folder, blended by weights that follow from their names: 1 for ``a``, 2 for ``b``."""

    def __init__(self, path, folder: str):
        self.root = path.parent / folder

    def get_datasets(self, *, training, split_part, worker_config, subflavors=None, **settings):
        found = [
            energon.LoadedDataset(
                dataset=energon.get_dataset_from_config(
                    self.root / name, training=training, split_part=split_part, worker_config=worker_config
                ),
                weight=weight,
            )
            for name, weight in (("a", 1.0), ("b", 2.0))
        ]
        return energon.LoadedDatasetList(datasets=found, blend_mode=energon.DatasetBlendMode.DATASET_WEIGHT)


class Countdown(energon.SavableDataset):
    """The numbers of a data set's description, from the last one down."""

    _savable_fields = ("left",)

    def __init__(self, numbers, mark, worker_config):
        super().__init__(worker_config=worker_config)
        self.numbers, self.mark, self.left = numbers, mark, numbers

    def __iter__(self):
        while self.left:
            self.left -= 1
            yield energon.TextSample(__key__=str(self.left), __restore_key__=(), text=f"{self.mark} {self.left}")
        self.left = self.numbers

    def len_worker(self, worker_idx=None):
        return self.numbers


class CountdownFactory(energon.BaseCoreDatasetFactory):
    """A data set that is no webdataset at all."""

    def __init__(self, path, *, worker_config, subflavors=None, numbers=3):
        self.path, self.worker_config, self.numbers = path, worker_config, numbers
        self.subflavors = subflavors

    def build(self, worker_rotation_offset=0):
        return Countdown(self.numbers, (self.subflavors or {}).get("mark", "none"), self.worker_config)

    def __len__(self):
        return self.numbers

    def as_file_store(self):
        raise NotImplementedError
