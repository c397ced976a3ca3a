"""What a server runs: values, steps and sweeps, and the tables of operations and reductions."""
