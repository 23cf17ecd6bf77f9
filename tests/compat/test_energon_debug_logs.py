"""Logs by ``worker_debug_path``: lines as Energon's documentation lists them, and what ``analyze-debug`` draws."""

import json
import os
import subprocess

import numpy as np
import pytest
from click.testing import CliRunner
from omniloom.energon.cli.main import analyze_debug_command
from PIL import Image

from omniloom import energon

ROWS = 20
REAL = os.environ.get("ENERGON_PROGRAM")  # the real one's program, installed elsewhere


class Encoder(energon.DefaultTaskEncoder):
    cookers = (
        energon.Cooker(lambda raw: energon.TextSample(**energon.basic_sample_keys(raw), text=raw["json"]["text"])),
    )


@pytest.fixture
def logs(tmp_path):
    """The folder of the logs of three passes over 20 rows in batches of 5, and the keys that were given."""
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": str(n)}) + "\n" for n in range(ROWS)))
    config = energon.WorkerConfig(
        rank=0,
        world_size=1,
        num_workers=0,
        worker_log_level=1,
        worker_debug_path=str(tmp_path / "logs" / "{worker_id}.jsonl"),
    )
    loader = energon.get_savable_loader(
        energon.get_train_dataset(
            path, batch_size=5, worker_config=config, task_encoder=Encoder(), virtual_epoch_length=4
        )
    )
    given = [batch.__key__ for _ in range(3) for batch in loader]
    return tmp_path / "logs", given


def test_lines_are_energons(logs):
    folder, given = logs
    lines = [json.loads(line) for line in (folder / "0.jsonl").read_text().splitlines()]
    kinds = [line["t"] for line in lines]
    assert kinds[0] == "SavableLoader.__init__"
    assert kinds.count("SavableDataLoader.iter") == kinds.count("SavableDataLoader.StopIteration") == 3
    yields = [line for line in lines if line["t"] == "SavableDataLoader.yield"]
    assert [line["keys"] for line in yields] == given
    assert [line["global_idx"] for line in yields] == list(range(12))
    assert [line["iter_idx"] for line in yields] == [0, 1, 2, 3] * 3
    assert set(yields[0]) == {
        "t", "r", "w", "id", "iter_id", "worker_id", "worker_idx", "idx", "iter_idx", "global_idx", "keys",
    }  # fmt: skip
    batches = [line for line in lines if line["t"] == "yield_batch"]
    assert [(line["m"], line["idx"], line["keys"]) for line in batches] == [
        ("train", n, k) for n, k in enumerate(given)
    ]
    rows = [line for line in lines if line["t"] == "WebdatasetSampleLoaderDataset._slices_iter.yield"]
    assert [str(line["index"]) for line in rows] == [key for batch in given for key in batch]
    assert rows[0]["key"].startswith("texts.jsonl/")


@pytest.mark.parametrize("options", [[], ["--force-loading-order"], ["--no-colors"], ["--skip", "4"]])
def test_the_heatmap_shows_which_sample_came_when(logs, tmp_path, options):
    folder, given = logs
    picture = tmp_path / "heatmap.png"
    done = CliRunner().invoke(
        analyze_debug_command, [str(folder), "--heatmap-path", str(picture), *options], catch_exceptions=False
    )
    assert done.exit_code == 0
    assert "Analyzing 1 logs..." in done.output
    assert f"Found {ROWS} unique sample keys, " in done.output
    drawn = np.array(Image.open(picture))
    drawn = drawn if drawn.ndim == 2 else drawn.max(axis=-1)
    if options in ([], ["--no-colors"]):
        order = {key: number for number, key in enumerate(dict.fromkeys(key for batch in given for key in batch))}
        expected = np.zeros((ROWS, len(given)), bool)
        for step, batch in enumerate(given):
            expected[[order[key] for key in batch], step] = True
        assert np.array_equal(drawn > 0, expected)


@pytest.mark.skipif(REAL is None, reason="ENERGON_PROGRAM does not name the real energon program")
def test_the_real_analyze_debug_reads_them(logs, tmp_path):
    done = subprocess.run(
        [REAL, "analyze-debug", str(logs[0]), "--heatmap-path", str(tmp_path / "real.png")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"Found {ROWS} unique sample keys, 12 steps" in done.stdout
    assert (tmp_path / "real.png").is_file()


def test_user_code_writes_to_the_log_of_its_worker(tmp_path):
    config = energon.WorkerConfig(rank=1, world_size=2, num_workers=0, worker_debug_path=str(tmp_path / "{worker_id}"))
    config.worker_log({"t": "mine"})
    assert json.loads((tmp_path / "1").read_text()) == {"t": "mine"}
    assert not config.should_log(1)


def test_without_a_path_lines_go_to_the_output(capsys):
    energon.WorkerConfig(num_workers=0).worker_log({"t": "mine"})
    assert json.loads(capsys.readouterr().out) == {"t": "mine"}
