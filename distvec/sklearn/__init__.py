"""Estimators with the parameters of scikit-learn, fitted by the losses and solvers of distvec."""

from distvec.sklearn.classification import LinearSVC, LogisticRegression
from distvec.sklearn.clusters import KMeans
from distvec.sklearn.generalized import (
    GammaRegressor,
    HuberRegressor,
    PoissonRegressor,
    QuantileRegressor,
    TweedieRegressor,
)
from distvec.sklearn.least_squares import ElasticNet, Lasso, LinearRegression, Ridge
from distvec.sklearn.stochastic import SGDClassifier, SGDRegressor
from distvec.sklearn.topics import LatentDirichletAllocation

__all__ = [
    "ElasticNet",
    "GammaRegressor",
    "HuberRegressor",
    "KMeans",
    "Lasso",
    "LatentDirichletAllocation",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "PoissonRegressor",
    "QuantileRegressor",
    "Ridge",
    "SGDClassifier",
    "SGDRegressor",
    "TweedieRegressor",
]
