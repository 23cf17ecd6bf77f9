"""Records of real images, videos and sounds equal those that Energon 7.4.1 wrote of the same files, as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omniloom.data.index.media_extract import FilesRequest, media_of_files
from omniloom.data.index.media_filter import MediaFilterConfig, MediaFilterStrategy

SHARED = Path(__file__).resolve().parents[2] / "../shared/data"
EXPECTED = json.loads((Path(__file__).parent / "energon_media_metadata.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_record_is_that_of_energon(name: str) -> None:
    if not (SHARED / name).is_file():
        pytest.skip("shared data are not here")
    request = FilesRequest(name, str(SHARED), (name,), MediaFilterConfig(MediaFilterStrategy.EXTENSION))
    (source,) = media_of_files(request)
    assert [list(row) for row in source.rows] == [[name, *EXPECTED[name]]]
