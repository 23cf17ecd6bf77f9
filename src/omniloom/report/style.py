"""How the page looks, in light and in dark."""

from __future__ import annotations

RUN_COLOURS = (  # light, dark; told apart with the usual kinds of colour blindness (Okabe and Ito, adapted)
    ("#0067b1", "#58b4f0"),
    ("#c95000", "#f59a52"),
    ("#00805c", "#3ccb9e"),
    ("#a8388a", "#e48ccb"),
    ("#8a6d00", "#e0c341"),
    ("#5a4fcf", "#a49cff"),
    ("#b3202c", "#ff7d84"),
    ("#4d5a66", "#b3c0cc"),
)

_BASE = """
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1180px; padding: 2rem 1.2rem 5rem;
  background: var(--paper); color: var(--ink); }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .3rem; padding-top: .9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .35rem 0; }
a { color: inherit; }
.lead { color: var(--soft-ink); max-width: 76ch; }
.small, figcaption span { color: var(--soft-ink); font-size: 12.5px; }
nav { margin: .9rem 0 0; font-size: 13px; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; }
.badge { display: inline-block; border-radius: 4px; padding: 0 .45rem; font-size: 12px; font-weight: 600;
  white-space: nowrap; }
.right { background: var(--good-back); color: var(--good); }
.wrong { background: var(--bad-back); color: var(--bad); }
.partly, .scored, .plain { background: var(--fill); color: var(--ink); }
.fault { color: var(--bad); }
.incomplete { background: var(--alarm); color: #fff; }
.grid2 { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 1rem;
  margin: 1rem 0; }
.loose { align-items: start; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: .9rem 1rem; background: var(--card);
  min-width: 0; }
.card.broken { border-color: var(--alarm); border-width: 2px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(112px, 1fr)); gap: .6rem;
  margin: .8rem 0 .2rem; }
.figures div { border-left: 2px solid var(--line); padding-left: .6rem; }
.figures b { display: block; font-size: 1.15rem; font-variant-numeric: tabular-nums; line-height: 1.25; }
.figures span { font-size: 12px; color: var(--soft-ink); }
.chart { margin: 0; border: 1px solid var(--line); border-radius: 8px; padding: .6rem .7rem .2rem;
  background: var(--card); }
.chart svg { display: block; width: 100%; height: auto; }
.chart .none { color: var(--soft-ink); padding: 3rem; text-align: center; }
.grid line { stroke: var(--line); stroke-width: .7; }
.grid text { fill: var(--soft-ink); font-size: 11px; }
.curve polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.curve.faint { opacity: .3; }
.curve.faint polyline { stroke-width: 1; }
.curve.dots polyline { stroke-dasharray: 5 3; }
.strips rect { fill: transparent; }
.strips rect:hover { fill: var(--fill); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.3rem; font-size: 13px; margin: .6rem 0; }
.legend i { display: inline-block; width: 1.4rem; border-top: 3px solid; vertical-align: middle;
  margin-right: .4rem; }
.legend i.dots { border-top-style: dashed; }
figcaption em { margin-left: .7rem; font-style: normal; font-size: 12.5px; }
.legend i.faint { opacity: .35; border-top-width: 2px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; width: 100%; margin: .6rem 0; }
th { text-align: left; font-weight: 600; color: var(--soft-ink); }
td, th { padding: .3rem .7rem .3rem 0; vertical-align: top; border-bottom: 1px solid var(--line);
  overflow-wrap: break-word; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
tr.differs td { background: var(--fill); }
.score { font-size: 2rem; font-weight: 650; font-variant-numeric: tabular-nums; line-height: 1.2; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .1rem .9rem; margin: .6rem 0 0;
  font-size: 13px; }
dt { color: var(--soft-ink); }
dd { margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
.bars { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr max-content; gap: .2rem .7rem;
  font-size: 12.5px; align-items: center; margin: .5rem 0; }
.bars span { overflow-wrap: anywhere; }
.bars i { display: block; height: .75rem; border-radius: 2px; background: var(--run0); min-width: 1px; }
.bars i.published { background: var(--soft-ink); opacity: .55; }
.compared { padding-bottom: .5rem; margin: 1rem 0; }
.compared .bars { grid-template-columns: minmax(8rem, 19rem) 1fr max-content; font-size: 13px; }
.bars b { text-align: right; font-weight: 500; font-variant-numeric: tabular-nums; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); gap: .9rem; margin: 1rem 0; }
.gallery .card { padding: .7rem; font-size: 13px; }
.gallery figure { margin: 0 0 .5rem; text-align: center; background: var(--fill); border-radius: 5px; padding: .4rem;
  }
.gallery img { max-width: 100%; min-width: 96px; border-radius: 3px; }
details { margin: .6rem 0; }
summary { cursor: pointer; color: var(--soft-ink); font-size: 13px; }
.commands { font: 12px/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0;
  padding: .6rem .7rem; background: var(--fill); border-radius: 5px; }
.recipe td { font: 12px/1.4 ui-monospace, monospace; }
.recipe td:first-child { white-space: nowrap; }
@media print { body { max-width: none; padding: 0; } .card, .chart { break-inside: avoid; } }
"""
_LIGHT = (
    "--paper:#fcfcfb;--card:#fff;--ink:#1c1e21;--soft-ink:#5d646c;--line:#dfe2e6;--fill:#5d646c1c;"
    "--good:#0b6b3a;--good-back:#dcf3e5;--bad:#a8151f;--bad-back:#fce3e4;--alarm:#c01622;"
)
_DARK = (
    "--paper:#15171a;--card:#1c1f23;--ink:#e7e9ec;--soft-ink:#a0a8b1;--line:#343a41;--fill:#a0a8b124;"
    "--good:#7fe0a7;--good-back:#14402a;--bad:#ff9aa0;--bad-back:#4b1a1e;--alarm:#d02b37;"
)


def style() -> str:
    """The style sheet: one set of colours for light, one for dark, and a class of each run's colour."""
    light, dark = ("".join(f"--run{n}:{pair[shade]};" for n, pair in enumerate(RUN_COLOURS)) for shade in (0, 1))
    runs = "".join(
        f".run{n}{{stroke:var(--run{n})}}.run{n} circle{{fill:var(--run{n})}}.mark{n}{{color:var(--run{n})}}\n"
        for n in range(len(RUN_COLOURS))
    )
    return (
        f":root{{color-scheme:light dark;{_LIGHT}{light}}}\n"
        f"@media (prefers-color-scheme: dark){{:root{{{_DARK}{dark}}}}}\n{_BASE}{runs}"
    )
