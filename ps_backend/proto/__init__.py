"""Generated from ps.proto by `make proto`; what is written by hand is in wire.py."""
