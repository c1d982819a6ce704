from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import fractional_matrix_power

from entropy_sgd.lab.data import whitening
from entropy_sgd.lab.data.whitening import Whitening, normalise_contrast_


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Pieces that do not divide the number of rows, so that a short last one is there too."""
    monkeypatch.setattr(whitening, "_PIECE", 7)


def correlated(count: int, size: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return 3 + generator.standard_normal((count, size)) @ generator.standard_normal((size, size))


def test_each_image_gets_mean_zero_and_the_same_norm():
    images = correlated(20, 12, 0)
    result = normalise_contrast_(torch.tensor(images)).numpy()
    for before, after in zip(images, result, strict=True):
        centred = before - before.mean()
        np.testing.assert_allclose(after, 55 * centred / np.linalg.norm(centred), rtol=1e-10)


def test_a_flat_image_becomes_zero():
    assert normalise_contrast_(torch.full((1, 12), 80.0)).tolist() == [[0.0] * 12]


def test_the_matrix_is_the_inverse_root_of_the_biased_covariance():
    images = correlated(50, 12, 1)
    fitted = Whitening.fit(torch.tensor(images, dtype=torch.float32))
    covariance = np.cov(images, rowvar=False, bias=True)
    np.testing.assert_allclose(fitted.mean, images.mean(axis=0), rtol=1e-5)
    root = fractional_matrix_power(covariance + 0.1 * np.eye(12), -0.5)
    np.testing.assert_allclose(fitted.matrix, root, atol=2e-4)


def test_whitened_images_have_the_covariance_c_over_c_plus_bias():
    images = correlated(200, 12, 2)
    fitted = Whitening.fit(torch.tensor(images, dtype=torch.float32))
    result = fitted.apply_(torch.tensor(images, dtype=torch.float32)).numpy()
    covariance = np.cov(images, rowvar=False, bias=True)
    expected = covariance @ np.linalg.inv(covariance + 0.1 * np.eye(12))
    np.testing.assert_allclose(result.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(np.cov(result, rowvar=False, bias=True), expected, atol=1e-3)
