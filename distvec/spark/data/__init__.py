"""Rows of DataFrames as CSR blocks on the executors' disks."""
