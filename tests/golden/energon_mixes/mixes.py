"""Data sets and metadatasets whose reading by Megatron Energon is recorded; nothing here needs either program."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

V2 = "__module__: megatron.energon\n__class__: MetadatasetV2\n"
TEXT = {
    "sample_type": {"__module__": "megatron.energon", "__class__": "TextSample"},
    "field_map": {"text": "txt"},
    "subflavors": {"from": "dataset.yaml", "kept": 1},
}
# A join of texts and labels needs a class that has both fields.
LABEL = {
    "sample_type": {"__module__": "megatron.energon", "__class__": "ImageClassificationSample"},
    "field_map": {"image": "txt", "label_name": "tag.txt"},
}
QUESTION = {
    "sample_type": {"__module__": "megatron.energon", "__class__": "MultiChoiceVQASample"},
    "field_map": {"image": "tag.txt", "context": "txt"},
}

# name: (keys of each shard, dataset.yaml); the last shard is the part val, the others are train.
SETS = {
    "a": ([[f"a{n:02d}" for n in range(s, s + 10)] for s in (0, 10, 20, 30)], TEXT),
    "b": ([[f"b{n:02d}" for n in range(s, s + 7)] for s in (0, 7, 14)], TEXT),
    "c": ([["c0", "c1", "c2"], ["c3"]], TEXT),
    # In another order than a, with some of its keys missing and some of its own.
    "a_labels": ([["x0", "a15", "a03", "a07"], ["a01", "a19", "x1", "a00"], ["a30"]], LABEL),
    "a_questions": ([["a15", "a00"], ["a19", "a07", "a03"], ["a31"]], QUESTION),
}

FILES = {
    "v1.yaml": """
splits:
  train:
    datasets:
      - {path: a, weight: 3, subflavors: {from: v1, one: 1}}
      - {path: ./b, weight: 1, split_part: val, subflavor: old}
  val:
    datasets:
      - {path: c, split_part: train}
      - {path: a}
""",
    "blend.yaml": V2
    + """
splits:
  train:
    blend:
      - {path: a, weight: 2, subflavors: {from: inner, deep: 1}, shuffle_over_epochs_multiplier: 2}
      - {path: b, weight: 6, subset: {range: [2, end]}}
  val: {path: a, subset: {range: [2, 5]}}
""",
    "nested.yaml": V2
    + """
splits:
  train:
    subset: {range: ["25%", "75%"]}
    blend:
      - path: sub/../blend.yaml
        weight: 1
        subflavors: {from: outer, wide: 2}
        shuffle_over_epochs_multiplier: 3
        subset: {range: ["10%", "60%"]}
      - {path: c, weight: 3}
      - {path: blend.yaml, split_part: val, weight: 4}
""",
    "v1_in_v2.yaml": V2
    + """
splits:
  train:
    blend:
      - {path: v1.yaml, weight: 1, subset: {range: ["0%", "50%"]}}
      - {path: c, weight: 1, shuffle_over_epochs_multiplier: null}
""",
    "epochs.yaml": V2
    + """
splits:
  train:
    blend_epochized:
      - {path: a, repetitions: 2}
      - {path: inner_epochs.yaml, repetitions: 3}
""",
    "inner_epochs.yaml": V2
    + """
splits:
  train:
    blend_epochized:
      - {path: b, repetitions: 0.5}
      - {path: c, repetitions: 2}
""",
    "join_skip.yaml": V2
    + """
splits:
  train:
    join:
      - {path: a, subflavors: {from: ref, own: 1}}
      - {path: a_labels, nonmatch: skip}
    joiner: {__module__: joiners, __function__: pair}
    subflavors: {from: join}
""",
    "join_three.yaml": V2
    + """
splits:
  train:
    join:
      text: {path: a}
      label: {path: a_labels, nonmatch: skip}
      question: {path: a_questions, nonmatch: skip}
    joiner: {__module__: joiners, __function__: named}
    subset: {range: ["20%", "100%"]}
""",
    "join_blend.yaml": V2
    + """
splits:
  train:
    blend:
      - {path: c, weight: 1}
      - join:
          - {path: a}
          - {path: a_labels, nonmatch: skip}
        joiner: {__module__: joiners, __function__: pair}
        weight: 2
        subset: {range: [1, 4]}
""",
}

JOINERS = """
def pair(text, label):
    text.text = f"{text.text}+{label.label_name}"
    return text


def named(*, text, label, question):
    text.text = f"{text.text}+{label.label_name}+{question.context}"
    return text
"""


def make_sets(root: Path) -> None:
    """Write archives, metadatasets and joiners; the data sets still have to be prepared."""
    for name, (shards, _) in SETS.items():
        (root / name).mkdir(parents=True)
        for number, keys in enumerate(shards):
            with tarfile.open(root / name / f"s{number}.tar", "w") as tar:
                for key in keys:
                    for part in ("txt", "tag.txt"):
                        data = f"{name}/{key}.{part}".encode()
                        info = tarfile.TarInfo(f"{key}.{part}")
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))
    (root / "sub").mkdir()
    for name, text in FILES.items():
        (root / name).write_text(text)
    (root / "joiners.py").write_text(JOINERS)


def describe_sets(root: Path) -> None:
    """Write splits, with two excluded samples, and descriptions into prepared data sets."""
    for name, (shards, config) in SETS.items():
        names = [f"s{number}.tar" for number in range(len(shards))]
        split = {"split_parts": {"train": names[:-1], "val": names[-1:]}, "exclude": []}
        if name == "a":
            split["exclude"] = ["s0.tar/a07"]
        (root / name / ".nv-meta" / "split.yaml").write_text(json.dumps(split))
        (root / name / ".nv-meta" / "dataset.yaml").write_text(json.dumps(config))
