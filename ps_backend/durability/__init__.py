"""What outlives the processes: stores, files of arrays, manifests, and the checkpoints of them."""
