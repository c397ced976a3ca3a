"""PyTorch models with embedding tables and parameters on servers."""

from distvec.torch.embedding import Embedding, EmbeddingBag, prefetch
from distvec.torch.network import Network
from distvec.torch.optimizer import Optimizer, dense_table

__all__ = ["Embedding", "EmbeddingBag", "Network", "Optimizer", "dense_table", "prefetch"]
