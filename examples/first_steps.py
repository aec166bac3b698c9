# SPDX-License-Identifier: BSD-3-Clause
"""The four demonstrations that every introduction to GELU has, in NumPy.

python examples/first_steps.py
"""

import math

import numpy as np

import fastgelu
from fastgelu import functional


def five_numbers():
    """GELU of five numbers."""
    x = np.array([-2, -1, 0, 1, 2], np.float32)
    print("1. GELU of five numbers")
    print("   x        ", x)
    print("   gelu(x)  ", fastgelu.gelu(x).round(4))


def relu_beside_gelu():
    """ReLU cuts at 0; GELU is smooth, and lets a little of the negative side through."""
    print("\n2. ReLU beside GELU\n        x    relu    gelu   slope of gelu")
    relu = fastgelu.get_activation("relu")
    for x in np.linspace(-3, 3, 9):
        print(f"   {x:6.2f}{relu(x):8.3f}{fastgelu.gelu(x):8.3f}{fastgelu.gelu_grad(x):9.3f}")


def classifier():
    """Four features, 16 hidden units with GELU, three classes; weights as in torch.nn.Linear."""
    rng = np.random.default_rng(0)
    w1, b1 = rng.uniform(-0.5, 0.5, (16, 4)).astype(np.float32), np.zeros(16, np.float32)
    w2, b2 = rng.uniform(-0.25, 0.25, (3, 16)).astype(np.float32), np.zeros(3, np.float32)
    x = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.1, 4.4, 1.4]], np.float32)  # two flowers
    logits = functional.ffn(x, w1, b1, w2, b2)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    print("\n3. A classifier 4 -> 16 -> 3 before its training: the probabilities of the classes")
    for row in odds / odds.sum(axis=1, keepdims=True):
        print("  ", row.round(3))


def tanh_by_hand():
    """The tanh approximation, written out and as a function."""
    x = np.linspace(-5, 5, 1001)
    by_hand = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    difference = np.abs(by_hand - fastgelu.gelu_tanh(x)).max()
    distance = np.abs(fastgelu.gelu_tanh(x) - fastgelu.gelu(x)).max()
    print("\n4. The tanh approximation")
    print(f"   by hand and gelu_tanh differ by {difference:.1e} at most,")
    print(f"   gelu_tanh and gelu by {distance:.1e}: they are two functions")


if __name__ == "__main__":
    five_numbers()
    relu_beside_gelu()
    classifier()
    tanh_by_hand()
