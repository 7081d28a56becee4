"""The index of the search: the worker process for heavy work, embedders, vectors, and the job that keeps it filled."""
