"""Parameter servers: programs, kernels, stores, and the client that reaches them.

Knows nothing of arrays or optimizers; ``distvec`` builds those on ``ps_backend.client``.
"""
