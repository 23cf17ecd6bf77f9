"""What tells one model's weights from another's: by hand where a property says it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from omniloom.evaluate.model_fingerprint import model_fingerprint

SIZE = (4 << 20) + 17


def test_weights_tell_models_apart_and_what_else_lies_there_does_not(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(bytes(SIZE))
        (tmp_path / name / "config.json").write_text("{}")
    first = model_fingerprint(tmp_path / "a")
    assert first == model_fingerprint(tmp_path / "b")
    by_hand = sha256(b"config.json\x002\x00{}" + f"model.safetensors\0{SIZE}\0".encode() + bytes(256 * 4096))
    assert first == by_hand.hexdigest()
    (tmp_path / "a" / "answers.jsonl").write_text("{}")
    (tmp_path / "a" / "score.json").write_text("{}")
    assert model_fingerprint(tmp_path / "a") == first
    for place in (0, SIZE - 1):  # both ends of a large file are read
        content = bytearray(SIZE)
        content[place] = 1
        (tmp_path / "b" / "model.safetensors").write_bytes(content)
        assert model_fingerprint(tmp_path / "b") != first
    (tmp_path / "b" / "model.safetensors").write_bytes(bytes(SIZE + 1))
    assert model_fingerprint(tmp_path / "b") != first


def test_one_file_and_none(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"abc")
    assert model_fingerprint(tmp_path / "x.gguf") == sha256(b"x.gguf\x003\x00abc").hexdigest()
    assert model_fingerprint(tmp_path / "absent") is None
    assert model_fingerprint(Path("hf:owner/name")) is None
