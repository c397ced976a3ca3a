"""Estimators with the parameters of scikit-learn, fitted by the losses and solvers of distvec."""

from distvec.sklearn.classification import LinearSVC, LogisticRegression
from distvec.sklearn.least_squares import ElasticNet, Lasso, LinearRegression, Ridge

__all__ = [
    "ElasticNet",
    "Lasso",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "Ridge",
]
