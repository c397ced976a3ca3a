"""What a server keeps, within its budget of memory."""
