"""What strangers, broken clients and broken files may send: nobody else may notice.

``python -m tests.stress fuzz`` sends a million messages; ``python -m tests.fuzz SEED`` sends again
those of one seed that failed.
"""
