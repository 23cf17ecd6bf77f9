"""What small tools of Energon's modules give; run with the real Energon, it writes down what the test expects.

``python tests/golden/energon_tools/record.py`` in an environment that has megatron-energon writes ``values.json``.
"""

import importlib
import io
import json
import tarfile
import tempfile
from pathlib import Path


def make_shards(folder):
    """Two shards of three samples, each a text and a JSON."""
    number = 0
    for shard in range(2):
        with tarfile.open(folder / f"s{shard}.tar", "w") as archive:
            for _ in range(3):
                for part, data in (("txt", f"text {number}".encode()), ("json", b'{"n":%d}' % number)):
                    member = tarfile.TarInfo(f"k{number}.{part}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
                number += 1


def prepare(base, folder):
    """Index the shards."""
    path = importlib.import_module(f"{base}.epathlib").EPath(str(folder))
    prepared = importlib.import_module(f"{base}.flavors").BaseWebdatasetFactory.prepare_dataset
    prepared(path, ["s{0..1}.tar"], split_parts_ratio=[("train", 1.0)], shuffle_seed=None, workers=1)


def values(base, folder):
    """What the tools give, as plain values.

    Args:
        base: ``megatron.energon`` or ``omniloom.energon``.
        folder: the prepared shards.
    """
    modules = Modules(base)
    root = modules("epathlib").EPath(str(folder))
    return {**shares(modules, root), **indexes(modules, root), **joined(modules, root), **small(modules)}


class Modules:
    """The modules of a package, by the names below it."""

    def __init__(self, base):
        self.base = base

    def __call__(self, name):
        return importlib.import_module(f"{self.base}.{name}" if name else self.base)


def shard_infos(modules, root):
    info = modules("flavors.webdataset.structs").ShardInfo
    return [info(name=f"s{number}.tar", path=root / f"s{number}.tar", count=3) for number in range(2)]


def shares(modules, root):
    config, sharder = modules("").WorkerConfig, modules("flavors.webdataset.sharder").Sharder
    found = {}
    for samples, world, rotation in ((10, 4, 0), (10, 4, 3), (3, 4, 1), (100, 7, 2), (17, 8, 5)):
        for rank in range(world):
            one = config(rank=rank, world_size=world, num_workers=0)
            split = sharder.split_samples_to_workers(0, samples, one, rotation_offset=rotation)
            found[f"split {samples} {world} {rotation} {rank}"] = [int(border) for border in split]
        one = config(rank=0, world_size=1, num_workers=world)
        pieces = sharder.slice_workers(samples, one, max_samples_per_sequence=3, rotation_offset=rotation)
        found[f"slice {samples} {world} {rotation}"] = [[int(border) for border in piece] for piece in pieces]
    two = config(rank=0, world_size=1, num_workers=2)
    pieces = sharder.shard_workers(shard_infos(modules, root), two, max_samples_per_sequence=None)
    return {**found, "shard": [[int(border) for border in piece] for piece in pieces]}


def indexes(modules, root):
    itar, readers = modules("flavors.webdataset.itar"), modules("flavors.webdataset.itar_reader")
    with itar.TarIndexReader(root / "s0.tar") as reader:
        found = {"tar index": [list(reader), len(reader)]}
    found["offsets"] = [itar.get_itar_byte_offset(root / "s0.tar", number) for number in range(4)]
    database = modules("flavors.webdataset.indexing").SqliteIndexReader(root / ".nv-meta" / "index.sqlite")
    sample = database.get_sample_pointer_by_key("k4")
    part = database.get_sample_part("k4", "json")
    lists = database.list_all_samples(), database.list_all_sample_parts(), database.list_sample_parts("k1")
    found |= {
        "sample": [sample.tar_file_id, sample.byte_offset, sample.byte_size],
        "part": [part.tar_file_id, part.raw_byte_offset, part.raw_byte_size],
        "lists": [[list(entry) for entry in entries] for entries in lists],
        "counts": [database.get_sample_count(), database.get_total_size()],
        "tables": [bool(database.db_has_sample_parts()), bool(database.db_has_media_metadata())],
    }
    by_number = readers.ShardInfosITarReader(root, shard_infos(modules, root))
    by_key = readers.SqliteITarEntryReader(root)
    data, source = readers.SqliteITarEntryReader(root, key_is_full_entryname=True)["k5.txt"]
    return {
        **found,
        "by number": [len(by_number), plain(by_number[4])],
        "by key": [len(by_key), plain(by_key["k2"])],
        "by name": [data.decode(), source.shard_name, list(source.file_names)],
    }


def plain(sample):
    sources = [[str(one.index), one.shard_name, *one.file_names] for one in sample["__sources__"]]
    parts = {name: one.decode() for name, one in sample.items() if isinstance(one, bytes)}
    base = {name: sample[name] for name in ("__key__", "__shard__")}
    return {**base, "__restore_key__": list(sample["__restore_key__"]), "__sources__": sources, **parts}


def joined(modules, root):
    indexing, path = modules("flavors.webdataset.indexing"), root / "join.bin"
    writer = indexing.JoinIndexWriter(path)
    writer.append((0, 0, 2048), (1, 2048, 2048))
    writer.append((1, 0, 2048), (-1, -1, -1))
    writer.close()
    tensor = indexing.JoinIndexReader(path).get_as_tensor().tolist()
    reader = indexing.JoinIndexReader(path)
    first = [list(place) for place in reader[0]]
    return {"join": [Path(str(path)).read_bytes().hex(), tensor, len(reader), first]}


def small(modules):
    fields, checkpoint = modules("flavors.webdataset.field_access"), modules("tools.checkpoint")
    name_of = checkpoint.detect_and_replicate_pattern(["a_rank000.pt", "a_rank001.pt"])
    return {
        "fields": fields.split_field_access("a.json[x][0],b"),
        "field": fields.field_access({"a.json": {"x": [7]}}, [["a.json", "x", "0"], ["b"]]),
        "json": modules("typed_converter").to_json_object({"a": (1, 2), "b": [None, 1.5]}),
        "names": [name_of(0), name_of(12), sorted(["r10", "r2"], key=checkpoint.natural_sort_key)],
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        make_shards(Path(place))
        prepare("megatron.energon", place)
        text = json.dumps(values("megatron.energon", place), indent=0, sort_keys=True)
    (Path(__file__).parent / "values.json").write_text(f"{text}\n")
