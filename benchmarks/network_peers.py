"""Networks for ``benchmarks.models``: PyTorch's on DataFrames, beside PyTorch alone and MLlib."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml.classification import MultilayerPerceptronClassifier
from pyspark.sql import DataFrame

FEATURES, HIDDEN, CLASSES = 20, 64, 2
EPOCHS, BATCH, STEP = 5, 1000, 1e-3
ITERATIONS = 50
"""Of L-BFGS over all rows."""


def make_network() -> Any:
    """The layers of MLlib's perceptron."""
    import torch

    hidden, last = torch.nn.Linear(FEATURES, HIDDEN), torch.nn.Linear(HIDDEN, CLASSES)
    return torch.nn.Sequential(hidden, torch.nn.Sigmoid(), last)


def by_batches() -> Any:
    """Ours, by Adam."""
    return _ours(batchSize=BATCH, epochs=EPOCHS, optimizerOptions={"step_size": STEP})


def by_all_rows() -> Any:
    """Ours, by L-BFGS."""
    return _ours(batchSize=0, maxIter=ITERATIONS, optimizer="L-BFGS")


def perceptron() -> Any:
    """MLlib's, by L-BFGS."""
    return MultilayerPerceptronClassifier(
        layers=[FEATURES, HIDDEN, CLASSES], maxIter=ITERATIONS, seed=1
    )


def _ours(**params: Any) -> Any:
    from torch.nn.functional import cross_entropy

    from distvec.spark.torch import TorchEstimator

    return TorchEstimator(model=make_network, loss=cross_entropy, outputs=CLASSES, **params)


class Alone:
    """PyTorch in the driver, by Adam over the same number of batches."""

    def fit(self, data: DataFrame) -> Any:
        """With as many threads as PyTorch takes."""
        import torch
        from torch.nn.utils import parameters_to_vector

        from distvec.spark import Model
        from distvec.spark.torch import TorchModel

        table = data.select("features", "label").toArrow()
        x = np.array(table.column("features").to_pylist(), object)
        inputs = torch.tensor(np.stack([one["values"] for one in x]), dtype=torch.float32)
        labels = torch.tensor(table.column("label").to_numpy().astype(np.int64))
        network = _ours().getLoss()
        module = network.module()
        optimizer = torch.optim.Adam(module.parameters(), lr=STEP)
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(labels)).split(BATCH):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(module(inputs[batch]), labels[batch]).backward()
                optimizer.step()
        values = parameters_to_vector(module.parameters()).detach().double().numpy()
        return TorchModel(Model(values, loss=network, num_features=FEATURES))
