"""Every change comes back to the bit, for any shape; and the layouts are those of Megatron's and Meta's files."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.errors import WeightsError
from omniloom.weights.changes import (
    TRANSPOSE,
    Chain,
    Fuse,
    FuseByGroup,
    PadRows,
    PadZeros,
    Range,
    Reorder,
    Reshape,
    RotaryOrder,
    Same,
)
from omniloom.weights.table import Row, Table, repeated, with_prefix

small = st.integers(1, 5)
dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.int8])


def numbered(*shape, dtype=torch.float32, start=0):
    return (torch.arange(start, start + torch.Size(shape).numel()) % 251).reshape(shape).to(dtype)


@st.composite
def changes_and_parts(draw):
    dtype = draw(dtypes)
    heads_per_group, groups, half, width = draw(small), draw(small), draw(small), draw(small)
    head_dim = 2 * half
    rows = heads_per_group * groups * head_dim, groups * head_dim, groups * head_dim
    tail = (width,) if draw(st.booleans()) else ()
    by_group = FuseByGroup(heads_per_group * groups, groups, head_dim)
    three = [numbered(length, *tail, dtype=dtype, start=7 * n) for n, length in enumerate(rows)]
    one = numbered(rows[0], width, dtype=dtype)
    total = sum(rows)
    pick = draw(st.integers(0, 9))
    return [
        (Same(), [one]),
        (Fuse(rows), three),
        (Fuse((2, 3), axis=1), [numbered(4, 2, dtype=dtype), numbered(4, 3, dtype=dtype)]),
        (by_group, three),
        (TRANSPOSE, [one]),
        (Reorder((2, 0, 1)), [numbered(half, width, 3, dtype=dtype)]),
        (Reshape((rows[0], width), (rows[0] * width,)), [one]),
        (RotaryOrder(groups * heads_per_group), [three[0]]),
        (PadRows(rows[0], rows[0] + draw(small) - 1), [one]),
        (Chain(by_group, (PadZeros(total, total + 3 * width), PadRows(total + 3 * width, 2 * total + 15))), three),
    ][pick]


@settings(deadline=None)
@given(changes_and_parts())
def test_every_change_comes_back_to_the_bit(case):
    change, parts = case
    whole = change.apply(*parts)
    back = change.undo(whole)
    assert len(back) == len(parts)
    for was, now in zip(parts, back, strict=True):
        assert was.dtype == now.dtype
        assert torch.equal(was, now)
    assert sorted(set(torch.cat([p.flatten() for p in parts]).tolist())) == sorted(
        set(whole.flatten().tolist()) - (set() if 0 in {int(v) for p in parts for v in p.flatten()} else {0})
    )


@settings(deadline=None)
@given(changes_and_parts())
def test_shapes_are_told_on_the_meta_device(case):
    change, parts = case
    whole = change.apply(*parts)
    told = change.apply(*(part.to("meta") for part in parts))
    assert (told.shape, told.dtype) == (whole.shape, whole.dtype)
    assert [part.shape for part in change.undo(told)] == [part.shape for part in parts]


@settings(deadline=None)
@given(changes_and_parts(), st.data())
def test_a_located_range_holds_just_the_slice(case, data):
    change, parts = case
    whole = change.apply(*parts)
    number = data.draw(st.integers(0, len(parts) - 1))
    axis = data.draw(st.integers(0, parts[number].dim() - 1))
    stop = data.draw(st.integers(1, parts[number].shape[axis]))
    found = change.locate(number, Range(axis, stop - 1, stop), whole=tuple(whole.shape))
    if found is not None:
        read = whole.narrow(found.axis, found.start, found.stop - found.start)
        assert torch.equal(read, parts[number].narrow(axis, stop - 1, 1))


def test_rows_of_megatrons_fused_attention():
    # Two groups of two query heads with one channel: q0 q1 k0 v0 q2 q3 k1 v1.
    q, k, v = torch.tensor([0, 1, 2, 3]), torch.tensor([10, 11]), torch.tensor([20, 21])
    assert FuseByGroup(4, 2, 1).apply(q, k, v).tolist() == [0, 1, 10, 20, 2, 3, 11, 21]


def test_fused_attention_without_groups_is_the_published_permutation_of_openai_clip():
    # new[h * 3 d + t * d + r] = old[t * D + h * d + r] for t in q, k, v
    heads, d = 16, 64
    width = heads * d
    old = torch.arange(3 * width)
    expected = torch.empty_like(old)
    for t in range(3):
        for h in range(heads):
            expected[h * 3 * d + t * d : h * 3 * d + (t + 1) * d] = old[t * width + h * d : t * width + (h + 1) * d]
    assert torch.equal(FuseByGroup(heads, heads, d).apply(*old.split(width)), expected)


def test_rotary_order_is_metas_permutation():
    # transformers' convert_llama_weights_to_hf: w.view(heads, d / 2, 2, in).transpose(1, 2).reshape(heads * d, in)
    meta = torch.arange(24).reshape(12, 2)
    assert torch.equal(RotaryOrder(3).undo(meta)[0], meta.view(3, 2, 2, 2).transpose(1, 2).reshape(12, 2))


def test_added_vocabulary_rows_copy_the_last_row():
    assert PadRows(2, 4).apply(torch.tensor([[1, 2], [3, 4]])).tolist() == [[1, 2], [3, 4], [3, 4], [3, 4]]


@pytest.mark.parametrize(
    ("change", "parts", "text"),
    [
        (Fuse((2, 2)), [numbered(2, 1), numbered(3, 1)], r"shape \[3, 1\]; axis 0 should be 2 long"),
        (FuseByGroup(2, 1, 4), [numbered(8), numbered(8), numbered(4)], r"shape \[8\]; axis 0 should be 4 long"),
        (Reshape((2, 3), (6,)), [numbered(3, 2)], r"shape \[3, 2\]; expected \[2, 3\]"),
        (RotaryOrder(2), [numbered(6, 2)], "6 rows are not 2 heads of an even number"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(change, parts, text):
    with pytest.raises(WeightsError, match=text):
        change.apply(*parts)


def test_table_repeats_prefixes_and_finds_what_is_left_over():
    rows = (
        Row("norm.weight", "ln.weight"),
        *repeated([Row(("layers.{n}.q", "layers.{n}.k", "layers.{n}.v"), "blocks.{n}.qkv", FuseByGroup(2, 2, 2))], n=2),
    )
    table = Table(rows, ignored=("blocks.*._extra_state",), copies={"head": "ln.weight"}).prefixed(theirs="model.")
    assert table.by_ours["layers.1.k"].row.theirs == "model.blocks.1.qkv"
    assert table.by_ours["layers.1.k"].part == 1
    there = ["model.ln.weight", "model.head", "model.blocks.0.qkv", "model.blocks.0._extra_state", "lm.extra"]
    assert table.left_over(there) == (["lm.extra"], ["model.blocks.1.qkv"])
    assert with_prefix(rows[:1], ours="a.", theirs="b.")[0] == Row("a.norm.weight", "b.ln.weight")


def test_a_name_has_one_row():
    with pytest.raises(WeightsError, match=r"'a' twice among theirs"):
        Table((Row("x", "a"), Row("y", "a")))
