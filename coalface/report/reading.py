"""result.json and the ledgers, read for the tables and the page. Absent keys are absent rows, not errors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coalface.report.words import DASH, count_text, finite, fmr_text, share_text, told_apart

Row = Mapping[str, Any]

MODELS = ("start", "method", "central")  # the two ends, and what lies between them
FIRST_CHOICE = "tar@0.001"


@dataclass(frozen=True)
class Rate:
    """One measure of one model, with what stands beside it."""

    key: str  # as in gain_recovered and in the scores of a round
    name: str
    value: float
    low: float | None = None
    high: float | None = None
    spread: float | None = None
    pairs: str = ""
    reliable: bool = True
    threshold: float | None = None
    lower_is_better: bool = False


# --- rates ----------------------------------------------------------------------------------------------------------


def rates(measured: Any) -> dict[str, Rate]:
    """Every rate in one entry of result["metrics"], by key: accuracy, TAR with falling FMR, EER, AUC."""
    if not isinstance(measured, Mapping):
        return {}
    points = measured.get("tar") or measured.get("at_fmr") or ()
    found = [
        _accuracy(measured),
        *sorted((_tar(point, measured) for point in points), key=_falling_fmr),
        _summary("eer", "EER", measured, points, lower_is_better=True),
        _summary("auc", "AUC", measured, points),
    ]
    by_key = {rate.key: rate for rate in found if rate is not None}
    return _over_clients(by_key, measured["mean_over_clients"]) if is_personal(measured) else by_key


def is_personal(measured: Any) -> bool:
    """Whether clients have models of their own, so that the numbers are means over clients."""
    return isinstance(measured, Mapping) and isinstance(measured.get("mean_over_clients"), Mapping)


def all_rates(result: Row) -> dict[str, dict[str, Rate]]:
    """`rates` of start, method and central; empty for a model that was not measured."""
    metrics = result.get("metrics") or {}
    return {model: rates(metrics.get(model)) for model in MODELS}


def measures(result: Row) -> list[str]:
    """Keys that at least one model has, in the order of `rates`."""
    return list(dict.fromkeys(key for of_model in all_rates(result).values() for key in of_model))


def headline_key(result: Row) -> str | None:
    """What the run is judged by: TAR at FMR 1e-3, or else the lowest FMR that the pairs carry, or else accuracy."""
    by_model = all_rates(result)
    start, method = by_model["start"], by_model["method"]
    usable = [key for key in method if key in start and method[key].reliable and start[key].reliable]
    if FIRST_CHOICE in usable:
        return FIRST_CHOICE
    tars = [key for key in usable if key.startswith("tar@")]
    return tars[-1] if tars else next(iter(usable or method), None)


def gain(result: Row, key: str) -> float | None:
    """Share of the central gain that the method recovered, as result.json has it."""
    return by_rate_key(result.get("gain_recovered") or {}).get(key)


def by_rate_key(numbers: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers, with "tar@1e-3" and "tar@0.001" spelt alike."""
    named = ((_spelling(key), finite(value)) for key, value in numbers.items())
    return {key: value for key, value in named if value is not None}


def is_rate_key(key: str) -> bool:
    """Whether a score of a round is one of the rates, not a monitor."""
    return _spelling(key).startswith("tar@") or key in ("accuracy", "eer", "auc")


# --- sentences ------------------------------------------------------------------------------------------------------


def headline(result: Row) -> str:
    """The outcome in one sentence."""
    key = headline_key(result)
    method = str(result.get("method", "the method"))
    by_model = all_rates(result)
    start, after, central = (by_model[model].get(key or "") for model in MODELS)
    if after is None:
        return f"{method} was not measured."
    if start is None:
        return f"{method} reaches {after.name} {told_apart([after.value])[0]}."
    texts = told_apart([rate.value for rate in (start, after, central) if rate is not None])
    if after.value == start.value:
        told = f"{method} left {after.name} at {texts[0]}"
    else:
        better = (after.value < start.value) == after.lower_is_better
        verb = ("lowered" if after.lower_is_better else "lifted") if better else "worsened"
        told = f"{method} {verb} {after.name} from {texts[0]} to {texts[1]}"
    if central is None:
        return f"{told}; central training was not run."
    recovered = gain(result, after.key)
    ending = f": {share_text(recovered)} of the gain recovered" if recovered is not None else ": no gain to recover"
    return f"{told}; central training reaches {texts[2]}{ending}."


def caution(result: Row) -> str:
    """What a reader must know before believing the headline; empty where there is nothing."""
    key = headline_key(result)
    by_model = all_rates(result)
    start, after = by_model["start"].get(key or ""), by_model["method"].get(key or "")
    if start is None or after is None:
        return ""
    if not (start.reliable and after.reliable):
        return f"{after.name} rests on fewer than ten false matches here: read it as a hint."
    ends = (start.low, start.high, after.low, after.high)
    if None in ends and start.value != after.value:
        return "No intervals were computed: the difference may be chance."
    low_a, high_a, low_b, high_b = (end or 0.0 for end in ends)
    if start.value != after.value and low_a <= high_b and low_b <= high_a:
        return "The intervals before and after overlap: the difference may be chance."
    return ""


# --- rounds and ledger ----------------------------------------------------------------------------------------------


def series(rounds: Iterable[Row], part: str) -> dict[str, list[tuple[int, float]]]:
    """(round, value) of every key under "losses", "scores" or "monitors", of the rounds that count."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rounds:
        if not row.get("void"):
            for key, value in by_rate_key(row.get(part) or {}).items():
                found.setdefault(key, []).append((int(row["round"]), value))
    return found


def void_rounds(rounds: Iterable[Row]) -> list[int]:
    """Rounds that were void, once for every void attempt."""
    return [int(row["round"]) for row in rounds if row.get("void")]


def outcomes(rounds: Sequence[Row], ledger: Iterable[Row]) -> list[tuple[str, int, str]]:
    """(outcome, uploads, remark), the counted first; reasons that differ in their numbers alone stand together."""
    void = {(row.get("round"), row.get("attempt")) for row in rounds if row.get("void")}
    counts: Counter[str] = Counter()
    texts: dict[str, dict[str, None]] = {}  # of those that stand together, in the order of their coming
    for row in ledger:
        outcome = str(row.get("outcome", "unknown"))
        if outcome == "counted" and (row.get("round"), row.get("attempt")) in void:
            outcome = "in a void round"
        alike = re.sub(r"\d[\d.,]*(e[+-]?\d+)?", "#", outcome)
        texts.setdefault(alike, {})[outcome] = None
        counts[alike] += 1
    first = ("counted", "in a void round", "late")
    order = sorted(counts, key=lambda alike: (first.index(alike) if alike in first else len(first), -counts[alike]))
    remarks = {"in a void round": "good uploads of a round that came to nothing"}
    remarks |= {alike: "numbers vary" for alike in order if len(texts[alike]) > 1}
    return [(next(iter(texts[alike])), counts[alike], remarks.get(alike, "")) for alike in order]


# --- single rates ---------------------------------------------------------------------------------------------------


def _over_clients(one_client: dict[str, Rate], means: Row) -> dict[str, Rate]:
    """The means in place of one client's rates; its interval says nothing about them, and goes."""
    values = by_rate_key(means)
    return {
        key: replace(
            rate, value=values[key], low=None, high=None, spread=None, pairs=f"mean over clients, {rate.pairs}"
        )
        for key, rate in one_client.items()
        if key in values
    }


def _accuracy(measured: Row) -> Rate | None:
    given = measured.get("accuracy")
    source: Row = given if isinstance(given, Mapping) else measured
    value = _first(source, "mean", "accuracy", "value")
    low, high = _ends(source, "interval")
    pairs = source.get("pairs")
    text = f"{count_text(pairs)} pairs" if pairs is not None else ""
    if value is None:
        return None
    return Rate("accuracy", "accuracy", value, low, high, finite(source.get("spread")), text)


def _tar(point: Row, measured: Row) -> Rate | None:
    fmr, value = _first(point, "target_fmr", "fmr"), _first(point, "tar", "value")
    if fmr is None or value is None:
        return None
    low, high = _ends(point, "tar_interval")
    pairs = _pairs(point) or _pairs(measured)
    return Rate(
        f"tar@{fmr:g}",
        f"TAR@FMR {fmr_text(fmr)}",
        value,
        low,
        high,
        pairs=pairs,
        reliable=bool(point.get("reliable", True)),
        threshold=finite(point.get("threshold")),
    )


def _summary(key: str, name: str, measured: Row, points: Sequence[Row], lower_is_better: bool = False) -> Rate | None:
    given = measured.get(key)
    source: Row = given if isinstance(given, Mapping) else {key: given, "interval": measured.get(f"{key}_interval")}
    value = _first(source, "value", "mean", key)
    low, high = _ends(source, "interval")
    pairs = _pairs(source) or _pairs(measured) or next(map(_pairs, points), "")  # EER and AUC use the pairs of TAR
    return None if value is None else Rate(key, name, value, low, high, pairs=pairs, lower_is_better=lower_is_better)


def _falling_fmr(rate: Rate | None) -> float:
    return 0.0 if rate is None else -float(rate.key.removeprefix("tar@"))


def _pairs(source: Row) -> str:
    genuine = source.get("genuine", source.get("genuine_pairs"))
    impostor = source.get("impostor", source.get("impostor_pairs"))
    known = [f"{count_text(n)} {kind}" for n, kind in ((genuine, "genuine"), (impostor, "impostor")) if n is not None]
    return f"{' / '.join(known)} pairs" if known and DASH not in known else ""


def _ends(source: Row, name: str) -> tuple[float | None, float | None]:
    both = source.get(name)
    if isinstance(both, Sequence) and len(both) == 2:
        return finite(both[0]), finite(both[1])
    return finite(source.get("low")), finite(source.get("high"))


def _first(source: Row, *keys: str) -> float | None:
    return next((number for key in keys if (number := finite(source.get(key))) is not None), None)


def _spelling(key: str) -> str:
    prefix, _, fmr = key.partition("@")
    try:
        return f"{prefix}@{float(fmr):g}" if fmr else key
    except ValueError:
        return key
