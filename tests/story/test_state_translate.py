"""A run that the real Energon began goes on in omniloom: from which rows, and at what cost. Counts are by hand."""

import json
from collections import Counter
from pathlib import Path

import pytest

from omniloom import energon
from omniloom.data.loader.state import put_together
from omniloom.errors import StateError
from omniloom.tools.energon_state import EnergonState, read_energon_state
from omniloom.tools.main import run
from omniloom.tools.state_translate import translated

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "energon_states"
ROWS = {"a.jsonl": 40, "b.jsonl": 24}  # as in the run that blend.pt is of: 130 rows of a, 50 of b were read


class Encoder(energon.DefaultTaskEncoder):
    cookers = (
        energon.Cooker(lambda raw: energon.TextSample(**energon.basic_sample_keys(raw), text=raw["json"]["text"])),
    )

    def token_count(self, sample):
        return len(sample.text)


@pytest.fixture
def mix(tmp_path):
    for name, rows in ROWS.items():
        (tmp_path / name).write_text("".join(json.dumps({"text": f"{name[0]}{n}"}) + "\n" for n in range(rows)))
    parts = {"blend": [{"path": "a.jsonl", "weight": 3}, {"path": "b.jsonl", "weight": 1}]}
    content = {"__module__": "megatron.energon", "__class__": "MetadatasetV2", "splits": {"train": parts}}
    (tmp_path / "mix.yaml").write_text(json.dumps(content))
    return tmp_path


def loader(path, rank=0, **settings):
    config = energon.WorkerConfig(rank=rank, world_size=2, num_workers=0, lanes=4)
    return energon.get_savable_loader(
        energon.get_train_dataset(path, batch_size=2, worker_config=config, task_encoder=Encoder(), **settings)
    )


def fresh(folder, path):
    folder.mkdir()
    for rank in range(2):
        (folder / f"rank{rank}.json").write_text(json.dumps(loader(path, rank).save_state_rank()))
    return folder


def texts(folder, path, batches):
    """What both ranks give from the states of a folder."""
    found = []
    for rank in range(2):
        own = loader(path, rank)
        own.restore_state_rank(folder / f"rank{rank}.json")
        found += [text for _, batch in zip(range(batches), own, strict=False) for text in batch.text]
    return found


def test_each_data_set_begins_with_its_running_epoch(mix, capsys):
    like, out = fresh(mix / "fresh", mix / "mix.yaml"), mix / "out"
    assert run(["state", "translate", str(GOLDEN / "blend.pt"), "--like", str(like), "--output", str(out)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "a.jsonl: 130 of 40 rows read; epoch 3 begins, 10 rows come again"
    assert said[1] == "b.jsonl: 50 of 24 rows read; epoch 2 begins, 2 rows come again"
    given = texts(out, mix / "mix.yaml", 64)  # 2 x 64 x 2 = 256 samples: a block of draws of each lane holds 256
    counts = Counter(given)
    assert {len([text for text in counts if text[0] == name]) for name in "a"} == {40}
    assert max(counts.values()) - min(counts.values()) <= 4
    states = [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(2)]
    cursors = [lane["stream"]["cursors"] for state in states for lane in state["lane_states"].values()]
    assert [sum(column) for column in zip(*cursors, strict=True)] == [3 * 40, 2 * 24]  # whole epochs, no row more


def test_the_next_epoch_leaves_the_rest_out(mix, capsys):
    like, out = fresh(mix / "fresh", mix / "mix.yaml"), mix / "out"
    arguments = ["state", "translate", str(GOLDEN / "blend.pt"), "--like", str(like), "--output", str(out), "--skip"]
    assert run(arguments) == 0
    assert "a.jsonl: 130 of 40 rows read; epoch 4 begins, 30 rows are left out" in capsys.readouterr().out


def test_a_single_data_set_gives_its_epoch_whole(mix, capsys):
    like, out = fresh(mix / "fresh", mix / "a.jsonl"), mix / "out"
    state = GOLDEN / "two_workers.pt"
    assert run(["state", "translate", str(state), "--like", str(like), "--output", str(out)]) == 0
    assert "10 of 40 rows read; epoch 0 begins, 10 rows come again" in capsys.readouterr().out
    assert Counter(texts(out, mix / "a.jsonl", 10)) == Counter(f"a{row}" for row in range(40))


def test_data_sets_that_do_not_fit_are_told(mix, capsys):
    like = fresh(mix / "fresh", mix / "a.jsonl")
    arguments = ["state", "translate", str(GOLDEN / "blend.pt"), "--like", str(like), "--output", str(mix / "out")]
    assert run(arguments) == 1
    assert "Energon's run had 2 data sets (0 to 1), this one has 1: a.jsonl" in capsys.readouterr().err
    other = fresh(mix / "other", mix / "mix.yaml")
    swapped = ["--data-set", "0=b.jsonl", "--data-set", "1=a.jsonl"]
    assert run([*arguments[:4], str(other), "--output", str(mix / "out"), *swapped]) == 1
    assert "data set 'a.jsonl' has 40 rows now; Energon's epochs had 24" in capsys.readouterr().err
    assert run([*arguments[:4], str(other), "--output", str(mix / "out"), "--data-set", "x"]) == 2
    assert run(["state", "translate", str(like / "rank0.json"), "--like", str(like), "--output", str(mix / "out")]) == 1
    assert "states that Energon saved expected" in capsys.readouterr().err


def write_mix(folder, **train):
    content = {"__module__": "megatron.energon", "__class__": "MetadatasetV2", "splits": {"train": train}}
    (folder / "other.yaml").write_text(json.dumps(content))
    return folder / "other.yaml"


def go_on(path, like, *more):
    """What both ranks give in 30 batches each, of the translated state of the run that counted epochs."""
    out = path.parent / f"out{len(more)}"
    command = ["state", "translate", str(GOLDEN / "epochs.pt"), "--like", str(like), "--output", str(out), *more]
    assert run(command) == 0
    return texts(out, path, 30)


def test_a_mix_that_counts_epochs_begins_with_one_of_its_own(mix, capsys):
    parts = [{"path": "a.jsonl", "repetitions": 2.5}, {"path": "b.jsonl", "repetitions": 1}]
    path = write_mix(mix, blend_epochized=parts)
    found = go_on(path, fresh(mix / "fresh", path))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "a.jsonl: 213 of 40 rows read; epoch 2 of the mix begins, 13 rows come again"
    assert said[1] == "b.jsonl: 63 of 24 rows read; epoch 2 of the mix begins, 15 rows come again"
    # an omniloom run after two epochs, 2 x 124 rows: 62 of each of 4 lanes, 31 batches of each, 62 of each of 2 ranks
    expected = []
    for rank in range(2):
        batches = [batch.text for _, batch in zip(range(92), loader(path, rank), strict=False)]
        expected += [text for batch in batches[62:] for text in batch]
    assert found == expected
    once = [loader(path, rank, repeat=False).state() for rank in range(2)]
    state, _ = translated([read_energon_state(GOLDEN / "epochs.pt")], put_together(once, where="here"))
    assert (state.lap, state.in_pass) == (2, False)  # a loop over a data set that ends begins its third pass
    capsys.readouterr()
    later = go_on(path, mix / "fresh", "--skip")
    assert "epoch 3 of the mix begins, 87 rows are left out" in capsys.readouterr().out
    assert later != found


def test_a_mix_whose_weights_change_goes_on_in_its_schedule(mix, capsys):
    weight = {"steps": {0: 1, 200: 0}}  # after 200 samples, none of b comes
    path = write_mix(mix, blend=[{"path": "a.jsonl", "weight": 1}, {"path": "b.jsonl", "weight": weight}])
    assert {text[0] for text in go_on(path, fresh(mix / "fresh", path))} == {"a"}
    assert "b.jsonl: 63 of 24 rows read; epoch 2 begins, 15 rows come again" in capsys.readouterr().out
    content = json.loads(path.read_text())
    content["splits"]["train"]["schedule_in"] = "tokens"
    path.write_text(json.dumps(content))
    like = fresh(mix / "tokens", path)
    command = ["state", "translate", str(GOLDEN / "epochs.pt"), "--like", str(like), "--output", str(mix / "none")]
    assert run(command) == 1
    assert "a schedule over tokens, of which Energon's states say nothing" in capsys.readouterr().err


def test_runs_without_borders_are_refused(mix):
    old = [EnergonState(({"next_worker_id": 0, "micro_batch_size": 2, "workers": []},))]
    begun = loader(mix / "a.jsonl")
    next(iter(begun))
    with pytest.raises(StateError, match="has given batches already"):
        translated(old, begun.state())
