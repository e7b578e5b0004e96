"""coalface: federated face recognition and presentation-attack detection."""

__version__ = "0.1.0"
