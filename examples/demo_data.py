"""A LLaVA-style data set out of real pictures that come with two PyPI packages.

easy-VQA (MIT) has 5,000 pictures of shapes with 48,248 questions; scikit-image's wheel has photographs. Only their
files are used; neither package is imported. The result is a JSON list and a folder of images, as people have them.
"""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

# What is to be seen in the photographs that ship with scikit-image.
PHOTOGRAPHS = {
    "astronaut.png": "The astronaut Eileen Collins in an orange suit, with a model of the space shuttle behind her.",
    "brick.png": "A wall of bricks, in grey.",
    "camera.png": "A man in a coat looks through a film camera on a tripod, in black and white.",
    "cell.png": "A single cell under a microscope, in grey.",
    "chelsea.png": "The face of a tabby cat, looking past the camera.",
    "clock_motion.png": "A clock that is blurred by motion.",
    "coffee.png": "A cup of espresso on a saucer with a spoon, seen from above on a wooden table.",
    "coins.png": "Rows of ancient Greek coins from Pompeii on a dark ground.",
    "grass.png": "Blades of grass, in grey.",
    "gravel.png": "Gravel, in grey.",
    "horse.png": "The black silhouette of a horse.",
    "hubble_deep_field.jpg": "Thousands of distant galaxies on a black sky, seen by the Hubble telescope.",
    "ihc.png": "Stained tissue under a microscope, in brown and blue.",
    "moon.png": "The surface of the Moon with craters and hills.",
    "motorcycle_left.png": "A motorcycle in a garage, seen by the left camera of a stereo pair.",
    "motorcycle_right.png": "A motorcycle in a garage, seen by the right camera of a stereo pair.",
    "page.png": "A printed page of a book, badly lit.",
    "retina.jpg": "The retina of an eye with its blood vessels.",
    "rocket.jpg": "A rocket on its launch pad, lit up at night.",
    "text.png": "Handwritten mathematics on a page.",
}
QUESTIONS = ("Describe the image concisely.", "What is in this picture?", "Write a caption for the photograph.")


class MissingPackageError(Exception):
    """A package with the demo's pictures is not installed."""


def package_folder(module: str, package: str) -> Path:
    """Folder of an installed package, found without importing it."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackageError(f"{package} is not installed; run `pip install 'omniloom[demo]'` or `make demo`.")
    return Path(spec.submodule_search_locations[0])


def make_data(folder: Path, *, pictures: int) -> tuple[Path, Path]:
    """Write ``train.json`` and ``images/`` below ``folder``.

    Args:
        folder: made anew.
        pictures: how many of easy-VQA's 5,000 pictures to take; all of scikit-image's photographs are taken.

    Returns:
        The JSON file and the folder of images.
    """
    shutil.rmtree(folder, ignore_errors=True)
    images = folder / "images"
    entries = _photographs(images) + _questions(images, pictures)
    path = folder / "train.json"
    path.write_text(json.dumps(entries), encoding="utf-8")
    return path, images


def _entry(identifier: str, image: str, question: str, answer: str) -> dict[str, object]:
    turns = [{"from": "human", "value": f"{question}\n<image>"}, {"from": "gpt", "value": answer}]
    return {"id": identifier, "image": image, "conversations": turns}


def _photographs(images: Path) -> list[dict[str, object]]:
    source = package_folder("skimage", "scikit-image") / "data"
    (images / "photographs").mkdir(parents=True)
    entries = []
    for name, caption in PHOTOGRAPHS.items():
        if (source / name).is_file():
            shutil.copyfile(source / name, images / "photographs" / name)
            stem = name.partition(".")[0]
            entries += [_entry(f"{stem}-{n}", f"photographs/{name}", q, caption) for n, q in enumerate(QUESTIONS)]
    return entries


def _questions(images: Path, pictures: int) -> list[dict[str, object]]:
    source = package_folder("easy_vqa", "easy-vqa") / "data"
    entries = []
    left = pictures
    for part in ("train", "test"):
        chosen = sorted((source / part / "images").glob("*.png"), key=lambda path: int(path.stem))[:left]
        left -= len(chosen)
        (images / part).mkdir(parents=True)
        for path in chosen:
            shutil.copyfile(path, images / part / path.name)
        numbers = {int(path.stem) for path in chosen}
        asked: dict[int, int] = {}
        for question, answer, picture in json.loads((source / part / "questions.json").read_bytes()):
            if picture in numbers:
                number = asked[picture] = asked.get(picture, -1) + 1
                identifier = f"{part}-{picture:04d}-{number:02d}"
                entries.append(_entry(identifier, f"{part}/{picture}.png", question, answer))
    return entries
