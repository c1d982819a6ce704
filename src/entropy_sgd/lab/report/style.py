"""How the page looks: light and dark, from a telephone to a wide screen."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --page: #fff; --text: #1c1e21; --soft: #5c6370; --rule: #d9dce1;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #e69f00; --c5: #56b4e9;
  --c6: currentColor; }
@media (prefers-color-scheme: dark) {
  :root { --page: #15181c; --text: #e7e9ec; --soft: #a0a7b2; --rule: #363b43;
    --c0: #4ba3e3; --c1: #ff8a3d; --c2: #2ec699; --c3: #e79fc6; --c4: #f0b429; --c5: #9ad7fb; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 76rem;
  margin: 0 auto; padding: 1.5rem 1rem 3rem; overflow-wrap: break-word; }
h1 { font-size: 1.05rem; font-weight: 600; color: var(--soft); margin: 0 0 .4rem; }
p.outcome { font-size: 1.45rem; line-height: 1.35; font-weight: 600; margin: 0 0 .6rem; max-width: 60rem; }
p.lead, p.note, figcaption { color: var(--soft); font-size: .9rem; margin: .3rem 0; max-width: 60rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--rule); }
p.said { font-weight: 600; max-width: 60rem; margin: .3rem 0 .8rem; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem 1.4rem .35rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; } tbody th { font-weight: 500; white-space: nowrap; }
tr.baseline th::after { content: "baseline"; font-size: .72rem; font-weight: 500; color: var(--soft);
  border: 1px solid var(--rule); border-radius: 1rem; padding: .05rem .5rem; margin-left: .5rem;
  white-space: nowrap; }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--soft); }
ul.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: 0 0 .6rem;
  padding: 0; font-size: .9rem; }
ul.legend i { display: inline-block; width: 1.6rem; margin-right: .4rem; vertical-align: middle; }
.figures { display: grid; gap: 1.2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(19rem, 100%), 1fr)); }
figure { margin: 0; max-width: 32rem; } figure.wide { max-width: none; }
figure svg { width: 100%; height: auto; display: block; overflow: visible; }
figure svg text { fill: currentColor; font-family: system-ui, sans-serif; }
.values .over { fill: transparent; } .values .shown { visibility: hidden; pointer-events: none; }
.values .place:hover .shown { visibility: visible; }
.values .shown line { stroke: var(--soft); stroke-width: .7; }
.values .shown rect { fill: var(--page); stroke: var(--rule); stroke-width: .7; opacity: .94; }
.values text { font-size: 8.5px; }
ul.runs { padding-left: 1.1rem; font-size: .85rem; overflow-wrap: anywhere; }
@media (max-width: 44rem) {
  p.outcome { font-size: 1.2rem; }
  table, tbody, tr, th, td { display: block; width: 100%; } thead { display: none; }
  tr { padding: .5rem 0; border-bottom: 1px solid var(--rule); }
  th, td { border: 0; padding: .08rem 0; overflow-wrap: anywhere; } tbody th { white-space: normal; }
  td { display: flex; justify-content: space-between; gap: 1rem; } td span { text-align: right; }
  td::before { content: attr(data-of); color: var(--soft); flex: none; max-width: 55%; }
  td:empty { display: none; }
}
@media print { details > * { display: block; } }
"""
