"""Networks that tests train, and load again by their names."""

from __future__ import annotations

from typing import Any

import torch


def two_layers() -> Any:
    layers = torch.nn.Linear(3, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)
    return torch.nn.Sequential(*layers).double()


def three_classes() -> Any:
    layers = torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
    return torch.nn.Sequential(*layers).double()


def wide_and_deep() -> Any:
    return WideAndDeep().double()


class WideAndDeep(torch.nn.Module):
    """A weight for each feature, and a layer over products of the other columns."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = torch.nn.Linear(3, 1)

    def forward(self, vectors: Any) -> Any:
        user, ad = vectors.unbind(1)
        return user[:, :1] + ad[:, :1] + self.deep(user[:, 1:] * ad[:, 1:])
