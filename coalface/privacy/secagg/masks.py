"""Key agreement, sealed shares, signatures, and streams of mask that are added to a vector and taken away again."""

from __future__ import annotations

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

CHUNK = 1 << 18  # bytes of stream at a time: they stay in the processor's cache
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


def derived(secret: bytes, about: bytes) -> bytes:
    """A key for one use of a shared secret."""
    return HKDF(hashes.SHA256(), 32, salt=None, info=about).derive(secret)


def add_stream(vector: Words, seed: bytes, purpose: str, sign: int = 1) -> None:
    """Add (or, with −1, take away) the stream of a seed, in place, modulo 2^32: AES-128 in counter mode."""
    key = HKDF(hashes.SHA256(), 16, salt=None, info=f"stream {purpose}".encode()).derive(seed)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    held = bytearray(CHUNK)
    words = np.frombuffer(held, dtype="<u4")
    combine = np.add if sign > 0 else np.subtract
    for start in range(0, len(vector), CHUNK // 4):
        part = vector[start : start + CHUNK // 4]
        stream.update_into(ZEROS, held)
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
