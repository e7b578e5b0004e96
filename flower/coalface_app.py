"""The two ends of coalface, by the names under which Flower looks for them."""

from coalface.engines.flower_app import client, server

__all__ = ["client", "server"]
