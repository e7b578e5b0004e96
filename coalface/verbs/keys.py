"""coalface keys: a test CA, a server certificate, and a key pair for each client."""

# ruff: noqa: PLC0415  (cryptography is optional, so it is imported where it is used)

from __future__ import annotations

import argparse
import datetime as dt
import ipaddress
import json
from pathlib import Path
from typing import Any

from coalface.config import ConfigError
from coalface.verbs.extra import needs_deploy

LONGEST = 36_500  # days; a certificate's last day must be a date

CLIENT = """\
name = {name}
server = {server}
data = "photographs"       # one sub-folder per person; of a data centre: live, and print, replay … for attacks
public = ""                # what its server calls public.safetensors, for methods whose clients hold public faces
key = "client.key"         # stays on this machine
ca = "ca.crt"
members = "members.pub"    # everybody's public keys, for secure sums: compare it with the others' over the telephone
state = "state"            # what this client keeps; back it up, show it to nobody

# What I agree to: lines of `coalface list`, for example "chorus 0123456789abcdef". Nothing is sent under any other.
accept = []

[limits]                   # in all, until you remove state/spent.json; 0 sets none
rounds = 0
minutes = 0.0              # of training
megabytes = 0.0            # sent

[secure_sum]
require = false            # true: take part only where the server sees sums, and nobody's own update
min_cohort = 16            # never be in a sum of fewer

[noise]                    # for a guarantee of differential privacy
least = 0.0                # on a sum, over the longest that one update may be; rounds with less are declined
least_in_group = 0.0       # the same on a choir's sum
in_shares = false          # true: only noise that the clients add counts, and not what the server says that it adds
"""


def keys(options: argparse.Namespace, command: str) -> None:
    """Make a test CA, the server's certificate, and a folder with keys for each client."""
    needs_deploy()
    if options.out.exists() and any(options.out.iterdir()):
        raise ConfigError(f"{options.out} is not empty, and keys are not overwritten: choose another --out")
    if len(set(options.clients)) < len(options.clients):
        raise ConfigError("two clients have the same name")
    if not 1 <= options.days <= LONGEST:
        raise ConfigError(f"--days is how long certificates are good for, from 1 to {LONGEST:,}, not {options.days}")
    if options.identities < 1:
        raise ConfigError(f"--identities is how many people each client holds, at least 1, not {options.identities}")
    host, _, port = options.server.rpartition(":")
    if not (host and host.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"--server is HOST:PORT, not {options.server!r}")
    for name in options.clients:
        if not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"a client's name is made of letters, digits, - and _, not {name!r}")
        if name.lower() == "server":
            raise ConfigError(f"{name!r} is the server's own folder, with the CA's key: choose another name")
    certify(options.out / "server", host, options.days)
    entries, members = [], b""
    for name in options.clients:
        folder = options.out / name
        public = key_pair(folder / "client.key")
        (folder / "ca.crt").write_bytes((options.out / "server" / "ca.crt").read_bytes())
        (folder / "client.toml").write_text(CLIENT.format(name=json.dumps(name), server=json.dumps(options.server)))
        (options.out / "server" / f"{name}.pub").write_bytes(public)
        members += public
        entries.append(f'[[client]]\nname = "{name}"\nkey = "{name}.pub"\nidentities = {options.identities}\n')
    (options.out / "server" / "clients.toml").write_text("\n".join(entries))
    for name in options.clients:
        (options.out / name / "members.pub").write_bytes(members)
    print(f"{options.out / 'server'}: for the server. ca.key signs further certificates: keep it offline")
    print(f"{options.out}/NAME: for each client: {', '.join(options.clients)}. Move it there, and keep no copy")


def arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("clients", nargs="+", metavar="NAME", help="a name for each client")
    sub.add_argument("--server", default="localhost:9092", metavar="HOST:PORT", help="where clients will find it")
    sub.add_argument("--identities", type=int, default=1, help="people that each client holds (default: 1)")
    sub.add_argument("--days", type=int, default=90, help="how long the certificates are good for (default: 90)")
    sub.add_argument("--out", type=Path, default=Path("keys"), metavar="DIR")


def certify(folder: Path, host: str, days: int) -> None:
    """ca.crt, ca.key, server.pem and server.key, for a host by name or address."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    folder.mkdir(parents=True, exist_ok=True)
    ca_key, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coalface test CA")])
    today = dt.datetime.now(dt.UTC)

    def signed(name: x509.Name, public: Any, *extensions: tuple[Any, bool]) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - dt.timedelta(minutes=5))
            .not_valid_after(today + dt.timedelta(days=days))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(ca_key, hashes.SHA256())

    ca_id = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = signed(
        ca_name,
        ca_key.public_key(),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (x509.KeyUsage(False, False, False, False, False, True, True, False, False), True),
        (ca_id, False),
    )
    server = signed(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]),
        key.public_key(),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.SubjectAlternativeName([_alternative(host)]), False),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_id), False),
    )
    _write(folder / "ca.key", _private(ca_key), secret=True)
    _write(folder / "server.key", _private(key), secret=True)
    _write(folder / "ca.crt", _pem(ca))
    _write(folder / "server.pem", _pem(server))


def key_pair(file: Path) -> bytes:
    """Write a node's private key, and return the public one; as OpenSSH writes them, which is what Flower reads too."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    file.parent.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    _write(file, private, secret=True)
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH) + b"\n"


def _alternative(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    data: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return data


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    data: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return data


def _write(file: Path, data: bytes, secret: bool = False) -> None:
    file.touch(mode=0o600 if secret else 0o644)
    file.write_bytes(data)
