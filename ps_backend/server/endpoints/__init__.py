"""How requests reach a server: its port, who gets in, and what moves bulk data."""
