"""A rank of a large job, alone: memory, state, first batch; and how evenly 1 to 16 workers share sleeping work."""

from __future__ import annotations

from typing import Any

from harness import Context, alternate, row, show_row, values

NAME = "scale"
RANKS, WORKERS, LEAVES, WINDOW = 1_024, 8, 100, 1_000
SLEEP_US = 10_000
FIGURES = {
    "first_batch_seconds": "first batch, s",
    "job_state_mb": "state of all lanes of the job as JSON, MB",
    "peak_pss_bytes": "peak memory of the rank and its workers, MB",
}


def run(context: Context) -> dict[str, Any]:
    """Peers are not measured here: the bars are the project's own."""
    program = context.program(
        "omniloom", "scale_omniloom", ranks=RANKS, workers=WORKERS, leaves=LEAVES, window=WINDOW, batch_size=4,
        sleep_us=0, by_tokens=0, window_seconds=context.window_seconds / 4,
    )  # fmt: skip
    readings = alternate([program], rounds=context.pairs, watch_memory=True)
    rows = []
    for name, case in FIGURES.items():
        found = values(readings, name)["omniloom"]
        rows.append(row(case, {"omniloom": [one / 1e6 if name.endswith("bytes") else one for one in found]}))
        show_row(rows[-1], "")
    # Without packing, for as long as the window says: then its numbers are those of a run that goes on.
    by_tokens = context.program(
        "omniloom", "scale_omniloom", ranks=RANKS, workers=0, leaves=LEAVES, window=0, batch_size=64, sleep_us=0,
        by_tokens=1, window_seconds=2 * context.window_seconds,
    )  # fmt: skip
    found = values(alternate([by_tokens], rounds=context.pairs), "job_state_mb")["omniloom"]
    rows.append(row("state of 12,288 lanes whose weights are shares of tokens, MB", {"omniloom": found}))
    show_row(rows[-1], "")
    balance = []
    for workers in (1, 2, 4) if context.quick else (1, 2, 3, 4, 6, 8, 12, 16):
        program = context.program(
            "omniloom", "scale_omniloom", ranks=1, workers=workers, leaves=1, window=0, batch_size=4, sleep_us=SLEEP_US,
            by_tokens=0, window_seconds=context.window_seconds,
        )  # fmt: skip
        readings = alternate([program], rounds=max(1, context.pairs // 2))
        balance.append(row(f"{workers} workers", values(readings, "balance"), at_least=0.9))
        show_row(balance[-1], "of the ideal")
    return {
        "title": "A large job, seen from one rank",
        "settings": f"rank 0 of {RANKS:,} with {WORKERS} workers, {LEAVES} leaves of a million rows, "
        f"packing buffer {WINDOW:,}, "
        "payloads made up in memory; bar of the state: 20 MB; workers share samples that sleep "
        f"{SLEEP_US / 1_000:g} ms each, bar: 0.9 of workers times the rate of one sleeper",
        "tables": [
            {"title": "Start, state, memory", "unit": "", "better": "lower", "rows": rows},
            {"title": "Balance of workers", "unit": "share of the ideal", "better": "higher", "rows": balance},
        ],
    }
