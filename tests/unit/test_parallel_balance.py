"""Packs in an order that lets ranks wait less: by hand, and for any costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniloom.parallel.balance import Place, dealt_over_ranks, imbalance, in_order_of_cost

costs_of_ranks = st.integers(1, 5).flatmap(
    lambda packs: st.lists(
        st.lists(st.integers(1, 1000).map(float), min_size=packs, max_size=packs), min_size=2, max_size=6
    )
)


def by(order: list[list[Place]], costs: list[list[float]]) -> list[list[float]]:
    return [[costs[place.rank][place.number] for place in places] for places in order]


def test_by_hand() -> None:
    costs = [[1.0, 9.0], [8.0, 2.0]]
    assert imbalance(costs) == (8 + 9) / 10  # each round waits for the costliest
    assert by(in_order_of_cost(costs), costs) == [[9, 1], [8, 2]]
    assert imbalance(by(in_order_of_cost(costs), costs)) == (9 + 2) / 10
    uneven = [[9.0, 8.0], [2.0, 1.0]]
    assert imbalance(by(in_order_of_cost(uneven), uneven)) == (9 + 8) / 10
    # The two costly ones come together, then the two cheap ones; who had the costliest is given the cheapest.
    assert by(dealt_over_ranks(uneven), uneven) == [[9, 1], [8, 2]]
    assert imbalance([[0.0], [0.0]]) == 1


def test_equal_packs_stay() -> None:
    costs = [[5.0, 5.0], [5.0, 5.0], [5.0, 5.0]]
    for rank, places in enumerate(dealt_over_ranks(costs)):
        assert {place.rank for place in places} == {rank}


@given(costs_of_ranks)
def test_no_pack_is_lost_and_rounds_get_no_longer(costs: list[list[float]]) -> None:
    every = {Place(rank, number) for rank, own in enumerate(costs) for number in range(len(own))}
    before = imbalance(costs)
    ordered = in_order_of_cost(costs)
    assert [{place.rank for place in places} for places in ordered] == [{rank} for rank in range(len(costs))]
    dealt = dealt_over_ranks(costs)
    for order in (ordered, dealt):
        assert sorted(place for places in order for place in places) == sorted(every)
        assert {len(places) for places in order} == {len(costs[0])}
    after, over_ranks = imbalance(by(ordered, costs)), imbalance(by(dealt, costs))
    assert over_ranks <= after + 1e-9 <= before + 2e-9
    # Rounds of neighbours in the order of cost: no deal into rounds has a smaller sum of greatest costs.
    falling = sorted((cost for own in costs for cost in own), reverse=True)
    assert over_ranks * sum(falling) / len(costs) == pytest.approx(sum(falling[:: len(costs)]))
