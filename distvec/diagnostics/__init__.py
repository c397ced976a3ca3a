"""What happened, what will happen, and why."""
