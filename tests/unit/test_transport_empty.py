"""Tensors without elements cross to another process, whatever their strides say."""

from __future__ import annotations

import io
import pickle

import numpy as np
import torch

from omniloom.data.loader.transport import _reduce_tensor


def test_empty_tensors_of_any_stride() -> None:
    odd = torch.from_numpy(np.concatenate([np.zeros(0, np.int64)]))
    for tensor in (odd, torch.zeros(0, 3, 8), torch.zeros(2, 0, dtype=torch.int32), torch.arange(3)[:0]):
        function, arguments = _reduce_tensor(tensor, torch)
        back = function(*pickle.load(io.BytesIO(pickle.dumps(arguments))))
        assert (back.shape, back.dtype) == (tensor.shape, tensor.dtype)
