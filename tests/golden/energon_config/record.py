"""What data sets say of themselves by ``config()``; run with the real Energon, it writes down what the test expects.

``python tests/golden/energon_config/record.py`` in an environment that has megatron-energon writes ``expected.json``.
"""

import importlib
import io
import json
import tarfile
import tempfile
from pathlib import Path

MIX = """
__module__: megatron.energon
__class__: MetadatasetV2
splits:
  train:
    blend:
      - {path: a, weight: 2, subflavors: {x: 1}}
      - {path: b, weight: 1}
"""
EPOCHS = """
__module__: megatron.energon
__class__: MetadatasetV2
splits:
  train:
    blend_epochized:
      - {path: a, repetitions: 2}
      - {path: b, repetitions: 1}
"""
TYPED = "sample_type: {__module__: megatron.energon, __class__: TextSample}\nfield_map: {text: txt}\n"
CRUDE = "__module__: megatron.energon\n__class__: CrudeWebdataset\n"


def make(energon, path_type, root):
    """Two data sets of two shards each, and two mixes of them."""
    for name, samples in (("a", 5), ("b", 3)):
        folder = root / name
        folder.mkdir()
        for shard in range(2):
            with tarfile.open(folder / f"s{shard}.tar", "w") as archive:
                for number in range(samples):
                    member = tarfile.TarInfo(f"{shard}{number:03d}.txt")
                    member.size = 3
                    archive.addfile(member, io.BytesIO(b"abc"))
        energon.BaseWebdatasetFactory.prepare_dataset(
            path_type(str(folder)), ["s{0..1}.tar"], split_parts_ratio=[("train", 1.0)], shuffle_seed=None
        )
        (folder / ".nv-meta" / "dataset.yaml").write_text(TYPED)
        (folder / ".nv-meta" / "crude.yaml").write_text(CRUDE)
    (root / "mix.yaml").write_text(MIX)
    (root / "epochs.yaml").write_text(EPOCHS)


def cook(sample):
    raise NotImplementedError


def encoders(energon):
    class Pack(energon.DefaultTaskEncoder):
        def select_samples_to_pack(self, samples):
            return [samples]

        def pack_selected_samples(self, samples):
            return samples[0]

    class Pre(Pack):
        @energon.stateless
        def preencode_sample(self, sample):
            return sample

        @energon.stateless
        def postencode_sample(self, sample):
            return sample

    class Group(energon.DefaultTaskEncoder):
        def batch_group_criterion(self, sample):
            return sample.text, None

    class Encode(energon.TaskEncoder):
        @energon.stateless(restore_seeds=True)
        def encode_sample(self, sample):
            return sample

    class Crude(energon.DefaultTaskEncoder):
        cookers = (energon.Cooker(energon.stateless(cook)),)

    return {kind.__name__: kind() for kind in (Pack, Pre, Group, Encode, Crude)}


def values(base, root):
    """The trees of some data sets, without what only Energon's order of reading has, and paths from ``root`` on.

    Args:
        base: ``megatron.energon`` or ``omniloom.energon``.
        root: an empty folder.
    """
    energon = importlib.import_module(base)
    make(energon, importlib.import_module(f"{base}.epathlib").EPath, root)
    config = energon.WorkerConfig(rank=0, world_size=1, num_workers=0)
    own = encoders(energon)

    def train(name, **settings):
        plain = {"batch_size": 2, "shuffle_buffer_size": None, "max_samples_per_sequence": None}
        dataset = energon.get_train_dataset(str(root / name), worker_config=config, **{**plain, **settings})
        return tidy(dataset.config(), root)

    def evaluation(name, **settings):
        dataset = energon.get_val_dataset(
            str(root / name), worker_config=config, split_part="train", batch_size=2, **settings
        )
        return tidy(dataset.config(), root)

    shuffled = {"shuffle_buffer_size": 10, "max_samples_per_sequence": 4, "parallel_shard_iters": 3}
    return {
        "train": train("a"),
        "shuffled": train("a", virtual_epoch_length=7, shuffle_over_epochs_multiplier=2, **shuffled),
        "once": train("a", batch_size=None, repeat=False),
        "blend": train("mix.yaml"),
        "epochs": train("epochs.yaml", repeat=False),
        "epochs for ever": train("epochs.yaml"),
        "pack": train("a", packing_buffer_size=4, task_encoder=own["Pack"]),
        "preencoded pack": train("a", packing_buffer_size=4, task_encoder=own["Pre"]),
        "postencoded": train("a", task_encoder=own["Pre"]),
        "group": train("a", task_encoder=own["Group"]),
        "own encoder": train("a", task_encoder=own["Encode"], batch_drop_last=True),
        "cooked": train("a", task_encoder=own["Crude"], dataset_config="crude.yaml"),
        "evaluation": evaluation("a"),
        "limit": evaluation("a", limit=3),
        "evaluation of a mix": evaluation("mix.yaml"),
    }


def tidy(tree, root):
    if isinstance(tree, dict):
        return {name: tidy(one, root) for name, one in tree.items() if name != "slice_offsets"}
    if isinstance(tree, list | tuple):
        return [tidy(one, root) for one in tree]
    return tree.replace(str(root), "") if isinstance(tree, str) else tree


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        found = values("megatron.energon", Path(place))
    text = json.dumps(found, sort_keys=True).replace("__main__.", "record_config.")
    (Path(__file__).parent / "expected.json").write_text(f"{text}\n")
