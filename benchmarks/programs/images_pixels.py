"""How far omniloom's pixels are from Pillow's, decoded and resized, over some of the photographs."""

import io
import tarfile
from pathlib import Path

import numpy
import torch
from meter import arguments, report
from PIL import Image

from omniloom import decode_image, resize_image

options = arguments("data", "images")
decode_differences, resize_differences = [], []
with tarfile.open(sorted(Path(options.data).glob("*.tar"))[0]) as tar:
    members = [member for member in tar if member.name.endswith(".jpg")][: options.images]
    for member in members:
        jpeg = tar.extractfile(member).read()
        pillow = Image.open(io.BytesIO(jpeg)).convert("RGB")
        ours = numpy.asarray(decode_image(jpeg))
        decode_differences.append(numpy.abs(ours.astype(int) - numpy.asarray(pillow).astype(int)))
        small = resize_image(torch.from_numpy(ours.copy()).permute(2, 0, 1), (336, 336)).permute(1, 2, 0).numpy()
        theirs = numpy.asarray(pillow.resize((336, 336), Image.Resampling.BICUBIC))
        resize_differences.append(numpy.abs(small.astype(int) - theirs.astype(int)))


def summary(differences: list[numpy.ndarray]) -> dict[str, float]:
    levels = numpy.stack(differences)
    return {"largest": int(levels.max()), "mean": float(levels.mean()), "share_equal": float((levels == 0).mean())}


report(images=len(members), decode=summary(decode_differences), resize=summary(resize_differences))
