"""Key agreement, sealed shares, signatures, and streams of mask that are added to a vector and taken away again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from coalface.privacy.secagg.fixed_point import Words
from coalface.privacy.secagg.rules import Refusal

CHUNK = 1 << 17  # bytes of a vector at a time: they stay in the processor's cache while every stream passes over them
ZEROS = bytes(CHUNK)
ONCE = bytes(12)  # a nonce may be constant where its key seals one message only


def public_of(private: bytes) -> bytes:
    """The X25519 public key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed(private: bytes, public: bytes, session: bytes, purpose: str) -> bytes:
    """The 32 bytes that two clients share, and nobody else; other for each session and purpose."""
    try:
        secret = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:  # a public key of low order, which would make the secret known to all
        raise Refusal(f"a bad public key ({error})") from error
    return HKDF(hashes.SHA256(), 32, salt=session, info=purpose.encode()).derive(secret)


def is_public_key(key: bytes) -> bool:
    """Whether others can agree on a secret by it: it has the length, and is not of low order."""
    try:
        agreed(bytes(range(32)), key, b"", "")
    except Refusal:
        return False
    return True


def derived(secret: bytes, about: bytes) -> bytes:
    """A key for one use of a shared secret."""
    return HKDF(hashes.SHA256(), 32, salt=None, info=about).derive(secret)


@dataclass(frozen=True)
class Stream:
    """The words of a seed, to be added to a vector, or, with −1, to be taken away."""

    seed: bytes = field(repr=False)
    purpose: str
    sign: int = 1


def add_streams(vector: Words, streams: Iterable[Stream]) -> None:
    """Add streams to a vector, in place, modulo 2^32: each is AES-128 in counter mode under a key from its seed."""
    running = []
    for stream in streams:
        key = HKDF(hashes.SHA256(), 16, salt=None, info=f"stream {stream.purpose}".encode()).derive(stream.seed)
        cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        running.append((cipher, np.add if stream.sign > 0 else np.subtract))
    held = bytearray(CHUNK)
    words = np.frombuffer(held, dtype="<u4")
    for start in range(0, len(vector), CHUNK // 4):
        part = vector[start : start + CHUNK // 4]
        for cipher, combine in running:
            cipher.update_into(ZEROS, held)
            combine(part, words[: len(part)], out=part)


def seal(key: bytes, text: bytes, about: bytes) -> bytes:
    """Encrypt and authenticate one message under a key of its own."""
    return ChaCha20Poly1305(key).encrypt(ONCE, text, about)


def open_sealed(key: bytes, sealed: bytes, about: bytes) -> bytes:
    """What was sealed, or Refusal if anything was changed."""
    try:
        return ChaCha20Poly1305(key).decrypt(ONCE, sealed, about)
    except InvalidTag as error:
        raise Refusal("a share was tampered with") from error


def is_signed(public: bytes, text: bytes, signature: bytes) -> bool:
    """Whether this node's Ed25519 key signed the text."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
