"""Captions: COCO (Karpathy's test split), NoCaps, Flickr30k, and of one's own photos."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError
from omniloom.evaluate.reading import read_json, read_rows, texts, wanted
from omniloom.evaluate.scores.captions import CIDER_SCALE, bleu, cider_d, rouge_l
from omniloom.evaluate.scores.treebank import caption_tokens
from omniloom.evaluate.task import IMAGE_SUFFIXES, Item, Scores, Task, image_name

PROMPT = "Give a brief description of this image in one sentence."


def read(path: Path) -> list[Item]:
    """Images and their references.

    Both public forms: COCO's (``annotations`` of ``image_id`` and ``caption``, with or without ``images``) and
    Karpathy's (a list, or one under ``images``, of ``image`` or ``filename`` and ``caption`` or ``sentences``, of which
    the split ``test`` counts); or an object of lists of captions by image.
    """
    loaded = read_json(path) if path.suffix == ".json" else None
    if isinstance(loaded, dict) and "annotations" in loaded:
        return _coco(loaded, path)
    if isinstance(loaded, dict) and loaded and all(isinstance(several, list) for several in loaded.values()):
        by_image = {name: tuple(map(str, several)) for name, several in loaded.items() if name != "images"}
        if len(by_image) == len(loaded):
            return [Item(id=name, images=(name,), answers=several) for name, several in by_image.items()]
    items = []
    for row in loaded["images"] if isinstance(loaded, dict) and "images" in loaded else read_rows(path):
        if row.get("split", "test") != "test":
            continue
        name = image_name(wanted(row, "image", "filename", "image_id", "index", where=path))
        sentences = wanted(row, "caption", "captions", "sentences", "annotations_captions", "answer", where=path)
        references = tuple(_sentence(one) for one in (sentences if isinstance(sentences, list) else [sentences]))
        named = next((row[key] for key in ("question_id", "image_id", "img_id") if key in row), name)
        numbered = image_number(str(name if isinstance(name, str) else named))
        if isinstance(name, str) and row.get("filepath"):
            name = f"{row['filepath']}/{name}"
        asked = str(row.get("question") or "")
        items.append(Item(id=str(row.get("cocoid", numbered)), question=asked, images=(name,), answers=references))
    return items


def read_folder(folder: Path) -> list[Item]:
    """An item for each image of a folder, without references; ids are the numbers in the files' names.

    Raises:
        ConfigError: there are no images, or two have one number.
    """
    by_number: dict[str, str] = {}
    for name in _image_files(folder):
        other = by_number.setdefault(image_number(name), name)
        if other != name:
            raise ConfigError(
                f"{folder}: {other} and {name} have one number, {image_number(name)}, which is their id as in COCO. "
                "With `--task captions` ids are the names of the files."
            )
    return [Item(id=number, images=(name,)) for number, name in by_number.items()]


def _image_files(folder: Path) -> list[str]:
    files = sorted(file.name for file in folder.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        raise ConfigError(f"{folder}: no images in this folder ({', '.join(IMAGE_SUFFIXES)} are looked for).")
    return files


def read_own(path: Path) -> list[Item]:
    """One's own photos: any form that `read` takes, or a table with a caption a line, as Flickr8k's CSV.

    Lines of one image become one item, in the order of the images' first lines. Its id is the image's name as it
    stands there: ``a_1.jpg`` and ``b_1.jpg`` are two images. A row's ``question``, where it has
    one, is asked in place of `PROMPT`.
    """
    together: dict[str, Item] = {}
    for item in read(path):
        name = item.images[0] if isinstance(item.images[0], str) else item.id
        before = together.get(name)
        answers = item.answers if before is None else (*before.answers, *item.answers)
        together[name] = replace(item, id=name, answers=answers)
    return list(together.values())


def read_own_folder(folder: Path) -> list[Item]:
    """An item for each image of a folder, without references; ids are the files' names."""
    return [Item(id=name, images=(name,)) for name in _image_files(folder)]


def image_number(name: str) -> str:
    """The number in a COCO file name, as ``391895`` of ``COCO_val2014_000000391895.jpg``; other names stay."""
    stem = Path(name).stem.rpartition("_")[2]
    return str(int(stem)) if stem.isdecimal() else Path(name).stem


def score(items: Sequence[Item], answers: Sequence[str], variant: str) -> Scores:
    """CIDEr-D first, then BLEU-1 to BLEU-4 and ROUGE-L, times 100."""
    if not items:
        return Scores(metrics={"CIDEr": 0.0}, items=[])
    lacking = [item.id for item in items if not item.answers]
    if lacking:
        raise ConfigError(f"captions: {len(lacking)} images have no reference, such as {lacking[0]}.")
    said = [_megatron(text) for text in answers] if variant == "megatron" else list(answers)
    candidates = caption_tokens(said)
    flat = iter(caption_tokens([text for item in items for text in item.answers]))
    references = [[next(flat) for _ in item.answers] for item in items]
    cider = cider_d(candidates, references)
    blue = bleu(candidates, references).scores
    metrics = {"CIDEr": 100 * cider.score} | {f"BLEU-{n}": 100 * value for n, value in enumerate(blue, 1)}
    return Scores(metrics=metrics | {"ROUGE-L": 100 * rouge_l(candidates, references).score}, items=cider.items)


def _megatron(text: str) -> str:
    return text.rstrip(".").lower()


def _sentence(value: object) -> str:
    return str(value["raw"]) if isinstance(value, dict) and "raw" in value else texts(value)[0]


def _coco(loaded: dict[str, list[dict[str, object]]], path: Path) -> list[Item]:
    references: dict[str, list[str]] = defaultdict(list)
    for one in loaded["annotations"]:
        references[str(wanted(one, "image_id", where=path))].append(str(wanted(one, "caption", where=path)))
    names = {str(one["id"]): str(one.get("file_name", one["id"])) for one in loaded.get("images", ())}
    order = [image for image in names if image in references] or list(references)
    order += [image for image in references if image not in names] if names else []
    return [Item(id=image, images=(names.get(image, image),), answers=tuple(references[image])) for image in order]


def _prompt(item: Item) -> str:
    del item
    return PROMPT


def _own_prompt(item: Item) -> str:
    return item.question or PROMPT


def _fields(item: Item, answer: str) -> dict[str, Any]:
    """As Megatron's example writes captions, and COCO's results: the image's number, and the caption."""
    number: Any = int(item.id) if item.id.isdecimal() else item.id
    return {"sample_id": number, "image_id": number, "caption": answer, "ground_truth": list(item.answers)}


def _task(name: str, title: str) -> Task:
    return Task(
        name=name,
        title=title,
        metric="CIDEr-D x 100 over the images of this file",
        reader=read,
        prompt=_prompt,
        score=score,
        variants=("published", "megatron"),
        oracle="pycocoevalcap 1.2 with Java on 126 COCO images: CIDEr 62.77218728360188, equal to the last digit",
        columns=("caption",),
        read_folder=read_folder,
        most=CIDER_SCALE,
        left_out="METEOR and SPICE, whose programs need Java; nltk's METEOR is another",
        fields=_fields,
    )


COCO = _task("coco-captions", "COCO captions (Chen et al. 2015), Karpathy's split")
NOCAPS = _task("nocaps", "NoCaps (Agrawal et al. 2019)")
FLICKR30K = _task("flickr30k", "Flickr30k (Young et al. 2014)")
OWN = replace(
    _task("captions", "Captions of your own photos"), reader=read_own, read_folder=read_own_folder, prompt=_own_prompt
)
