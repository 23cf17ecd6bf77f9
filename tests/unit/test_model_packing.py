"""Documents of a pack cannot see each other; windows, positions and caches are what they say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from omniloom.errors import InputError
from omniloom.generate.greedy import GreedyAnswer, generate_greedily
from omniloom.model import attention
from omniloom.model.attention import AttendPacked, attend_each_document
from omniloom.model.build import build
from omniloom.model.cache import AttendNext, AttendPrompts, KeyValueCache
from omniloom.model.config import DecoderConfig, RopeConfig
from omniloom.model.decoder import Decoder
from omniloom.model.documents import Documents
from omniloom.model.initialize import initialize

CPU = torch.device("cpu")


def decoder(**fields: Any) -> Decoder:
    sizes = {"vocab_size": 80, "dim": 32, "num_layers": 3, "num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
    model = build(DecoderConfig(**{"family": "llama", "mlp_dim": 48, **sizes, **fields}))
    initialize(model, generator=torch.Generator().manual_seed(1), standard_deviation=0.2)
    assert isinstance(model, Decoder)
    return model.eval()


@torch.no_grad()
def logits(model: Decoder, tokens: torch.Tensor, documents: Documents) -> torch.Tensor:
    return model.logits(model(model.embed(tokens), AttendPacked(documents, CPU)))


def test_documents_say_where_they_lie() -> None:
    documents = Documents.of_lengths([3, 1, 2])
    assert documents.bounds == (0, 3, 4, 6)
    assert (documents.tokens, documents.longest, len(documents)) == (6, 3, 3)
    assert documents.positions().tolist() == [0, 1, 2, 0, 0, 1]
    assert documents.numbers().tolist() == [0, 0, 0, 1, 2, 2]
    assert documents.cumulative().tolist() == [0, 3, 4, 6]
    assert documents.cumulative().dtype == torch.int32


@pytest.mark.parametrize("bounds", [(), (1, 2), (0, 2, 2), (0, 3, 1)])
def test_borders_that_do_not_rise(bounds: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="they begin with 0 and rise"):
        Documents(bounds)


@pytest.mark.parametrize("window", [None, 4])
def test_another_document_in_the_same_place_changes_no_bit(window: int | None) -> None:
    model = decoder(window=window)
    documents = Documents.of_lengths([7, 12, 5])
    tokens = torch.randint(0, 80, (24,), generator=torch.Generator().manual_seed(2))
    changed = tokens.clone()
    changed[7:19] = torch.randint(0, 80, (12,), generator=torch.Generator().manual_seed(3))
    before, after = logits(model, tokens, documents), logits(model, changed, documents)
    assert torch.equal(before[:7], after[:7])
    assert torch.equal(before[19:], after[19:])
    assert not torch.equal(before[7:19], after[7:19])


def test_a_moved_document_keeps_its_logits() -> None:
    model = decoder()
    tokens = torch.randint(0, 80, (24,), generator=torch.Generator().manual_seed(2))
    first, second, third = tokens.split([7, 12, 5])
    before = logits(model, tokens, Documents.of_lengths([7, 12, 5]))
    after = logits(model, torch.cat([third, second, first]), Documents.of_lengths([5, 12, 7]))
    assert torch.equal(before, torch.cat([after[17:], after[5:17], after[:5]]))


def test_no_gradient_crosses_a_border() -> None:
    model = decoder()
    embeddings = torch.randn(9, 32, requires_grad=True)
    stream = model(embeddings, AttendPacked(Documents.of_lengths([4, 5]), CPU))
    stream[4:].sum().backward()
    assert embeddings.grad is not None
    assert torch.equal(embeddings.grad[:4], torch.zeros(4, 32))
    assert (embeddings.grad[4:].abs().sum(dim=1) > 0).all()


def test_a_window_counts_the_token_itself() -> None:
    query, key = torch.randn(6, 1, 4), torch.randn(6, 1, 4)
    value = torch.eye(6)[:, None]
    seen = attend_each_document(query, key, value, Documents.of_lengths([6]), window=3)[:, 0] > 0
    expected = [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert [row.nonzero()[:, 0].tolist() for row in seen] == expected


@pytest.mark.parametrize("window", [None, 5])
def test_the_kernel_is_asked_for_the_same(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a plain reading of what torch documents for varlen_attn: window to the left, causal by 0 to the right."""

    def documented(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cu_seq_q: torch.Tensor,
        cu_seq_k: torch.Tensor,
        max_q: int,
        max_k: int,
        *,
        window_size: tuple[int, int],
        enable_gqa: bool,
    ) -> torch.Tensor:
        left, right = window_size
        group = query.shape[1] // key.shape[1]
        assert enable_gqa is (group > 1)
        assert torch.equal(cu_seq_q, cu_seq_k)
        assert max_q == max_k == int(cu_seq_q.diff().max())
        output = torch.empty_like(query)
        for start, stop in zip(cu_seq_q.tolist(), cu_seq_q.tolist()[1:], strict=False):
            for head in range(query.shape[1]):
                scores = query[start:stop, head] @ key[start:stop, head // group].T / query.shape[2] ** 0.5
                distance = torch.arange(stop - start)[:, None] - torch.arange(stop - start)
                hidden = (-distance > right) | ((distance > left) if left >= 0 else False)
                scores = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
                output[start:stop, head] = scores @ value[start:stop, head // group]
        return output

    monkeypatch.setattr(attention, "_variable_length_kernel", lambda: documented)
    monkeypatch.setattr(attention, "_KERNEL_DEVICES", {"cpu"})
    monkeypatch.setattr(attention, "_HALF", {torch.float32})
    documents = Documents.of_lengths([7, 1, 12])
    query, key, value = torch.randn(20, 4, 8), torch.randn(20, 2, 8), torch.randn(20, 2, 8)
    gathered = AttendPacked(documents, CPU)(query, key, value, window=window)
    assert torch.allclose(gathered, attend_each_document(query, key, value, documents, window=window), atol=1e-5)


@pytest.mark.parametrize("heads", [2, 4])
def test_torchs_kernel_takes_our_arguments(heads: int) -> None:
    """The meta device checks names, types and shapes of the installed torch, forwards and backwards."""
    if attention._variable_length_kernel() is None:
        pytest.skip("this torch has no variable-length attention with windows and groups")
    query = torch.empty(20, 4, 16, device="meta", dtype=torch.bfloat16, requires_grad=True)
    key = torch.empty(20, heads, 16, device="meta", dtype=torch.bfloat16, requires_grad=True)
    attend = AttendPacked(Documents.of_lengths([7, 13]), torch.device("meta"))
    gathered = attend(query, key, key, window=5)
    gathered.sum().backward()
    assert (gathered.shape, query.grad.shape, key.grad.shape) == (query.shape, query.shape, key.shape)  # type: ignore[union-attr]


def test_one_compiled_layer_serves_for_all_layers_and_packs() -> None:
    """At most four programs: with and without a gradient by the stream, of the first and of any number of tokens."""
    if attention._variable_length_kernel() is None:
        pytest.skip("this torch has no variable-length attention with windows and groups")
    counter = CompileCounter()
    model = decoder(num_layers=6).to("meta", torch.bfloat16)
    for layer in model.layers:
        layer.compile(backend=counter)
    for lengths in ([5, 6], [3, 9, 4], [11], [2, 3, 4, 1]):
        stream = torch.empty(sum(lengths), 32, device="meta", dtype=torch.bfloat16)
        model(stream, AttendPacked(Documents.of_lengths(lengths), torch.device("meta")))
    assert counter.frame_count <= 4


def test_lower_layers_may_be_without_the_window() -> None:
    config = DecoderConfig(
        family="qwen2",
        vocab_size=8,
        dim=8,
        num_layers=4,
        num_heads=2,
        num_kv_heads=1,
        head_dim=4,
        mlp_dim=8,
        window=3,
        window_from_layer=2,
    )
    assert [config.window_of(layer) for layer in range(4)] == [None, None, 3, 3]


@pytest.mark.parametrize("window", [None, 5])
@torch.no_grad()
def test_the_cache_gives_what_the_whole_gives(window: int | None) -> None:
    model = decoder(window=window, rope=RopeConfig(theta=500.0))
    rows = [torch.randint(0, 80, (length,)) for length in (4, 9, 1)]
    following = torch.randint(0, 80, (3, 6))
    cache = KeyValueCache(model.config, rows=3, capacity_tokens=15, dtype=torch.float32, device=CPU)
    documents = Documents.of_lengths(map(len, rows))
    model(model.embed(torch.cat(rows)), AttendPrompts(documents, cache))
    for step in range(6):
        stream = model(model.embed(following[:, step]), AttendNext(cache))
        for row, prompt in enumerate(rows):
            whole = torch.cat([prompt, following[row, : step + 1]])
            expected = logits(model, whole, Documents.of_lengths([len(whole)]))[-1]
            assert torch.allclose(model.logits(stream[row]), expected, atol=1e-5)
    assert cache.lengths == [10, 15, 7]
    with pytest.raises(InputError, match="16 tokens in a cache of 15"):
        AttendNext(cache)


def test_answers_are_the_same_in_any_batch() -> None:
    model = decoder()
    prompts = [torch.randint(1, 80, (length,)).tolist() for length in (3, 11, 6, 2)]
    alone = [generate_greedily(model, [prompt], max_new_tokens=20)[0] for prompt in prompts]
    stops = {alone[0].token_ids[4], alone[2].token_ids[9]}

    def until_stop(answer: GreedyAnswer) -> GreedyAnswer:
        for place, word in enumerate(answer.token_ids):
            if word in stops:
                return GreedyAnswer(answer.token_ids[: place + 1], ended=True)
        return answer

    together = generate_greedily(model, prompts, max_new_tokens=20, stop_tokens=stops)
    assert together == [until_stop(answer) for answer in alone]
    assert len({len(answer.token_ids) for answer in together}) > 1


def test_prompts_that_cannot_be_continued() -> None:
    model = decoder()
    with pytest.raises(InputError, match=r"prompts without tokens: \[1\]"):
        generate_greedily(model, [[3], []], max_new_tokens=2)
    with pytest.raises(InputError, match="without a tower"):
        generate_greedily(model, [[3]], max_new_tokens=2, images=torch.zeros(1, 3, 8, 8))
