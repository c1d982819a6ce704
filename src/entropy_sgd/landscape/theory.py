"""The paper's theory (Sec. 4.4 and Appendix B) as functions."""

from __future__ import annotations

from entropy_sgd.arguments import count, positive


def smoothness_factor(gamma: float, c: float) -> float:
    """1 / (1 + c / gamma): Lemma 1 multiplies the loss's Lipschitz constant and its smoothness by this.

    If f is alpha-Lipschitz and beta-smooth, F is alpha / (1 + c / gamma)-Lipschitz and
    beta / (1 + c / gamma)-smooth, to the order of the Lemma's expansion and as long as no eigenvalue of the
    Hessian of f lies in [-2 gamma - c, c].

    Args:
        gamma: the scope, above 0.
        c: the margin of the interval without eigenvalues, above 0.

    Returns:
        The factor, between 0 and 1.
    """
    return 1.0 / (1.0 + positive("c", c) / positive("gamma", gamma))


def stability_bound(alpha: float, beta: float, T: int, N: int) -> float:
    """Theorem 3's bound on the stability of SGD, up to a constant: alpha^(1/(1+beta)) T^(1-1/(1+beta)) / N.

    Args:
        alpha: the Lipschitz constant of the loss.
        beta: its smoothness (the Lipschitz constant of its gradient).
        T: number of iterations.
        N: number of samples.

    Returns:
        The bound, without its constant.
    """
    alpha, beta = positive("alpha", alpha), positive("beta", beta)
    return alpha ** (1 / (1 + beta)) * count("T", T) ** (1 - 1 / (1 + beta)) / count("N", N)


def stability_ratio(gamma: float, c: float, alpha: float, beta: float, T: int) -> float:
    """The stability bound of Entropy-SGD over that of SGD, eq. (9): (alpha / T)^((1 - 1/(1 + c/gamma)) beta).

    It is below 1, in favour of Entropy-SGD, whenever T > alpha. Eq. (9) holds for small beta; it simplifies
    the ratio of two `stability_bound` (see docs/mathematics.md).

    Args:
        gamma: the scope, above 0.
        c: as for `smoothness_factor`.
        alpha: the Lipschitz constant of the loss.
        beta: its smoothness.
        T: number of iterations.

    Returns:
        The ratio.
    """
    alpha, beta = positive("alpha", alpha), positive("beta", beta)
    return (alpha / count("T", T)) ** ((1 - smoothness_factor(gamma, c)) * beta)
