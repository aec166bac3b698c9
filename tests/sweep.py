# SPDX-License-Identifier: BSD-3-Clause
"""The fixed sweep of native/tests/harness.c and its hash, for what computes without the C library.

That it is the same sweep is proven by the hashes: they are those of native/tests/hashes.txt.
"""

import functools
from pathlib import Path

import numpy as np

HASHES = Path(__file__).parents[1] / "native" / "tests" / "hashes.txt"

FRACTION_BITS = {"f32": 23, "f64": 52}
SLOPE_ZEROS = [0.751791524693564457, 0.752461422071016258, 0.751154255441288951]
SLOPE_ZEROS += [1.278464542761073795]
ANYWHERE = 1 << 18
PART = 1 << 14
BENDS, TAILS = 18, 7


def known_hashes():
    """{(function, dtype): hash}, as checked in."""
    lines = (line.split() for line in HASHES.read_text().splitlines())
    return {(name, dtype): int(value, 16) for name, dtype, value in lines}


def mix(i):
    """splitmix64"""
    i = (i + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    i = (i ^ (i >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    i = (i ^ (i >> 27)) * np.uint64(0x94D049BB133111EB)
    return i ^ (i >> 31)


def number(value):
    return np.uint64(value)


class Format:
    """The encodings of a dtype, as uint64."""

    def __init__(self, dtype):
        self.fraction_bits = FRACTION_BITS[dtype]
        self.width = int(dtype[1:])
        self.real = np.dtype(dtype.replace("f", "float"))
        self.unsigned = np.dtype(dtype.replace("f", "uint"))
        self.sign = number(1 << (self.width - 1))
        self.bias = (1 << (self.width - self.fraction_bits - 2)) - 1
        self.infinity = number((2 * self.bias + 1) << self.fraction_bits)
        self.fraction_mask = number((1 << self.fraction_bits) - 1)

    def encode(self, value):
        return number(np.array(value, self.real).view(self.unsigned))

    def biased(self, exponent):
        return number((exponent + self.bias) << self.fraction_bits)

    def some_fraction(self, i, h):
        rest = self.fraction_bits - 14
        return (i << number(rest)) | (h & number((1 << rest) - 1))

    def array(self, bits):
        return bits.astype(self.unsigned).view(self.real)


def _anywhere(t, i, h):
    binades = 1 << (t.width - t.fraction_bits)
    k = i // number(binades)
    mask = t.fraction_mask
    edges = np.array([0, 1, mask, mask - number(1), mask // number(2) + number(1)], np.uint64)
    fraction = np.where(k < 5, edges[np.minimum(k, number(4)).astype(int)], h & mask)
    return (i % number(binades)) << number(t.fraction_bits) | fraction


def _about_zeros(t, i, h):
    zeros = np.array([t.encode(-zero) for zero in SLOPE_ZEROS])
    zero, k = zeros[(i // number(PART)).astype(int)], i % number(PART)
    near = zero + k - number(PART // 4)
    distance = ((h >> number(1) & t.fraction_mask) >> k % number(t.fraction_bits - 8)) >> number(2)
    far = np.where(h & number(1), zero + distance, zero - distance)
    return np.where(k < PART // 2, near, far)


@functools.cache
def arguments(dtype):
    """(dy, x) of the whole sweep."""
    t = Format(dtype)
    counts = [ANYWHERE, 2 * BENDS * PART, 4 * PART, TAILS * PART, PART]
    index = np.arange(sum(counts), dtype=np.uint64)
    hashes = np.split(mix(index), np.cumsum(counts)[:-1])
    parts = [np.arange(count, dtype=np.uint64) for count in counts]
    anywhere = _anywhere(t, parts[0], hashes[0])
    binade, k = parts[1] // number(PART), parts[1] % number(PART)
    sign = np.where(binade % number(2), t.sign, number(0))
    start = np.array([t.biased(e // 2 - 8) for e in range(2 * BENDS)])[binade.astype(int)]
    bends = start | t.some_fraction(k, hashes[1]) | sign
    zeros = _about_zeros(t, parts[2], hashes[2])
    binade, k = parts[3] // number(PART), parts[3] % number(PART)
    start = np.array([t.biased(3 + e) for e in range(TAILS)])[binade.astype(int)]
    tails = t.sign | start | t.some_fraction(k, hashes[3])
    shift = number(64 - t.width)
    x = np.concatenate([anywhere, bends, zeros, tails, hashes[4] >> shift])

    h = mix(~index)
    anything = mix(h) >> shift
    magnitude, sign = anything & ~t.sign, anything & t.sign
    dy = np.select(
        [h % number(4) == 0, h % number(4) == 1],
        [
            np.where(h & number(0xFF0), anything, t.infinity | sign),
            magnitude % t.infinity | sign,
        ],
        t.biased(-1) + magnitude % number(2 << t.fraction_bits) + sign,
    )
    return t.array(dy), t.array(x)


def canonical(y):
    """The bits of results, every NaN the same."""
    y = y.copy()
    y[np.isnan(y)] = np.nan
    return np.abs(y, out=y, where=np.isnan(y)).view(f"u{y.itemsize}")
