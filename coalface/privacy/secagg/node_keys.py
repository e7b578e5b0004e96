"""The keys by which Flower knows real nodes (ECDSA, as ssh-keygen writes them), to sign and check what a session needs.

Every text that is signed begins with words of its own, and Flower signs times: no signature passes for another.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from coalface.registry import pem_of

ALGORITHM = ec.ECDSA(hashes.SHA384())


class EcdsaKey:
    """A node's private key."""

    def __init__(self, file: Path) -> None:
        key = serialization.load_ssh_private_key(file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{file} is not an elliptic-curve key; make one with `coalface keys`")
        self._key = key
        pem = serialization.PublicFormat.SubjectPublicKeyInfo
        self.public = key.public_key().public_bytes(serialization.Encoding.PEM, pem)

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data, ALGORITHM)


def is_signed(public: bytes, text: bytes, signature: bytes) -> bool:
    """Whether the key of this PEM signed the text."""
    try:
        _loaded(public).verify(signature, text, ALGORITHM)
    except InvalidSignature:
        return False
    return True


def read_members(file: Path) -> dict[int, bytes]:
    """Everybody's public key by number: a line each, in the order of the server's clients.toml."""
    lines = [line for line in file.read_bytes().splitlines() if line.strip()]
    return {number: pem_of(line, f"line {number + 1} of {file}") for number, line in enumerate(lines)}


@lru_cache(maxsize=4096)
def _loaded(pem: bytes) -> ec.EllipticCurvePublicKey:
    key = serialization.load_pem_public_key(pem)
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("a member's key is not an elliptic-curve key")
    return key
