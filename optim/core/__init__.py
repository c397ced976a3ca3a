"""What every solver is made of."""
