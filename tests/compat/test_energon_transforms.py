"""Several transforms as one warp: the matrices by hand, and the images against torchvision's own transforms."""

import importlib

import numpy as np
import pytest
import torch
import torchvision_operators
from PIL import Image

from omniloom.energon.adapters.warps import CustomTransform, homography
from omniloom.errors import ConfigError


@pytest.fixture
def transforms():
    if not torchvision_operators.importable():
        pytest.skip("torchvision is not here")
    return importlib.import_module("torchvision.transforms")


@pytest.fixture
def merge_transform(transforms):
    return importlib.import_module("omniloom.energon.transforms").MergeTransform


def moved(matrix, *point):
    x, y, w = matrix @ np.array([*point, 1.0])
    return pytest.approx((x / w, y / w))


def test_warps_move_points_as_they_say():
    assert moved(CustomTransform.translate(3, -2), 1, 1) == (4, -1)
    assert moved(CustomTransform.scale(2, 3), 1, 1) == (2, 3)
    assert moved(CustomTransform.rotate(np.pi / 2), 1, 0) == (0, -1)  # counter-clockwise, the y axis being down
    assert moved(CustomTransform.shear(0.5, 0), 1, 2) == (2, 2)
    assert moved(CustomTransform.hflip(), 4, 5) == (-4, 5)
    assert moved(CustomTransform.vflip(), 4, 5) == (4, -5)


def test_a_homography_takes_its_four_points_to_the_others():
    starts, ends = [(0, 0), (9, 0), (9, 6), (0, 6)], [(1, 2), (8, 1), (9, 5), (0, 6)]
    matrix = homography(starts, ends)
    for start, end in zip(starts, ends, strict=True):
        assert moved(matrix, *start) == end


@pytest.fixture
def gradient():
    """A smooth image, 60 x 40, whose value tells the place: channels 0 and 1 grow by column and row."""
    rows, columns = np.mgrid[0:40, 0:60]
    return Image.fromarray(np.stack([columns * 4, rows * 6, rows + columns], axis=-1).astype(np.uint8))


def as_tensor(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


@pytest.mark.parametrize("seed", range(3))
def test_tensors_are_warped_as_images_are(gradient, seed, transforms, merge_transform):
    merged = merge_transform(
        [
            transforms.RandomHorizontalFlip(0.5),
            transforms.RandomRotation((10, 80), interpolation=transforms.InterpolationMode.BILINEAR, expand=True),
            transforms.RandomCrop((24, 20), padding=2),
        ]
    )
    torch.manual_seed(seed)
    image = np.array(merged(gradient))
    torch.manual_seed(seed)
    tensor = merged(as_tensor(gradient))
    assert tensor.shape == (3, 24, 20)
    torch.manual_seed(seed)
    inside = merged(torch.ones(1, 40, 60))[0].numpy() > 0.999  # at the border Pillow repeats, a tensor fades out
    assert inside.mean() > 0.1
    assert np.abs(tensor.permute(1, 2, 0).numpy()[inside] * 255 - image[inside]).max() < 2.5


def test_uint8_tensors_stay_so_and_fill_reaches_what_is_outside(gradient, transforms, merge_transform):
    tensor = torch.from_numpy(np.array(gradient)).permute(2, 0, 1)
    warped = merge_transform([transforms.RandomCrop((50, 70), pad_if_needed=True, fill=7)])(tensor)
    assert warped.dtype == torch.uint8
    assert warped.shape == (3, 50, 70)
    assert (warped[:, 0] == 7).all() or (warped[:, -1] == 7).all()
    torch.manual_seed(0)
    crop = transforms.RandomCrop((50, 70), pad_if_needed=True, fill=7)
    expected = crop(tensor)
    torch.manual_seed(0)
    assert torch.equal(merge_transform([crop])(tensor), expected)


def test_merged_crops_and_resizes_are_torchvisions(gradient, transforms, merge_transform):
    nearest = transforms.InterpolationMode.NEAREST
    for steps in (
        [transforms.CenterCrop(30), transforms.Resize(60, interpolation=nearest)],
        [transforms.CenterCrop((50, 20)), transforms.RandomVerticalFlip(1.0)],
        [transforms.Resize((80, 120), interpolation=nearest), transforms.CenterCrop([31, 33])],
    ):
        expected = np.array(transforms.Compose(steps)(gradient))
        found = np.array(merge_transform(steps)(gradient))
        assert found.shape == expected.shape
        assert np.array_equal(found, expected)


def test_what_does_not_go_together_is_told(gradient, transforms, merge_transform):
    with pytest.raises(ConfigError, match="interpolations are not equal"):
        merge_transform(
            [
                transforms.Resize(8, interpolation=transforms.InterpolationMode.NEAREST),
                transforms.RandomPerspective(interpolation=transforms.InterpolationMode.BILINEAR),
            ]
        )
    with pytest.raises(ConfigError, match="fill values are not equal"):
        merge_transform([transforms.RandomCrop(8, fill=1), transforms.RandomCrop(8, fill=2)])
    with pytest.raises(ConfigError, match="ColorJitter is no warp"):
        merge_transform([transforms.ColorJitter()])
    with pytest.raises(ConfigError, match="padding_mode='reflect'"):
        merge_transform([transforms.RandomCrop(8, padding_mode="reflect")])(gradient)
