"""What the tasks of a user share: rounds that count each partition once, vectors to push to."""
