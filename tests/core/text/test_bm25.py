from __future__ import annotations

from mcpvectordb.text.bm25 import idf, saturate


def test_saturated_bm25_keeps_order_and_stays_below_1() -> None:
    values = [saturate(score) for score in (0, 0.5, 1, 10, 1000)]
    assert values == sorted(values) and values[0] == 0 and values[-1] < 1


def test_a_rarer_term_has_a_higher_idf_and_no_idf_is_zero() -> None:
    worths = [idf(1_000, having) for having in (0, 1, 10, 499, 500, 1_000)]
    assert worths == sorted(worths, reverse=True) and worths[-1] == worths[-2] == 1e-6
