"""A parameter server: its sessions, its commands, its state, and the doors to it."""
