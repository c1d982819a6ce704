"""The paper's theory (Sec. 4.4 and Appendix B) as functions one can call."""

from __future__ import annotations

from ._checks import count, positive


def smoothness_factor(gamma: float, c: float) -> float:
    """1 / (1 + c / gamma), by which Lemma 1 divides the Lipschitz constant and the smoothness of the loss.

    Holds where no eigenvalue of the loss's Hessian lies in [-2 gamma - c, c].
    """
    return 1.0 / (1.0 + positive("c", c) / positive("gamma", gamma))


def stability_bound(alpha: float, beta: float, T: int, N: int) -> float:
    """Theorem 3's bound on the stability of SGD up to a constant: alpha^(1/(1+beta)) T^(1-1/(1+beta)) / N.

    Args:
        alpha: the Lipschitz constant of the loss.
        beta: its smoothness (the Lipschitz constant of its gradient).
        T: iterations.
        N: samples.

    """
    alpha, beta = positive("alpha", alpha), positive("beta", beta)
    return alpha ** (1 / (1 + beta)) * count("T", T) ** (1 - 1 / (1 + beta)) / count("N", N)


def stability_ratio(gamma: float, c: float, alpha: float, beta: float, T: int) -> float:
    """The stability bound of Entropy-SGD over that of SGD, eq. (9): (alpha / T)^((1 - 1/(1 + c/gamma)) beta).

    Below 1, and so better, whenever T > alpha. Eq. (9) is printed for small beta; the ratio of two
    ``stability_bound`` is what it simplifies (see docs/mathematics.md).
    """
    alpha, beta = positive("alpha", alpha), positive("beta", beta)
    return (alpha / count("T", T)) ** ((1 - smoothness_factor(gamma, c)) * beta)
