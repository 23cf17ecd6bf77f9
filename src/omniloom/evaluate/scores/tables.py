"""Similarity of tables as RD-TableBench has it: rows aligned, and the cells of each pair of rows (Reducto 2024).

Both are global alignments (Needleman and Wunsch 1970) whose gaps at the ends cost nothing, so that a table that was cut
off at an end loses little. A cell is worth 1 where it is right, down to -1 by its edit distance; a row has 5 more.
"""

from __future__ import annotations

from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import product

import numpy as np
from numpy.typing import NDArray

from omniloom.evaluate.scores.anls import levenshtein

Table = Sequence[Sequence[str]]

ROW_MATCH, ROW_GAP = 5.0, -3.0
CELL_MATCH, CELL_MISMATCH, CELL_GAP = 1.0, -1.0, -1.0
_MOST_SPAN = 1000  # as HTML has it for columns
_DIAGONAL, _UP, _LEFT = range(3)


def table_similarity(right: Table, said: Table) -> float:
    """How alike two tables are, between 0 and 1; 0 where one has no cells.

    Args:
        right: rows of cells, all of one length.
        said: of the model.
    """
    rows, others = _plain(right), _plain(said)
    if not rows or not others or not rows[0] or not others[0]:
        return 0.0
    worth = _row_worths(rows, others)
    score, length = _align(worth)
    possible = length * (ROW_MATCH + len(rows[0]) * CELL_MATCH)
    return max(0.0, min(score / possible, 1.0)) if possible else 0.0


def html_table(text: str) -> list[list[str]]:
    """The cells of all rows of HTML; one that spans several is in each of them. Rows are filled up to one length.

    Args:
        text: HTML, or text with HTML in it.
    """
    reader = _Rows()
    reader.feed(text)
    reader.close()
    reader.end_row()
    rows: list[list[str]] = []
    hanging: dict[int, tuple[str, int]] = {}  # columns that a cell of an earlier row spans, and for how many more rows
    for cells in reader.rows:
        row: list[str] = []
        for content, columns, height in cells:
            _take_hanging(row, hanging)
            if height > 1:
                hanging |= {len(row) + column: (content, height - 1) for column in range(columns)}
            row += [content] * columns
        _take_hanging(row, hanging)
        rows.append(row)
    longest = max(map(len, rows), default=0)
    return [row + [""] * (longest - len(row)) for row in rows]


def _take_hanging(row: list[str], hanging: dict[int, tuple[str, int]]) -> None:
    while len(row) in hanging:
        content, left = hanging.pop(len(row))
        if left > 1:
            hanging[len(row)] = (content, left - 1)
        row.append(content)


class _Rows(HTMLParser):
    """Cells of each row: content, columns, rows."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[tuple[str, int, int]]] = []
        self._row: list[tuple[str, int, int]] | None = None
        self._cell: list[str] | None = None
        self._spans = (1, 1)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.end_row()
            self._row = []
        elif tag in ("td", "th") and self._row is not None:
            self._end_cell()
            given = dict(attrs)
            self._spans = (_span(given.get("colspan")), _span(given.get("rowspan")))
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._end_cell()
        elif tag in ("tr", "table"):
            self.end_row()

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def end_row(self) -> None:
        """End the row at hand, if there is one."""
        self._end_cell()
        if self._row is not None:
            self.rows.append(self._row)
        self._row = None

    def _end_cell(self) -> None:
        if self._cell is not None and self._row is not None:
            self._row.append(("".join(self._cell).strip(), *self._spans))
        self._cell = None


def _span(text: str | None) -> int:
    return min(int(text), _MOST_SPAN) if text is not None and text.strip().isdecimal() else 1


def _plain(table: Table) -> list[list[str]]:
    """Cells without white space and hyphens, by which the benchmark does not tell texts apart."""
    return [["".join(cell.replace("-", "").split()) for cell in row] for row in table]


def _row_worths(rows: Table, others: Table) -> NDArray[np.float32]:
    """What each row is worth beside each of the others, [rows, others]."""
    cells: dict[str, int] = {}
    left, right = (
        np.array([[cells.setdefault(cell, len(cells)) for cell in row] for row in table]) for table in (rows, others)
    )
    names = list(cells)
    known = np.empty((len(names), len(names)), np.float32)
    for one, other in product(np.unique(left).tolist(), np.unique(right).tolist()):
        known[one, other] = _cell_worth(names[one], names[other])
    worths = [_best_scores(known[row[:, None, None], right.T[None]]) + np.float32(ROW_MATCH) for row in left]
    return np.stack(worths)


def _cell_worth(cell: str, other: str) -> float:
    if cell == other:
        return CELL_MATCH
    alike = 1.0 - levenshtein(cell, other) / max(len(cell), len(other))
    return CELL_MISMATCH + alike * (CELL_MATCH - CELL_MISMATCH)


def _best_scores(worth: NDArray[np.float32]) -> NDArray[np.float32]:
    """The best score of an alignment with free gaps at its ends, of many pairs of rows at once.

    Args:
        worth: [cells, cells of the other row, pairs].
    """
    gap = np.float32(CELL_GAP)
    before = [np.zeros(worth.shape[2], np.float32)] * (worth.shape[1] + 1)
    best: NDArray[np.float32] = before[0]
    for cells in worth:
        scores = before[:1]
        for column, value in enumerate(cells):
            step = np.maximum(before[column + 1] + gap, scores[column] + gap)
            scores.append(np.maximum(before[column] + value, step))
        best, before = np.maximum(best, scores[-1]), scores
    for scores_below in before:
        best = np.maximum(best, scores_below)
    return best


def _align(worth: NDArray[np.float32]) -> tuple[float, int]:
    """The best score of an alignment with free gaps at its ends, and how many pairs and gaps it has from its beginning.

    Scores are kept in single precision, as the benchmark's program does: equal ones decide which way is taken.

    Args:
        worth: [rows, others].
    """
    rows, columns = worth.shape
    gap = np.float32(ROW_GAP)
    scores = np.zeros((rows + 1, columns + 1), dtype=np.float32)
    ways = np.full((rows + 1, columns + 1), _UP)
    ways[0, 1:] = _LEFT
    for row in range(1, rows + 1):
        for column in range(1, columns + 1):
            choices = (
                scores[row - 1, column - 1] + worth[row - 1, column - 1],
                scores[row - 1, column] + gap,
                scores[row, column - 1] + gap,
            )
            best = max(choices)
            scores[row, column] = best
            ways[row, column] = choices.index(best)
    row, column, best = rows, columns, scores[rows, columns]
    if scores[:, columns].max() > best:
        row = int(scores[:, columns].argmax())
        best = scores[row, columns]
    if scores[rows].max() > best:
        row, column = rows, int(scores[rows].argmax())
        best = scores[row, column]
    length = 0
    while row or column:
        way = ways[row, column]
        row, column = row - (way != _LEFT), column - (way != _UP)
        length += 1
    return float(best), length
