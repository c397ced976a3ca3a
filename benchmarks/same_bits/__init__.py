"""Do two checkouts give the same bits? Random programs, run by either one in processes of its own.

``python -m benchmarks.same_bits OTHER_CHECKOUT --programs 300 --json FILE`` compares this checkout
with another one and exits with 1 if any result of any program differs in a bit, a dtype or an
error. ``sources`` writes the programs, over the public face only; ``run`` runs them.
"""
