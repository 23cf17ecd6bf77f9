"""A spool: decoded blocks of rows on the local disk, bounded in bytes, so that rows come in any order.

A row group of a Parquet file can only be decoded whole. It is decoded once, in small batches, into a file from which
any row is then served through a memory map: memory stays free to be taken back by the system, and neighbours cost
nothing. The file has no name: it is removed as soon as it is open, so nothing is left behind whoever is killed.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omniloom.data.tables.columns import BatchTable
from omniloom.errors import ConfigError, StorageError
from omniloom.storage.files import storage_error

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("omniloom")

SPOOL_BYTES_VARIABLE = "OMNILOOM_SPOOL_BYTES"
SPOOL_FOLDER_VARIABLE = "OMNILOOM_SPOOL_DIR"
DEFAULT_SPOOL_BYTES = 2 << 30
_LOOKED_AT = 200
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class Block:
    """A block that was decoded.

    Attributes:
        table: its rows, mapped.
        size_bytes: disk space that it takes.
        rows_read: how many rows were asked of it.
    """

    table: BatchTable
    size_bytes: int
    rows_read: int = 0


class Spool:
    """Blocks of record batches by name; beyond its capacity, those that were not used for longest are given up.

    Args:
        capacity_bytes: disk space for all blocks; at least one block is kept, whatever its size.
        folder: where files are made; ``None``: the system's temporary folder.

    Attributes:
        size_bytes: disk space in use.
        given_up: how many blocks were given up.
        given_up_early: how many of them before half of their rows were read.
    """

    def __init__(self, *, capacity_bytes: int, folder: str | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.size_bytes = 0
        self._folder = folder
        self.given_up = 0
        self.given_up_early = 0
        self._warned = False
        self._blocks: OrderedDict[Hashable, Block] = OrderedDict()
        self._making: dict[Hashable, Future[Block]] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._blocks)

    def row(self, name: Hashable, row: int, make: Callable[[], tuple[pa.Schema, Iterable[pa.RecordBatch]]]) -> Any:
        """Values by column of a row of a block, which is decoded by ``make`` where it is not here.

        Where the disk is full, all other blocks are given up first.

        Raises:
            StorageError: the disk is full or the folder cannot be written to.
        """
        block = self.bring(name, make)
        block.rows_read += 1
        return block.table.row(row)

    def bring(self, name: Hashable, make: Callable[[], tuple[pa.Schema, Iterable[pa.RecordBatch]]]) -> Block:
        """A block, decoded now where it is not here; who asks for it meanwhile waits, and nobody else does.

        Raises as `row`.
        """
        with self._lock:
            block = self._blocks.get(name)
            if block is not None:
                self._blocks.move_to_end(name)
                return block
            making = self._making.get(name)
            is_mine = making is None
            if making is None:
                making = self._making[name] = Future()
        if not is_mine:
            return making.result()
        try:
            block = self._made(make)
        except BaseException as error:
            with self._lock:
                del self._making[name]
            making.set_exception(error)
            raise
        with self._lock:
            del self._making[name]
            self._blocks[name] = block
            self.size_bytes += block.size_bytes
            self._make_room()
        making.set_result(block)
        return block

    def _made(self, make: Callable[[], tuple[pa.Schema, Iterable[pa.RecordBatch]]]) -> Block:
        try:
            return self._spooled(*make())
        except StorageError as error:
            if error.errno not in _FULL or not self._blocks:
                raise
        self.clear()
        return self._spooled(*make())

    def _make_room(self) -> None:
        """Give up the blocks that were not used for longest; the newest one stays."""
        while self.size_bytes > self.capacity_bytes and len(self._blocks) > 1:
            block = self._blocks.popitem(last=False)[1]
            self.size_bytes -= block.size_bytes
            self.given_up += 1
            self.given_up_early += 2 * block.rows_read < len(block.table)
        if not self._warned and self.given_up >= _LOOKED_AT and self.given_up_early > self.given_up // 2:
            self._warned = True
            logger.warning(
                "%s of %s row groups were given up before half of their rows were read, and are decoded again: the "
                "spool of %s bytes holds %s of them. Raise %s (disk space of each worker), write smaller row groups, "
                "or lower parallel_shard_iters.",
                *(f"{self.given_up_early:,}", f"{self.given_up:,}", f"{self.capacity_bytes:,}", len(self._blocks)),
                SPOOL_BYTES_VARIABLE,
            )

    def clear(self) -> None:
        """Give all blocks up."""
        with self._lock:
            self._blocks.clear()
            self.size_bytes = 0

    def _spooled(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Block:
        import pyarrow as pa  # noqa: PLC0415 - an extra

        try:
            with tempfile.TemporaryFile(dir=self._folder, prefix="omniloom-spool-") as file:
                with pa.ipc.new_file(file, schema) as writer:
                    for batch in batches:
                        writer.write_batch(batch)
                file.flush()
                size_bytes = file.tell()
                # The map keeps the bytes when the file, which has no name any more, is closed.
                view = mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_READ)
            reader = pa.ipc.open_file(pa.py_buffer(view))
            return Block(BatchTable([reader.get_batch(n) for n in range(reader.num_record_batches)]), size_bytes)
        except OSError as error:
            where = self._folder or tempfile.gettempdir()
            raise storage_error("write to the spool in", where, error) from error


_SPOOLS: dict[int, Spool] = {}


def process_spool() -> Spool:
    """The spool of this process, of the size and in the folder that the environment says.

    Raises:
        ConfigError: the environment's size is no number.
    """
    spool = _SPOOLS.get(os.getpid())
    if spool is None:
        text = os.environ.get(SPOOL_BYTES_VARIABLE, str(DEFAULT_SPOOL_BYTES))
        if not text.isdecimal():
            raise ConfigError(f"{SPOOL_BYTES_VARIABLE}={text!r}: expected a whole number of bytes")
        _SPOOLS.clear()  # a child of a fork lets go of its parent's
        spool = Spool(capacity_bytes=int(text), folder=os.environ.get(SPOOL_FOLDER_VARIABLE))
        spool = _SPOOLS.setdefault(os.getpid(), spool)
    return spool
