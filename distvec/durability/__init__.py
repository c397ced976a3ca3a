"""What outlives a session: its arrays in files."""
