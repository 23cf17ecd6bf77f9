"""TEDS: tables of HTML compared as trees (Zhong et al. 2020, Image-based table recognition, section 5).

As OCRBench v2 computes it: libxml2 reads the HTML, only ``td`` has a content and spans, and everything between the
tags of a cell, tags included, is the content.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from omniloom.errors import ConfigError
from omniloom.evaluate.scores.anls import levenshtein
from omniloom.evaluate.scores.trees import Tree, tree_distance


class Node(NamedTuple):
    """An element of a table.

    Attributes:
        tag: its name.
        columns: that a cell spans; 0 for what is no cell.
        rows: that a cell spans; 0 for what is no cell.
        content: characters and tags in a cell.
    """

    tag: str
    columns: int = 0
    rows: int = 0
    content: tuple[str, ...] = ()


def teds(said: str, right: str) -> float:
    """Similarity of the first tables in the bodies of two documents, at most 1; 0 where one has none.

    Args:
        said: HTML of the model.
        right: HTML that is right.

    Raises:
        ConfigError: lxml is missing.
        ValueError: HTML that cannot be read, or spans that are no numbers.
    """
    tables = [_table(text) for text in (said, right)] if said and right else []
    if len(tables) < 2 or any(table is None for table in tables):
        return 0.0
    trees = [_tree(table) for table in tables]
    nodes = max(len(table.xpath(".//*")) for table in tables)
    if not nodes:
        raise ValueError("two tables without rows")
    return 1 - tree_distance(*trees, rename=_rename) / nodes


def _table(text: str) -> Any:
    try:
        from lxml import etree, html  # noqa: PLC0415 - heavy, and only OCRBench v2 wants it
    except ImportError as missing:
        raise ConfigError("OCRBench v2 compares tables with lxml: pip install omniloom[eval].") from missing
    try:
        document = html.fromstring(text, parser=html.HTMLParser(remove_comments=True, encoding="utf-8"))
    except etree.ParserError as empty:  # which is no ValueError
        raise ValueError(str(empty)) from empty
    return next(iter(document.xpath("body/table")), None)


def _tree(element: Any) -> Tree[Node]:
    if element.tag != "td":
        return Tree(Node(str(element.tag)), [_tree(child) for child in element])
    columns, rows = (int(element.attrib.get(name, "1")) for name in ("colspan", "rowspan"))
    return Tree(Node("td", columns, rows, tuple(_content(element)[1:-1])))


def _content(element: Any) -> list[str]:
    inside = [f"<{element.tag}>", *(element.text or "")]
    for child in element:
        inside += _content(child)
    if element.tag != "unk":
        inside.append(f"</{element.tag}>")
    return inside if element.tag == "td" else [*inside, *(element.tail or "")]


def _rename(one: Node, other: Node) -> float:
    if one == other:
        return 0.0
    if one[:3] != other[:3]:
        return 1.0
    return levenshtein(one.content, other.content) / max(len(one.content), len(other.content))
