"""What a run keeps, so that another process can go on with the same bits."""
