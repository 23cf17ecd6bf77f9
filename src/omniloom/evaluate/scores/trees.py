"""Edit distance of ordered trees (Zhang and Shasha, SIAM Journal on Computing 18, 1989).

A node costs 1 to insert and 1 to delete, and what a rule says to become another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

Label = TypeVar("Label")


@dataclass
class Tree(Generic[Label]):
    """A node and what is below it.

    Attributes:
        label: what it is.
        children: from left to right.
    """

    label: Label
    children: list[Tree[Label]] = field(default_factory=list)

    def add(self, label: Label) -> Tree[Label]:
        """A further child, which is returned."""
        child = Tree(label)
        self.children.append(child)
        return child

    def size(self) -> int:
        """Nodes, this one included."""
        return 1 + sum(child.size() for child in self.children)


class _Order(NamedTuple, Generic[Label]):
    """Nodes in postorder.

    Attributes:
        labels: of each.
        first: number of the leftmost leaf below each, or its own.
        roots: nodes that have a left sibling, and the root: where forests begin that no other one holds.
    """

    labels: Sequence[Label]
    first: Sequence[int]
    roots: Sequence[int]


def tree_distance(one: Tree[Label], other: Tree[Label], *, rename: Callable[[Label, Label], float]) -> float:
    """The least cost of making one tree the other.

    Args:
        one: from.
        other: to.
        rename: what it costs that a label becomes another one: at least 0.
    """
    left, right = _postorder(one), _postorder(other)
    distances = [[0.0] * len(right.labels) for _ in left.labels]
    for root in left.roots:
        for place in right.roots:
            if left.first[root] == root and right.first[place] == place:  # two leaves: most pairs, of cells in tables
                distances[root][place] = min(2.0, rename(left.labels[root], right.labels[place]))
            else:
                _forests(left, right, (root, place), distances, rename)
    return distances[-1][-1]


def _forests(
    left: _Order[Label],
    right: _Order[Label],
    roots: tuple[int, int],
    distances: list[list[float]],
    rename: Callable[[Label, Label], float],
) -> None:
    """Distances of all trees on the leftmost paths below two nodes, by those of the forests before them."""
    root, place = roots
    start, begin = left.first[root], right.first[place]
    row = [float(count) for count in range(place - begin + 2)]
    rows = [row]
    for node in range(start, root + 1):
        above, row = row, [float(node - start + 1)]
        on_path = left.first[node] == start
        known = distances[node]
        before = rows[left.first[node] - start]
        for count, target in enumerate(range(begin, place + 1), 1):
            least = min(above[count], row[-1]) + 1
            if on_path and right.first[target] == begin:
                row.append(min(least, above[count - 1] + rename(left.labels[node], right.labels[target])))
                known[target] = row[-1]
            else:
                row.append(min(least, before[right.first[target] - begin] + known[target]))
        rows.append(row)


def _postorder(tree: Tree[Label]) -> _Order[Label]:
    labels: list[Label] = []
    first: list[int] = []
    roots: list[int] = []
    # Each entry: a node, its number of children that are done, and its leftmost leaf's number.
    waiting: list[tuple[Tree[Label], int, int]] = [(tree, 0, -1)]
    while waiting:
        node, done, leftmost = waiting.pop()
        if done < len(node.children):
            waiting += [(node, done + 1, leftmost if done else len(labels)), (node.children[done], 0, -1)]
            continue
        first.append(leftmost if node.children else len(labels))
        labels.append(node.label)
        if not waiting or waiting[-1][1] > 1:
            roots.append(len(labels) - 1)
    return _Order(labels, first, roots)
