"""What survives which break: files, servers and drivers that fail at any point."""
