"""Linear algebra: of tall tables on the servers, and of small arrays that the client keeps."""
