"""`omniloom state` and Energon's `checkpoint`: states of two ranks are shown, checked and dealt to four."""

import json
from pathlib import Path

import pytest
import torch

from omniloom import energon
from omniloom.tools import main as program


@pytest.fixture
def states(tmp_path):
    """Files of the states of both ranks after three batches, in the two forms that they are saved in."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": str(n)}) + "\n" for n in range(40)))
    files = []
    for rank in range(2):
        config = energon.WorkerConfig(rank=rank, world_size=2, num_workers=0, lanes=8)
        loader = energon.get_savable_loader(energon.get_train_dataset(tmp_path / "a.jsonl", worker_config=config))
        for _ in zip(range(3), loader, strict=False):
            pass
        files.append(tmp_path / f"train_dataloader_dprank{rank:03d}.pt")
        torch.save({"dataloader_state_dict": loader.save_state_rank()}, files[-1])
    return files


def run(*words):
    return program.run(["state", *map(str, words)])


def test_show_and_check(states, capsys):
    assert run("show", states[1], "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["saved_by"], told["rank"], told["lanes"], told["steps"]) == ("omniloom", "1 of 2", "4 of 8", 3)
    assert told["data_sets"] == {"a.jsonl": {"rows": 40, "weight": 1.0}}
    assert run("check", *states, "--world-size", 4) == 0
    assert "8 lanes of 2 ranks after 3 steps" in capsys.readouterr().out
    assert run("check", *states, "--world-size", 3) == 1
    assert run("check", states[0]) == 1
    assert "absent: 1" in capsys.readouterr().err


def test_redeal_to_four_ranks(states, tmp_path):
    assert run("redeal", *states, tmp_path / "dealt", "--new-world-size", 4) == 0
    dealt = sorted((tmp_path / "dealt").iterdir())
    assert [path.name for path in dealt] == [f"train_dataloader_dprank{rank:03d}.pt" for rank in range(4)]
    state = torch.load(dealt[3])
    assert (state["rank"], state["world_size"], sorted(state["lane_states"])) == (3, 4, ["3", "7"])


GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "energon_states"


@pytest.mark.parametrize(
    ("name", "workers", "batches"), [("two_workers", 2, [4, 3]), ("no_workers", 1, [None])]
)  # after 7 batches of 2 samples; without workers Energon does not count them
def test_a_state_that_energon_saved_is_shown_without_importing_it(name, workers, batches, capsys, tmp_path):
    assert run("show", GOLDEN / f"{name}.pt", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["saved_by"], told["workers_a_rank"], told["micro_batch_size"]) == ("Energon", workers, 2)
    assert told["batches_by_worker"] == batches
    assert list(told["rows_read_by_data_set"]) == ["data set 0"]
    assert run("redeal", GOLDEN / f"{name}.pt", tmp_path, "--new-world-size", 2) == 1
    assert "shown only" in capsys.readouterr().err


def test_what_is_no_state_is_one_message(tmp_path, capsys):
    torch.save({"weights": 1}, tmp_path / "other.pt")
    (tmp_path / "cut.pt").write_bytes((GOLDEN / "two_workers.pt").read_bytes()[:500])
    for name in ("other.pt", "cut.pt"):
        assert run("show", tmp_path / name) == 1
        assert capsys.readouterr().err.startswith("StateError: ")
