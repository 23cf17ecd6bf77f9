"""The data sets: what their samples are made of, and how they are described. Plain Python, no loader."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

SHARDS, SAMPLES = 2, 2
ENERGON = "megatron.energon"


def png(number: int, *, width: int = 3, height: int = 2) -> bytes:
    """A PNG whose pixels are told by a number; written by hand, so that no library decides its bytes."""
    rows = b"".join(
        b"\0" + bytes((number * 31 + y * 17 + x * 5 + c) % 256 for x in range(width) for c in range(3))
        for y in range(height)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def parts(number: int) -> dict[str, bytes]:
    """The parts of a sample: enough for every sample type."""
    value = {
        "question": f"What is {number}?",
        "choices": ["one", "two", f"é{number}"],
        "right": number % 3,
        "boxes": [[0, 0, 1, number]],
        "texts": [f"a{number}", "b"],
        "scores": [0.5, number],
        "turns": [{"q": f"q{number}", "a": [f"a{number}", "b"]}],
    }
    return {
        "png": png(number),
        "txt": f"text {number} é".encode(),
        "cls": str(number).encode(),
        "json": json.dumps(value, ensure_ascii=False).encode(),
        "more.json": json.dumps([{"text": f"deep {number}"}]).encode(),
        "bin": bytes(range(number, number + 5)),
    }


def _typed(name: str, fields: dict[str, str], module: str = ENERGON) -> dict[str, Any]:
    return {"sample_type": {"__module__": module, "__class__": name}, "field_map": fields}


TYPED: dict[str, dict[str, Any]] = {
    "captioning": _typed("CaptioningSample", {"image": "jpg,png", "caption": "more.json[0][text]"}),
    "classification": _typed("ImageClassificationSample", {"image": "png", "label": "cls", "label_name": "txt"}),
    "image": _typed("ImageSample", {"image": "png"}),
    "interleaved": _typed("InterleavedSample", {"sequence": "json[texts]"}),
    "multi_choice": _typed(
        "MultiChoiceVQASample",
        {"image": "png", "context": "json[question]", "choices": "json[choices]", "correct_choice_idx": "json[right]"},
    ),
    "ocr": _typed(
        "OCRSample", {"image": "png", "text": "txt", "words_boxes": "json[boxes]", "words_text": "json[texts]"}
    ),
    "similarity": _typed(
        "SimilarityInterleavedSample",
        {"images": "json[boxes]", "texts": "json[texts]", "matched_text_indices": "json[boxes][0]"},
    ),
    "text": _typed("TextSample", {"text": "txt"}),
    "video": _typed("VidQASample", {"video": "bin", "context": "json[turns][-1][q]", "answers": "json[turns][0][a]"}),
    "vqa": _typed(
        "VQASample",
        {
            "image": "png",
            "context": "json[question]",
            "answers": "json[none],json[texts]",
            "answer_weights": "json[scores]",
        },
    ),
    "vqa_ocr": _typed(
        "VQAOCRSample",
        {"image": "png", "context": "json[question]", "text": "txt", "words_text": "json[texts]"},
        f"{ENERGON}.flavors.vqa_and_ocr",
    ),
}
"""Descriptions by name, one for each sample type."""

LEGACY: dict[str, dict[str, Any]] = {
    f"legacy_{name}": {
        "__module__": ENERGON,
        "__class__": config["sample_type"]["__class__"].removesuffix("Sample") + "Webdataset",
        "field_map": config["field_map"],
    }
    for name, config in TYPED.items()
}
"""The same with the class at the top, as old files have it."""

CRUDE: dict[str, dict[str, Any]] = {
    "crude": {"__module__": ENERGON, "__class__": "CrudeWebdataset", "subflavors": {"source": "golden"}},
    "crude_filtered": {"__module__": ENERGON, "__class__": "CrudeWebdataset", "part_filter": ["txt", "more.json"]},
    "crude_function": {
        "__module__": ENERGON,
        "__class__": "CrudeWebdataset",
        "part_filter": "sample_loader.py:part_filter",
    },
}
LOADER: dict[str, dict[str, Any]] = {
    "loader": {
        "sample_type": {"__module__": ENERGON, "__class__": "CaptioningSample"},
        "sample_loader": "sample_loader.py:sample_loader",
        "part_filter": "sample_loader.py:part_filter",
        "subflavors": {"made": "by code"},
    }
}
CODE = """def sample_loader(raw):
    return {"__key__": "own/" + raw["__key__"], "image": raw["png"], "caption": raw["txt"].upper()}


def part_filter(part):
    return part in ("png", "txt")
"""

CONFIGS = {**TYPED, **LEGACY, **CRUDE, **LOADER}
STORE_KEYS = ("v1.0/0000.png", "v1.0/0003.more.json", "v1.0/0002.txt")
JSONL = b'\n{"a": 1, "b": "\xc3\xa9"}\n\n{"a": 2}\n   \n{"a": 3, "nested": {"x": [1, null]}}'


def write_shards(root: Path) -> None:
    """The shards of the data set: two of two samples each, keys with folders and dots."""
    root.mkdir(parents=True)
    for shard in range(SHARDS):
        with tarfile.open(root / f"shard-{shard}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for sample in range(SAMPLES):
                number = shard * SAMPLES + sample
                for part, data in parts(number).items():
                    info = tarfile.TarInfo(f"v1.0/{number:04d}.{part}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
