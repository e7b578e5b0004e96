"""The looks of the page: one style sheet, light and dark, on a screen, a phone and paper."""

from __future__ import annotations

from coalface.report.drawing import CENTRAL, GRID, IMPOSTOR, INK, METHOD, START

# Figures are drawn in these colours; inside the page they follow its light or dark theme.
THEMED = {
    INK: "var(--soft)",
    GRID: "var(--line)",
    IMPOSTOR: "var(--impostor)",
    START: "var(--start)",
    METHOD: "var(--method)",
    CENTRAL: "var(--central)",
}

STYLE = f"""
:root {{
  color-scheme: light dark;
  --paper: #f6f5f2; --card: #ffffff; --ink: #1d1f21; --soft: #5f6468; --line: #e2e0db; --impostor: {IMPOSTOR};
  --start: {START}; --method: {METHOD}; --central: {CENTRAL}; --alarm: #b3261e; --alarm-paper: #fdecea;
  --good: #1b6e4f; --good-paper: #e7f4ee;
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --paper: #141618; --card: #1d2023; --ink: #e9e7e2; --soft: #a3a8ad; --line: #34383c; --impostor: #8b9096;
    --start: #f0a63c; --method: #5ab4ee; --central: #3fcf9f; --alarm: #ff8a80; --alarm-paper: #3a1d1b;
    --good: #6fd3a8; --good-paper: #173027;
  }}
}}
* {{ box-sizing: border-box; }}
body {{
  margin: 0; background: var(--paper); color: var(--ink); -webkit-text-size-adjust: 100%;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
}}
main {{ max-width: 66rem; margin: 0 auto; padding: 2.2rem 1.2rem 4rem; }}
header p.kind {{ margin: 0; color: var(--soft); font-size: .85rem; letter-spacing: .02em; }}
h1 {{ margin: .1rem 0 .9rem; font-size: 1.15rem; font-weight: 600; }}
h2 {{ margin: 0 0 .3rem; font-size: 1.15rem; }}
h3 {{ margin: 1.3rem 0 .3rem; font-size: .95rem; }}
p {{ margin: .3rem 0 .9rem; max-width: 46rem; }}
p.lead {{ margin: 0 0 .6rem; max-width: 52rem; font-size: clamp(1.35rem, 3.4vw, 1.9rem); line-height: 1.25;
  font-weight: 650; letter-spacing: -.012em; text-wrap: balance; }}
p.note, figcaption, small {{ color: var(--soft); font-size: .86rem; }}
section {{ background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1.2rem 1.3rem;
  margin-top: 1.1rem; }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .8rem;
  margin-top: 1.2rem; }}
.tile {{ background: var(--card); border: 1px solid var(--line); border-top: 4px solid var(--accent, var(--soft));
  border-radius: 10px; padding: .7rem .9rem .8rem; }}
.tile b {{ display: block; font-size: 1.75rem; line-height: 1.2; font-variant-numeric: tabular-nums; }}
.tile span {{ color: var(--soft); font-size: .86rem; overflow-wrap: anywhere; }}
.tile small {{ display: block; font-variant-numeric: tabular-nums; }}
.start {{ --accent: var(--start); }} .method {{ --accent: var(--method); }} .central {{ --accent: var(--central); }}
.wide {{ overflow-x: auto; margin: .4rem 0 .6rem; }}
table {{ border-collapse: collapse; width: 100%; font-size: .93rem; }}
th, td {{ text-align: left; vertical-align: top; padding: .45rem .7rem .45rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }}
tbody tr:last-child > * {{ border-bottom: 0; }}
thead th {{ color: var(--soft); font-weight: 600; font-size: .84rem; overflow-wrap: normal;
  border-bottom: 2px solid var(--line); }}
thead th[class] {{ border-bottom-color: var(--accent); }}
tbody th {{ font-weight: 600; }}
td small, th small {{ display: block; font-weight: 400; }}
.numbers td {{ font-variant-numeric: tabular-nums; white-space: nowrap; }}
.numbers th {{ min-width: 6.5rem; }}
.outcomes td:not(:last-child) {{ font-variant-numeric: tabular-nums; white-space: nowrap; }}
tr.main > * {{ background: color-mix(in srgb, var(--method) 7%, transparent); }}
tr.main > :first-child {{ box-shadow: inset 3px 0 var(--method); padding-left: .7rem; }}
td.when {{ white-space: nowrap; }}
tr.revealed > * {{ background: var(--alarm-paper); }}
tr.revealed > :first-child {{ box-shadow: inset 3px 0 var(--alarm); padding-left: .7rem; }}
.badge {{ display: inline-block; border-radius: 4px; padding: .02rem .42rem; font-size: .78rem; font-weight: 650;
  white-space: nowrap; border: 1px solid var(--line); color: var(--soft); }}
.revealed .badge {{ background: var(--alarm); border-color: var(--alarm); color: var(--card); letter-spacing: .03em; }}
.verdict {{ border-left: 4px solid var(--good); background: var(--good-paper); padding: .5rem .8rem;
  border-radius: 4px; }}
.verdict.alarm {{ border-color: var(--alarm); background: var(--alarm-paper); }}
.figures {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem 1.6rem; }}
.figures.small {{ grid-template-columns: repeat(auto-fill, minmax(min(100%, 15rem), 1fr)); }}
figure {{ margin: .4rem 0 0; min-width: 0; }}
figure svg {{ display: block; width: 100%; height: auto; max-width: 38rem; }}
svg * {{ stroke-linejoin: round; }}
.small svg {{ max-width: 22rem; }}
figure img {{ display: block; width: 100%; max-width: 44rem; height: auto; border-radius: 6px; }}
pre {{ margin: .4rem 0 .8rem; padding: .8rem 1rem; overflow-x: auto; border-radius: 8px; border: 1px solid var(--line);
  background: var(--paper); font: .88rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; }}
code {{ font: .88em ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }}
th code {{ white-space: nowrap; overflow-wrap: normal; }}
.facts {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 11rem), 1fr)); gap: .7rem 1.4rem;
  margin: .9rem 0 .3rem; }}
.facts div.long {{ grid-column: 1 / -1; }}
dt {{ color: var(--soft); font-size: .84rem; }}
dd {{ margin: 0; overflow-wrap: anywhere; }}
details {{ margin-top: .8rem; }}
summary {{ cursor: pointer; color: var(--soft); font-size: .9rem; }}
@media (max-width: 40rem) {{
  main {{ padding: 1.3rem .8rem 3rem; }}
  section {{ padding: 1rem .9rem; border-radius: 10px; }}
  .tiles {{ grid-template-columns: 1fr 1fr; }}
  table {{ font-size: .9rem; }}
  /* Rows become cards: three models do not fit beside the name of the rate, nor four columns of words anywhere. */
  .summary tr {{ display: grid; grid-template-columns: 1fr 1fr 1fr 3.2rem; border-bottom: 1px solid var(--line); }}
  .summary tbody th {{ grid-column: 1 / -1; padding-bottom: 0; }}
  .summary thead th:first-child, .fields thead {{ display: none; }}
  .summary thead th:last-child {{ font-size: 0; }}
  .summary thead th:last-child::after {{ content: "gain"; font-size: .84rem; }}
  .summary tbody tr > * {{ border-bottom: 0; }}
  .summary td, .summary tr > th {{ padding-left: .4rem; padding-right: 0; }}
  .summary td small {{ font-size: .74rem; }}
  .summary tr.main {{ background: color-mix(in srgb, var(--method) 7%, transparent);
    box-shadow: inset 3px 0 var(--method); }}
  .summary tr.main > :nth-child(n) {{ background: none; box-shadow: none; padding-left: .4rem; }}
  .fields tr, .fields th, .fields td {{ display: block; padding: .1rem 0; border: 0; }}
  .fields tr {{ padding: .5rem 0; border-bottom: 1px solid var(--line); }}
  .fields tr.revealed {{ background: var(--alarm-paper); box-shadow: inset 3px 0 var(--alarm); padding-left: .7rem; }}
  .fields tr.revealed > * {{ background: none; box-shadow: none; padding-left: 0; }}
}}
@page {{ margin: 14mm; }}
@media print {{
  :root {{ color-scheme: light; --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #ccc;
    --impostor: {IMPOSTOR}; --start: {START}; --method: {METHOD}; --central: {CENTRAL}; --alarm: #b3261e;
    --alarm-paper: #fdecea; --good: #1b6e4f; --good-paper: #e7f4ee; }}
  html {{ font-size: 9.5pt; }}
  body {{ font-size: 1rem; -webkit-print-color-adjust: exact; print-color-adjust: exact; }}
  main {{ max-width: none; padding: 0; }}
  .figures {{ grid-template-columns: 1fr 1fr; }}
  .figures.small {{ grid-template-columns: 1fr 1fr 1fr; }}
  figure img {{ max-width: 26rem; }}
  section {{ border: 0; border-top: 1px solid var(--line); border-radius: 0; padding: .8rem 0; }}
  figure, tr, pre, .tile, .facts div {{ break-inside: avoid; }}
  h2, h3, section > p.note {{ break-after: avoid; }}
  details {{ display: none; }}
}}
"""
