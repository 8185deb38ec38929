"""Transfer: what it takes to send a KV cache from a prefill node to a decode node.

Owns the links and their line rates, the least time a transfer can take, when compressing first pays
at all, lossless codecs, and rounding to 8 or 4 bits with its error. Does not own how large a cache
is (``physics.kv``) or the tensors of a real model (``phases``).

Every time is a floor: line rate of one link in one direction, no protocol, no latency, nothing else
on the wire. A real transfer takes longer; where even the floor matters, compression can too.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from assay.errors import DerivationError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

__all__ = ["CODECS", "LINKS", "Coded", "encode", "least_codec_rate", "rounded", "seconds"]

# One direction of one link [B/s]. PCI Express 4.0 and 5.0: 16 lanes of 16 and 32 GT/s, 128 of 130
# bits are payload (PCI-SIG base specifications). NVLink 4: 18 links of 25 GB/s each way (NVIDIA
# H100 white paper; the data sheet's 900 GB/s sums both directions). Ethernet: the rate in its name
# (IEEE 802.3).
LINKS: dict[str, float] = {
    "25 GbE": 25e9 / 8,
    "100 GbE": 100e9 / 8,
    "PCIe 4.0 x16": 16 * 16e9 * 128 / 130 / 8,
    "400 GbE": 400e9 / 8,
    "PCIe 5.0 x16": 16 * 32e9 * 128 / 130 / 8,
    "NVLink 4": 18 * 25e9,
}


def seconds(size: float, link: str, *, ratio: float = 1.0) -> float:
    """Return the least time to send a cache over a link [s].

    Parameters
    ----------
    size : float
        Uncompressed [B].
    link : str
        One of :data:`LINKS`.
    ratio : float
        Uncompressed over compressed size [1].

    Raises
    ------
    DerivationError
        When the link is unknown, or size or ratio is not above 0.

    Notes
    -----
    ``size / (ratio * rate)``: coding and decoding overlap with sending and cost nothing.

    Examples
    --------
    >>> seconds(12.5e9, "100 GbE"), seconds(12.5e9, "100 GbE", ratio=2.0)
    (1.0, 0.5)
    """
    if link not in LINKS:
        raise DerivationError(f"unknown link '{link}'", fix=f"use one of {', '.join(LINKS)}")
    if not size > 0 or not ratio > 0:
        raise DerivationError(f"a size of {size} B and a ratio of {ratio} must be above 0")
    return size / (ratio * LINKS[link])


def least_codec_rate(link: str, ratio: float) -> float:
    """Return how fast a codec must at least be for compressing to save time [B/s].

    Parameters
    ----------
    link : str
        One of :data:`LINKS`.
    ratio : float
        Uncompressed over compressed size, above 1 [1].

    Returns
    -------
    float
        Uncompressed bytes per second through encoding and decoding one after the other.

    Raises
    ------
    DerivationError
        When the link is unknown, or nothing is saved.

    Notes
    -----
    Coding, sending and decoding in turn take ``S/C + S/(rB)``, sending alone ``S/B``; the first is
    shorter when ``C > B / (1 - 1/r)``. A pipeline of the three needs ``C > B`` at the least.

    Examples
    --------
    >>> least_codec_rate("100 GbE", 2.0) / 1e9
    25.0
    """
    if not ratio > 1:
        raise DerivationError(f"a ratio of {ratio:g} saves nothing, at whatever rate")
    return 1 / seconds(1.0, link) / (1 - 1 / ratio)


# -- lossless -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Coded:
    """What a codec made of some caches.

    Parameters
    ----------
    codec : str
        Its name.
    planes : bool
        Whether high and low bytes of each number were separated first.
    plain, coded : int
        Size before and after [B].
    encode_rate, decode_rate : float
        Uncompressed bytes per second on one core [B/s].
    """

    codec: str
    planes: bool
    plain: int
    coded: int
    encode_rate: float
    decode_rate: float

    @property
    def ratio(self) -> float:
        """Uncompressed over compressed size [1]."""
        return self.plain / self.coded


def _lz4() -> tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]:
    return _arrow("lz4")


def _zstd() -> tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]:
    return _arrow("zstd")


def _arrow(name: str) -> tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]:
    import pyarrow

    codec = pyarrow.Codec(name)

    def code(content: bytes) -> bytes:
        coded: bytes = codec.compress(content, asbytes=True)
        return coded

    def restore(content: bytes, size: int) -> bytes:
        plain: bytes = codec.decompress(content, decompressed_size=size, asbytes=True)
        return plain

    return code, restore


def _lzma() -> tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]:
    import lzma

    return (lambda content: lzma.compress(content, preset=6)), (lambda c, _: lzma.decompress(c))


# From the fastest to the smallest.
CODECS: Mapping[str, Callable[[], tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]]]
CODECS = {"lz4": _lz4, "zstd": _zstd, "lzma": _lzma}


def encode(caches: Sequence[bytes], codec: str, *, planes: bool) -> Coded:
    """Code caches one by one, restore them, and return what that took.

    Parameters
    ----------
    caches : sequence of bytes
        Each a cache as it would be sent, in 16-bit numbers.
    codec : str
        One of :data:`CODECS`.
    planes : bool
        Separate high and low bytes first: sign and exponent repeat more than fractions do.

    Raises
    ------
    DerivationError
        When the codec is unknown, nothing is given, or a cache does not come back as it was.

    Examples
    --------
    >>> encode([bytes(1000)], "zstd", planes=True).ratio > 10
    True
    """
    import numpy as np

    if codec not in CODECS or not caches:
        raise DerivationError(
            f"codec '{codec}' for {len(caches)} caches", fix=f"use {' or '.join(CODECS)} on some"
        )
    code, restore = CODECS[codec]()
    coded, encoding, decoding = 0, 0.0, 0.0
    for cache in caches:
        begun = time.perf_counter()
        numbers = np.frombuffer(cache, np.uint8).reshape(-1, 2)
        # Each plane on its own: together, they would share one table of symbols.
        parts = [numbers[:, i].tobytes() for i in (0, 1)] if planes else [cache]
        small = [code(part) for part in parts]
        encoding += time.perf_counter() - begun
        begun = time.perf_counter()
        back = [restore(part, len(cache) // len(parts)) for part in small]
        whole = back[0]
        if planes:
            pair = np.stack([np.frombuffer(part, np.uint8) for part in back], axis=1)
            whole = pair.tobytes()
        decoding += time.perf_counter() - begun
        if whole != cache:
            raise DerivationError(f"codec '{codec}' did not give back what it was given")
        coded += sum(map(len, small))
    plain = sum(map(len, caches))
    return Coded(codec, planes, plain, coded, plain / encoding, plain / decoding)


# -- rounding -------------------------------------------------------------------------------------


def rounded(values: Array, *, bits: int, group: int) -> tuple[Array, float]:
    """Return values after rounding to few bits, and the bits a value then takes.

    Parameters
    ----------
    values : array
        Groups lie along the last axis.
    bits : int
        Of a rounded value, 2 to 8 [1].
    group : int
        Values that share one 16-bit scale and one 16-bit offset [1].

    Returns
    -------
    tuple of (array, float)
        Restored values, and bits of storage per value with scale and offset [1].

    Raises
    ------
    DerivationError
        When bits or group cannot be used.

    Notes
    -----
    Asymmetric: ``q = round((x - min) / s)`` with ``s = (max - min) / (2**bits - 1)``, so the
    largest error is ``s / 2``. Storage is ``bits + 32 / group``.

    Examples
    --------
    >>> import numpy as np
    >>> restored, stored = rounded(np.linspace(0, 1, 32, dtype=np.float32), bits=8, group=32)
    >>> bool(np.abs(restored - np.linspace(0, 1, 32)).max() <= 0.5 / 255 + 1e-6), stored
    (True, 9.0)
    """
    import numpy as np

    if not 2 <= bits <= 8 or group < 1 or values.shape[-1] % group:
        raise DerivationError(
            f"{bits} bits in groups of {group} over {values.shape[-1]} values",
            fix="use 2 to 8 bits and a group that divides the last axis",
        )
    grouped = values.reshape(*values.shape[:-1], -1, group)
    low = grouped.min(axis=-1, keepdims=True)
    step = (grouped.max(axis=-1, keepdims=True) - low) / (2**bits - 1)
    safe = np.where(step > 0, step, 1)
    restored = np.round((grouped - low) / safe) * safe + low
    return restored.reshape(values.shape).astype(np.float32), bits + 32 / group
