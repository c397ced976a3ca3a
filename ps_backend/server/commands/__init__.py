"""What a server does for each kind of request."""
