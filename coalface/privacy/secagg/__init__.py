"""Secure sums: the server learns the sum over a cohort, and no client's part of it.

Bonawitz et al. 2017 (pairwise and self masks, recovery from dropouts), on the sparse graph of Bell et al. 2020 where a
cohort is large. docs/privacy.md states the threat model. The protocol, file by file:

    rules         who must be there, and how many neighbours a client masks with
    fixed_point   real numbers as 32-bit integers with a stated quantum
    shamir        a secret in pieces, of which a few do not tell it
    masks         key agreement, and streams of mask that are added and taken away
    messages      everything that travels, typed, as bytes and back
    client        advertise → share → mask → agree → unmask
    server        the other side of the same five steps
"""

try:
    import cryptography as _cryptography  # noqa: F401
except ImportError as error:
    raise ImportError("secure sums need the package cryptography: pip install 'coalface[privacy]'") from error
