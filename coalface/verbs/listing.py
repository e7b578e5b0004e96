"""``coalface list``: the methods, their settings, and what leaves a client."""

from __future__ import annotations

import argparse
import json
from typing import Any

from coalface import config
from coalface.algorithms import METHODS
from coalface.experiment import disclosure
from coalface.terms import fingerprint

WAYS = {"up": "sends", "once": "gives up", "down": "receives"}  # what a client does with a field


def list_methods(options: argparse.Namespace, command: str) -> None:
    """The methods, their settings, and what leaves a client."""
    rows: list[dict[str, Any]] = []
    for name, kind in METHODS.items():
        settings = {k: v for k, v in config.to_json(kind()).items() if k != "name"}
        summary = (kind.__doc__ or "").splitlines()[0]
        told = {"disclosure": disclosure(kind()), "accept": f"{name} {fingerprint(kind)}"}
        rows.append({"name": name, "what": summary, "settings": settings, **told})
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(f"{row['name']}: {row['what']}")
        print("  settings  " + "  ".join(f"method.{k}={v}" for k, v in row["settings"].items()))
        for when, fields in row["disclosure"].items():
            for field in fields:
                print(f"  {WAYS[when]:<10}{field['field']:<16}{field.get('seen', ''):<21}{field['what']}")
        print(f'  accept    "{row["accept"]}"  in client.toml, to agree to the above\n')
