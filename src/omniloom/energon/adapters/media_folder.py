"""`prepare_filesystem_dataset` as Energon's users call it."""

from __future__ import annotations

import os
from pathlib import Path

from omniloom.data.index.media_filter import MediaFilterConfig
from omniloom.data.index.media_prepare import DEFAULT_WORKERS, add_media_metadata


def prepare_filesystem_dataset(
    root_path: str | os.PathLike[str],
    media_filter: MediaFilterConfig,
    *,
    progress: bool = True,
    workers: int = DEFAULT_WORKERS,
    index_sqlite_tmp_path: str | os.PathLike[str] | None = None,
) -> int:
    """Look at the media of a folder of files.

    Args:
        root_path: the folder.
        media_filter: which files are media.
        progress: accepted; nothing is shown.
        workers: processes at most.
        index_sqlite_tmp_path: build ``index.sqlite`` beside this file.

    Returns:
        media that something is known of.
    """
    tmp_path = None if index_sqlite_tmp_path is None else Path(index_sqlite_tmp_path).parent
    return add_media_metadata(root_path, media_filter=media_filter, num_workers=workers, tmp_path=tmp_path).rows_total
