"""The messages between client and server, and what both must know to read them."""
