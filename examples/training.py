# SPDX-License-Identifier: BSD-3-Clause
"""A network that learns to tell three spirals apart, in plain NumPy: ffn, ffn_backward and Adam.

    python examples/training.py [--steps 400]

First compares the gradients with finite differences. Exit status 1 if they differ, or if less than
95 % of the points are told apart in the end.
"""

import argparse
import sys

import numpy as np

from fastgelu import functional

POINTS, CLASSES, HIDDEN = 120, 3, 64
NAMES = ("w1", "b1", "w2", "b2")


def spirals(rng):
    """Points of the plane, one spiral after the other, and the number of each one's spiral."""
    t = np.linspace(0.1, 1, POINTS)
    arms = []
    for arm in range(CLASSES):
        angle = 4 * t + 2 * np.pi * arm / CLASSES + rng.normal(0, 0.1, POINTS)
        arms.append(np.stack([t * np.sin(angle), t * np.cos(angle)], axis=1))
    return np.concatenate(arms), np.repeat(np.arange(CLASSES), POINTS)


def parameters(rng):
    """Weights in the (out, in) layout and biases, in the order of NAMES."""
    return [
        rng.normal(0, 1.0, (HIDDEN, 2)),
        np.zeros(HIDDEN),
        rng.normal(0, HIDDEN**-0.5, (CLASSES, HIDDEN)),
        np.zeros(CLASSES),
    ]


def loss_and_gradients(x, labels, theta):
    """The mean cross-entropy, and its gradients with respect to the parameters."""
    rows = np.arange(len(x))
    logits = functional.ffn(x, *theta)
    logits -= logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(logits).sum(axis=1))
    loss = np.mean(log_sum - logits[rows, labels])
    grad = np.exp(logits - log_sum[:, None])  # the probabilities, less 1 at the right class
    grad[rows, labels] -= 1
    return loss, functional.ffn_backward(grad / len(x), x, *theta)[1:]


def check_gradients(x, labels, theta, rng, h=1e-5):
    """The largest difference from finite differences along a random direction each."""
    _, gradients = loss_and_gradients(x, labels, theta)
    worst = 0.0
    for i, gradient in enumerate(gradients):
        direction = rng.normal(size=gradient.shape)
        losses = []
        for sign in (1, -1):
            moved = list(theta)
            moved[i] = theta[i] + sign * h * direction
            losses.append(loss_and_gradients(x, labels, moved)[0])
        numeric = (losses[0] - losses[1]) / (2 * h)
        exact = np.sum(gradient * direction)
        difference = abs(exact - numeric) / max(abs(exact), abs(numeric))
        print(f"  d loss / d {NAMES[i]}: {exact:+.8f}, finite differences {numeric:+.8f}")
        worst = max(worst, difference)
    return worst


def train(x, labels, theta, steps, rate=0.02):
    """Adam, on all points at once; changes the parameters in place."""
    means = [np.zeros_like(p) for p in theta]
    squares = [np.zeros_like(p) for p in theta]
    for step in range(1, steps + 1):
        loss, gradients = loss_and_gradients(x, labels, theta)
        if step == 1 or step % 100 == 0:
            print(f"  step {step:4}: loss {loss:.4f}")
        for p, g, m, v in zip(theta, gradients, means, squares, strict=True):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            p -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=400)
    steps = parser.parse_args().steps
    rng = np.random.default_rng(1)
    x, labels = spirals(rng)
    theta = parameters(rng)
    print("Gradients")
    worst = check_gradients(x, labels, theta, rng)
    print(f"  largest relative difference: {worst:.1e}")
    print(f"Training on {len(x)} points")
    train(x, labels, theta, steps)
    right = np.mean(functional.ffn(x, *theta).argmax(axis=1) == labels)
    print(f"  {right:.1%} of the points are told apart")
    return 0 if worst < 1e-6 and right >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
