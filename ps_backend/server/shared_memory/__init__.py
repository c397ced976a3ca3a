"""Memory that a server shares with clients on its host."""
