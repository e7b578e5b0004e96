"""Seeds of one table from several machines or days: an earlier result, and the one that is measured now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coalface.config import ConfigError, Run, from_json, to_json
from coalface.reproduce.artefact import Artefact, ScaleName
from coalface.reproduce.bench import Row

BY_SEED = ("effective_rank", "public_used", "seconds")  # of a row, beside its numbers: one value for each seed
OF_FIRST = ("images", "engine", "roc", "class_cosines")  # of the first seed alone


@dataclass(frozen=True)
class Earlier:
    """A result.json whose seeds may stand beside those of now."""

    result: dict[str, Any]

    @classmethod
    def read(
        cls, file: Path, artefact: Artefact, scale: ScaleName, rows: Sequence[Row], seeds: Sequence[int]
    ) -> Earlier:
        """Refused before anything is trained, if it is of other rows or settings, or has one of the seeds."""
        if not isinstance(artefact, Artefact):
            raise ConfigError("--beside joins results of the tables of faces; detectors share rows on disk instead")
        try:
            found = json.loads(file.read_text())
            run = to_json(from_json(Run, found["run"]))  # a setting that did not exist then had its default
            held = {row["label"]: row.get("settings_sha256") for row in found["rows"]}
            about, had = (found["what"], found["scale"], found["columns"]), set(found["seeds"])
        except (OSError, ValueError, KeyError, TypeError) as reason:
            raise ConfigError(f"--beside wants a result.json of `coalface reproduce`: {file}: {reason}") from reason
        now = artefact.scales[scale].run
        if about != (artefact.what, scale, list(artefact.columns)) or run != to_json(now):
            raise ConfigError(f"{file} is of another table, scale or setting: measure its seeds anew, without --beside")
        labels = {row.label for row in rows}
        if odd := labels ^ held.keys():
            raise ConfigError(f"{file} has other rows: choose the same by --rows, the odd ones are {', '.join(odd)}")
        # Results that are older than this hash do not have it: what their rows were is in their commit.
        if changed := [row.label for row in rows if held[row.label] not in (None, row.fingerprint(now))]:
            raise ConfigError(f"{file} has other settings in {', '.join(changed)}: measure its seeds anew")
        if twice := had & set(seeds):
            raise ConfigError(f"{file} has seeds {sorted(twice)} already: leave them out of --seeds")
        return cls(found)

    def joined(self, result: dict[str, Any]) -> dict[str, Any]:
        """One result of all seeds, in their order."""
        seeds = self.result["seeds"] + result["seeds"]
        order = sorted(range(len(seeds)), key=seeds.__getitem__)
        first = self.result if order[0] == 0 else result
        before, leading = ({row["label"]: row for row in each["rows"]} for each in (self.result, first))

        def both(old: list[Any], new: list[Any]) -> list[Any]:
            together = old + new
            return [together[place] for place in order]

        rows = [
            row
            | {"ours": {column: both(before[row["label"]]["ours"][column], new) for column, new in row["ours"].items()}}
            | {part: both(before[row["label"]][part], row[part]) for part in BY_SEED}
            | {part: leading[row["label"]][part] for part in OF_FIRST}
            for row in result["rows"]
        ]
        made = self.result["made"] + [each for each in result["made"] if each not in self.result["made"]]
        return result | {"seeds": sorted(seeds), "rows": rows, "made": made}
