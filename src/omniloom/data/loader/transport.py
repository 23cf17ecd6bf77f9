"""Batches cross from a worker to the caller in shared memory: one copy, no file descriptor per tensor.

A worker pickles a batch with protocol 5. The bytes of its arrays and tensors go into a *slab*, a piece
of anonymous shared memory whose descriptor was sent to the caller once; what is left of the pickle is
small. The caller's tensors are views of the slab. When the last of them is gone, the slab goes back
to its worker and is used again. Slabs have no names, so nothing is left behind by a process that is
killed, and the size of ``/dev/shm`` sets no limit.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import sys
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

IN_BAND_BYTES = 1_024
"""Arrays up to this size travel inside the pickle."""

BY_SOCKET_BYTES = 1 << 16
"""A pickle up to this size that has no arrays beside it goes over the connection itself."""

MOST_SLABS_LENT = 32
"""Slabs of one worker that the caller may hold at once (each costs it a descriptor); beyond, batches go by value."""

_ALIGNMENT = 64
_SLAB_STEP = 1 << 16


def shared_memory_file(size_bytes: int) -> int:
    """A descriptor of anonymous memory that processes can share; closed on exec, gone with its last user."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("omniloom", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size_bytes)
    return descriptor


class _BatchPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Protocol 5, with the memory of dense tensors out of band. Classes of ``__main__`` go by value."""

    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(obj, torch.Tensor):
            reduced = _reduce_tensor(obj, torch)
            if reduced is not None:
                return reduced
        slotted = _reduce_slotted(obj)
        return super().reducer_override(obj) if slotted is NotImplemented else slotted


class _PlainPickler(pickle.Pickler):
    """The same, by the faster standard pickler; classes of ``__main__`` are beyond it."""

    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(obj, torch.Tensor):
            reduced = _reduce_tensor(obj, torch)
            if reduced is not None:
                return reduced
        return _reduce_slotted(obj)


def _reduce_slotted(obj: Any) -> Any:
    """An object of a class whose copy in a worker has no slots any more: what it holds is set field by field.

    Workers know classes of ``__main__`` by value, and slots do not survive that; the class itself has no ``__dict__``.
    """
    kind = type(obj)
    if "__slots__" not in vars(kind) or not hasattr(obj, "__dict__") or hasattr(kind, "__setstate__"):
        return NotImplemented
    reduced = obj.__reduce_ex__(5)
    state = reduced[2] if isinstance(reduced, tuple) and len(reduced) > 2 else None
    if not isinstance(state, tuple) or len(state) != 2:
        return NotImplemented
    loose, slotted = state
    return *reduced[:2], (None, {**(slotted or {}), **(loose or {})}), *reduced[3:]


def _reduce_tensor(tensor: Any, torch: Any) -> Any:
    """A dense CPU tensor as a numpy array of its bytes' integers, dtype and shape."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return None
    if tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return None
    flat = tensor.contiguous().reshape(-1) if tensor.numel() else torch.empty(0)  # an empty one may have stride 0
    array = flat.view(torch.uint8).numpy()
    return _tensor_of_bytes, (array, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def _tensor_of_bytes(array: np.ndarray[Any, Any], dtype_name: str, shape: tuple[int, ...]) -> Any:
    import torch  # noqa: PLC0415 - the loader works without torch until a tensor comes

    if array.size == 0:
        return torch.empty(shape, dtype=getattr(torch, dtype_name))
    return torch.from_numpy(array).view(getattr(torch, dtype_name)).reshape(shape)


@dataclass(frozen=True, slots=True)
class Parcel:
    """A batch on its way.

    Attributes:
        pickled: the pickle, or ``None`` when it is the first piece of the slab.
        slab: number of the slab, or ``None`` when none was needed.
        pieces: (offset, length) in bytes of each piece in the slab.
    """

    pickled: bytes | None
    slab: int | None
    pieces: tuple[tuple[int, int], ...]


class SlabWriter:
    """A worker's side.

    Args:
        announce: sends (number, size, descriptor) of a new slab to the caller.
        retire: tells the caller that a slab is not used any more.
    """

    def __init__(self, announce: Callable[[int, int, int], None], retire: Callable[[int], None]) -> None:
        self._announce = announce
        self._retire = retire
        self._free: dict[int, mmap.mmap] = {}
        self._lent: dict[int, mmap.mmap] = {}
        self._count = 0
        self._by_value = False

    def give_back(self, slab: int) -> None:
        """The caller has no tensor over this slab any more."""
        self._free[slab] = self._lent.pop(slab)

    def pack(self, batch: Any) -> Parcel:
        """Pickle a batch and put the memory of its arrays into a slab."""
        by_value = len(self._lent) >= MOST_SLABS_LENT
        pickled, buffers = self._pickle(batch, by_value=by_value)
        if by_value or (not buffers and len(pickled) <= BY_SOCKET_BYTES):
            return Parcel(pickled, None, ())
        sources = [pickle.PickleBuffer(pickled), *buffers]
        views = [source.raw() for source in sources]
        pieces, end = [], 0
        for view in views:
            pieces.append((end, view.nbytes))
            end += -(-view.nbytes // _ALIGNMENT) * _ALIGNMENT
        number, memory = self._slab(end)
        for view, (offset, length) in zip(views, pieces, strict=True):
            memory[offset : offset + length] = view
        for view in views:
            view.release()
        return Parcel(None, number, tuple(pieces))

    def _pickle(self, batch: Any, *, by_value: bool) -> tuple[bytes, list[pickle.PickleBuffer]]:
        buffers: list[pickle.PickleBuffer] = []

        def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
            try:
                if by_value or buffer.raw().nbytes <= IN_BAND_BYTES:
                    return True
            except BufferError:  # not contiguous
                return True
            buffers.append(buffer)
            return False

        file = io.BytesIO()
        pickler: type[pickle.Pickler] = _PlainPickler if "torch" in sys.modules else pickle.Pickler
        try:
            (_BatchPickler if self._by_value else pickler)(file, protocol=5, buffer_callback=keep_in_band).dump(batch)
        except (pickle.PicklingError, AttributeError, TypeError):
            if self._by_value:
                raise
            self._by_value = True
            return self._pickle(batch, by_value=by_value)
        return file.getvalue(), buffers

    def _slab(self, size_bytes: int) -> tuple[int, mmap.mmap]:
        """The smallest free slab that is large enough, or a new one in place of a free one."""
        fitting = [(len(memory), number) for number, memory in self._free.items() if len(memory) >= size_bytes]
        if fitting:
            number = min(fitting)[1]
            memory = self._free.pop(number)
        else:
            if self._free:
                small = min(self._free, key=lambda n: len(self._free[n]))
                self._free.pop(small).close()
                self._retire(small)
            number, memory = self._new_slab(size_bytes)
        self._lent[number] = memory
        return number, memory

    def _new_slab(self, size_bytes: int) -> tuple[int, mmap.mmap]:
        size_bytes = -(-size_bytes * 9 // 8 // _SLAB_STEP) * _SLAB_STEP  # batches vary a little
        self._count += 1
        descriptor = shared_memory_file(size_bytes)
        try:
            memory = mmap.mmap(descriptor, size_bytes)
            self._announce(self._count, size_bytes, descriptor)
        finally:
            os.close(descriptor)
        return self._count, memory


class SlabReader:
    """The caller's side of one worker's slabs.

    Args:
        released: called with the number of a slab when the last tensor over it is gone; from any thread.
    """

    def __init__(self, released: Callable[[int], None]) -> None:
        self._released = released
        self._slabs: dict[int, mmap.mmap] = {}

    def add(self, number: int, size_bytes: int, descriptor: int) -> None:
        """Map a slab that the worker announced; takes over the descriptor."""
        try:
            self._slabs[number] = mmap.mmap(descriptor, size_bytes)
        finally:
            os.close(descriptor)

    def retire(self, number: int) -> None:
        """Forget a slab. Its memory goes with the last tensor over it."""
        self._slabs.pop(number, None)

    def unpack(self, parcel: Parcel) -> Any:
        """The batch of a parcel. Its arrays are views of the slab, which is lent until they are gone."""
        if parcel.slab is None:
            return pickle.loads(parcel.pickled or b"")
        lease = np.frombuffer(self._slabs[parcel.slab], dtype=np.uint8)
        weakref.finalize(lease, self._released, parcel.slab).atexit = False
        memory = lease.data
        pieces = [memory[offset : offset + length] for offset, length in parcel.pieces]
        return pickle.loads(pieces[0], buffers=pieces[1:])

    def discard(self, parcel: Parcel) -> None:
        """Give a parcel's slab back unread."""
        if parcel.slab is not None:
            self._released(parcel.slab)
