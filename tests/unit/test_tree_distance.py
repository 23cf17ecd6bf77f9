"""Tree edit distance: by hand, and by properties that any has."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from omniloom.evaluate.scores.trees import Tree, tree_distance


def unlike(one: str, other: str) -> float:
    return float(one != other)


def tree(text: str) -> Tree[str]:
    """``a(b c(d))``."""
    root = Tree("")
    nodes = [root]
    last = root
    for token in text.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            nodes.append(last)
        elif token == ")":
            nodes.pop()
        else:
            last = nodes[-1].add(token)
    return root.children[0]


def test_the_example_of_its_authors() -> None:
    """Zhang and Shasha 1989, figure 4: one node moves in, one moves out."""
    assert tree_distance(tree("f(d(a c(b)) e)"), tree("f(c(d(a b)) e)"), rename=unlike) == 2


def test_by_hand() -> None:
    assert tree_distance(tree("a"), tree("a"), rename=unlike) == 0
    assert tree_distance(tree("a"), tree("b"), rename=unlike) == 1
    assert tree_distance(tree("a(b c d)"), tree("a(b d)"), rename=unlike) == 1
    assert tree_distance(tree("a(b(c d))"), tree("a(c d)"), rename=unlike) == 1
    assert tree_distance(tree("a(b c)"), tree("a(c b)"), rename=unlike) == 2
    assert tree_distance(tree("a(b)"), tree("x(y)"), rename=lambda one, other: 0.25) == 0.5
    assert tree_distance(tree("a"), tree("b"), rename=lambda one, other: 5) == 2  # out and in costs less
    assert tree("a(b(c d) e)").size() == 5


@given(st.integers(0, 2**32))
def test_what_any_distance_holds(seed: int) -> None:
    source = random.Random(seed)

    def grown() -> Tree[str]:
        root = Tree("a")
        nodes = [root]
        for _ in range(source.randrange(9)):
            nodes.append(source.choice(nodes).add(source.choice("abc")))
        return root

    one, other, third = grown(), grown(), grown()

    def between(left: Tree[str], right: Tree[str]) -> float:
        return tree_distance(left, right, rename=unlike)

    assert between(one, one) == 0
    assert between(one, other) == between(other, one)
    assert between(one, third) <= between(one, other) + between(other, third)
    assert abs(one.size() - other.size()) <= between(one, other) <= max(one.size() + other.size() - 2, 0)
