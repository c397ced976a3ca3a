"""distvec over hosts that share nothing but a network: see ``tests.cluster.hosts``."""
