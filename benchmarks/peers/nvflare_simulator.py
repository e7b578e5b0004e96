"""NVFlare's simulator, a thread for every client: fewer threads swap clients in and out, which takes far longer."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv
from workload import CLIENTS, ROUNDS, WARM_UP, Classifier, tell

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        stamps = Path(folder) / "stamps.json"
        recipe = FedAvgRecipe(
            name="peers",
            model=Classifier(),
            min_clients=CLIENTS,
            num_rounds=WARM_UP + ROUNDS + 1,  # a round ends where the next begins
            train_script=str(Path(__file__).with_name("nvflare_client.py")),
            train_args=f"--stamps {stamps}",
        )
        recipe.execute(SimEnv(num_clients=CLIENTS, num_threads=CLIENTS, workspace_root=folder))
        tell(json.loads(stamps.read_text()))
