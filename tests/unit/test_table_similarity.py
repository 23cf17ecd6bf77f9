"""Similarity of tables against the outputs of RD-TableBench's own program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omniloom.evaluate.scores.tables import html_table, table_similarity
from omniloom.tools.main import run

WHOLE = (
    "<table><tr><th>Year</th><th colspan=2>Sales</th></tr><tr><td>2019</td><td>1,200</td><td>3-4</td></tr>"
    "<tr><td>2020</td><td>1,300</td><td></td></tr></table>"
)
CUT = "<table><tr><th>Year</th><th colspan=2>Sale</th></tr><tr><td>2019</td><td>1,200</td><td>34</td></tr></table>"
SPANNED = "<table><tr><td rowspan=2>2019</td><td>1,200</td></tr><tr><td>1,3OO</td></tr></table>"


@pytest.mark.parametrize(
    ("right", "said", "official"),
    [
        (WHOLE, WHOLE, 1.0),
        (WHOLE, CUT, 0.949999988079071),
        (CUT, WHOLE, 0.949999988079071),
        (WHOLE, SPANNED, 0.5083333253860474),
        (SPANNED, WHOLE, 0.5809523463249207),
        (CUT, SPANNED, 0.675000011920929),
        (WHOLE, "no table", 0.0),
        (WHOLE, "<table></table>", 0.0),
    ],
)
def test_similarity(right: str, said: str, official: float) -> None:
    assert table_similarity(html_table(right), html_table(said)) == pytest.approx(official, abs=1e-6)


def test_spans_and_open_cells() -> None:
    assert html_table(SPANNED) == [["2019", "1,200"], ["2019", "1,3OO"]]
    assert html_table("<tr><td rowspan=3>a<td colspan=2>b &amp; c<tr><td>d") == [
        ["a", "b & c", "b & c"],
        ["a", "d", ""],
    ]
    assert html_table("<td>no row</td>") == []
    # A span that would fill the memory, or is no number.
    assert len(html_table("<tr><td colspan=99999999>x<td rowspan=-3>y")[0]) == 1001


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "truth").mkdir()
    for name, table in (("a", WHOLE), ("b", CUT)):
        (tmp_path / f"truth/{name}.html").write_text(table)
    rows = [{"sample_id": "a", "predict": CUT}, {"sample_id": "b", "predict": f"Here it is: {CUT}"}]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["evaluate", "RD_TableBench", "--input-path", str(answers), "--groundtruth-path", str(tmp_path / "truth")]
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["similarity"] == pytest.approx(97.5, abs=1e-4)
